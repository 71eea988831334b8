#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh install|uninstall [MAN_PAGES]: copies what ./make.sh has built to where it belongs, or
# removes it from there. ./make.sh calls it, from the root of the project. MAN_PAGES is the
# directory with man1/, man3/ and man7/. Relies on these in the environment:
#   VERSION, OUTPUT          of the library, and where it was built
#   PREFIX, LIBDIR, DESTDIR  as in ./make.sh -h
#   CFLAGS                   whose words -DACO_... are what programs must be compiled with, too
set -euo pipefail
shopt -s nullglob
umask 022

: "${PREFIX:=/usr/local}" "${LIBDIR:=lib}" "${DESTDIR:=}"
[[ $LIBDIR == /* ]] || LIBDIR=$PREFIX/$LIBDIR
if [[ $PREFIX != /* ]]; then
    printf 'make.sh: PREFIX=%s must begin with a slash\n' "$PREFIX" >&2
    exit 2
fi
INCLUDEDIR=$PREFIX/include
CMAKEDIR=$LIBDIR/cmake/aco
# The directory in which gdb looks for scripts of a library: below its own, by the library's path.
AUTOLOADDIR=$PREFIX/share/gdb/auto-load$LIBDIR
GDB_SCRIPT=$PREFIX/share/aco/aco.py
MADE=$OUTPUT/install
LIBRARIES=(aco)
[[ ! -d runtime ]] || LIBRARIES+=(aco_runtime)
[[ ! -d hooks ]] || LIBRARIES+=(aco_hooks)
[[ ! -d pthreads ]] || LIBRARIES+=(aco_pthreads)
# libaco_compat is not built where there is no C++ compiler.
[[ ! -e $OUTPUT/libaco_compat.so && $1 == install ]] || LIBRARIES+=(aco_compat)
MAN_PAGES=${2:-}

# The words of CFLAGS that configure the library.
definitions() {
    local word
    for word in ${CFLAGS:-}; do
        [[ $word != -DACO_* ]] || printf ' %s' "$word"
    done
}

# The file that a template makes.
fill() {
    local text
    text=$(< "$1")
    text=${text//@VERSION@/"$VERSION"}
    text=${text//@PREFIX@/"$PREFIX"}
    text=${text//@LIBDIR@/"$LIBDIR"}
    text=${text//@INCLUDEDIR@/"$INCLUDEDIR"}
    text=${text//@DEFINITIONS@/"$(definitions)"}
    local headers
    headers=$(realpath -ms --relative-to="$CMAKEDIR" "$INCLUDEDIR")
    text=${text//@INCLUDEDIR_FROM_CMAKEDIR@/"$headers"}
    local library
    library=$(realpath -ms --relative-to="$PREFIX/bin" "$LIBDIR")
    text=${text//@PTHREADS_FROM_BINDIR@/"$library/libaco_pthreads.so.${VERSION%%.*}"}
    printf '%s\n' "$text"
}

make_files() {
    local name
    mkdir -p "$MADE"
    for name in "${LIBRARIES[@]}"; do
        fill "packaging/${name/_/-}.pc.in" > "$MADE/${name/_/-}.pc"
    done
    fill packaging/cmake/aco-config.cmake.in > "$MADE/aco-config.cmake"
    fill packaging/cmake/aco-config-version.cmake.in > "$MADE/aco-config-version.cmake"
    [[ ! -d pthreads ]] || fill pthreads/aco-run > "$MADE/aco-run"
    ln -sfn "$(realpath -ms --relative-to="$AUTOLOADDIR" "$GDB_SCRIPT")" "$MADE/aco-gdb.py"
}

# Calls `$1 SOURCE TARGET` for everything that gets installed, for programs with their mode, too.
for_each_file() {
    local name file number directory pattern
    for name in "${LIBRARIES[@]}"; do
        for file in "$OUTPUT/lib$name".{a,so,"so.${VERSION%%.*}","so.$VERSION"}; do
            [[ ${file##*/} != libaco_pthreads.a ]] || continue # it is shared only
            "$1" "$file" "$LIBDIR/${file##*/}"
        done
        file=$MADE/${name/_/-}.pc
        "$1" "$file" "$LIBDIR/pkgconfig/${file##*/}"
    done
    while read -r directory pattern; do
        for file in $pattern; do
            "$1" "$file" "$PREFIX/$directory/${file##*/}"
        done
    done < <(grep '^[^#]' packaging/installed)
    for file in "$MADE"/aco-config{,-version}.cmake; do
        "$1" "$file" "$CMAKEDIR/${file##*/}"
    done
    [[ ! -d pthreads ]] || "$1" "$MADE/aco-run" "$PREFIX/bin/aco-run" 755
    "$1" "$MADE/aco-gdb.py" "$AUTOLOADDIR/libaco.so.$VERSION-gdb.py"
    [[ -n $MAN_PAGES ]] || return 0
    for number in 1 3 7; do
        for file in "$MAN_PAGES/man$number"/*; do
            "$1" "$file" "$PREFIX/share/man/man$number/${file##*/}"
        done
    done
}

copy() {
    local target=$DESTDIR$2
    if [[ -L $1 ]]; then
        mkdir -p "${target%/*}"
        cp -Pf "$1" "$target"
    else
        install -D -m "${3:-644}" "$1" "$target"
    fi
}

remove() {
    rm -f "$DESTDIR$2"
}

# Removes the directories that are empty now, but for those that every system has.
remove_directories() {
    local directory directories=("gdb/auto-load$LIBDIR")
    while read -r directory _; do
        [[ $directory != share/* ]] || directories+=("${directory#share/}")
    done < <(grep '^[^#]' packaging/installed)
    rmdir --ignore-fail-on-non-empty "$DESTDIR$CMAKEDIR" "$DESTDIR$INCLUDEDIR"/aco{/compat,}
    cd "$DESTDIR$PREFIX/share"
    rmdir -p --ignore-fail-on-non-empty "${directories[@]}"
}

case $1 in
install)
    make_files
    for_each_file copy
    # So that programs find libaco.so right away, where it is in a directory of the system.
    if [[ -z $DESTDIR ]] && ((EUID == 0)); then
        PATH=$PATH:/sbin:/usr/sbin ldconfig || true
    fi
    printf 'make.sh: aco %s installed in %s\n' "$VERSION" "$DESTDIR$PREFIX"
    ;;
uninstall)
    for_each_file remove
    remove_directories 2> /dev/null || true # they may not be there
    printf 'make.sh: aco %s removed from %s\n' "$VERSION" "$DESTDIR$PREFIX"
    ;;
esac
