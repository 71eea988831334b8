#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Reports about the tasks of a program, seen from outside of it: the list of tasks with their
# backtraces, while the program runs and when it dies; the report of a stack overflow; the watchdog;
# the trace; the profile; the probes, and the scripts of tools/trace that use them.
#
# parts: list overflow others watch trace profile ends probes
# seconds: 10 15 30 30 5 40 10 5
# user: list watch trace

# shellcheck source=tests/harness.sh
. tests/harness.sh

WHAT=''

# build PROGRAM COMPILER OPTION...: builds a sample of runtime/observe/tests with LIBRARY.
build() {
    use_library "${LIBRARY:-aco_runtime}" "${@:2}"
    must "$*: the sample does not compile" "${@:2}" -std=gnu99 -g "${C_WARNINGS[@]}" \
        "${INCLUDE[@]}" -pthread "runtime/observe/tests/$1.c" "${OBJECTS[@]}" -o "$TMP/$1"
}

# says PATTERN...: checks that $TMP/said matches these patterns, one right after the other.
says() {
    local pattern
    printf -v pattern %s "$@"
    grep -Pzo -e "(?m)$pattern" "$TMP/said" >"$TMP/found" || {
        cat "$TMP/said" >&2
        fail "$WHAT: it does not say $pattern"
    }
}

# ==== The list ====================================================================================

# Checks that $TMP/said has all kinds of tasks, each with its place.
check_list() {
    local at='(    at .*\n)*    at'
    says '^task \d+ "sleeper": waits for a time since .* bytes of stack\n' \
        '    and 199 like it, the last since \d+\.\d{3} s: (\d+, ){8}\.\.\.\n' "$at sleeps\\+0x"
    says '^task \d+ "locks": waits for a mutex since .*\n' '    and 4 like it, .*\n' \
        "$at locks_inside\\+0x.*\\n" "$at locks\\+0x"
    says '^task \d+ "reader": waits for input of descriptor \d+ since .*\n' \
        '    and 4 like it, .*\n' "$at reads\\+0x\\w+ \\(observe_sample\\+0x\\w+\\)\\n"
    says "^task \\d+ \"computer\": running, \\d+ bytes of stack\\n    at computes\\+0x"
    says "^task \\d+ \"resumes\": waits for a time .*\\n$at generates\\+0x.*\\n$at resumes\\+0x"
    (($(grep -c '^task' "$TMP/said") <= 8)) || fail "$WHAT: more entries than kinds of tasks"
}

# dies STATUS HOW PLACE: the sample dies with the list on stderr; the culprit runs in this place.
dies() {
    WHAT="$COMMAND: $2"
    run_to_death timeout 60 "${RUN[@]}" "$TMP/observe_sample" "$2"
    ((STATUS == $1)) || { cat "$TMP/said" >&2; fail "$WHAT: status $STATUS instead of $1"; }
    says '^The process ends by signal \d+. Its tasks:\n'
    says '^task \d+ "culprit": running, \d+ bytes of stack\n' "(    at .*\\n)*    at $3[\\w.]*\\+0x"
    check_list
}

check_lists() {
    COMMAND=$* WHAT="$*: a list"
    build observe_sample "$@"
    must "$WHAT" timeout 60 "${RUN[@]}" "$TMP/observe_sample" print
    says '^task 1 "first": running, \d+ bytes of stack\n' '    at aco_print_tasks\+0x.*\n' \
        '    at first\+0x'
    check_list
    dies 134 abort fails
    dies 134 kill fails
    dies 134 misuse '(aco_mutex_unlock|unlock_slowly).*\n(    at .*\n)*    at fails'
    dies 135 raise fails
    dies 139 fault fails
    dies 139 null 'fails'
    dies 139 overflow 'overflows.*\n    at overflows'
    WHAT="$*: a second signal while the list is printed"
    run_to_death timeout 60 "${RUN[@]}" "$TMP/observe_sample" twice one_thread
    ((STATUS == 134)) || fail "$WHAT: status $STATUS"
    echo "$COMMAND: the list of tasks"
}

# clear_bytes OFFSET CT: sets bytes of the sample to 0.
clear_bytes() {
    dd if=/dev/zero of="$TMP/observe_sample" bs=1 seek="$1" count="$2" conv=notrunc status=none
}

