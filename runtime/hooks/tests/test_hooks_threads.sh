#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The hooks for calls of threads, of processes and of names: each test natively, for i386 and under
# sanitizers, and random programs with locks of all kinds. With keys that are the thread's, an error
# of one task must show in another: so the test of OpenSSL sees what it is for.
#
# parts: native sanitized others

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_cmocka

readonly LIBRARY=(runtime/*.c runtime/hooks/*.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S)
readonly INCLUDE=(-I. -Iruntime -Iruntime/hooks -Iruntime/tests -Iextra/stack_pool)
readonly TESTS=(locks threads c11 processes names)
readonly SEED=${SEED:-1}
read -ra compiler <<<"$CC"

# link PROGRAM SOURCE -- COMPILER OPTION...: with the objects that build() has left, and LIBRARIES.
link() {
    local program=$1 source=$2
    shift 3
    must "$*: $source does not build" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
        -pthread "runtime/hooks/tests/$source" "$TMP"/objects/*.o -o "$TMP/$program" \
        "${LIBRARIES[@]}" -ldl
}

# build COMPILER OPTION...: all the programs, in $TMP.
build() {
    local source name sources
    rm -rf "$TMP/objects"
    mkdir "$TMP/objects"
    read -ra sources <<<"${LIBRARY[*]}"
    for source in "${sources[@]}"; do
        must "$*: $source does not compile" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" \
            "${INCLUDE[@]}" -pthread -c "$source" -o "$TMP/objects/${source//\//.}.o"
    done
    # Between the program and libc, so without the hooks and sanitizers.
    read -ra slow <<<"$* "
    must "$*: slow_names.c does not build" "${slow[@]/-fsanitize*/-O1}" -std=gnu99 \
        "${C_WARNINGS[@]}" -shared -fPIC runtime/hooks/tests/slow_names.c \
        -o "$TMP/libslow_names.so" -ldl
    for name in "${TESTS[@]}"; do
        LIBRARIES=(-lcmocka)
        [[ $name != names ]] || LIBRARIES+=(-L"$TMP" -lslow_names "-Wl,-rpath,$TMP")
        link "test_$name" "test_$name.c" -- "$@"
    done
    LIBRARIES=()
    link random_locks random_locks.c -- "$@"
}

# check CT_STEPS COMPILER OPTION...
check() {
    local ct=$1 name threads
    shift
    build "$@"
    for name in "${TESTS[@]}"; do
        must "$*: test_$name fails" run "$TMP/test_$name"
    done
    if [[ " $* " == *" -m32 "* ]]; then # other names of calls
        LIBRARIES=(-lcmocka)
        for name in locks threads c11; do
            link "test_$name" "test_$name.c" -- "$@" -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64
            must "$*: test_$name fails with times of 64 bits" run "$TMP/test_$name"
        done
    fi
    for threads in "1 0" "1 2" "2 4" "3 2"; do
        # shellcheck disable=SC2086 # two words
        must "$*: random locks, $threads threads" run "$TMP/random_locks" "$ct" "$SEED" $threads
    done
    echo "$*"
}

# A program that a sanitizer may be in. The child of a test makes threads.
run() {
    TSAN_OPTIONS=die_after_fork=0 "${SANITIZED[@]}" "$@"
}

# check_openssl COMPILER OPTION...
check_openssl() {
    LIBRARIES=(-lcmocka -lssl -lcrypto)
    link test_keys test_keys.c -- "$@"
    must "$*: test_keys fails" run "$TMP/test_keys"
    must "$*: test_keys sees no error where it should" run "$TMP/test_keys" shared
    echo "$*: OpenSSL"
}

has_openssl() {
    echo '#include <openssl/ssl.h>' | "$@" -x c -fsyntax-only - 2>/dev/null
}

check_native() {
    check 3000 "${compiler[@]}" -O2
    if ! has_openssl "${compiler[@]}"; then
        lack "no OpenSSL: apt-get install libssl-dev"
    fi
    check_openssl "${compiler[@]}" -O2
    check 1000 "${compiler[@]}" -O0 -DACO_CONFIG_STRESS -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
}

check_others() {
    local is_tested=0
    if have clang; then
        check 2000 clang -O2
        is_tested=1
    else
        echo "clang: not available, not tested"
    fi
    if [[ " ${WIDTHS[*]} " == *" -m32 "* ]]; then
        check 2000 "${compiler[@]}" -m32 -O2
        is_tested=1
    fi
    ((is_tested)) || skip "neither clang nor i386 here"
}

check_sanitized() {
    check 500 "${compiler[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
    ! has_openssl "${compiler[@]}" ||
        check_openssl "${compiler[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
    check 300 "${compiler[@]}" -O1 -fsanitize=thread
}

(($# == 0)) && set -- native sanitized others
for part; do
    "check_$part"
done
