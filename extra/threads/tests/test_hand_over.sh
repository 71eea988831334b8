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

# Position-independent code that has yielded knows who runs: it doesn't look that up anew. Programs
# must not rely on it, as compilers may still load it from an address that they have kept.
check_known() {
    must "$1 $2: does not compile" "$1" "$2" -std=gnu99 -O2 -fPIC -I. -S "$TMP/known.c" \
        -o "$TMP/known.s"
    if awk '/^(once|to):/ { has_switched = 0 } /jmp[lq]?[ \t]+\*/ { has_switched = 1 }
            has_switched && /aco_gtls_co|tls_get_addr/' "$TMP/known.s" | grep . >&2; then
        fail "$1 $2: looks up who runs after a yield"
    fi
    [[ $(grep -cE 'jmp[lq]?\s+\*' "$TMP/known.s") -ge 3 ]] || fail "$1 $2: no switch is read"
    echo "$1 $2 -fPIC: who runs is known after a yield"
}

cat >"$TMP/known.c" <<'END'
#include "aco.h"
aco_t *once(void) { aco_yield(); return aco_get_co(); }
aco_t *to(aco_t *co) { aco_yield_to(co); return aco_get_co(); }
END
on_each_native check_known gcc clang

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