# Linked with -static, a program has no table of its call-frame information; without a table of its
# sections, too, backtraces can't be had.
check_static() {
    COMMAND="gcc -static" WHAT="a program that is linked statically"
    can_build gcc -static || { echo "gcc -static: not available, not tested" && return; }
    use_library aco_runtime gcc -O2
    must "$WHAT does not link" gcc -std=gnu99 -g -O2 -DIS_STATIC "${INCLUDE[@]}" -pthread -static \
        runtime/observe/tests/observe_sample.c "${OBJECTS[@]}" -o "$TMP/observe_sample"
    ! readelf -lW "$TMP/observe_sample" | grep -q GNU_EH_FRAME || echo "gcc -static: has a table"
    must "$WHAT" timeout 60 "$TMP/observe_sample" print
    check_list
    WHAT="a program without sections"
    clear_bytes 40 8
    clear_bytes 60 4
    must "$WHAT" timeout 60 "$TMP/observe_sample" print
    says '^task \d+ "sleeper": waits .*\n(    and .*\n)?    at \(observe_sample\+0x.*\n' \
        '    its callers are unknown: link with -Wl,--eh-frame-hdr\n'
    echo "$COMMAND: the list of tasks"
}

# Other processors have unwinders of their own.
check_foreign() {
    local words
    [[ $PROCESSOR == arm64 || $PROCESSOR == riscv64 ]] || return 0
    read -ra words <<<"$2"
    COMMAND=$PROCESSOR WHAT="$PROCESSOR: a list"
    build observe_sample "$1" "${words[@]}" -O2
    must "$WHAT" timeout 60 "${RUN[@]}" "$TMP/observe_sample" print
    check_list
    echo "$PROCESSOR: the list of tasks"
}

check_list_part() {
    check_lists gcc -O2
    check_static
}

check_others_part() {
    if have clang; then
        check_lists clang -O2 -fno-omit-frame-pointer -DACO_CONFIG_STRESS
    else
        echo "clang: not found, not tested"
    fi
    check_lists gcc -O0
    [[ " ${WIDTHS[*]} " != *" -m32 "* ]] || check_lists gcc -m32 -O2
    on_each_foreign check_foreign
}

# ==== Stack overflows =============================================================================

# overflows STATUS HOW PATTERN: PATTERN matches all that the sample says; '': it says nothing.
overflows() {
    WHAT="$COMMAND: overflow: $2"
    run_to_death timeout 60 "${RUN[@]}" "$TMP/overflow_sample" "$2"
    sed -i '/^qemu: uncaught target signal/d' "$TMP/said"
    ((STATUS == $1)) || { cat "$TMP/said" >&2; fail "$WHAT: status $STATUS instead of $1"; }
    if [[ -n $3 ]]; then
        says "\\A$3\\z"
    elif [[ -s $TMP/said ]]; then
        fail "$WHAT: it says $(<"$TMP/said")"
    fi
}

# Frames that are shown of a recursion; on 32-bit ARM, the innermost alone.
readonly DIGS='    at digs[\w.]*\+0x\w+ \(overflow_sample\+0x\w+\)\n'
readonly MORE='(    at .*\n)*(    and so on\n)?'
readonly GIVE='set \.stack_sz, or stack_sz of aco_run_options_t\n'
readonly UNSHARE='set \.stack_sz instead of \.shares_stack, or stack_sz of aco_run_options_t\n'
readonly ENDS='The process ends by signal 11\. Its tasks:\n'
readonly LIST="${ENDS}task \\d+ \"deep\": running, \\d+ bytes of stack\\n"

