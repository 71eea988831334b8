#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A program and a library of different configuration do not link, whatever the program calls; nor
# do aco.c and acosw.S. Of the same configuration, they do.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# What linkers say.
UNDEFINED='undefined (reference to|symbol:) '

# Programs that make one call each, in a function that no compiler can know to be dead.
calls=(
    "aco_thread_init(NULL)"
    "aco_resume((aco_t *)arg)"
    "aco_yield()"
    "aco_yield1((aco_t *)arg)"
    "aco_exit()"
    "aco_exit1((aco_t *)arg)"
)

# Configurations: a name, and the options that make it.
declare -A options=(
    [own]=""
    [shared]=-DACO_CONFIG_SHARE_FPU_MXCSR_ENV
    [valgrind]=-DACO_USE_VALGRIND
    [asan]=-fsanitize=address
    [tsan]=-fsanitize=thread
    [list]=-DACO_CONFIG_LIST
)

build_library() {
    local name=$1 flags
    read -ra flags <<<"${options[$name]}"
    must "aco.c does not compile for $name" \
        "${compile[@]}" "${flags[@]}" -c aco.c -o "$TMP/aco-$name.o"
    must "acosw.S does not compile for $name" \
        "${compile[@]}" "${flags[@]}" -c acosw.S -o "$TMP/acosw-$name.o"
}

build_callers() {
    local name=$1 flags i
    read -ra flags <<<"${options[$name]}"
    for i in "${!calls[@]}"; do
        printf '%s\n' '#include "aco.h"' \
            'static void call(void *arg) { (void)arg;' "${calls[i]}; }" \
            'int main(int argc, char **argv) { if (argc > 1) { call(argv); } return 0; }' \
            >"$TMP/caller.c"
        must "a program that calls ${calls[i]} does not compile" \
            "${compile[@]}" "${flags[@]}" -c "$TMP/caller.c" -o "$TMP/caller-$name-$i.o"
    done
    must "library_user.c does not compile for $name" \
        "${compile[@]}" "${flags[@]}" -c tests/library_user.c -o "$TMP/user-$name.o"
}

# What fits, links and runs.
check_same() {
    local name flags
    for name in "${names[@]}"; do
        build_library "$name"
        build_callers "$name"
        read -ra flags <<<"${options[$name]}"
        must "$name: does not link with its own library" "${compiler[@]}" "${flags[@]}" \
            "$TMP/user-$name.o" "$TMP/aco-$name.o" "$TMP/acosw-$name.o" -o "$TMP/user"
        must "$name: fails with its own library" "${RUN[@]}" "$TMP/user"
    done
    echo "$what, of the same configuration: ${names[*]} link and run"
}

check_different() {
    local program library flags i
    for program in "${names[@]}"; do
        read -ra flags <<<"${options[$program]}"
        for library in "${names[@]}"; do
            [ "$program" != "$library" ] || continue
            for i in "${!calls[@]}"; do
                must_not "$program: what calls ${calls[i]} links with a library for $library" \
                    "$UNDEFINED.*aco_(gtls_co|thread_init)_" "${compiler[@]}" "${flags[@]}" \
                    "$TMP/caller-$program-$i.o" "$TMP/aco-$library.o" "$TMP/acosw-$library.o" \
                    -o "$TMP/caller"
            done
        done
    done
    echo "$what, of different configurations: nothing links, for each of ${#calls[@]} calls"
}

check_assembly() {
    local pair c_file s_file
    for pair in "own shared" "shared own"; do
        read -r c_file s_file <<<"$pair"
        must_not "aco.c for $c_file links with acosw.S for $s_file" "$UNDEFINED.*aco_acosw" \
            "${compiler[@]}" "$TMP/user-$c_file.o" "$TMP/aco-$c_file.o" "$TMP/acosw-$s_file.o" \
            -o "$TMP/user"
    done
    echo "$what, acosw.S of the other configuration: does not link"
}

check_stress() {
    must "library_user.c does not compile for stress" \
        "${compile[@]}" -DACO_CONFIG_STRESS -c tests/library_user.c -o "$TMP/user-stress.o"
    must_not "a program for stress links with a library that is not" "$UNDEFINED.*stress" \
        "${compiler[@]}" "$TMP/user-stress.o" "$TMP/aco-own.o" "$TMP/acosw-own.o" -o "$TMP/user"
    echo "$what, a program with ACO_CONFIG_STRESS: does not link with a library without"
}

# check COMPILER NAME...: for the configurations of these names.
check() {
    what=${PROCESSOR:-$1}
    names=("${@:2}")
    read -ra compiler <<<"$1"
    compile=("${compiler[@]}" "${C_WARNINGS[@]}" -O2 -I.)
    check_same
    check_different
    check_assembly
    check_stress
}

# Neither sanitizers nor memcheck run programs of other processors.
check_foreign() {
    check "$1 $2" own shared
}

valgrind=(valgrind)
if ! echo '#include <valgrind/memcheck.h>' | $CC -E - >"$TMP/said" 2>&1; then
    echo "valgrind: its headers were not found, not tested"
    valgrind=()
fi
on_each_foreign check_foreign
check "$CC" own shared "${valgrind[@]}" asan tsan list

if [ -f "$OUTPUT/libaco.so" ]; then
    for program in "${names[@]:1}"; do
        for i in "${!calls[@]}"; do
            must_not "$program: a program links with the shared library that is built" \
                "$UNDEFINED.*aco_(gtls_co|thread_init)_" \
                "${compiler[@]}" "$TMP/caller-$program-$i.o" "$OUTPUT/libaco.so" -o "$TMP/caller"
        done
    done
    echo "the shared library that is built: links with none of ${names[*]:1}"
fi
