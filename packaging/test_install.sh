#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ./make.sh install puts everything where it belongs, whole or below DESTDIR; pkg-config, man and
# gdb find it there, programs in C and C++ build and run with it, shared and static; what configures
# the library gets to programs; ./make.sh uninstall leaves nothing. libaco_runtime.so exports what
# its map lists. Hooks are in effect in programs that name none, however they are linked.
#
# seconds: 20

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=packaging/consumer/harness.sh
. packaging/consumer/harness.sh

need pkg-config:pkg-config python3:python3 man:man-db
PROJECT=$TMP/project
copy_project "$PROJECT"
MAKE=(env CC="$CC" bash "$PROJECT/make.sh")

# pkg DIRECTORY ARGUMENT...: what pkg-config says of aco, or of PACKAGE, with its file in that
# directory.
pkg() {
    local directory=$1
    shift
    PKG_CONFIG_LIBDIR=$directory/pkgconfig pkg-config "$@" "${PACKAGE:-aco}"
}

# All that was installed below a directory, but for documents and the manual pages of functions.
list_files() {
    (cd "$1" && find . ! -type d ! -path '*/man3/*' ! -path '*/share/doc/*' | LC_ALL=C sort)
}

# ---- In its place --------------------------------------------------------------------------------

prefix=$TMP/prefix
must "make.sh install fails" env PREFIX="$prefix" "${MAKE[@]}" install
[[ $(pkg "$prefix/lib" --modversion) == "$VERSION" ]] || fail "aco.pc does not say $VERSION"

read -ra shared < <(pkg "$prefix/lib" --cflags --libs)
check_consumer "pkg-config" "${shared[@]}" -Wl,-rpath,"$prefix/lib"
[[ $(ldd "$TMP/user") == *"$prefix/lib/libaco.so.${VERSION%%.*} "* ]] ||
    fail "pkg-config: the program does not load libaco.so.${VERSION%%.*}"
read -ra static < <(pkg "$prefix/lib" --static --cflags --libs)
if can_run "${CXX_COMPILER[@]}" -static; then
    check_consumer "pkg-config --static" -static "${static[@]}"
fi

if [[ $RUNTIME == ON ]]; then
    read -ra tasks < <(PACKAGE=aco-runtime pkg "$prefix/lib" --cflags --libs)
    check_runtime "pkg-config aco-runtime" "${tasks[@]}" -Wl,-rpath,"$prefix/lib"
    [[ $(ldd "$TMP/tasks") == *"$prefix/lib/libaco_runtime.so.${VERSION%%.*} "* ]] ||
        fail "pkg-config: the program does not load libaco_runtime.so.${VERSION%%.*}"
    if can_run "${CXX_COMPILER[@]}" -static; then
        read -ra tasks < <(PACKAGE=aco-runtime pkg "$prefix/lib" --static --cflags --libs)
        check_runtime "pkg-config --static aco-runtime" -static "${tasks[@]}"
    fi
    read -ra tasks < <(PACKAGE=aco-compat pkg "$prefix/lib" --cflags --libs)
    check_compat "pkg-config aco-compat" "" "${tasks[@]}" -Wl,-rpath,"$prefix/lib"
    read -ra hooks < <(PACKAGE=aco-hooks pkg "$prefix/lib" --cflags --libs)
    check_hooks "pkg-config aco-hooks" "${hooks[@]}" -Wl,-rpath,"$prefix/lib"
    check_unhooked "pkg-config aco-compat" "${tasks[@]}" -Wl,-rpath,"$prefix/lib"
    read -ra threads < <(PACKAGE=aco-pthreads pkg "$prefix/lib" --cflags --libs)
    check_threads "pkg-config aco-pthreads" "${threads[@]}" -Wl,-rpath,"$prefix/lib"
    check_run "make.sh install" "$prefix/bin/aco-run"
    ln -s "$prefix/bin/aco-run" "$TMP/aco-run"
    check_run "make.sh install, by a link" "$TMP/aco-run"
    mv "$prefix" "$prefix.moved"
    check_run "make.sh install, moved" "$prefix.moved/bin/aco-run"
    mv "$prefix.moved" "$prefix"
    for layer in runtime hooks compat; do
        [[ $(readelf -d "$prefix/lib/libaco_$layer.so") == *RUNPATH*"[\$ORIGIN]"* ]] ||
            fail "libaco_$layer.so does not find the others beside it"
    done
    grep -qx "ACO_RUNTIME_${VERSION%%.*} {" packaging/libaco_runtime.map ||
        fail "libaco_runtime.map is not of version ${VERSION%%.*}"
    diff <(sed -nE 's/^ +(\w+);/\1/p' packaging/libaco_runtime.map | LC_ALL=C sort) \
        <(nm -D --defined-only "$prefix/lib/libaco_runtime.so" |
            sed -nE 's/.* [^A] (\w+).*/\1/p' | LC_ALL=C sort) ||
        fail "libaco_runtime.map (left) and libaco_runtime.so (right) have different names"
