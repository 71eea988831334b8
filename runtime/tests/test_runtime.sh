#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The tests of the runtime, natively in all configurations, for i386, and under sanitizers and
# memcheck; and random programs in a time of their own, which random_tasks.c makes and checks.
#
# parts: native others sanitized

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly TESTS=(tasks sync chan)
readonly LIBRARY=(runtime/*.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S)
readonly INCLUDE=(-I. -Iruntime -Iruntime/tests -Iextra/stack_pool)
readonly WRAPPED=-Wl,--wrap=clock_gettime,--wrap=epoll_wait,--wrap=syscall

# build COMPILER OPTION...: all the programs, in $TMP.
build() {
    local sources name objects=()
    read -ra sources <<<"${LIBRARY[*]}"
    for name in "${sources[@]}"; do
        objects+=("$TMP/$(basename "$name").o")
        must "$*: $name does not compile" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
            -pthread -c "$name" -o "${objects[-1]}"
    done
    for name in "${TESTS[@]}"; do
        must "$*: test_$name.c does not build" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" \
            "${INCLUDE[@]}" -pthread "runtime/tests/test_$name.c" "${objects[@]}" \
            -o "$TMP/test_$name" -lcmocka
    done
    must "$*: random_tasks.c does not build" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
        -pthread "$WRAPPED" runtime/tests/random_tasks.c "${objects[@]}" -o "$TMP/random_tasks"
}

# check CT_PROGRAMS COMPILER OPTION...
check() {
    local ct=$1 name
    shift
    build "$@"
    for name in "${TESTS[@]}"; do
        must "$*: test_$name fails" "$TMP/test_$name"
    done
    must "$*: a random program fails" "$TMP/random_tasks" "$ct" "$SEED"
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
    if have clang; then
        check 20000 clang -O2
    else
        echo "clang: not available, not tested"
    fi
    if [[ -n $M32 && -n $(find /usr/lib/i386-linux-gnu -name 'libcmocka.so' 2>/dev/null) ]]; then
        check 5000 "${compiler[@]}" -m32 -O2
    else
        echo "i386: not tested"
    fi
}

check_sanitized() {
    check 1000 "${compiler[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
    check 500 "${compiler[@]}" -O1 -fsanitize=thread
}

(($# == 0)) && set -- native others sanitized
for part; do
    "check_$part"
done
