#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The model of fuzz_programs.c holds for pseudo-random programs, the same ones each time, where there
# is no libFuzzer: on other processors. On this one they show that random_programs.c works.

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly PROGRAMS=3000
readonly SOURCES=(tests/fuzz/{random,fuzz}_programs.c tests/{no_inline,harness}.c aco.c acosw.S)
readonly BUILDS=("-O2" "-O1 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_STRESS")

# check COMPILER WIDTH
check() {
    local build options last
    for build in "${BUILDS[@]}"; do
        read -ra options <<<"$2 $build"
        must "$1 $2 $build: does not compile" "$1" "${options[@]}" -std=gnu99 "${C_WARNINGS[@]}" -I. \
            "${SOURCES[@]}" -o "$TMP/program" "${CMOCKA[@]}" -lpthread -lm
        if ! timeout 100 "${RUN[@]}" "$TMP/program" "$PROGRAMS" >"$TMP/said" 2>"$TMP/complaint"; then
            last=$(tail -n 1 "$TMP/said")
            cat "$TMP/complaint" >&2
            fail "${PROCESSOR:-$1 $2} $build: fails with $last; random_programs.c can repeat it"
        fi
    done
    echo "${PROCESSOR:-$1 $2}: $PROGRAMS programs in each of ${#BUILDS[@]} builds"
}

for width in "${WIDTHS[@]}"; do
    check "$CC" "$width"
done
on_each_foreign check