fi

# ---- Hooks that no program names -----------------------------------------------------------------

# check_linkers WHAT OPTION...: the hooks are in effect with each compiler and linker that is here.
check_linkers() {
    local what=$1 compiler linker option
    for compiler in gcc clang; do
        for linker in bfd gold lld; do
            for option in -O2 -flto -Wl,--gc-sections; do
                # lld knows the objects of clang's optimizer alone.
                [[ "$compiler $linker $option" != "gcc lld -flto" ]] || continue
                if can_run "$compiler" "-fuse-ld=$linker" "$option"; then
                    C_COMPILER=("$compiler" "-fuse-ld=$linker" "$option")
                    check_unhooked "$what, ${C_COMPILER[*]}" "${@:2}"
                else
                    echo "$compiler -fuse-ld=$linker $option: not available, not tested"
                fi
            done
        done
    done
    read -ra C_COMPILER <<<"$CC"
    echo "$what: hooks are in effect, whatever the linker"
}

# block NUMBER: that block of commands in docs/hooks.md.
block() {
    awk -v number="$1" '/^```/ { inside = !inside && /^```sh$/; n += inside; next }
        inside && n == number' docs/hooks.md
}

# check_printed WHAT COMMAND: a command of docs/hooks.md makes ./program of program.c, which here
# names no hook and has a library. Others are in the directory $libraries.
check_printed() {
    local what="docs/hooks.md, $1" command=${2//program.c/-Wl,--as-needed program.c libblocks.so}
    must "$what: does not build: $command" env -C "$PROJECT" CPATH="$prefix/include" \
        PKG_CONFIG_PATH="$libraries/pkgconfig" LIBRARY_PATH="$libraries" \
        bash -euo pipefail -c "$command"
    must "$what: fails" env -C "$PROJECT" LD_LIBRARY_PATH="$prefix/lib:." ./program
    echo "$what: hooks are in effect"
}

if [[ $RUNTIME == ON ]]; then
    check_linkers "pkg-config aco-hooks" "${hooks[@]}" -Wl,-rpath,"$prefix/lib"
    archives=$TMP/archives
    mkdir "$archives"
    cp -R "$prefix/lib/pkgconfig" "$prefix"/lib/*.a "$archives"
    sed -i "s|^libdir=.*|libdir=$archives|" "$archives"/pkgconfig/*.pc
    read -ra hooks < <(PACKAGE=aco-hooks pkg "$archives" --static --cflags --libs)
    check_linkers "pkg-config --static aco-hooks, archives" "${hooks[@]}"

    cp "$CONSUMER/unhooked.c" "$PROJECT/program.c"
    cp "$TMP/libblocks.so" "$PROJECT"
    libraries=$prefix/lib command=$(block 1)
    check_printed "sources" "$command"
    check_printed "sources, optimized by the linker" \
        "${command/-O2/-O2 -flto -ffunction-sections -Wl,--gc-sections}"
    by_hand=$(grep -o "\`-Wl,[^\`]*\`" docs/hooks.md | tr -d "\`")
    for libraries in "$prefix/lib" "$archives"; do
        command=$(block 2)
        check_printed "pkg-config, ${libraries##*/}" "${command/ libpq/}"
        check_printed "by hand, ${libraries##*/}" "gcc -O2 program.c $by_hand -o program"
    done
    rm "$PROJECT"/{program{,.c},libblocks.so}
fi

# ---- Documents, the manual and gdb ---------------------------------------------------------------

# Documents are there, with what the README shows and links to, and examples build where they are.
documents=$prefix/share/doc/aco
for file in README.md docs/howto.md examples/README.md; do
    [[ -s $documents/$file ]] || fail "$file is not installed"
done
# shellcheck disable=SC2016 # the backticks are those of Markdown
while IFS= read -r link; do
    [[ -s $documents/$link ]] || fail "README.md links to $link, which is not installed"
