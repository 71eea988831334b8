#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The built libraries serve programs: linked to the shared one, also as position-independent code
# that loads control words, to the static one, and through dlopen(), which finds all functions of
# libaco.map.
#
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

# check_returns WHAT OPTION: of the linker. For check(), with its variables.
check_returns() {
    must "$1, $2: position-independent code does not link with the shared library" \
        "${compile[@]}" -fPIE -pie "-Wl,$2" tests/programs/library_returns.c -o "$TMP/returns" \
        -L"$directory" -Wl,-rpath,"$directory" -laco
    must "$1, $2: position-independent code fails with control words, or as a coroutine returns" \
        "${RUN[@]}" "$TMP/returns"
}

# check COMPILER OPTIONS DIRECTORY: the libraries in that, whose path is absolute.
check() {
    local what=${PROCESSOR:-$1} compile directory=$3
    read -ra compile <<<"$1 $2"
    compile+=("${C_WARNINGS[@]}" -O2 -I.)

    must "$what: a program does not link with the shared library" \
        "${compile[@]}" tests/programs/library_user.c -o "$TMP/linked" \
        -L"$directory" -Wl,-rpath,"$directory" -laco
    must "$what: a program linked to the shared library fails" "${RUN[@]}" "$TMP/linked"
    [[ $(readelf -dW "$TMP/linked") == *'[libaco.so'* ]] ||
        fail "$what: the program does not load the shared library"
    check_returns "$what" -z,lazy
    check_returns "$what" -z,now
    echo "$what: linked to libaco.so"

    must "$what: a program does not link with the static library" \
        "${compile[@]}" tests/programs/library_user.c "$directory/libaco.a" -o "$TMP/static"
    must "$what: a program linked to the static library fails" "${RUN[@]}" "$TMP/static"
    echo "$what: linked to libaco.a"

    must "$what: a program that opens the library does not compile" \
        "${compile[@]}" tests/programs/library_dlopen.c -o "$TMP/dlopen" -ldl
    must "$what: a program that opens the library fails" \
        "${RUN[@]}" "$TMP/dlopen" "$directory/libaco.so" "${FUNCTIONS[@]}"
    echo "$what: opened by dlopen(), ${#FUNCTIONS[@]} functions found"
}

# The shared library of another processor, or of i386, is linked here, as make.sh links that of this
# one.
check_foreign() {
    local compile directory=$TMP/$PROCESSOR
    read -ra compile <<<"$1 $2"
    mkdir "$directory"
    must "$PROCESSOR: the shared library does not link" \
        "${compile[@]}" -shared -fPIC -O2 -Wl,-soname,libaco.so \
        -Wl,--version-script=packaging/libaco.map -I. aco.c acosw.S extra/*/aco_*.c \
        -o "$directory/libaco.so" -lpthread
    cp "$OUTPUT/libaco..$PROCESSOR.no_valgrind.standaloneFPUenv.a" "$directory/libaco.a"
    check "$1" "$2" "$directory"
}

need_libraries
have readelf || skip "readelf is needed"
mapfile -t FUNCTIONS < <(sed -nE 's/^ +([a-z0-9_]+);/\1/p' packaging/libaco.map)
((${#FUNCTIONS[@]})) || fail "no functions were found in libaco.map"
check "$CC" "" "$(realpath "$OUTPUT")"
[[ -z "$M32" ]] || PROCESSOR=m32 check_foreign "$CC" -m32
on_each_foreign check_foreign
