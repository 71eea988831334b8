#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Header and library compile in every dialect of C, strict ones too, without a warning, with gcc and
# with clang. The header brings no macro that is not ours. aco_assert_override.h goes with
# <assert.h>, and its assertions are active with NDEBUG.

# shellcheck source=tests/harness.sh
. tests/harness.sh

DIALECTS=(c99 gnu99 c11 gnu11 gnu17 gnu2x)

# Variants of the library that differ in what is compiled.
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

# Compiles the header and the library, with what options are given.
check_options() {
    local cc=$1 width=$2 source
    shift 2
    for source in tests/header_user.c aco.c acosw.S; do
        must "$cc $width $*: $source does not compile" \
            "$cc" "$width" -pedantic "${C_WARNINGS[@]}" "$@" -I. -c "$source" -o "$TMP/object.o"
    done
}

# The macros that are defined after the lines of standard input.
macros() {
    "$1" "$2" -I. -dM -E - | awk '{ sub(/\(.*/, "", $2); print $2 }' | sort
}

# What aco.h defines besides what its system headers do.
check_macros() {
    local cc=$1 width=$2
    sed -n 's/^#include </&/p' aco.h | grep -v valgrind | macros "$cc" "$width" >"$TMP/system"
    echo '#include "aco.h"' | macros "$cc" "$width" >"$TMP/ours"
    comm -13 "$TMP/system" "$TMP/ours" >"$TMP/new"
    grep -qx ACO_VERSION "$TMP/new" || fail "$cc $width: the macros of aco.h were not found"
    if grep -vE '^(ACO_|aco_)' "$TMP/new" >&2; then
        fail "$cc $width: aco.h defines these macros"
    fi
}

# Each assertion of assert_override_user.c, one after the other, with the words it must print.
check_assertions() {
    local cc=$1 width=$2 options=("${@:3}") words=("failing != 1" ptr "failing != 3" ptr) i what
    what="$cc $width ${options[*]}"
    must "$what: aco_assert_override.h does not compile" "$cc" "$width" "${C_WARNINGS[@]}" \
        "${options[@]}" -I. tests/assert_override_user.c aco.c acosw.S -o "$TMP/assert"
    must "$what: an assertion fails that is true" "$TMP/assert"
    for i in 1 2 3 4; do
        run_to_death "$TMP/assert" "$i"
        [ "$STATUS" -eq 134 ] || fail "$what: assertion $i exits with $STATUS"
        if [ "$(wc -l <"$TMP/said")" -ne 1 ] ||
            ! grep -q "^aco: .*${words[i - 1]}" "$TMP/said"; then
            fail "$what: assertion $i says: $(cat "$TMP/said")"
        fi
    done
}

find_compilers gcc clang
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        for dialect in "${DIALECTS[@]}"; do
            check_options "$cc" "$width" -std="$dialect" -fsyntax-only
        done
        for configuration in "${CONFIGURATIONS[@]}"; do
            read -ra options <<<"$configuration"
            check_options "$cc" "$width" "${options[@]}"
        done
        echo "$cc $width: ${DIALECTS[*]}, and ${#CONFIGURATIONS[@]} configurations"
        check_macros "$cc" "$width"
        check_assertions "$cc" "$width"
        check_assertions "$cc" "$width" -DNDEBUG
        echo "$cc $width: macros of the header, aco_assert_override.h with and without NDEBUG"
    done
done