done < <(sed '/^```/,/^```/d' README.md | grep -oE '\]\([^)#]+' | sed 's/^](//')
check_example() {
    must "$1 does not build where it is installed" env -C "$documents/examples" "${C_COMPILER[@]}" \
        "$@" "${shared[@]}" -Wl,-rpath,"$prefix/lib" -o "$TMP/example"
}
check_example threads.c
check_example generator.c
[[ $("$TMP/example") == "ant bee cat"* ]] || fail "the installed example does not work"
echo "documents and examples are there"

# man is asked where they are: it may run as another user, who must not look into this directory.
pages=("3 aco_resume" "3 aco_yield1" "7 aco")
[[ $RUNTIME == OFF ]] || pages+=("1 aco-run")
for page in "${pages[@]}"; do
    read -r number name <<<"$page"
    found=$(MANPATH=$prefix/share/man man -w "$number" "$name" || true)
    [[ $found == "$prefix/share/man/man$number/"* ]] || fail "man does not find the page $page"
done
echo "man finds its pages"

# check_gdb OPTION...: with these, gdb loads its script for the program.
check_gdb() {
    local said
    said=$(gdb -nx -batch "$@" -iex 'set debuginfod enabled off' \
        -ex 'break aco_share_stack_destroy' -ex run -ex 'info aco' "$TMP/debuggee" 2>&1 \
        </dev/null || true)
    [[ $said == *"No  Thread  Address"* ]] || fail "gdb $*: it does not load its script: $said"
}

# gdb loads the script by itself with the library, and by `source`, if it may run programs here.
if have gdb &&
    [[ $(gdb -nx -batch -ex 'python print(1)' -ex run /bin/true 2>&1) == *exited* ]]; then
    must "a program for gdb does not build" "${C_COMPILER[@]}" -g "$CONSUMER/user.c" \
        "${shared[@]}" -Wl,-rpath,"$prefix/lib" -o "$TMP/debuggee"
    check_gdb -iex "add-auto-load-scripts-directory $prefix/share/gdb/auto-load" \
        -iex "add-auto-load-safe-path $prefix/share"
    check_gdb -iex "source $prefix/share/aco/aco.py"
    echo "gdb loads its script"
fi

# ---- Below DESTDIR, and away again ---------------------------------------------------------------

