#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Options of compilers, processors and systems that the switch does not support are refused, by a
# single #error or at run time, with a message that names them.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# The text of the first error, a bar, and options for clang.
REFUSED=(
    "safe-stack|-fsanitize=safe-stack"
    "safe-stack|-m32 -fsanitize=safe-stack"
    "safe-stack|--target=aarch64-linux-gnu -fsanitize=safe-stack"
    "shadow call stack|--target=aarch64-linux-gnu -fsanitize=shadow-call-stack -ffixed-x18"
    "Windows|--target=x86_64-w64-mingw32"
    "Windows|--target=x86_64-pc-windows-msvc"
    "Windows|--target=x86_64-pc-windows-cygnus"
    "Windows|--target=i686-w64-mingw32"
    "Windows|--target=aarch64-w64-mingw32"
    "x32|-mx32"
    "no block for this processor|--target=aarch64_be-linux-gnu"
    "no block for this processor|--target=arm-linux-gnueabi"
    "no block for this processor|--target=powerpc64le-linux-gnu"
)

# Empty system headers, since most of these systems have none here. An #error needs nothing of them.
make_headers() {
    local header
    while IFS= read -r header; do
        mkdir -p "$TMP/include/${header%/*}"
        : >"$TMP/include/$header"
    done < <(sed -n 's,^#include <\(.*\)>$,./\1,p' aco.h aco.c)
}

check_refused() {
    local refused words options source
    make_headers
    for refused in "$@"; do
        words=${refused%%|*}
        read -ra options <<<"${refused#*|}"
        for source in aco.c acosw.S; do
            must_not "clang ${options[*]}: $source is not refused" "error: " \
                clang "${options[@]}" -nostdinc -isystem "$TMP/include" -I. -E "$source"
            grep 'error: ' "$TMP/said" >"$TMP/errors"
            [[ $(wc -l <"$TMP/errors") -eq 1 && $(<"$TMP/errors") == *"$words"* ]] ||
                fail "clang ${options[*]}: $source says $(<"$TMP/errors")"
        done
    done
    echo "clang: $# sets of options are refused"
}

# No macro shows this option: the copy finds out that a coroutine has left its share stack.
check_split_stack() {
    local cc=$1
    must "$cc -fsplit-stack: does not compile" "$cc" -fsplit-stack -O2 -I. \
        tests/programs/library_user.c aco.c acosw.S -o "$TMP/user"
    run_to_death "$TMP/user"
    if [[ "$STATUS" -ne 134 ]] || ! grep -q "compile without -fsplit-stack" "$TMP/said"; then
        fail "$cc -fsplit-stack: status $STATUS, $(cat "$TMP/said")"
    fi
    echo "$cc: a coroutine with -fsplit-stack is named"
}

# aco.c can report its switches to one tool, not to two.
check_two_tools() {
    local cc=$1 sanitizer
    if ! "$cc" -DACO_USE_VALGRIND -I. -E aco.c >/dev/null 2>&1; then
        echo "$cc: no headers of valgrind, not tested with a sanitizer"
        return
    fi
    for sanitizer in address thread; do
        must_not "$cc: valgrind and a sanitizer are not refused" "can't run under valgrind" \
            "$cc" -DACO_USE_VALGRIND "-fsanitize=$sanitizer" -I. -E aco.c
    done
    echo "$cc: valgrind and a sanitizer are refused together"
}

find_compilers gcc clang
for cc in "${FOUND[@]}"; do
    check_split_stack "$cc"
    check_two_tools "$cc"
done
find_compilers clang
check_refused "${REFUSED[@]}"
