#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The tests of the runtime, natively in all configurations, for i386, and under sanitizers and
# memcheck. random_*.c make random programs in a time of their own, and close and reuse descriptors
# at random; test_kernel.c compares calls with the kernel's, and test_failures.c has those to libc
# fail.
#
# parts: native sanitized others

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_cmocka

readonly LIBRARY=(runtime/*.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S)
readonly INCLUDE=(-I. -Iruntime -Iruntime/tests -Iextra/stack_pool)
# What programs are linked with --wrap for.
declare -rA WRAPPED=(
    [random_tasks]="clock_gettime epoll_wait syscall"
    [test_failures]="epoll_create1 epoll_ctl epoll_wait eventfd timerfd_create signalfd socket bind
        listen accept4 connect poll read write preadv64 pwritev64 recvfrom recvmsg send sendmsg
        sendfile64 fsync waitpid sigtimedwait mprotect close open64 syscall pthread_create
        getaddrinfo malloc calloc free mmap munmap"
    [test_io]="getsockopt"
    [test_offload]="pthread_create pthread_cond_timedwait syscall getaddrinfo getnameinfo"
    [test_process]="syscall"
)

readonly TESTS=(test_{tasks,sync,chan,io,embed,offload,process,observe})
# Without cmocka, and with arguments.
readonly OTHER_TESTS=(random_{tasks,descriptors} test_{kernel,failures})

# build COMPILER OPTION...: all the programs, in $TMP.
build() {
    local sources name objects=() wrapped library
    read -ra sources <<<"${LIBRARY[*]}"
    for name in "${sources[@]}"; do
        objects+=("$TMP/$(basename "$name").o")
        must "$*: $name does not compile" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
            -pthread -c "$name" -o "${objects[-1]}"
    done
    for name in "${TESTS[@]}" "${OTHER_TESTS[@]}"; do
        read -d '' -ra wrapped <<<"${WRAPPED[$name]:-}" || true
        library=(-lcmocka)
        [[ " ${OTHER_TESTS[*]} " != *" $name "* ]] || library=()
        must "$*: $name.c does not build" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
            -pthread "runtime/tests/$name.c" "${objects[@]}" "${wrapped[@]/#/-Wl,--wrap=}" \
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
        check 5000 "${compiler[@]}" -m32 -O2
        is_tested=1
    fi
    ((is_tested)) || skip "neither clang nor i386 here"
}

check_sanitized() {
    check 1000 "${compiler[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
    check 500 "${compiler[@]}" -O1 -fsanitize=thread
}

(($# == 0)) && set -- native sanitized others
for part; do
    "check_$part"
done