headers=(extra/*/aco_*.h) cxx_headers=() layers=()
if [[ $RUNTIME == ON ]]; then
    headers+=(runtime/aco_*.h hooks/aco_*.h)
    cxx_headers=(cpp/aco.hpp cpp/aco/*.hpp)
    layers=(runtime hooks compat)
fi
expected="./usr/include/aco.h
./usr/include/aco_assert_override.h
$(printf './usr/include/%s\n' "${headers[@]##*/}" "${cxx_headers[@]#cpp/}")
./usr/lib64/cmake/aco/aco-config-version.cmake
./usr/lib64/cmake/aco/aco-config.cmake
./usr/lib64/libaco.a
./usr/lib64/libaco.so
./usr/lib64/libaco.so.${VERSION%%.*}
./usr/lib64/libaco.so.$VERSION
./usr/lib64/pkgconfig/aco.pc
./usr/share/aco/aco.py
./usr/share/aco/aco_tasks.py
$(printf './usr/share/aco/trace/%s.bt\n' evictions waits wakes)
./usr/share/gdb/auto-load/usr/lib64/libaco.so.$VERSION-gdb.py
./usr/share/man/man7/aco.7
./usr/share/man/man7/aco_assert_override.7
$(printf './usr/share/man/man7/%s\n' "${headers[@]##*/}" | sed 's,h$,7,')"
for layer in "${layers[@]}"; do
    expected+="
$(printf './usr/lib64/libaco_%s\n' "$layer".{a,so{,".${VERSION%%.*}",".$VERSION"}})
./usr/lib64/pkgconfig/aco-$layer.pc"
done
[[ $RUNTIME == OFF ]] || expected+="
./usr/bin/aco-run
$(printf './usr/lib64/libaco_pthreads.%s\n' so{,".${VERSION%%.*}",".$VERSION"})
./usr/lib64/pkgconfig/aco-pthreads.pc
./usr/share/man/man1/aco-run.1"
[[ $RUNTIME == OFF ]] ||
    expected+=$(printf '\n./usr/include/aco/compat/%s' \
        co_{closure,routine{,_inner,_specific}}.h coctx.h)

stage=$TMP/stage
elsewhere=(env DESTDIR="$stage" PREFIX=/usr LIBDIR=lib64 "${MAKE[@]}")
must "make.sh install fails with DESTDIR" "${elsewhere[@]}" install
diff <(LC_ALL=C sort <<<"$expected") <(list_files "$stage") ||
    fail "what is installed (right) is not what should be (left)"
[[ $(readlink -e "$stage/usr/share/gdb/auto-load/usr/lib64/libaco.so.$VERSION-gdb.py") == \
    "$stage/usr/share/aco/aco.py" ]] || fail "gdb's script is not where its link leads to"
if grep -rIlF -e "$TMP" "$stage"; then
    fail "these files know of the directory that they were built or installed in"
fi
[[ $RUNTIME == OFF ]] || check_run "DESTDIR, lib64" "$stage/usr/bin/aco-run"
[[ $(pkg "$stage/usr/lib64" --variable=libdir) == /usr/lib64 ]] || fail "aco.pc: wrong libdir"

mkdir "$stage/usr/share/aco/other"
touch "$stage/usr/include/other.h"
must "make.sh uninstall fails" "${elsewhere[@]}" uninstall
[[ $(cd "$stage" && find . ! -type d) == ./usr/include/other.h ]] ||
    fail "make.sh uninstall leaves, or takes away, too much: $(find "$stage" ! -type d)"
rmdir "$stage/usr/share/aco/other"
must "make.sh uninstall fails when there is nothing" "${elsewhere[@]}" uninstall
[[ $(cd "$stage" && find . -name 'aco*' -o -name gdb) == "" ]] || fail "directories are left"
echo "installed below DESTDIR in lib64, and removed"

# ---- Names with blanks ---------------------------------------------------------------------------

blank="$TMP/a prefix & more"
with_blank=(env PREFIX="$blank" LIBDIR="the libraries" "${MAKE[@]}" -o no-man)
must "make.sh install fails with blanks in PREFIX" "${with_blank[@]}" install
for variable in "prefix=" "libdir=/the libraries" "includedir=/include"; do
    [[ $(pkg "$blank/the libraries" --variable="${variable%%=*}") == "$blank${variable#*=}" ]] ||
        fail "aco.pc: wrong ${variable%%=*} with blanks"
done
# A shell undoes pkg-config's escapes.
eval "flags=($(pkg "$blank/the libraries" --cflags --libs))"
check_consumer "pkg-config, blanks" "${flags[@]}" -Wl,-rpath,"$blank/the libraries"
if [[ $RUNTIME == ON ]]; then
    eval "flags=($(PACKAGE=aco-hooks pkg "$blank/the libraries" --cflags --libs))"
    check_hooks "pkg-config aco-hooks, blanks" "${flags[@]}" -Wl,-rpath,"$blank/the libraries"
    eval "flags=($(PACKAGE=aco-pthreads pkg "$blank/the libraries" --cflags --libs))"
    check_threads "pkg-config aco-pthreads, blanks" "${flags[@]}" -Wl,-rpath,"$blank/the libraries"
    must_not "aco-run preloads a library whose name has blanks" 'takes no names with blanks' \
        "$blank/bin/aco-run" true
fi
if have cmake; then
    check_cmake_consumer "find_package, blanks" -DWAY=find_package \
        -Daco_DIR="$blank/the libraries/cmake/aco"
fi
must "make.sh uninstall fails with blanks in PREFIX" "${with_blank[@]}" uninstall
[[ $(find "$blank" ! -type d) == "" ]] || fail "make.sh uninstall leaves $(find "$blank" ! -type d)"

# ---- Another configuration -----------------------------------------------------------------------

# It is built elsewhere, too, as if the sources were read-only.
other=$TMP/other
rm -rf "$PROJECT/output"
must "make.sh install fails for another configuration" env PREFIX="$other" OUTPUT="$TMP/built" \
    CFLAGS="-O1 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_LIST" "${MAKE[@]}" -o no-man install
[[ -e $TMP/built/libaco.so && ! -e $PROJECT/output ]] || fail "OUTPUT is not where it builds"
[[ ! -e $other/share/man ]] || fail "make.sh -o no-man install installs manual pages"
read -ra flags < <(pkg "$other/lib" --cflags --libs)
check_consumer "pkg-config, another configuration" "${flags[@]}" -Wl,-rpath,"$other/lib"
must_not "a program links that was not told of the configuration" \
    'undefined reference to .*aco_(gtls_co|thread_init)_' \
    "${C_COMPILER[@]}" "$CONSUMER/user.c" -I"$other/include" -L"$other/lib" -laco -o "$TMP/user"
must_not "a PREFIX that is no absolute path" 'must begin with a slash' \
    env PREFIX=prefix "${MAKE[@]}" install
echo "without -DACO_..., programs do not link with it"
