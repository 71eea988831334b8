#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Header and library compile as C++ of every year, without a warning; a C++ program with objects,
# exceptions and containers in its coroutines works with a library compiled as C or as C++, and a C
# program works with the latter.
# parts: x86_64 i386 arm64 riscv64 arm thumb
# seconds: 15 15 5 5 5 5
# user: x86_64 i386

# shellcheck source=tests/harness.sh
. tests/harness.sh

# The options for a kind of processor, and what runs a program: nothing, or an emulator.
WIDTH=() RUN=()
DIALECTS=(c++11 c++14 c++17 c++20 gnu++11 gnu++20)
OLD_DIALECTS=(c++98 gnu++03)

check_dialect() {
    local cxx=$1 dialect=$2 source
    for source in tests/programs/header_user.c aco.c; do
        must "$cxx ${WIDTH[*]} -std=$dialect: $source does not compile" \
            "$cxx" "${WIDTH[@]}" -std="$dialect" -pedantic "${WARNINGS[@]}" -I. \
            -fsyntax-only -x c++ "$source"
    done
}

# The header alone, in dialects that have no variadic macros and no `long long`, strictly.
check_old_dialect() {
    must "$1 ${WIDTH[*]} -std=$2: the header does not compile" "$1" "${WIDTH[@]}" -std="$2" -Wall \
        -Wextra -Werror -I. -fsyntax-only -x c++ -include aco.h -include aco_assert_override.h \
        /dev/null
}

c_compiler_of() {
    if [[ "$1" == g++ ]]; then echo gcc; else echo clang; fi
}

# Objects of the library, as C in $TMP/c.o and as C++ in $TMP/cxx.o.
build_library() {
    local cc=$1 cxx=$2 level=$3
    must "aco.c does not compile as C" "$cc" "${WIDTH[@]}" "$level" -I. -c aco.c -o "$TMP/c.o"
    must "aco.c does not compile as C++" \
        "$cxx" "${WIDTH[@]}" "$level" -pedantic "${WARNINGS[@]}" -I. -x c++ -c aco.c \
        -o "$TMP/cxx.o"
    must "acosw.S does not compile" "$cc" "${WIDTH[@]}" -I. -c acosw.S -o "$TMP/acosw.o"
}

# An exception that leaves an entry function finds the end of the stack, and so terminates.
check_throw() {
    local program=$1 what=$2
    run_to_death "${RUN[@]}" "$program" throw
    if [[ "$STATUS" -ne 134 ]] || ! grep -q "terminate called.*runtime_error" "$TMP/said"; then
        fail "$what: an exception that leaves an entry function: status $STATUS"
    fi
    if grep -E '^(unwound|caught)' "$TMP/said" >&2; then
        fail "$what: an uncaught exception was passed on"
    fi
}

check_programs() {
    local cc=$1 cxx=$2 level=$3 library what="$1 $2 ${WIDTH[*]} $3"
    build_library "$cc" "$cxx" "$level"
    must "$what: the C++ program does not compile" \
        "$cxx" "${WIDTH[@]}" "$level" -std=c++11 "${WARNINGS[@]}" -I. \
        -c tests/programs/cxx_user.cc -o "$TMP/user.o"
    for library in c cxx; do
        must "$what: the C++ program does not link with the library as $library" \
            "$cxx" "${WIDTH[@]}" "$TMP/user.o" "$TMP/$library.o" "$TMP/acosw.o" -o "$TMP/program"
        must "$what: the C++ program fails with the library as $library" \
            "${RUN[@]}" "$TMP/program"
        check_throw "$TMP/program" "$what"
    done
    must "$what: a C program does not link with the library as C++" "$cc" "${WIDTH[@]}" "$level" \
        -I. tests/programs/library_user.c "$TMP/cxx.o" "$TMP/acosw.o" -o "$TMP/program"
    must "$what: a C program fails with the library as C++" "${RUN[@]}" "$TMP/program"
}

# check WHAT C++-COMPILER, for the processor of WIDTH and RUN.
check() {
    local what=$1 cxx=$2 dialect level
    compiles_cxx "$what" "$cxx" "${WIDTH[@]}" || return 0
    for dialect in "${DIALECTS[@]}"; do
        check_dialect "$cxx" "$dialect"
    done
    for dialect in "${OLD_DIALECTS[@]}"; do
        check_old_dialect "$cxx" "$dialect"
    done
    echo "$what: header and library as ${DIALECTS[*]}, header as ${OLD_DIALECTS[*]}"
    for level in -O0 -O2; do
        check_programs "$(c_compiler_of "$cxx")" "$cxx" "$level"
    done
    echo "$what: programs with the library as C and as C++"
}

find_compilers g++ clang++
for cxx in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        WIDTH=("$width")
        check "$cxx $width" "$cxx"
    done
done
for name in "${FOREIGN[@]}"; do
    have clang++ || break
    read -r _ width <<<"${CROSS[$name]}"
    read -ra WIDTH <<<"$width"
    read -ra RUN <<<"${EMULATOR[$name]}"
    check "$name" clang++
done
tell_untested
