#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# All warnings that gcc and clang know, but for those listed here: the headers have none in C and in
# C++, the sources none in C. So programs may ask for what they like. acosw.S has no C to warn of.
#
# seconds: 12

# shellcheck source=tests/harness.sh
. tests/harness.sh

LEFT_OUT=(
    abi system-headers          # of other versions of the compiler, and of other people's headers
    traditional traditional-conversion declaration-after-statement # of C before 1999
    'c++98-compat-pedantic'                                        # of C++ before 2011
    padded                      # there is nothing to be done about it
    missing-noreturn suggest-attribute=const suggest-attribute=pure suggest-attribute=noreturn
    unused-macros               # sizes that only some configurations use
    switch-enum                 # where `default` stands for several values
    null-dereference            # of gcc, which takes each search for one that fails
    unsafe-buffer-usage         # of clang 16, for all that is a pointer and a size
    reserved-identifier         # _GNU_SOURCE, and names of the C++ runtime
    disabled-macro-expansion    # in macros of libc
)

# Options for sources that they change; all else is compiled with -O2 alone.
CONFIGURATIONS=(
    "-O0"
    "-O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_LIST"
    "-O2 -DACO_CONFIG_NO_INLINE_SWITCH -DACO_CONFIG_STRESS"
)

# Writes the options for all warnings in a language to $TMP/every. gcc has no name for them all.
find_warnings() {
    local cc=$1 language=$2
    printf -- '-W%s\n' "${LEFT_OUT[@]}" >"$TMP/left_out"
    if [[ $cc == clang* ]]; then
        echo -Wno-unknown-warning-option -Weverything
        sed 's/-W/-Wno-/' "$TMP/left_out"
    else
        "$cc" -Q "--help=warnings,$language" >"$TMP/known" 2>/dev/null
        "$cc" -Q --help=warnings,common >>"$TMP/known"
        # Warnings of C++ alone are listed as available. Those with a number exist without one, too.
        awk '$1 ~ /^-W[^[<]*$/ && $2 ~ /^\[(disabled|available)/ { print $1 }' "$TMP/known" \
            >"$TMP/options"
        grep -qx -e -Wshadow "$TMP/options" || fail "$cc: its warnings were not found"
        grep -vxF -f "$TMP/left_out" "$TMP/options"
    fi >"$TMP/every"
}

# A source that includes all headers, and uses macros as a program does. A local that has no value
# yet may be asked about.
{
    printf '#include "%s"\n' aco.h aco_assert_override.h extra/*/*.h
    echo 'int use_headers(void);'
    echo 'int use_headers(void) {'
    echo '    char *text, local[8];'
    echo '    int is_own = aco_on_own_stack(local);'
    echo '    aco_new(text, sizeof(local));'
    echo '    aco_assertptr(text);'
    echo '    aco_assert(!is_own);'
    echo '    free(text);'
    echo '    return is_own;'
    echo '}'
} >"$TMP/headers.c"
cp "$TMP/headers.c" "$TMP/headers.cc"

# compile WHAT OPTION... -- SOURCE...
compile() {
    local what=$1 options=() source
    shift
    while [[ "$1" != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    for source in "$@"; do
        must "$what: warnings" "${options[@]}" -Wall -Wextra -Werror "@$TMP/every" -I. \
            -c "$source" -o "$TMP/object.o"
    done
}

# check COMPILER OPTIONS
check() {
    local cc=$1 what=${PROCESSOR:-$1 $2} width configuration options
    read -ra width <<<"$2"
    find_warnings "$cc" c
    compile "$what" "$cc" "${width[@]}" -std=gnu99 -O2 -- \
        aco.c extra/*/aco_*.c tests/programs/header_user.c "$TMP/headers.c"
    for configuration in "${CONFIGURATIONS[@]}"; do
        read -ra options <<<"$configuration"
        compile "$what $configuration" "$cc" "${width[@]}" -std=gnu99 "${options[@]}" -- \
            aco.c tests/programs/header_user.c
    done
    echo "$what: headers and sources in C"
}

# check_cxx COMPILER OPTION
check_cxx() {
    local cxx=$1 what="$1 $2" level
    find_warnings "$cxx" c++
    for level in -O0 -O2; do
        compile "$what $level" "$cxx" "$2" -std=c++11 "$level" -- "$TMP/headers.cc"
    done
    echo "$what: headers in C++"
}

on_each_native check gcc clang
on_each_foreign check
on_each_native check_cxx g++ clang++
