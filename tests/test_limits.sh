#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The claims of docs/limits.md about other software: plugins with a copy of the library of their own
# and without, Boehm's collector, Lua and CPython in coroutines, nested functions, helgrind and drd.
# The programs are in tests/programs/limits/; test_limits.c has the rows about libc and the kernel.

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_libraries
need pkg-config:pkg-config
DIRECTORY=$(readlink -e "$OUTPUT")
read -ra compiler <<<"$CC"
# DWARF 4, since valgrind of Debian 12 can't read the version 5 that clang writes.
COMPILE=("${compiler[@]}" -std=gnu99 -O2 -gdwarf-4 "${C_WARNINGS[@]}" -I.)

# build PROGRAM SOURCE OPTION...
build() {
    must "$2 does not compile" "${COMPILE[@]}" "tests/programs/limits/$2" "${@:3}" -o "$TMP/$1"
}

# find_flags PACKAGE WHAT: what pkg-config says of it, in FLAGS, its headers as those of the system.
find_flags() {
    FLAGS=()
    if ! pkg-config --exists "$1"; then
        [[ -z "$INSTALLED" ]] || fail "$2 was not found, though -i was to install it"
        echo "$2: not found, not tested"
        return 1
    fi
    read -ra FLAGS < <(pkg-config --cflags --libs "$1" | sed -E 's/(^| )-I/\1-isystem /g')
}

# Two copies of the library don't know each other's coroutines. A plugin uses that of its host if
# that exports it, whatever the plugin was linked with.
check_plugins() {
    local static=$DIRECTORY/libaco.a shared=("-L$DIRECTORY" "-Wl,-rpath,$DIRECTORY" -laco) name
    local -r all=("$TMP"/{none,static,shared,initial}.so)
    build none.so plugin.c -fPIC -shared
    build static.so plugin.c -fPIC -shared "$static"
    build shared.so plugin.c -fPIC -shared "${shared[@]}"
    build initial.so plugin.c -fPIC -shared -ftls-model=initial-exec aco.c acosw.S
    build host_alone host.c "$static" -ldl
    build host_exports host.c -rdynamic "$static" -ldl
    build host_shared host.c "${shared[@]}" -ldl
    must_not "a plugin finds what its host does not export" 'undefined symbol: aco_' \
        "$TMP/host_alone" "$TMP/none.so"
    for name in static shared initial; do
        run_to_death "$TMP/host_alone" "$TMP/$name.so"
        ((STATUS == 134)) || fail "two copies of the library go unnoticed, $name: $STATUS"
        grep -q '^aco: aco_yield: no coroutine' "$TMP/said" || fail "$name: $(<"$TMP/said")"
    done
    must "plugins don't use the library of their host" "$TMP/host_exports" "${all[@]}"
    must "plugins don't use the library that their host loads" "$TMP/host_shared" "${all[@]}"
    echo "plugins: one copy of the library if the host exports or loads it"
}

check_collector() {
    find_flags bdw-gc "Boehm's collector" || return 0
    build collector collector.c "$DIRECTORY/libaco.a" "${FLAGS[@]}"
    must "the collector frees what is in use" timeout 100 "$TMP/collector"
    echo "Boehm's collector: frees nothing that is in use"
}

check_interpreters() {
    if find_flags lua5.4 "Lua"; then
        build lua lua.c "$DIRECTORY/libaco.a" "${FLAGS[@]}"
        must "Lua fails in a coroutine" timeout 100 "$TMP/lua"
        echo "Lua: recurses and yields in coroutines"
    fi
    if find_flags python3-embed "CPython"; then
        build python python.c "$DIRECTORY/libaco.a" "${FLAGS[@]}"
        must "CPython fails in a coroutine" timeout 100 "$TMP/python"
        echo "CPython: recurses and yields in coroutines"
    fi
}

check_nested_functions() {
    if ! [[ $("${compiler[@]}" --version) == *'Free Software Foundation'* ]]; then
        echo "${compiler[*]} is not gcc, which alone has nested functions: not tested"
        return
    fi
    build nested_function nested_function.c "$DIRECTORY/libaco.a"
    must "a nested function can't be called on an executable share stack" \
        "$TMP/nested_function" executable
    run_to_death "$TMP/nested_function"
    ((STATUS == 139)) || fail "a nested function is called on a share stack: $STATUS"
    echo "nested functions: need an executable share stack"
}

check_thread_tools() {
    local tool
    if ! have valgrind || ! can_build "${COMPILE[@]}" -include valgrind/valgrind.h; then
        echo "helgrind, drd: no valgrind, not tested"
        return
    fi
    build threads threads.c -DACO_USE_VALGRIND aco.c acosw.S -lpthread
    for tool in helgrind drd; do
        must "$tool: finds a race where there is none" \
            valgrind --tool=$tool --error-exitcode=9 "$TMP/threads"
        ! grep 'client switching stacks' "$TMP/said" || fail "$tool does not know the stacks"
        must_not "$tool: does not find a race" 'by thread|by thread #' \
            valgrind --tool=$tool --error-exitcode=9 "$TMP/threads" without-lock
        echo "$tool: finds races, and none where there are none"
    done
}

check_plugins
check_collector
check_interpreters
check_nested_functions
check_thread_tools
