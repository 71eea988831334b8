#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The tests of the runtime, natively in all configurations, for i386, and under sanitizers and
# memcheck. random_*.c make random programs in a time of their own, and close and reuse descriptors
# at random; random_threads.c leaves the order to the machine; test_kernel.c compares calls with the
# kernel's, test_failures.c has those to libc fail, and test_many.c makes much at a time. What
# sanitizers and memcheck must still see is in faults.c. Other processors run what needs no kernel
# but for epoll and threads.
#
# parts: native sanitized others foreign many

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_cmocka

readonly LIBRARY=(runtime/*.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S)
readonly INCLUDE=(-I. -Iruntime -Iruntime/tests -Iextra/stack_pool)

readonly TESTS=(test_{tasks,groups,shortage,misuse,sync,chan,broadcast,io,reader,numbers,embed,offload,process,observe})
# Without cmocka, and with arguments.
readonly OTHER_TESTS=(random_{tasks,descriptors,threads} test_{kernel,failures,many} faults)
readonly FOREIGN_TESTS=(test_{tasks,groups,sync,chan,broadcast,io,reader,embed} random_tasks)

# What is built.
PROGRAMS=("${TESTS[@]}" "${OTHER_TESTS[@]}")

# build COMPILER OPTION...: PROGRAMS, in $TMP.
build() {
    local sources name objects=() wrapped library
    read -ra sources <<<"${LIBRARY[*]}"
    for name in "${sources[@]}"; do
        objects+=("$TMP/$(basename "$name").o")
        must "$*: $name does not compile" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
            -pthread -c "$name" -o "${objects[-1]}"
    done
    for name in "${PROGRAMS[@]}"; do
        mapfile -t wrapped < <(sed -n 's,^// build: ,,p' "runtime/tests/$name.c")
        library=("${CMOCKA[@]}")
        [[ " ${OTHER_TESTS[*]} " != *" $name "* ]] || library=()
        must "$*: $name.c does not build" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
            -pthread "runtime/tests/$name.c" "${objects[@]}" "${wrapped[@]}" \
            -o "$TMP/$name" "${library[@]}"
    done
}

# check CT_PROGRAMS COMPILER OPTION...
check() {
    local ct=$1 name
    shift
    build "$@"
    for name in "${TESTS[@]}"; do
        must "$*: $name fails" "$TMP/$name"
    done
    must "$*: a task sees what no thread does" "$TMP/test_kernel" $((20000 / ct)) "$SEED"
    must "$*: not every call may fail" "$TMP/test_failures" $((20000 / ct)) "$SEED"
    must "$*: threads" "$TMP/random_threads" $((ct / 50)) "$SEED"
    must "$*: much at a time" "$TMP/test_many" $((ct / 20)) $((ct * 2)) "$ct"
    must "$*: a random program fails" "$TMP/random_tasks" "$ct" "$SEED"
    must "$*: random descriptors" "$TMP/random_descriptors" $((ct * 5)) "$SEED"
    # To TSan it is a race if one thread closes what another one reads.
    [[ $* == *=thread* ]] ||
        must "$*: random descriptors, two threads" "$TMP/random_descriptors" $((ct / 4)) "$SEED" 2
    echo "$*"
}

readonly SEED=${SEED:-1}
read -ra compiler <<<"$CC"

check_native() {
    check 20000 "${compiler[@]}" -O2
    check 2000 "${compiler[@]}" -O0 -DACO_CONFIG_STRESS -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
    if have valgrind; then
        build "${compiler[@]}" -O1 -DACO_USE_VALGRIND
        must "memcheck finds faults in random programs" valgrind -q --error-exitcode=9 \
            --leak-check=full "$TMP/random_tasks" 100 "$SEED"
        must_not "memcheck does not see what is uninitialised" "depends on uninitialised" \
            valgrind -q --error-exitcode=9 "$TMP/faults" uninitialised
        echo "memcheck"
    else
        echo "valgrind: not available, not tested"
    fi
}

check_others() {
    local is_tested=0
    if have clang; then
        check 20000 clang -O2
        is_tested=1
    else
        echo "clang: not available, not tested"
    fi
    if [[ " ${WIDTHS[*]} " == *" -m32 "* ]]; then
        if have clang; then
            compiler=(clang) # which is strict about atomic operations of 64 bits
        fi
        check 5000 "${compiler[@]}" -m32 -O2
        is_tested=1
    fi
    ((is_tested)) || skip "neither clang nor i386 here"
}

check_sanitized() {
    check 1000 "${compiler[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
    must_not "ASan does not see a use of freed memory" heap-use-after-free "$TMP/faults" freed
    check 500 "${compiler[@]}" -O1 -fsanitize=thread
    must_not "TSan does not see a race" "data race" "$TMP/faults" race
}

# check_on_foreign COMPILER OPTIONS
check_on_foreign() {
    local name options
    read -ra options <<<"$2"
    PROGRAMS=("${FOREIGN_TESTS[@]}")
    build "$1" "${options[@]}" -O1
    for name in "${FOREIGN_TESTS[@]}"; do
        must "$PROCESSOR: $name fails" "${RUN[@]}" "$TMP/$name" 500 "$SEED"
    done
    echo "$PROCESSOR"
}

check_foreign() {
    ((${#FOREIGN[@]} != 0)) || skip "no other processor here"
    on_each_foreign check_on_foreign
}

check_many() {
    PROGRAMS=(test_many)
    build "${compiler[@]}" -O2
    must "10,000 connections, 1,000,000 tasks, 100,000 timers" "$TMP/test_many" 10000 1000000 100000
    cat "$TMP/said"
}

(($# == 0)) && set -- native sanitized others foreign many
for part; do
    "check_$part"
done
