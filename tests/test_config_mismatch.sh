#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A translation unit and a library of different configuration do not link, even if the unit only
# reads a field: for each pair of configurations, and for each way to compile and link. Nor do aco.c
# and acosw.S. Those of the same configuration link; ACO_USE_ASAN and ACO_USE_TSAN are part of it
# only where the compiler has that sanitizer on. aco_thread_init() refuses a header that the library
# can't serve.
#
# seconds: 53

# shellcheck source=tests/harness.sh
. tests/harness.sh

# The message of linkers.
UNDEFINED='undefined (reference to|symbol:) .*aco_thread_init_aco_acosw_'

# It may be dropped, all but the reference to the library.
cat >"$TMP/reader.c" <<'END'
#include "aco.h"
#ifdef __cplusplus
extern "C"
#endif
int ended(const aco_t *co);
int ended(const aco_t *co) { return co->is_end; }
int main(void) { return 0; }
END

valgrind=-DACO_USE_VALGRIND
if ! echo '#include <valgrind/memcheck.h>' | $CC -E - >"$TMP/said" 2>&1; then
    echo "valgrind: its headers were not found, not tested"
    valgrind=''
fi

# ---- All pairs -----------------------------------------------------------------------------------

# All configurations, as options.
configurations=('')

# multiply OPTION...: each configuration so far with each of the options.
multiply() {
    local made=() configuration option
    for configuration in "${configurations[@]}"; do
        for option in "$@"; do
            made+=("$configuration $option")
        done
    done
    configurations=("${made[@]}")
}

# The objects of configuration $1: the reader and the library, without code of sanitizers.
build_objects() {
    local options
    read -ra options <<<"${configurations[$1]}"
    "$CC" "${options[@]}" -I. -c "$TMP/reader.c" -o "$TMP/reader-$1.o"
    "$CC" "${options[@]}" -I. -c aco.c -o "$TMP/aco-$1.o"
}

build_all() {
    local i
    for i in "${!configurations[@]}"; do
        while (($(jobs -rp | wc -l) >= $(nproc))); do
            wait -n || true
        done
        build_objects "$i" &
    done
    wait
}

# A reader does not link where the libraries of all other configurations are offered at once, of
# which the linker is to take what it can use. Its own one has what it refers to.
check_pairs() {
    local i j libraries
    for i in "${!configurations[@]}"; do
        libraries=()
        for j in "${!configurations[@]}"; do
            ((i == j)) || libraries+=("$TMP/aco-$j.o")
        done
        must_not "a program with${configurations[i]} links with another configuration" \
            "$UNDEFINED" "$CC" -Wl,-z,muldefs "$TMP/reader-$i.o" "${libraries[@]}" -o "$TMP/program"
        "$CC" "$TMP/reader-$i.o" "$TMP/aco-$i.o" -o "$TMP/program" >"$TMP/said" 2>&1 || true
        if grep -E "$UNDEFINED" "$TMP/said" >&2; then
            fail "a program with${configurations[i]} does not find the library of its own"
        fi
    done
    echo "$CC: ${#configurations[@]} configurations, no pair of which links"
}

# The first configuration is the default one.
check_built() {
    local i
    for i in "${!configurations[@]}"; do
        ((i > 0)) || continue
        must_not "a program with${configurations[i]} links with the shared library that is built" \
            "$UNDEFINED" "$CC" "$TMP/reader-$i.o" "$OUTPUT/libaco.so" -o "$TMP/program"
    done
    must "library_dlopen.c does not compile" "$CC" -O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -I. \
        tests/programs/library_dlopen.c -o "$TMP/program" -ldl
    must_not "a program of another configuration opens the shared library that is built" \
        'not found: aco_thread_init_' "$TMP/program" "$OUTPUT/libaco.so"
    echo "the shared library that is built: links with none but the default configuration"
}

# ---- Ways to compile and link --------------------------------------------------------------------

# build_library OPTION...: its objects, and a shared library.
build_library() {
    local source
    for source in aco.c acosw.S; do
        must "$what: $source does not compile" \
            "${compiler[@]}" "$@" -fPIC -I. -c "$source" -o "$TMP/${source%.*}.o"
    done
    must "$what: the shared library does not link" \
        "${compiler[@]}" "$@" -shared "$TMP/aco.o" "$TMP/acosw.o" -o "$TMP/libaco.so"
}

