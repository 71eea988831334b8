# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are for the scripts that source this
# SPDX-License-Identifier: Apache-2.0
#
# What the tests of packaging/ need in common; they source it after tests/harness.sh. They work on
# copies, so that neither output/ nor the sources lend programs what only installation should.

read -ra C_COMPILER <<<"$CC"
read -ra CXX_COMPILER <<<"$CXX"
CONSUMER=$TMP/consumer

have "${CXX_COMPILER[0]}" || skip "no C++ compiler, ${CXX_COMPILER[0]}"
cp -R packaging/consumer "$CONSUMER"

# What stands in the headers, as MAJOR.MINOR.PATCH.
VERSION=$(awk '/^#define ACO_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
               END { print v }' aco.h)

# Copies the project, without what was built, to a new directory.
copy_project() {
    mkdir -p "$1"
    tar -c --exclude=./output --exclude=./.git . | tar -x -C "$1"
}

# Builds the programs with options for compiler and linker, and runs them: the one for the core as
# C and as C++.
check_consumer() {
    local what=$1 program=$TMP/user options=("${@:2}")
    must "$what: the C program does not build" \
        "${C_COMPILER[@]}" -std=c99 "${C_WARNINGS[@]}" "$CONSUMER/user.c" "${options[@]}" -o "$program"
    must "$what: the C program fails" "$program"
    must "$what: the C program does not build as C++" "${CXX_COMPILER[@]}" -std=c++11 \
        "${WARNINGS[@]}" -x c++ "$CONSUMER/user.c" -x none "${options[@]}" -o "$program"
    must "$what: the C program as C++ fails" "$program"
    must "$what: the C++ program does not build" "${CXX_COMPILER[@]}" -std=c++11 "${WARNINGS[@]}" \
        "$CONSUMER/user.cc" "${options[@]}" -o "$program"
    must "$what: the C++ program fails" "$program"
    echo "$what: programs in C and C++ build and run"
}

# Builds the programs by CMake with the options given, and runs them.
check_cmake_consumer() {
    local what=$1 build=$TMP/build
    shift
    rm -rf "$build"
    must "$what: CMake finds no way" cmake -S "$CONSUMER" -B "$build" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_COMPILER="${C_COMPILER[0]}" -DCMAKE_CXX_COMPILER="${CXX_COMPILER[0]}" "$@"
    must "$what: the programs do not build" cmake --build "$build"
    must "$what: the programs fail" cmake --build "$build" --target test
    echo "$what: programs in C and C++ build and run"
}
