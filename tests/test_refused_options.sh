#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the switch can't go with is refused, by an #error or at run time, with a message that names it:
# options of compilers, processors and systems. The first message counts: most of these systems have no
# headers here.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# What the first error must say, a bar, and options for clang.
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

check_refused() {
    local refused words options source
    for refused in "$@"; do
        words=${refused%%|*}
        read -ra options <<<"${refused#*|}"
        for source in aco.c acosw.S; do
            must_not "clang ${options[*]}: $source is not refused" "error: " \
                clang "${options[@]}" -I. -E "$source"
            grep -m 1 'error: ' "$TMP/said" >"$TMP/first"
            grep -q "$words" "$TMP/first" ||
                fail "clang ${options[*]}: $source says $(cat "$TMP/first")"
        done
    done
    echo "clang: $# sets of options are refused"
}

# No macro tells of this option: the copy finds out that a coroutine has left its share stack.
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

# Of two tools, aco.c can tell one what it does.
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