check_overflows() {
    local task='^aco: task \d+ "deep" overflowed' ran="$DIGS$MORE" entry
    local enlarge="its stack of 100000 bytes: set a larger \\.stack_sz\\n"
    local wait='task 1 "first": waits for the end of a task .*\n(    at .*\n)*'
    local coroutine='^aco: a coroutine of task 1 "first", entry function generates, overflowed its '
    coroutine+='share stack of [56]\d+( KiB| bytes): give aco_share_stack_new2\(\) a larger size, '
    coroutine+='or recurse less deeply\n'
    COMMAND=$*
    build overflow_sample "$@"
    overflows 139 pool "$task its stack of 256 KiB: $GIVE($DIGS){24}    and so on\n"
    overflows 139 named "^aco: task \\d+ \"diver\" overflowed its stack of 256 KiB: $GIVE$ran"
    overflows 139 large \
        "$task its stack of 256 KiB: $GIVE(    at leaps.*\n){5,}(    at deep\\+.*\n)?"
    overflows 139 own "$task $enlarge$ran"
    overflows 139 shared "$task the share stack of its thread, of 256 KiB: $UNSHARE$ran"
    overflows 139 thread "$task its stack of 256 KiB: $GIVE$ran"
    overflows 139 embedded "$task its stack of 256 KiB: set \\.stack_sz of aco_task_options_t\n$ran"
    overflows 139 coroutine "$coroutine$ran"
    overflows 139 child "^aco: task 1 \"first\" overflowed its stack of 256 KiB: $GIVE$ran"
    overflows 139 small "$task its stack of 256 KiB: $GIVE$ran"
    overflows 7 former "$task $enlarge${ran}handler of the program\n"
    overflows 139 again "$task its stack of 256 KiB: $GIVE$ran"
    overflows 7 replaced '^handler of the program\n'
    for how in listed listed_later extra_listed; do
        overflows 139 $how "$task its stack of 256 KiB: $GIVE$LIST$ran$wait"
    done
    for how in extra extra_before; do
        overflows 139 $how "$task its stack of 256 KiB: $GIVE$ran"
    done
    overflows 0 write '^repaired\nrepaired\n'
    overflows 0 ignored ''
    for how in null guard sent; do
        overflows 139 $how ''
    done
    overflows 134 unlocks '^aco: aco_mutex_unlock: .* \(task 1 "first"\) \(coroutine 0x\w+, .*\)\n'
    overflows 134 outside \
        '^aco: aco_mutex_unlock: .* \(thread \d+, outside of tasks\) \(coroutine 0x0\)\n'
    overflows 134 destroys '^aco: aco_destroy: .* \(coroutine 0x\w+, entry function .*\)\n'
    entry=$(sed 's/.*(+\(0x[0-9a-f]*\)).*/\1/' "$TMP/said")
    [[ $(addr2line -fe "$TMP/overflow_sample" "$entry") == first* ]] ||
        fail "$WHAT: the entry function is not the task's: $(<"$TMP/said")"
    echo "$COMMAND: stack overflows"
}

