#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# No wake-up is lost, no wait ends twice, and nothing is used after it was freed, in any execution
# of the small programs of waits.c that C11's memory orders allow: the sources of the runtime are
# compiled for orders.c, which runs them in all of these. It gives the known answers about the
# programs of litmus.c, and finds faults that are put into the sources.
# seconds: 25

# shellcheck source=tests/harness.sh
. tests/harness.sh

# The programs rely on gcc's names for accesses to memory, and switch threads with the library.
read -ra compiler <<<"$CC"
[[ $(uname -m) == x86_64 ]] || skip "these run on x86-64 alone"
"${compiler[@]}" -v 2>&1 | grep '^gcc version' >/dev/null || skip "$CC is not gcc"

SOURCES=(sched/{wait,loop,look,fds,life,task,timer,group_tree,bindings})
SOURCES+=(sync/{sync,chan,group} io/fd_wait)
COMPILE=("${compiler[@]}" -std=gnu99 -g -Itools/proof -I. -Iextra/stack_pool)
# Sources would use a library that comes with -fsanitize=thread.
CHECKED=(-O1 -Wno-tsan -fsanitize=thread -U__SANITIZE_THREAD__)

must "aco.c does not compile" "${COMPILE[@]}" -O2 -c aco.c -o "$TMP/aco.o"
must "acosw.S does not compile" "${COMPILE[@]}" -c acosw.S -o "$TMP/acosw.o"
must "orders.c does not compile" "${COMPILE[@]}" "${C_WARNINGS[@]}" -O2 \
    -c tools/proof/orders.c -o "$TMP/orders.o"
LIBRARY=("$TMP/orders.o" "$TMP/aco.o" "$TMP/acosw.o")

must "litmus.c does not compile" "${COMPILE[@]}" "${C_WARNINGS[@]}" "${CHECKED[@]}" \
    -no-pie tools/proof/litmus.c "${LIBRARY[@]}" -o "$TMP/litmus"
must "orders.c gives a wrong answer" "$TMP/litmus"
echo "orders.c: $(grep -c 'as known' "$TMP/said") known answers"

