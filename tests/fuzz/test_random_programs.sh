#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The model holds for pseudo-random programs, the same ones each time, where there is no libFuzzer:
# on other processors. On this one they show that random_programs.c works.

# shellcheck source=tests/harness.sh
. tests/harness.sh
need_cmocka

readonly PROGRAMS=3000
readonly SOURCES=(tests/fuzz/{random_programs,fuzz_programs,operations,model}.c
    tests/{no_inline,harness}.c
    extra/{cancel/aco_cancel,exceptions/aco_exceptions,returning/aco_returning}.c
    extra/{stack_pool/aco_stack_pool,threads/aco_threads,value/aco_value}.c aco.c acosw.S)
readonly BUILDS=("-O2" "-O1 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_STRESS")

# find_cxx COMPILER OPTION...: leaves in CXX_LEVEL what is to be linked for levels in C++.
find_cxx() {
    CXX_LEVEL=()
    if can_build "$@"; then
        must "$*: catching_level.cc does not compile" "$@" "${WARNINGS[@]}" -std=c++11 -O1 \
            -c tests/fuzz/catching_level.cc -o "$TMP/catching_level.o"
        CXX_LEVEL=("$TMP/catching_level.o" -lstdc++)
    else
        [[ -z "$INSTALLED" ]] || fail "$*: no C++, though -i was to install it"
        echo "$*: no C++, not tested with it"
    fi
}

# check COMPILER WIDTH CXX
check() {
    local build options last width
    read -ra width <<<"$2"
    find_cxx "$3" "${width[@]}"
    for build in "${BUILDS[@]}"; do
        read -ra options <<<"$2 $build"
        must "$1 $2 $build: does not compile" "$1" "${options[@]}" -std=gnu99 -fexceptions \
            "${C_WARNINGS[@]}" -I. "${SOURCES[@]}" -o "$TMP/program" "${CXX_LEVEL[@]}" \
            "${CMOCKA[@]}" -lpthread -lm
        if ! timeout 100 "${RUN[@]}" "$TMP/program" "$PROGRAMS" \
            >"$TMP/said" 2>"$TMP/complaint"; then
            last=$(tail -n 1 "$TMP/said")
            cat "$TMP/complaint" >&2
            fail "${PROCESSOR:-$1 $2} $build: fails with $last; random_programs.c can repeat it"
        fi
    done
    echo "${PROCESSOR:-$1 $2}: $PROGRAMS programs in each of ${#BUILDS[@]} builds"
}

for width in "${WIDTHS[@]}"; do
    check "$CC" "$width" "$CXX"
done
on_each_foreign check clang++