# Sanitizers keep their reports; with TSan, its report is the only one.
check_sanitized_overflows() {
    local kind status
    for kind in address:1 thread:66; do
        COMMAND="$1 -fsanitize=${kind%:*}" status=${kind#*:}
        WHAT="$COMMAND: overflow"
        build overflow_sample "$1" -O1 -fsanitize="${kind%:*}" -DIS_STATIC
        run_to_death timeout 60 "$TMP/overflow_sample" pool
        ((STATUS == status)) || { cat "$TMP/said" >&2; fail "$WHAT: status $STATUS"; }
        says 'ERROR: (Address|Thread)Sanitizer: stack-overflow on address'
        [[ $kind == thread* ]] || says '^aco: task \d+ "deep" overflowed its stack of 256 KiB: '
    done
    echo "$1: stack overflows with sanitizers"
}

# Emulators don't support the guards of pools.
overflows_foreign() {
    local words task='^aco: task 2 "deep" overflowed' own
    own="$task its stack of 10000000 bytes: set a larger \\.stack_sz\\n$DIGS$MORE"
    read -ra words <<<"$2"
    COMMAND=$PROCESSOR
    build overflow_sample "$1" "${words[@]}" -O2 -DOWN_STACK_SZ=10000000
    overflows 139 own "$own"
    overflows 7 former "${own}handler of the program\\n"
    overflows 139 shared "$task the share stack of its thread, of 256 KiB: .*\\n$DIGS$MORE"
    echo "$COMMAND: stack overflows"
}

check_overflow_part() {
    check_overflows gcc -O2
    check_overflows gcc -O0
    if have clang; then
        check_overflows clang -O2
    else
        echo "clang: not found, not tested"
    fi
    [[ " ${WIDTHS[*]} " != *" -m32 "* ]] || check_overflows gcc -m32 -O2
    if can_build gcc -static; then
        check_overflows gcc -O2 -static -DIS_STATIC
    else
        echo "gcc -static: not available, not tested"
    fi
    check_sanitized_overflows "${CC%% *}"
    on_each_foreign overflows_foreign
}

# ==== The watchdog ================================================================================

# tells WHAT LINES PATTERN...: a program that would go on for ever makes the watchdog report what
# matches, in no more than LINES lines of its own.
tells() {
    local pattern begin=$SECONDS
    WHAT="watchdog: $1"
    ACO_WATCHDOG=50ms "$TMP/watch_sample" "$1" 2>"$TMP/said" &
    SAMPLE=$!
    for pattern in "${@:3}"; do
        until grep -Pzq -e "(?m)$pattern" "$TMP/said"; do
            kill -0 "$SAMPLE" 2>/dev/null || says "$pattern"
            sleep 0.1
        done
    done
    sleep 1.2
    kill "$SAMPLE"
    wait "$SAMPLE" 2>/dev/null || true
    (($(grep -c '^aco: watchdog' "$TMP/said") <= $2 * (SECONDS - begin + 2))) ||
        fail "$WHAT: more than once a second: $(<"$TMP/said")"
    echo "$WHAT: reported"
}

check_false_alarms() {
    local busy=()
    WHAT="watchdog: a slow machine"
    for _ in 1 2 3; do
        timeout 100 bash -c 'while :; do :; done' &
        busy+=($!)
    done
    ACO_WATCHDOG=100ms "$TMP/watch_sample" calm 2>"$TMP/said" &
    SAMPLE=$!
    for _ in {1..5}; do
        sleep 0.3
        kill -STOP "$SAMPLE"
        sleep 0.3
        kill -CONT "$SAMPLE"
    done
    wait "$SAMPLE" || fail "$WHAT: it fails: $(<"$TMP/said")"
    kill "${busy[@]}"
    wait "${busy[@]}" 2>/dev/null || true
    [[ ! -s $TMP/said ]] || fail "$WHAT: a false alarm: $(<"$TMP/said")"
    WHAT="watchdog: a parked task"
    ACO_WATCHDOG=50ms run_to_death "$TMP/watch_sample" parked
    ((STATUS == 142)) || fail "$WHAT: status $STATUS"
    [[ ! -s $TMP/said ]] || fail "$WHAT: a false alarm: $(<"$TMP/said")"
    WHAT="watchdog: a setting that makes no sense"
    ACO_WATCHDOG=50 "$TMP/watch_sample" nothing 2>"$TMP/said"
    says '^aco: ACO_WATCHDOG is 50: set it to a time such as 50ms or 1.5s$'
    echo "watchdog: no false alarm"
}

# waits ID NAME REASON FUNCTION NEED: the lines of a task that waits for another one.
waits() {
    printf %s "task $1 \"$2\": waits for $3 .*\\n(    at .*\\n)*    at $4\\+.*\\n  $5\\n"
}

check_watch_part() {
    local watchdog='^aco: watchdog:' frames='(    at .*\n)*    at'
    local kept='has kept its thread for 0\.\d+ s' held='which is held by task'
    local asleep='asleep in a system call' make='make it by an aco_ call,'
    local link='link libaco_hooks so that such calls wait as tasks \(docs/hooks.md\),'
    local yields='let it yield, or aco_offload\(\) what takes long'
    local offload='or aco_offload\(\) it\n'
    local cycle="$watchdog deadlock: these tasks wait for each other:"
    local all="$watchdog deadlock: all tasks wait for each other:"
    local unjoined="${watchdog#^} never joined:"
    build watch_sample "${CC%% *}" -O2
    tells computes 1 "$watchdog task 2 \"computes\" $kept: $yields\n$frames computes\+" \
        'has kept its thread(.*\n)*.*has kept its thread'
    tells child 1 "$watchdog task \\d+ \"first\" $kept: .*\n$frames computes\+"
    tells blocks 1 \
        "$watchdog task 2 \"blocks\" $kept, $asleep: $make $link $offload$frames blocks\+"
    tells holds 1 "$watchdog a lock is held over a wait, .*\n$(waits 3 wants 'a mutex' wants \
        "$held 2 \"holds\"")task 2 \"holds\": waits for a time .*\n$frames holds\+"
    tells cycle 1 "$cycle\n(task|  )" \
        "$(waits 2 first 'a mutex' locks_one_first "$held 3 \"second\"")" \
        "$(waits 3 second 'an rwlock' locks_two_first "$held 4 \"third\"")" \
        "$(waits 4 third 'the end of a task' locks_three_and_joins \
            'which is waited for: task 2 "first"')"
    tells pairs 1 "(task|  $held) \\d+ \"sooner\"(.*\n)*$cycle(.*\n)*  $held \\d+ \"later\""
    tells group 1 "$cycle\n(task|  )" \
        "$(waits 1 first 'the end of a group' '\w+' 'which still has task 3 "locks_both"')" \
        "$(waits 3 locks_both 'a mutex' locks_both "$held 1 \"first\"")"
    tells reader 1 \
        "$(waits 1 first 'an rwlock' '\w+' 'behind a writer that waits: task 2 "writer"')" \
        "$(waits 2 writer 'an rwlock' writes "$held 1 \"first\"")"
    tells readers 1 "$(waits 1 first 'an rwlock' '\w+' "$held 3 \"reader\"")" \
        "$(waits 3 reader 'a mutex' reads_and_locks "$held 1 \"first\"")"
    tells threads 1 "$all\n(.*\n)*task 2 \"acquires\": waits for a semaphore "
    tells stands 1 "$all\ntask 2 \"stands\": waits for a sender .*\n$frames receives\+"
    WHAT="watchdog: what was not joined"
    ACO_WATCHDOG=50ms "$TMP/watch_sample" unjoined 2>"$TMP/said"
    says "\\A$unjoined task 2 \"spawned\", (task \\d+ \"spawned\"(, )?){7} and others, 9 in all: " \
        "aco_join\(\) .*\n$unjoined groups, 10 in all: aco_group_join\(\) .*\n\\z"
    check_false_alarms
    LIBRARY=aco_hooks build watch_sample "${CC%% *}" -O2
    tells hooked 1 "$(waits 2 locks_normal_first 'a mutex' locks_normal_first \
        "$held 3 \"locks_recursive_first\"")" \
        "$(waits 3 locks_recursive_first 'a mutex' locks_recursive_first \
            "$held 2 \"locks_normal_first\"")"
    asleep+=' that no hook reaches'
    tells blocks_inside 1 \
        "$watchdog task 2 \"\\w+\" $kept, $asleep: $make $offload$frames blocks_inside\+"
    tells computes 1 " s: $yields\$"
}