# compile RUNTIME DIRECTORY SOURCE...: objects of these sources of the runtime in a directory, and
# the program from all that are there.
compile() {
    local runtime=$1 to=$2 source job jobs=()
    shift 2
    for source in tools/proof/waits "${@/#/$runtime/}"; do
        "${COMPILE[@]}" "${C_WARNINGS[@]}" -Wno-unused "${CHECKED[@]}" -I"$runtime" \
            -include tools/proof/waits.h -c "$source.c" -o "$to/${source##*/}.o" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do
        wait "$job" || return 1
    done
    "${COMPILE[@]}" -no-pie "$to"/*.o "${LIBRARY[@]}" -o "$to/waits"
}

mkdir "$TMP/sound"
must "waits.c does not compile" compile runtime "$TMP/sound" "${SOURCES[@]}"
must "the waits are not sound" "$TMP/sound/waits"
cat "$TMP/said"

# waits.c copies this loop of aco_i_end_runtime().
for file in runtime/start/run.c tools/proof/waits.c; do
    grep -F -A 1 'while (__atomic_load_n(&runtime->ct_holders, __ATOMIC_ACQUIRE) != 0) {' \
        "$file" >/dev/null || fail "$file: the end of a runtime differs from that of its peer"
done

# expect_fault WHAT FILE EDIT PROGRAM RULE: after an edit of the file, by sed, the program is
# refused for the rule.
CT_FAULTS=0
expect_fault() {
    local what=$1 file=$2 edit=$3 program=$4 rule=$5 changed=("${SOURCES[@]}")
    rm -rf "$TMP/runtime" "$TMP/fault"
    cp -r runtime "$TMP/runtime"
    cp -r "$TMP/sound" "$TMP/fault"
    sed -i -E "$edit" "$TMP/runtime/$file"
    ! cmp -s "runtime/$file" "$TMP/runtime/$file" || fail "$what: the edit finds nothing"
    [[ $file == *.h ]] || changed=("${file%.c}")
    must "$what: does not compile" compile "$TMP/runtime" "$TMP/fault" "${changed[@]}"
    must_not "$what: not found" "^$program: $rule" \
        timeout -s KILL 120 "$TMP/fault/waits" "$program"
    CT_FAULTS=$((CT_FAULTS + 1))
}

FOR_EVER='a thread waits for ever'
RACE='a data race'

# Between a loop that falls asleep and one that wakes it.
expect_fault "falls asleep by a weak store" sched/look.c \
    's/(is_asleep, 1, __ATOMIC_)SEQ_CST/\1RELEASE/' parks "$FOR_EVER"
expect_fault "looks at its inbox by a weak load" sched/look.c \
    '/^static int has_work/,/^}/s/(inbox, __ATOMIC_)SEQ_CST/\1ACQUIRE/' parks "$FOR_EVER"
expect_fault "does not look at its inbox again" sched/look.c \
    '/^static int has_work/,/^}/s/__atomic_load_n\(&loop->inbox, __ATOMIC_SEQ_CST\)/NULL/' \
    parks "$FOR_EVER"
expect_fault "asks whether it sleeps by a weak load" sched/wait.c \
    '/^void aco_i_wake_loop/,/^}/s/(load_n.*)SEQ_CST/\1ACQUIRE/' parks "$FOR_EVER"
expect_fault "enters an inbox by a weak update" sched/wait.c \
    '/^static void send_to_loop/,/^}/s/(task, 0, __ATOMIC_)SEQ_CST/\1RELEASE/' parks "$FOR_EVER"
expect_fault "empties its inbox by a weak update" sched/look.c \
    '/^static void empty_inbox/,/^}/s/__ATOMIC_ACQUIRE/__ATOMIC_RELAXED/' parks "$RACE"
expect_fault "asks who sleeps by a weak load" sched/task.c \
    '/^static void offer/,/^}/s/(is_asleep, __ATOMIC_)SEQ_CST/\1ACQUIRE/' offers "$FOR_EVER"
expect_fault "counts its end by a weak update" base/base.h \
    '/^static inline uint64_t add_to/,/^}/s/SEQ_CST/RELEASE/' ends_last_task "$FOR_EVER"

# Between a task that begins to wait and one that ends its wait.
expect_fault "opens a wait by a weak store" extension.h \
    's/(wait, wait, __ATOMIC_)SEQ_CST/\1RELEASE/' parks "$FOR_EVER"
expect_fault "opens a wait as if it were alone" extension.h \
    '/aco_i_open_wait/,/^}/s/is_alone\(\)/1/' parks "$FOR_EVER"
expect_fault "gives a token by a weak store" sched/wait.c \
    's/(has_token, 1, __ATOMIC_)SEQ_CST/\1RELEASE/' parks "$FOR_EVER"
expect_fault "takes its token before it waits" sched/task.c \
    's/^    aco_i_open_wait\(self, FOR_PARK\);/    char had = EXCHANGE;\n&/
     s/if \(__atomic_exchange_n\(&self->has_token.*\) &&/if (had \&\&/
     s/EXCHANGE/__atomic_exchange_n(\&self->has_token, 0, __ATOMIC_SEQ_CST)/' \
    parks "$FOR_EVER"
expect_fault "cancels by a weak store" sched/group_tree.c \
    's/(is_cancelled, 1, __ATOMIC_)SEQ_CST/\1RELEASE/' cancels "$FOR_EVER"
expect_fault "asks whether it is cancelled by a weak load" sched/loop.c \
    's/(is_cancelled, __ATOMIC_)SEQ_CST/\1ACQUIRE/' cancels "$FOR_EVER"
expect_fault "claims without an update" sched/wait.c \
    's/if \(change_wait\(.*/__atomic_store_n(\&task->wait, (int)outcome, __ATOMIC_SEQ_CST); {/' \
    cancels_or_wakes "$RACE"

# Ends and locks.
expect_fault "does not hold the runtime" sched/wait.c \
    '/^    aco_i_(hold|drop)_runtime/d' ends_runtime "memory is used after"
expect_fault "drops the runtime by a weak update" sched/sched.h \
    '/aco_i_drop_runtime/,/^}/s/RELEASE/RELAXED/' ends_runtime "$RACE"
expect_fault "announces its end after it has freed the lock" sched/life.c \
    '/^static int announce_end/,/^}/{
         /__atomic_store_n/d
         s/^    unlock.*/&\n    __atomic_store_n(\&task->has_ended, 1, __ATOMIC_RELEASE);/
     }' \
    joins "$RACE"
expect_fault "frees a lock by a weak store" base/base.h \
    '/^static inline void unlock/,/^}/s/RELEASE/RELAXED/' locks "$RACE"
expect_fault "takes a lock by a weak update" base/base.h \
    '/lock_at_once/,/^}/s/ACQUIRE/RELAXED/' locks "$RACE"

# Descriptors.
expect_fault "looks for a missed close without a fence" sched/fds.h \
    '/__sync_synchronize/d' closes_in_handler "a close is not seen"
expect_fault "flags a missed close without a fence" sched/fds.c \
    '/__sync_synchronize/d' closes_in_handler "a close is not seen"
expect_fault "does not compare moments" io/fd_wait.c \
    's/: entry->moment.ct_events != since.ct_events/: 0/' reads "$FOR_EVER"

echo "$CT_FAULTS faults are found"
