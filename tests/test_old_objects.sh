#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Code that was compiled with the header of libaco 1.x, which lays its structs out in another way,
# is refused: objects by the linker, with the static library and with the shared one, and programs
# by the loader, when the shared library has taken the place of an older one. An older one in the
# place of ours is refused, too.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# Such a program's references to the library, whose calls were macros around a thread-local
# variable.
cat >"$TMP/old.c" <<'END'
#include <stddef.h>
extern __thread void *aco_gtls_co;
void aco_thread_init(void (*last_word)(void));
int main(void)
{
    aco_thread_init(NULL);
    return aco_gtls_co != NULL;
}
END
cat >"$TMP/old_library.c" <<'END'
__thread void *aco_gtls_co;
void aco_thread_init(void (*last_word)(void));
void aco_thread_init(void (*last_word)(void)) { (void)last_word; }
END

# build_old SONAME NAME: a shared library like one of libaco 1.x, as NAME in $TMP.
build_old() {
    must "$what: the older library does not link" "${compile[@]}" -shared -fPIC \
        "-Wl,-soname,$1" "$TMP/old_library.c" -o "$TMP/$2"
}

# refuses REASON WORDS PROGRAM: the loader does not start it.
refuses() {
    run_to_death "${RUN[@]}" "$3"
    [[ "$STATUS" -ne 0 ]] || fail "$what: $2 runs"
    grep -qE "$1" "$TMP/said" || fail "$what: $2 fails not for $1, but: $(cat "$TMP/said")"
}

check_linker() {
    local library
    must "$what: old.c does not compile" "${compile[@]}" -c "$TMP/old.c" -o "$TMP/old.o"
    for library in libaco.a libaco.so; do
        must_not "$what: an old object links with $library" \
            'undefined (reference to|symbol:) .*aco_gtls_co' \
            "${compile[@]}" "$TMP/old.o" "$directory/$library" -o "$TMP/program"
    done
    echo "$what: the linker refuses old objects"
}

# The program finds its library by the name that it was linked with.
check_loader() {
    local link=("${compile[@]}" "-Wl,-rpath,$TMP")
    build_old libaco.so libaco.so
    must "$what: old.c does not link with its library" \
        "${link[@]}" "$TMP/old.c" "$TMP/libaco.so" -o "$TMP/program"
    must "$what: old.c fails with its library" "${RUN[@]}" "$TMP/program"
    cp "$directory/libaco.so" "$TMP/libaco.so"
    refuses 'aco_gtls_co' "an old program" "$TMP/program"

    must "$what: library_user.c does not link" \
        "${link[@]}" -I. tests/programs/library_user.c "$directory/libaco.so" -o "$TMP/program"
    cp "$directory/libaco.so" "$TMP/libaco.so.2"
    must "$what: library_user.c fails" "${RUN[@]}" "$TMP/program"
    build_old libaco.so.2 libaco.so.2
    refuses 'aco_' "a program with an older library" "$TMP/program"
    echo "$what: the loader refuses old programs, and old libraries"
}

# The built library stands for none of another major version.
check_name() {
    build_old libaco.so.1 libaco.so
    must "$what: old.c does not link with its library" \
        "${compile[@]}" "$TMP/old.c" "$TMP/libaco.so" "-Wl,-rpath,$directory" -o "$TMP/program"
    refuses 'libaco\.so\.1' "a program that wants libaco.so.1" "$TMP/program"
    echo "$what: the library is no libaco.so.1"
}

# check COMPILER OPTIONS DIRECTORY: the libraries in that, whose path is absolute.
check() {
    what=${PROCESSOR:-$1} directory=$3
    read -ra compile <<<"$1 $2"
    compile+=("${C_WARNINGS[@]}" -O2)
    check_linker
    check_loader
}

# The shared library of another processor is linked here, as make.sh links that of this one.
check_foreign() {
    local build directory=$TMP/$PROCESSOR
    read -ra build <<<"$1 $2"
    mkdir "$directory"
    must "$PROCESSOR: the shared library does not link" \
        "${build[@]}" -shared -fPIC -O2 -Wl,-soname,libaco.so.2 \
        "-Wl,--version-script=packaging/libaco.map" -I. aco.c acosw.S -o "$directory/libaco.so"
    cp "$OUTPUT/libaco..$PROCESSOR.no_valgrind.standaloneFPUenv.a" "$directory/libaco.a"
    check "$1" "$2" "$directory"
}

need_libraries
check "$CC" "" "$(realpath "$OUTPUT")"
check_name
on_each_foreign check_foreign
