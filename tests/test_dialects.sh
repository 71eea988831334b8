#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Header and library compile in every dialect of C, strict ones too, without a warning, with gcc and
# with clang. The header brings no macro that is not ours. aco_assert_override.h goes with
# <assert.h>, and its assertions are active with NDEBUG.
# parts: x86_64 i386 arm64 riscv64 arm thumb
# seconds: 15 15 5 5 5 5

# shellcheck source=tests/harness.sh
. tests/harness.sh

DIALECTS=(c99 gnu99 c11 gnu11 gnu17 gnu2x)

# Variants of the library that differ in what is compiled. That for memcheck is not one of other
# processors, whose programs it can't run here.
CONFIGURATIONS=(
    "-O0"
    "-O2"
    "-O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"
    "-O2 -DACO_CONFIG_NO_INLINE_SWITCH"
    "-O2 -DACO_CONFIG_STRESS -DNDEBUG"
)

if echo '#include <valgrind/memcheck.h>' | $CC -E - >/dev/null 2>&1; then
    CONFIGURATIONS+=("-O2 -DACO_USE_VALGRIND")
else
    echo "valgrind: its headers were not found, not tested"
fi

# The options for a kind of processor.
WIDTH=()

# Compiles the header and the library, with what options are given.
check_options() {
    local cc=$1 source
    shift
    for source in tests/programs/header_user.c aco.c acosw.S; do
        must "$cc ${WIDTH[*]} $*: $source does not compile" \
            "$cc" "${WIDTH[@]}" -pedantic "${C_WARNINGS[@]}" "$@" -I. -c "$source" \
            -o "$TMP/object.o"
    done
}

# The macros that are defined after the lines of standard input.
macros() {
    "$1" "${WIDTH[@]}" -I. -dM -E - | awk '{ sub(/\(.*/, "", $2); print $2 }' | sort
}

# Checks the names of the macros that aco.h adds to those of its system headers.
check_macros() {
    local cc=$1
    sed -n 's/^#include </&/p' aco.h | grep -v valgrind | macros "$cc" >"$TMP/system"
    echo '#include "aco.h"' | macros "$cc" >"$TMP/ours"
    comm -13 "$TMP/system" "$TMP/ours" >"$TMP/new"
    grep -qx ACO_VERSION "$TMP/new" || fail "$cc ${WIDTH[*]}: the macros of aco.h were not found"
    if grep -vE '^(ACO_|aco_)' "$TMP/new" >&2; then
        fail "$cc ${WIDTH[*]}: aco.h defines these macros"
    fi
}

# Each assertion of assert_override_user.c, one after the other, with the words it must print.
check_assertions() {
    local cc=$1 options=("${@:2}") words=("failing != 1" ptr "failing != 3" ptr) i what
    what="$cc ${WIDTH[*]} ${options[*]}"
    must "$what: aco_assert_override.h does not compile" "$cc" "${WIDTH[@]}" "${C_WARNINGS[@]}" \
        "${options[@]}" -I. tests/programs/assert_override_user.c aco.c acosw.S -o "$TMP/assert"
    must "$what: an assertion fails that is true" "${RUN[@]}" "$TMP/assert"
    for i in 1 2 3 4; do
        run_to_death "${RUN[@]}" "$TMP/assert" "$i"
        [[ "$STATUS" -eq 134 ]] || fail "$what: assertion $i exits with $STATUS"
        if [[ "$(wc -l <"$TMP/said")" -ne 1 ]] ||
            ! grep -q "^aco: .*${words[i - 1]}" "$TMP/said"; then
            fail "$what: assertion $i says: $(cat "$TMP/said")"
        fi
    done
}

# A file that includes system headers and the library is a program, in dialects with GNU's names.
check_unity() {
    local cc=$1 dialect
    printf '#include <%s>\n' stdio.h string.h >"$TMP/unity.c"
    cat test_aco_synopsis.c - >>"$TMP/unity.c" <<<'#include "aco.c"'
    for dialect in gnu99 gnu17; do
        must "$cc ${WIDTH[*]} -std=$dialect: aco.c in another file does not compile" "$cc" \
            "${WIDTH[@]}" -std="$dialect" -pedantic "${C_WARNINGS[@]}" -Wno-unused-macros -I. \
            "$TMP/unity.c" acosw.S -o "$TMP/unity" -lpthread
        must "$cc ${WIDTH[*]} -std=$dialect: aco.c in another file fails" "${RUN[@]}" "$TMP/unity"
    done
}

# check COMPILER OPTIONS
check() {
    local cc=$1 what=${PROCESSOR:-$1 $2} dialect configuration options ct=0
    read -ra WIDTH <<<"$2"
    for dialect in "${DIALECTS[@]}"; do
        check_options "$cc" -std="$dialect" -fsyntax-only
    done
    # -pedantic would complain of all that C99 brought.
    check_options "$cc" -std=gnu89 -Wno-pedantic
    for configuration in "${CONFIGURATIONS[@]}"; do
        [[ -z $PROCESSOR || $configuration != *VALGRIND* ]] || continue
        read -ra options <<<"$configuration"
        check_options "$cc" "${options[@]}"
        ct=$((ct + 1))
    done
    echo "$what: gnu89 ${DIALECTS[*]}, and $ct configurations"
    check_macros "$cc"
    check_assertions "$cc"
    check_assertions "$cc" -DNDEBUG
    check_unity "$cc"
    echo "$what: aco.c in another file"
    echo "$what: macros of the header, aco_assert_override.h with and without NDEBUG"
}

on_each_native check gcc clang
on_each_foreign check
