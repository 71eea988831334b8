#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Header and library compile as C++ of every year, without a warning; a C++ program with objects,
# exceptions and containers in its coroutines works with a library compiled as C or as C++, and a C
# program works with the latter.

# shellcheck source=tests/harness.sh
. tests/harness.sh

DIALECTS=(c++11 c++14 c++17 c++20 gnu++11 gnu++20)

check_dialect() {
    local cxx=$1 width=$2 dialect=$3 source
    for source in tests/header_user.c aco.c; do
        must "$cxx $width -std=$dialect: $source does not compile" \
            "$cxx" "$width" -std="$dialect" -pedantic "${WARNINGS[@]}" -I. \
            -fsyntax-only -x c++ "$source"
    done
}

c_compiler_of() {
    if [ "$1" = g++ ]; then echo gcc; else echo clang; fi
}

# Objects of the library, as C in $TMP/c.o and as C++ in $TMP/cxx.o.
build_library() {
    local cc=$1 cxx=$2 width=$3 level=$4
    must "aco.c does not compile as C" "$cc" "$width" "$level" -I. -c aco.c -o "$TMP/c.o"
    must "aco.c does not compile as C++" \
        "$cxx" "$width" "$level" -pedantic "${WARNINGS[@]}" -I. -x c++ -c aco.c \
        -o "$TMP/cxx.o"
    must "acosw.S does not compile" "$cc" "$width" -I. -c acosw.S -o "$TMP/acosw.o"
}

# An exception that leaves an entry function finds the end of the stack, and so terminates.
check_throw() {
    local program=$1 what=$2
    run_to_death "$program" throw
    if [ "$STATUS" -ne 134 ] || ! grep -q "terminate called.*runtime_error" "$TMP/said"; then
        fail "$what: an exception that leaves an entry function: status $STATUS"
    fi
    if grep -E '^(unwound|caught)' "$TMP/said" >&2; then
        fail "$what: an exception that nobody catches was passed on"
    fi
}

check_programs() {
    local cc=$1 cxx=$2 width=$3 level=$4 library what="$1 $2 $3 $4"
    build_library "$cc" "$cxx" "$width" "$level"
    must "$what: the C++ program does not compile" \
        "$cxx" "$width" "$level" -std=c++11 "${WARNINGS[@]}" -I. -c tests/cxx_user.cc \
        -o "$TMP/user.o"
    for library in c cxx; do
        must "$what: the C++ program does not link with the library as $library" \
            "$cxx" "$width" "$TMP/user.o" "$TMP/$library.o" "$TMP/acosw.o" -o "$TMP/program"
        must "$what: the C++ program fails with the library as $library" "$TMP/program"
        check_throw "$TMP/program" "$what"
    done
    must "$what: a C program does not link with the library as C++" "$cc" "$width" "$level" -I. \
        tests/library_user.c "$TMP/cxx.o" "$TMP/acosw.o" -o "$TMP/program"
    must "$what: a C program fails with the library as C++" "$TMP/program"
}

find_compilers g++ clang++
for cxx in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        if ! echo '#include <string>' | "$cxx" "$width" -x c++ -fsyntax-only - 2>/dev/null; then
            echo "$cxx $width: no C++ headers, not tested"
            continue
        fi
        for dialect in "${DIALECTS[@]}"; do
            check_dialect "$cxx" "$width" "$dialect"
        done
        echo "$cxx $width: header and library as ${DIALECTS[*]}"
        for level in -O0 -O2; do
            check_programs "$(c_compiler_of "$cxx")" "$cxx" "$width" "$level"
        done
        echo "$cxx $width: programs with the library as C and as C++"
    done
done
