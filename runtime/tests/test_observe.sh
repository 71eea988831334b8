#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What tells about the tasks of a running program, looked at from outside of it: the list of tasks
# with their backtraces, alive and when the program dies.

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
    says "^task \\d+ \"computer\": running\\n    at computes\\+0x"
    says "^task \\d+ \"\": waits for a time .*\\n$at generates\\+0x.*\\n$at resumes\\+0x"
    (($(grep -c '^task' "$TMP/said") <= 8)) || fail "$WHAT: more entries than kinds of tasks"
}

# dies STATUS HOW PLACE: with the list on stderr, in which the culprit runs in this place.
dies() {
    WHAT="$COMMAND: $2"
    run_to_death timeout 60 "${RUN[@]}" "$TMP/observe_sample" "$2"
    ((STATUS == $1)) || { cat "$TMP/said" >&2; fail "$WHAT: status $STATUS instead of $1"; }
    says '^The process ends by signal \d+. Its tasks:\n'
    says "^task \\d+ \"culprit\": running\\n(    at .*\\n)*    at $3[\\w.]*\\+0x"
    check_list
}

check_lists() {
    COMMAND=$* WHAT="$*: a list"
    build observe_sample "$@"
    must "$WHAT" timeout 60 "${RUN[@]}" "$TMP/observe_sample" print
    says "^task \\d+ \"\": running\\n    at aco_print_tasks\\+0x.*\\n    at first\\+0x"
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

check_lists gcc -O2
if have clang; then
    check_lists clang -O2 -fno-omit-frame-pointer -DACO_CONFIG_STRESS
else
    echo "clang: not found, not tested"
fi
check_lists gcc -O0
[[ " ${WIDTHS[*]} " != *" -m32 "* ]] || check_lists gcc -m32 -O2
on_each_foreign check_foreign
