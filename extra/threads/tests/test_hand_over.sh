#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Handing coroutines to other threads: test_hand_over.c under ThreadSanitizer, with the list of
# coroutines, and in a shared library, where compilers keep addresses of thread-locals.
#
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh
need_cmocka

HERE=extra/threads
SOURCES=("$HERE/tests/test_hand_over.c" "$HERE/aco_threads.c" tests/harness.c aco.c acosw.S)

# check CC OPTION...
check() {
    local cc=$1
    shift
    must "$cc $*: the tests do not compile" "$cc" -std=gnu99 "$@" "${C_WARNINGS[@]}" -I. \
        "${SOURCES[@]}" -o "$TMP/program" "${CMOCKA[@]}" -lpthread -lm
    must "$cc $*: the tests fail" "${RUN[@]}" "$TMP/program"
    echo "$cc $*: all is well"
}

# The same with the tests, but not cmocka, in a shared library.
check_shared() {
    local cc=$1
    shift
    must "$cc $*: the library does not compile" "$cc" -std=gnu99 "$@" -fPIC -shared \
        -Dmain=shared_main "${CMOCKA[@]::${#CMOCKA[@]}-1}" -I. "${SOURCES[@]}" -o "$TMP/libtests.so"
    echo 'int shared_main(void); int main(void) { return shared_main(); }' >"$TMP/main.c"
    must "$cc $*: the program does not link" "$cc" "$@" "$TMP/main.c" "$TMP/libtests.so" \
        "-Wl,-rpath,$TMP" -o "$TMP/program" "${CMOCKA[@]}" -lpthread -lm
    must "$cc $*: the tests fail" "${RUN[@]}" "$TMP/program"
    echo "$cc $* -fPIC: all is well"
}

find_compilers gcc clang
for cc in "${FOUND[@]}"; do
    check "$cc" -O1 -g -fsanitize=thread
    check "$cc" -O2 -DACO_CONFIG_LIST
    for width in "${WIDTHS[@]}"; do
        check_shared "$cc" "$width" -O2
    done
done
check_foreign() {
    local width
    read -ra width <<<"$2"
    check "$1" "${width[@]}" -O2 -DACO_CONFIG_LIST
    check_shared "$1" "${width[@]}" -O2
}

on_each_foreign check_foreign
if have gcc; then
    check_shared gcc -O2 -mtls-dialect=gnu2
fi