# ==== The trace ===================================================================================

# No time is negative, nor does a wait end before it begins.
readonly IN_ORDER='
import json, sys
begins = {}
for e in json.load(open(sys.argv[1], encoding="utf-8")):
    assert 0 <= e["ts"] < 1e8 and 0 <= e.get("dur", 0) < 1e8, e
    if e["ph"] == "b":
        begins[e["id"]] = e["ts"]
    assert e["ph"] != "e" or begins.pop(e["id"]) <= e["ts"], e
assert not begins, begins'

check_trace_part() {
    local compiler
    need python3:python3
    read -ra compiler <<<"$CC"
    must "img/trace.c does not compile" "${compiler[@]}" -std=gnu99 -fsyntax-only \
        "${C_WARNINGS[@]}" -I. -Iruntime -Iextra/stack_pool img/trace.c
    build trace_sample "${compiler[@]}" -O2
    ACO_TRACE=$TMP/trace must "a program that is traced fails" timeout 100 "$TMP/trace_sample"
    must "its trace" python3 runtime/observe/tests/check_trace.py "$TMP/trace"
    [[ $(tail -n 1 "$TMP/trace") == "]" ]] || fail "the trace of a program that ended has no end"
    ACO_TRACE=$TMP/trace run_to_death timeout 100 "$TMP/trace_sample" is_killed
    must "the trace of a program that was killed" \
        python3 runtime/observe/tests/check_trace.py "$TMP/trace"
    ACO_TRACE=$TMP/no/folder must "no file for the trace" timeout 100 "$TMP/trace_sample"
    says '^aco: ACO_TRACE: .*/no/folder: No such file or directory$'
    ACO_TRACE=/dev/full must "a full disk" timeout 100 "$TMP/trace_sample"
    says '^aco: ACO_TRACE: the file ends early: No space left on device$'
    (($(grep -c ACO_TRACE "$TMP/said") == 1)) || fail "a full disk is reported more than once"
    build trace_sample "${compiler[@]}" -O2 -DHAS_ODD_CLOCKS \
        -Wl,--wrap=clock_gettime,--wrap=fopen64
    ACO_TRACE=$TMP/trace must "odd clocks" timeout 100 "$TMP/trace_sample"
    must "the trace with odd clocks" python3 -c "$IN_ORDER" "$TMP/trace"
    echo "the trace"
}

