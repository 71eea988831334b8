#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sanitizers and memcheck find nothing in a program that uses stack pools in every way: they know
# the stacks that come back, and what suspended coroutines hold is no leak. A real leak is found,
# even if its address is where a coroutine was.
#
# seconds: 12
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

SOURCES=(extra/stack_pool/tests/pool_user.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S)

can_build() {
    echo 'int main(void) { return 0; }' |
        "$1" -x c - "${@:2}" -o "$TMP/probe" 2>"$TMP/said" && "$TMP/probe" >"$TMP/said" 2>&1
}

build() {
    must "$*: the program does not compile" \
        "$1" -std=gnu99 -g "${C_WARNINGS[@]}" -I. "${@:2}" "${SOURCES[@]}" \
        -o "$TMP/program" -lpthread
}

# Whether leaks can be searched for, which needs the right to trace.
finds_leaks() {
    [[ $* == *address* ]] || return 1
    echo '#include <stdlib.h>
        static void *volatile block;
        int main(void) { block = malloc(10); block = NULL; return 0; }' >"$TMP/leaks.c"
    "$@" "$TMP/leaks.c" -o "$TMP/leaks" 2>"$TMP/said" || return 1
    ! "$TMP/leaks" >"$TMP/said" 2>&1 && [[ $(<"$TMP/said") == *"detected memory leaks"* ]]
}

tested=0
find_compilers gcc clang
for compiler in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        for sanitizer in address,undefined thread; do
            options=("$width" -O1 "-fsanitize=$sanitizer" -fno-sanitize-recover)
            can_build "$compiler" "${options[@]}" || continue
            build "$compiler" "${options[@]}"
            must "$compiler ${options[*]}: something is found" \
                env ASAN_OPTIONS=detect_stack_use_after_return=1 "$TMP/program"
            if finds_leaks "$compiler" "${options[@]}"; then
                must_not "$compiler ${options[*]}: a leak is not found" "Direct leak of 100 byte" \
                    "$TMP/program" leak
            fi
            echo "$compiler ${options[*]}: nothing found"
            tested=$((tested + 1))
        done
    done
done
if have valgrind && can_build "${FOUND[0]}" -include valgrind/valgrind.h; then
    for options in -O0 "-O2 -DACO_CONFIG_STRESS"; do
        read -r -a words <<<"$options"
        build "${FOUND[0]}" -gdwarf-4 -DACO_USE_VALGRIND "${words[@]}"
        must "memcheck $options: something is found" valgrind --error-exitcode=99 \
            --leak-check=full --errors-for-leak-kinds=definite,indirect,possible "$TMP/program"
        if grep -A 2 'Warning' "$TMP/said" >&2; then
            fail "memcheck $options: it does not know the stacks"
        fi
        echo "memcheck $options: nothing found"
        tested=$((tested + 1))
    done
fi
((tested)) || skip "there is neither a sanitizer nor valgrind"
