#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What tells about the tasks of a running program, looked at from outside of it: the list of tasks
# with their backtraces, alive and when the program dies; the watchdog; the trace; the probes.
#
# parts: list watch trace probes

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly LIBRARY=(runtime/*.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S)
readonly INCLUDE=(-I. -Iruntime -Iextra/stack_pool)
WHAT=''

# build PROGRAM COMPILER OPTION...: a sample, of its source in runtime/tests.
build() {
    must "$*: the sample does not compile" "${@:2}" -std=gnu99 -g "${C_WARNINGS[@]}" \
        "${INCLUDE[@]}" -pthread "runtime/tests/$1.c" "${LIBRARY[@]}" -o "$TMP/$1"
}

# says PATTERN: lines of $TMP/said match, one after the other, in the given order.
says() {
    grep -Pzo -e "(?m)$1" "$TMP/said" >"$TMP/found" || {
        cat "$TMP/said" >&2
        fail "$WHAT: it does not say $1"
    }
}

# ==== The list ====================================================================================

# All kinds of tasks in $TMP/said, each with its place.
check_list() {
    local at='(    at .*\n)*    at'
    says "^task \\d+ \"sleeper\": waits for a time since .* bytes of stack\\n    and 199 like it, the last since \\d+\\.\\d{3} s: (\\d+, ){8}\\.\\.\\.\\n$at sleeps\\+0x"
    says "^task \\d+ \"\": waits for a mutex since .*\\n    and 4 like it, .*\\n$at locks_inside\\+0x.*\\n$at locks\\+0x"
    says "^task \\d+ \"reader\": waits for input of descriptor \\d+ since .*\\n    and 4 like it, .*\\n$at reads\\+0x\\w+ \\(observe_sample\\+0x\\w+\\)\\n"
    says "^task \\d+ \"computer\": running, \\d+ bytes of stack\\n    at computes\\+0x"
    says "^task \\d+ \"\": waits for a time .*\\n$at generates\\+0x.*\\n$at resumes\\+0x"
    (($(grep -c '^task' "$TMP/said") <= 8)) || fail "$WHAT: more entries than kinds of tasks"
}

# dies STATUS HOW PLACE: with the list on stderr, in which the culprit runs in this place.
dies() {
    WHAT="$COMMAND: $2"
    run_to_death timeout 60 "${RUN[@]}" "$TMP/observe_sample" "$2"
    ((STATUS == $1)) || { cat "$TMP/said" >&2; fail "$WHAT: status $STATUS instead of $1"; }
    says '^The process ends by signal \d+. Its tasks:\n'
    says "^task \\d+ \"culprit\": running, \\d+ bytes of stack\\n(    at .*\\n)*    at $3[\\w.]*\\+0x"
    check_list
}

check_lists() {
    COMMAND=$* WHAT="$*: a list"
    build observe_sample "$@"
    must "$WHAT" timeout 60 "${RUN[@]}" "$TMP/observe_sample" print
    says "^task \\d+ \"\": running, \\d+ bytes of stack\\n    at aco_print_tasks\\+0x.*\\n    at first\\+0x"
    check_list
    dies 134 abort fails
    dies 134 misuse 'aco_mutex_unlock.*\n(    at .*\n)*    at fails'
    dies 135 raise fails
    dies 139 fault fails
    dies 139 null 'fails'
    dies 139 overflow 'overflows.*\n    at overflows'
    WHAT="$*: a second signal while the list is printed"
    run_to_death timeout 60 "${RUN[@]}" "$TMP/observe_sample" twice one_thread
    ((STATUS == 134)) || fail "$WHAT: status $STATUS"
    echo "$COMMAND: the list of tasks"
}

# Other processors unwind in their own way.
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
    if have clang; then
        check_lists clang -O2 -fno-omit-frame-pointer -DACO_CONFIG_STRESS
    else
        echo "clang: not found, not tested"
    fi
    check_lists gcc -O0
    [[ " ${WIDTHS[*]} " != *" -m32 "* ]] || check_lists gcc -m32 -O2
    on_each_foreign check_foreign
}

# ==== The watchdog ================================================================================

# tells WHAT LINES PATTERN...: a program that would go on for ever makes the watchdog tell what
# matches, and not more lines of its own than these.
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
    echo "$WHAT: told"
}

check_watch_part() {
    local frames='(    at .*\n)*    at' busy=()
    build watch_sample "${CC%% *}" -O2
    tells computes 1 "^aco: watchdog: task 2 \"computes\" has kept its thread for 0\.\d+ s: .*\n$frames computes\+" \
        'has kept its thread(.*\n)*.*has kept its thread'
    tells blocks 1 "^aco: watchdog: task 2 \"blocks\" has kept its thread for .*\n$frames blocks\+"
    tells holds 1 "^aco: watchdog: a lock is held over a wait, .*\ntask 3 \"\": waits for a mutex .*\n$frames wants\+.*\n  which is held by task 2 \"holds\"\ntask 2 \"holds\": waits for a time .*\n$frames holds\+"
    tells cycle 1 '^aco: watchdog: deadlock: these tasks wait for each other:\n(task|  )' \
        "task 2 \"first\": waits for a mutex .*\n$frames locks_one_first\+.*\n  which is held by task 3 \"second\"\n" \
        "task 3 \"second\": waits for an rwlock .*\n$frames locks_two_first\+.*\n  which is held by task 4 \"third\"\n" \
        "task 4 \"third\": waits for the end of a task .*\n$frames locks_three_and_joins\+.*\n  which is waited for: task 2 \"first\"\n"
    tells stands 1 "^aco: watchdog: deadlock: all tasks wait for each other:\ntask 2 \"stands\": waits for a sender .*\n$frames receives\+"
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

# ==== The trace ===================================================================================

check_trace_part() {
    local compiler
    need python3:python3
    read -ra compiler <<<"$CC"
    build trace_sample "${compiler[@]}" -O2
    ACO_TRACE=$TMP/trace must "a program that is traced fails" timeout 100 "$TMP/trace_sample"
    must "its trace" python3 runtime/tests/check_trace.py "$TMP/trace"
    [[ $(tail -n 1 "$TMP/trace") == "]" ]] || fail "the trace of a program that ended has no end"
    ACO_TRACE=$TMP/trace run_to_death timeout 100 "$TMP/trace_sample" is_killed
    must "the trace of a program that was killed" \
        python3 runtime/tests/check_trace.py "$TMP/trace"
    ACO_TRACE=$TMP/no/folder must "no file for the trace" timeout 100 "$TMP/trace_sample"
    says '^aco: ACO_TRACE: .*/no/folder: No such file or directory$'
    echo "the trace"
}

# ==== Probes ======================================================================================

# Each probe has a note, and is one nop.
check_probes_part() {
    local compiler name at
    read -ra compiler <<<"$CC"
    echo '#include <sys/sdt.h>' | "${compiler[@]}" -fsyntax-only -x c - 2>/dev/null ||
        lack "no <sys/sdt.h>: apt-get install systemtap-sdt-dev"
    build trace_sample "${compiler[@]}" -O2
    readelf -n "$TMP/trace_sample" >"$TMP/said"
    objdump -d "$TMP/trace_sample" >"$TMP/code"
    WHAT="probes"
    for name in create start park unpark end offload; do
        says "    Provider: aco\\n    Name: $name\\n    Location: 0x"
    done
    while read -r at; do
        grep -qE "^ *$at:.*[[:space:]]nop$" "$TMP/code" || fail "at $at there is more than a nop"
    done < <(sed -n '/Provider: aco/,/Location/s/.*Location: 0x0*\([0-9a-f]*\),.*/\1/p' \
        "$TMP/said")
    echo "probes: create, start, park, unpark, end, offload"
}

(($# == 0)) && set -- list watch trace probes
for part; do
    "check_${part}_part"
done