# ==== The profile =================================================================================

# profiles ARGUMENT...: the sample leaves its profile in $TMP/profile.
profiles() {
    WHAT="profile: $*"
    rm -f "$TMP/profile"
    ACO_PROFILE=$TMP/profile must "$WHAT" timeout 600 "${RUN[@]}" "$TMP/profile_sample" "$@"
    [[ ! -s $TMP/said ]] || fail "$WHAT: it says $(<"$TMP/said")"
    ! grep -vE '^[^;]+(;[^;]+)* [1-9][0-9]*$' "$TMP/profile" || fail "$WHAT: no collapsed stack"
    [[ -z $(sed 's/ [0-9]*$//' "$TMP/profile" | sort | uniq -d) ]] ||
        fail "$WHAT: a stack is there twice"
}

# The sum of the numbers in the lines of $TMP/profile that match.
samples() {
    awk -v pattern="$1" '$0 ~ pattern { ct += $NF } END { print ct + 0 }' "$TMP/profile"
}

# check_shares SAMPLES: at least so many samples are a half, three tenths and a fifth, each within
# 4.5 times the standard deviation; and nearly all stacks are whole.
check_shares() {
    local ct whole half third fifth
    ct=$(samples .)
    ((ct >= $1)) || fail "$WHAT: $ct samples"
    awk -v ct="$ct" '{ name = $0; sub(/;.*/, "", name); of[name] += $NF }
        function check(name, share) {
            if ((of[name] / ct - share) ^ 2 > 4.5 ^ 2 * share * (1 - share) / ct) {
                print name " has " of[name] " of " ct " samples"
                failed = 1
            }
        }
        END { check("a:half", 0.5); check("b", 0.3); check("does_a_fifth", 0.2); exit failed }' \
        "$TMP/profile" || fail "$WHAT: the shares are not those of the work"
    half='a:half;does_half;descends;descends;descends' third='b;does_nearly_a_third;generates'
    fifth='does_a_fifth;does_a_fifth'
    whole=$(samples "^($half|$third|$fifth);burns_for(;burns)? ")
    ((whole * 100 >= ct * 95)) || fail "$WHAT: $whole of $ct stacks are whole: $(<"$TMP/profile")"
    echo "$COMMAND: the shares of tasks, seen in $ct samples"
}

profile_foreign() {
    local words
    [[ $PROCESSOR == arm* ]] || return 0
    read -ra words <<<"$2"
    COMMAND=$PROCESSOR WHAT="$PROCESSOR: a profile"
    build profile_sample "$1" "${words[@]}" -O2 -DPROFILE_HZ=1000
    profiles shares 1500 1
    if [[ $PROCESSOR == arm ]]; then # innermost frames alone
        (($(samples '^a:half;...;burns '))) || fail "$WHAT: no sample"
        echo "$COMMAND: a profile without stacks"
    else
        check_shares 40
    fi
}

