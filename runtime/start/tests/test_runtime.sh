#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The tests of the runtime as make.sh doesn't build them: with clang, without optimization, under
# sanitizers and memcheck, which must see the faults in faults.c, and on other processors, for which
# an emulator runs the tests that need only epoll and threads of the kernel. test_many.c makes large
# numbers of everything.
#
# parts: memcheck others sanitized foreign many
# seconds: 40 60 60 60 10
# user: memcheck many

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_cmocka

readonly TESTS=(runtime/*/tests/{test,random}_*.c)
readonly FOREIGN_TESTS=(runtime/sched/tests/{test_tasks,random_tasks}.c
    runtime/sync/tests/test_{groups,sync,chan,broadcast}.c runtime/io/tests/test_{io,reader}.c
    runtime/start/tests/test_embed.c)

# check_with COMPILER OPTION...: builds PROGRAMS, and runs those that are tests.
check_with() {
    local source name
    use_library aco_runtime "$@"
    for source in "${PROGRAMS[@]}"; do
        name=$(basename "$source" .c)
        use_program "$source" "$@"
        case $name,$* in
        faults,*) ;;
        # TSan reports a race if one thread closes a descriptor that another one reads.
        random_descriptors,*=thread*)
            must "$*: random descriptors" "$TMP/$name" 2000 "${SEED:-1}"
            ;;
        *) run_arguments "$name" "${RUN[@]}" "$TMP/$name" ;;
        esac
    done
    echo "$*"
}

read -ra compiler <<<"$CC"

# All but tests that make system calls which memcheck does not know, or with bad memory; whose
# children die of faults; and that take it minutes, such as random programs by the thousand.
readonly WITHOUT_MEMCHECK='/(test_(kernel|offload|misuse|observe|many)|random_.*)\.c$'

check_memcheck() {
    have valgrind || lack "no valgrind: apt-get install valgrind"
    RUN=(valgrind -q --error-exitcode=9)
    mapfile -t PROGRAMS < <(printf '%s\n' "${TESTS[@]}" | grep -vE "$WITHOUT_MEMCHECK")
    PROGRAMS+=(runtime/start/tests/faults.c)
    check_with "${compiler[@]}" -O2 -DACO_USE_VALGRIND
    use_program runtime/sched/tests/random_tasks.c "${compiler[@]}" -O2 -DACO_USE_VALGRIND
    must "memcheck finds faults in random programs" "${RUN[@]}" --leak-check=full \
        "$TMP/random_tasks" 100 "${SEED:-1}"
    must_not "memcheck does not see what is uninitialised" "depends on uninitialised" \
        "${RUN[@]}" "$TMP/faults" uninitialised
    RUN=()
}

check_others() {
    PROGRAMS=("${TESTS[@]}")
    check_with "${compiler[@]}" -O0
    find_compilers clang
    check_with clang -O2
    if [[ " ${WIDTHS[*]} " == *" -m32 "* ]]; then # it is strict about atomic operations of 64 bits
        check_with clang -m32 -O2
    fi
}

check_sanitized() {
    PROGRAMS=("${TESTS[@]}" runtime/start/tests/faults.c)
    check_with "${compiler[@]}" -O1 -fsanitize=address,undefined \
        -fno-sanitize-recover=all
    must_not "ASan does not see a use of freed memory" heap-use-after-free "$TMP/faults" freed
    check_with "${compiler[@]}" -O1 -fsanitize=thread
    must_not "TSan does not see a race" "data race" "$TMP/faults" race
}

# check_on_foreign COMPILER OPTIONS
check_on_foreign() {
    local options
    read -ra options <<<"$2"
    check_with "$1" "${options[@]}" -O1
}

check_foreign() {
    PROGRAMS=("${FOREIGN_TESTS[@]}")
    ((${#FOREIGN[@]} != 0)) || skip "no other processor here"
    on_each_foreign check_on_foreign
}

check_many() {
    use_library aco_runtime "${compiler[@]}" -O2
    use_program runtime/start/tests/test_many.c "${compiler[@]}" -O2
    must "10,000 connections, 1,000,000 tasks, 100,000 timers" "$TMP/test_many" 10000 1000000 100000
    cat "$TMP/said"
}

(($# == 0)) && set -- memcheck others sanitized foreign many
for part; do
    "check_$part"
done