# check_way LANGUAGE COMPILING LINKING: options, each in one word. With objects and with a shared
# library, a program of the same configuration links, and one of another does not.
check_way() {
    local compile link files library way="$what, $1 $2 $3"
    read -ra compile <<<"${compiler[*]} $2"
    read -ra link <<<"${compiler[*]} $2 $3"
    compile+=("${WARNINGS[@]}" -I. -x "$1" -c "$TMP/reader.c")
    must "$way: the reader does not compile" "${compile[@]}" -o "$TMP/same.o"
    must "$way: the reader does not compile" \
        "${compile[@]}" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -o "$TMP/other.o"
    for library in "$TMP/aco.o $TMP/acosw.o" "$TMP/libaco.so"; do
        read -ra files <<<"$library"
        must "$way: does not link with $library" \
            "${link[@]}" "$TMP/same.o" "${files[@]}" -o "$TMP/program"
        must_not "$way: of another configuration, links with $library" \
            "$UNDEFINED" "${link[@]}" "$TMP/other.o" "${files[@]}" -o "$TMP/program"
    done
}

# check_ways COMPILER OPTIONS: what the compiler and its linker have of these.
check_ways() {
    local way language='' compiling linking sections="-ffunction-sections -fdata-sections" flto=''
    local ways=("c|-O2|" "c|-O2 -fPIC|-shared -Wl,-z,defs")
    what="${PROCESSOR:-$1 $2}"
    read -ra compiler <<<"$1 $2"
    build_library
    if speaks_cxx "${compiler[@]}"; then
        ways+=("c++|-O2|")
        language=c++
    fi
    if printf '#if !__has_attribute(retain)\n#error\n#endif\n' | "$1" -E - >/dev/null 2>&1; then
        ways+=("${language:-c}|-O2 -fno-pie $sections|-no-pie -Wl,--gc-sections")
        flto="$sections|-Wl,--gc-sections"
    fi
    for way in "${ways[@]}"; do
        IFS='|' read -r language compiling linking <<<"$way"
        check_way "$language" "$compiling" "$linking"
    done
    if [[ -z "$PROCESSOR" ]] && can_build "${compiler[@]}" -flto; then
        build_library -O2 -flto
        check_way c "-O2 -flto ${flto%|*}" "${flto#*|}"
        ways+=(flto)
    fi
    echo "$what, ${#ways[@]} ways, static and shared: none of another configuration links"
}

# ---- Configurations that fit ---------------------------------------------------------------------

# check_same COMPILER OPTIONS CONFIGURATION...: programs of the same configuration run.
check_same() {
    local configuration build
    what="${PROCESSOR:-$1 $2}"
    for configuration in "${@:3}"; do
        read -ra build <<<"$1 $2 $configuration"
        must "$what $configuration: a program does not link with its own library" "${build[@]}" \
            "${C_WARNINGS[@]}" -O2 -I. tests/programs/library_user.c aco.c acosw.S -o "$TMP/program"
        must "$what $configuration: a program fails with its own library" \
            "${RUN[@]}" "$TMP/program"
    done
    echo "$what: links and runs in $(($# - 2)) configurations"
}

check_assembly() {
    local share source compile
    read -ra compile <<<"$1 $2 -I."
    for share in U D; do
        for source in aco.c acosw.S; do
            must "$source does not compile" "${compile[@]}" \
                "-${share}ACO_CONFIG_SHARE_FPU_MXCSR_ENV" -fPIC -c "$source" \
                -o "$TMP/$source-$share.o"
        done
    done
    for share in "U D" "D U"; do
        must_not "aco.c and acosw.S of different configurations link" \
            'undefined (reference to|symbol:) .*aco_acosw' "${compile[@]}" -shared \
            -Wl,-z,defs "$TMP/aco.c-${share% *}.o" "$TMP/acosw.S-${share#* }.o" -o "$TMP/libaco.so"
    done
    echo "$what, acosw.S of the other configuration: does not link"
}