check_profile_part() {
    COMMAND=${CC%% *}
    build profile_sample "$COMMAND" -O2 -DPROFILE_HZ=1000
    profiles shares 15000 1
    check_shares 100
    profiles shares 2000 2
    (($(samples '^a:half;.*;burns ') && $(samples '^does_a_fifth;.*;burns '))) ||
        fail "$WHAT: a thread has no samples"
    profiles forks 5000
    profiles exits 5000
    (($(samples '^exits;exits;burns_for'))) || fail "$WHAT: no sample"
    profiles briefly 1000000
    WHAT="profile: none is asked for"
    rm "$TMP/profile"
    (cd "$TMP" && ./profile_sample exits 1) || fail "$WHAT"
    ACO_PROFILE=$TMP/no/folder must "no file for the profile" "$TMP/profile_sample" exits 1
    says '^aco: ACO_PROFILE: .*/no/folder: No such file or directory$'
    ACO_PROFILE=$TMP/profile must "another handler" "$TMP/profile_sample" exits 1 1 handles
    says '^aco: ACO_PROFILE: the program has a handler of its own for SIGPROF$'
    ACO_PROFILE=$TMP/profile run_to_death "$TMP/profile_sample" handles 1 1
    says '^aco: ACO_PROFILE: the program has set a handler of its own for SIGPROF: ' \
        'samples are missing$'
    ACO_PROFILE=$TMP/profile run_to_death "$TMP/profile_sample" blocks 1 1
    says '^aco: ACO_PROFILE: the program has blocked SIGPROF: samples are missing$'
    ACO_PROFILE=/dev/full run_to_death "$TMP/profile_sample" exits 10000 1
    says '^aco: ACO_PROFILE: the file is not whole: No space left on device$'
    # A timer of the clock is not bound to the kernel's tick: its samples are anywhere in a switch.
    build profile_sample "${CC%% *}" -O2 -DPROFILE_HZ=20000 -DPROFILE_CLOCK=CLOCK_MONOTONIC
    profiles switches 200000 1
    (($(samples '^switches;') >= 100)) || fail "$WHAT: too few samples"
    echo "$WHAT: $(samples .) samples, $(samples ';\\.\\.\\.;') of them in between"
    on_each_foreign profile_foreign
}

# ==== Ends by a signal ============================================================================

readonly WHOLE='
import json, re, sys
events = json.load(open(sys.argv[1], encoding="utf-8"))
assert any(e["name"] == "is_busy" for e in events if e["ph"] == "X"), "no slice"
stacks = open(sys.argv[2], encoding="utf-8").read()
assert re.search(r"^is_busy;.*allocate_and_write.* [0-9]+$", stacks, re.M), "no stack"
assert re.fullmatch(r"([^;\n]+(;[^;\n]+)* [0-9]+\n)+", stacks), "no collapsed stacks"'

# Checks that the files of the sample are whole.
are_whole() {
    must "$WHAT: its files" python3 -c "$WHOLE" "$TMP/trace" "$TMP/profile"
}

# ends STATUS ARGUMENT...: the sample ends with STATUS, and leaves both files whole.
ends() {
    WHAT="ends: ${*:2}"
    rm -f "$TMP/trace" "$TMP/profile"
    run_to_death env ACO_TRACE="$TMP/trace" ACO_PROFILE="$TMP/profile" timeout --foreground 100 \
        "$TMP/ending_sample" "${@:2}"
    [[ ! -s $TMP/said ]] || fail "$WHAT: it says $(<"$TMP/said")"
    ((STATUS == $1)) || fail "$WHAT: status $STATUS instead of $1"
    are_whole
    echo "$WHAT: the files are whole"
}

# Ends the sample at a random time.
end_at_random() {
    rm -f "$TMP/trace" "$TMP/profile"
    ACO_TRACE=$TMP/trace ACO_PROFILE=$TMP/profile "$TMP/ending_sample" goes_on 2>"$TMP/said" &
    SAMPLE=$!
    sleep "0.$((RANDOM % 4 + 1))$((RANDOM % 10))"
    kill -TERM "$SAMPLE"
    STATUS=0
    wait "$SAMPLE" 2>/dev/null || STATUS=$?
    ((STATUS == 143)) || fail "$WHAT: status $STATUS: $(<"$TMP/said")"
    are_whole
}

check_ends_part() {
    local number compiler begin fifo
    need python3:python3
    read -ra compiler <<<"$CC"
    build ending_sample "${compiler[@]}" -O2 -DPROFILE_HZ=1000
    for number in 1 2 15; do
        ends $((128 + number)) by "$number"
    done
    ends 3 handles 15
    ends 0 forks 15
    WHAT="ends: wherever it is"
    for _ in {1..10}; do
        end_at_random
    done
    echo "$WHAT"
    # The trace has no reader: the first signal can't complete it.
    WHAT="ends: a file that is stuck"
    mkfifo "$TMP/fifo"
    exec {fifo}<>"$TMP/fifo"
    ACO_TRACE=$TMP/fifo "$TMP/ending_sample" goes_on &
    SAMPLE=$!
    sleep 1
    kill -TERM "$SAMPLE"
    sleep 2
    kill -0 "$SAMPLE" || fail "$WHAT: it does not wait"
    begin=$SECONDS
    kill -TERM "$SAMPLE"
    wait "$SAMPLE" 2>/dev/null || STATUS=$?
    ((STATUS == 143 && SECONDS - begin < 20)) || fail "$WHAT: status $STATUS"
    exec {fifo}>&-
    echo "$WHAT"
}

