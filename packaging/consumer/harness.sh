# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are for the scripts that source this
# SPDX-License-Identifier: Apache-2.0
#
# Shared by the tests of packaging/, which source it after tests/harness.sh. They work on copies, so
# that programs find nothing in output/ or the sources that only installation should provide.

read -ra C_COMPILER <<<"$CC"
read -ra CXX_COMPILER <<<"$CXX"
CONSUMER=$TMP/consumer

have "${CXX_COMPILER[0]}" || skip "no C++ compiler, ${CXX_COMPILER[0]}"
cp -R packaging/consumer "$CONSUMER"

# The version in aco.h, as MAJOR.MINOR.PATCH.
VERSION=$(awk '/^#define ACO_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
               END { print v }' aco.h)

# Copies the project, without what was built, to a new directory.
copy_project() {
    mkdir -p "$1"
    tar -c --exclude=./output --exclude=./.git . | tar -x -C "$1"
}

# Where the folder is deleted, everything is as if there were no runtime.
RUNTIME=OFF
[[ ! -d runtime ]] || RUNTIME=ON

# check_both WHAT SOURCE OPTION...: builds a program with options for compiler and linker, as C and
# as C++, and runs it.
check_both() {
    local what="$1, $2" source=$CONSUMER/$2 program=$TMP/${2%.c} options=("${@:3}")
    must "$what: does not build" \
        "${C_COMPILER[@]}" -std=c99 "${C_WARNINGS[@]}" "$source" "${options[@]}" -o "$program"
    must "$what: fails" "$program"
    must "$what: does not build as C++" "${CXX_COMPILER[@]}" -std=c++11 \
        "${WARNINGS[@]}" -x c++ "$source" -x none "${options[@]}" -o "$program"
    must "$what: fails as C++" "$program"
}

# Builds the programs for the core with options for compiler and linker, and runs them.
check_consumer() {
    local what=$1 options=("${@:2}")
    check_both "$what" user.c "${options[@]}"
    must "$what: the C++ program does not build" "${CXX_COMPILER[@]}" -std=c++11 "${WARNINGS[@]}" \
        "$CONSUMER/user.cc" "${options[@]}" -o "$TMP/user"
    must "$what: the C++ program fails" "$TMP/user"
    echo "$what: programs in C and C++ build and run"
}

# The same with the program for the runtime.
check_runtime() {
    check_both "$1" tasks.c "${@:2}"
    echo "$1: a program of tasks builds and runs"
}

# The same with the program that was written for libco, with the directory of the libraries.
check_compat() {
    local what=$1 program=$TMP/libco
    must "$what: does not build" "${CXX_COMPILER[@]}" "${WARNINGS[@]}" "$CONSUMER/libco.cc" \
        "${@:3}" -o "$program"
    must "$what: fails" env LD_LIBRARY_PATH="$2" timeout 60 "$program"
    echo "$what: a program of libco builds and runs"
}

# The same with the program for the hooks.
check_hooks() {
    check_both "$1" hooks.c "${@:2}"
    check_unhooked "$@"
    echo "$1: a program with hooks builds and runs"
}

# The same with the program whose threads are tasks, and are not without the options.
check_threads() {
    check_both "$1" threads.c -Wl,--as-needed "${@:2}"
    must "$1: threads.c does not build without options" \
        "${C_COMPILER[@]}" "$CONSUMER/threads.c" -o "$TMP/threads" -pthread
    must_not "$1: threads are tasks in a program without it" 'threads of the kernel' "$TMP/threads"
    echo "$1: threads of a program are tasks"
}

# check_run WHAT COMMAND...: aco-run, the command, makes threads of a program tasks.
check_run() {
    must "$1: threads.c does not build" \
        "${C_COMPILER[@]}" "$CONSUMER/threads.c" -o "$TMP/threads" -pthread
    must "$1: aco-run fails" "${@:2}" "$TMP/threads"
    echo "$1: aco-run makes threads of a program tasks"
}

# The same with the program that names no hook, which a linker may therefore leave out.
check_unhooked() {
    local what=$1 library=$TMP/libblocks.so program=$TMP/unhooked
    must "$what: the library does not build" "${C_COMPILER[@]}" -shared -fPIC \
        "$CONSUMER/library.c" -o "$library"
    must "$what, unhooked.c: does not build" "${C_COMPILER[@]}" "${C_WARNINGS[@]}" \
        -Wl,--as-needed "$CONSUMER/unhooked.c" "$library" "${@:2}" -o "$program"
    must "$what, unhooked.c: fails" "$program"
}

# Builds the programs by CMake with the options given, and runs them.
check_cmake_consumer() {
    local what=$1 build=$TMP/build
    shift
    rm -rf "$build"
    must "$what: CMake finds no way" cmake -S "$CONSUMER" -B "$build" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_COMPILER="${C_COMPILER[0]}" -DCMAKE_CXX_COMPILER="${CXX_COMPILER[0]}" \
        -DRUNTIME="$RUNTIME" "$@"
    must "$what: the programs do not build" cmake --build "$build"
    must "$what: the programs fail" cmake --build "$build" --target test
    echo "$what: programs in C and C++ build and run"
}