# Without a sanitizer, its macro changes nothing: such objects are those of the plain configuration.
check_macros_alone() {
    local macro source compile=("$CC" "${C_WARNINGS[@]}" -O2 -I.)
    for source in aco.c acosw.S tests/programs/library_user.c; do
        must "$source does not compile" "${compile[@]}" -c "$source" -o "$TMP/${source##*/}.o"
    done
    for macro in -DACO_USE_ASAN -DACO_USE_TSAN; do
        must "a program with $macro alone does not link with the plain library" "${compile[@]}" \
            "$macro" tests/programs/library_user.c "$TMP"/aco{.c,sw.S}.o -o "$TMP/program"
        must "a program with $macro alone fails" "$TMP/program"
        must "a plain program does not link with a library with $macro alone" "${compile[@]}" \
            "$macro" aco.c "$TMP"/{acosw.S,library_user.c}.o -o "$TMP/program"
        must "a library with $macro alone fails" "$TMP/program"
    done
    echo "$CC, ACO_USE_ASAN and ACO_USE_TSAN without a sanitizer: as without them"
}

# ---- Versions ------------------------------------------------------------------------------------

# set_version DIRECTORY VERSION: puts an aco.h of this version there.
set_version() {
    local numbers
    IFS=. read -ra numbers <<<"$2"
    mkdir -p "$1"
    sed -e "s/^\(#define ACO_VERSION_MAJOR\) .*/\1 ${numbers[0]}/" \
        -e "s/^\(#define ACO_VERSION_MINOR\) .*/\1 ${numbers[1]}/" \
        -e "s/^\(#define ACO_VERSION_PATCH\) .*/\1 ${numbers[2]}/" aco.h >"$1/aco.h"
}

# build_version VERSION OPTION...: a program whose header is of this version.
build_version() {
    set_version "$TMP/header" "$1"
    must "a program with a header $1 does not link" "$CC" "${@:2}" "-I$TMP/header" \
        "$TMP/starter.c" "$TMP"/library/aco{,sw}.o -o "$TMP/program"
}

check_versions() {
    local version option source words
    printf '#include "aco.h"\nint main(void) { aco_thread_init(NULL); return 0; }\n' \
        >"$TMP/starter.c"
    set_version "$TMP/library" 2.1.3
    cp aco.c acosw.S "$TMP/library"
    for source in aco.c acosw.S; do
        must "$source does not compile" "$CC" -c "$TMP/library/$source" \
            -o "$TMP/library/${source%.*}.o"
    done
    for option in -O0 -O2; do
        for version in 2.0.0 2.0.9 2.1.0 2.1.3; do
            build_version "$version" "$option"
            must "a library 2.1.3 does not serve a header $version" "$TMP/program"
        done
        for version in 1.9.9 2.1.4 2.2.0 3.0.0 9.99.99; do
            build_version "$version" "$option"
            run_to_death "$TMP/program"
            [[ "$STATUS" -eq 134 ]] ||
                fail "a library 2.1.3 serves a header $version: status $STATUS"
            words="^aco: aco_thread_init: the library is 2\.1\.3, .* aco\.h ${version//./\\.}: "
            [[ "$(grep -c "$words" "$TMP/said")" -eq 1 ]] ||
                fail "of a header $version is said: $(cat "$TMP/said")"
        done
    done
    echo "versions: older ones of the same major version are served, all others refused"
}

# Neither sanitizers nor memcheck run programs of other processors.
check_foreign() {
    check_ways "$1" "$2"
    check_same "$1" "$2" "" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
    check_assembly "$1" "$2"
}

multiply -UACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
multiply -U__SANITIZE_ADDRESS__ -D__SANITIZE_ADDRESS__ -D__SANITIZE_THREAD__ \
    ${valgrind:+"$valgrind"}
multiply -UACO_CONFIG_LIST -DACO_CONFIG_LIST
multiply -UACO_CONFIG_STRESS -DACO_CONFIG_STRESS
build_all
check_pairs
[[ ! -f "$OUTPUT/libaco.so" ]] || check_built

find_compilers gcc clang
for cc in "${FOUND[@]}"; do
    check_ways "$cc" ""
done
[[ -z "$M32" ]] || check_ways "$CC" -m32
if can_build clang -fuse-ld=lld; then
    check_ways clang "${WIDTHS[-1]} -fuse-ld=lld -Wno-unused-command-line-argument"
fi
check_same "$CC" "" "" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV ${valgrind:+"$valgrind"} \
    -fsanitize=address -fsanitize=thread -DACO_CONFIG_LIST -DACO_CONFIG_STRESS
check_assembly "$CC" ""
check_macros_alone
check_versions
on_each_foreign check_foreign