# ==== Probes ======================================================================================

readonly PROBES=(create start park unpark resume end evict offload)

# Scripts name probes and arguments that exist, and the reasons of ACO_I_REASONS.
check_scripts() {
    local name
    while read -r name; do
        [[ " ${PROBES[*]} " == *" $name "* ]] || fail "tools/trace names a probe $name"
    done < <(grep -oh 'aco:[a-z]*' tools/trace/*.bt | cut -d: -f2)
    ! grep -n 'arg[3-9]' tools/trace/*.bt || fail "tools/trace names an argument that no probe has"
    diff <(awk -F '"' '/^ *X\(FOR_/ && ct++ { printf "    @names[%d] = \"%s\";\n", ct - 1, $2 }' \
        runtime/base/types.h) <(grep '@names\[[0-9]' tools/trace/waits.bt) ||
        fail "tools/trace/waits.bt has other reasons than runtime/base/types.h"
    echo "tools/trace: names of probes and reasons"
}

# counts SCRIPT PATTERN...: checks the script's report of a sample in which 100 tasks have ended.
# Where programs may not use the kernel's BPF, the script is only parsed.
counts() {
    { cat "tools/trace/$1.bt" && echo 'usdt:*:aco:end { @ct++; if (@ct >= 100) { exit(); } }'; } \
        >"$TMP/$1.bt"
    must "$1.bt" timeout 100 bpftrace -d -p "$SAMPLE" "$TMP/$1.bt"
    if ((may_run)); then
        must "$1.bt" timeout 200 bpftrace -p "$SAMPLE" "$TMP/$1.bt"
        for pattern in "${@:2}"; do
            says "$pattern"
        done
    fi
}

# Each probe has a note with three arguments, and is one nop.
check_probes_part() {
    local compiler name at pattern may_run=0
    read -ra compiler <<<"$CC"
    check_scripts
    echo '#include <sys/sdt.h>' | "${compiler[@]}" -fsyntax-only -x c - 2>/dev/null ||
        lack "no <sys/sdt.h>: apt-get install systemtap-sdt-dev"
    build trace_sample "${compiler[@]}" -O2
    readelf -n "$TMP/trace_sample" >"$TMP/said"
    objdump -d "$TMP/trace_sample" >"$TMP/code"
    WHAT="probes"
    for name in "${PROBES[@]}"; do
        says '    Provider: aco\n' "    Name: $name\\n" '    Location: 0x.*\n' \
            '    Arguments:( \S+){3} *\n'
    done
    while read -r at; do
        grep -qE "^ *$at:.*[[:space:]]nop$" "$TMP/code" || fail "at $at there is more than a nop"
    done < <(sed -n '/Provider: aco/,/Location/s/.*Location: 0x0*\([0-9a-f]*\),.*/\1/p' \
        "$TMP/said")
    echo "probes: ${PROBES[*]}"
    have bpftrace || lack "no bpftrace: apt-get install bpftrace"
    "$TMP/trace_sample" goes_on &
    SAMPLE=$!
    trap 'kill "$SAMPLE" 2>/dev/null || true; rm -rf "$TMP"' EXIT
    if timeout 100 bpftrace -e 'BEGIN { exit(); }' >"$TMP/said" 2>&1; then
        may_run=1
    else
        echo "bpftrace: may not run here, its scripts are only parsed"
    fi
    counts wakes '^@us\[receives\]: ?\n\[' '^@us\[sends\]: ?\n\['
    counts waits '^@us\[reads, input\]: count [1-9]' '^@us\[sends, a time\]: count [1-9]'
    counts evictions '^@bytes\[reads\]: ?\n\['
    echo "tools/trace"
}

(($# == 0)) && set -- list overflow others watch trace profile ends probes
for part; do
    "check_${part}_part"
done
