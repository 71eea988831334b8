#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles and runs test_unwinding.c with whatever options make a compiler lay out frames, and
# describe them to unwinders, in another way.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# Of each compiler and kind of processor.
VARIANTS=(
    "-O0"
    "-O0 -fPIC -fomit-frame-pointer"
    "-O2"
    "-O2 -fPIC -fno-omit-frame-pointer -DHAVE_FRAME_POINTERS"
    "-O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"
    "-O2 -fPIC -fomit-frame-pointer -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"
)
SOURCES=(aco.c acosw.S tests/harness.c tests/no_inline.c)

# build_objects COMPILER WIDTH DIRECTORY OPTION...: objects of the library and of what tests have in
# common. WIDTH has the options for a processor in one word.
build_objects() {
    local cc=$1 width objects=$3 source
    read -ra width <<<"$2"
    mkdir -p "$objects"
    for source in "${SOURCES[@]}"; do
        must "$cc $2 ${*:4}: $source does not compile" "$cc" "${width[@]}" "${@:4}" -std=gnu99 -O2 \
            -fPIC "${CMOCKA[@]}" -I. -c "$source" -o "$objects/$(basename "$source").o"
    done
}

# run_variant COMPILER WIDTH OPTIONS OBJECTS: compiles and runs one; 1 if that fails.
run_variant() {
    local what="$1 $2 $3" width options objects=$4
    read -ra width <<<"$2"
    read -ra options <<<"$3"
    [[ $3 != *SHARE* ]] || objects+=-shared
    must "$what: does not compile" "$1" "${width[@]}" -std=gnu99 -g \
        -fasynchronous-unwind-tables "${options[@]}" "${C_WARNINGS[@]}" -I. \
        tests/test_unwinding.c "$objects"/*.o -o "$TMP/program" "${CMOCKA[@]}" -lpthread -lm
    must "$what: a backtrace is wrong" "${RUN[@]}" "$TMP/program"
}

# check COMPILER WIDTH: all variants are tried, whatever fails.
check() {
    local objects=$TMP/objects variant
    rm -rf "$objects" "$objects-shared"
    build_objects "$1" "$2" "$objects"
    build_objects "$1" "$2" "$objects-shared" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
    for variant in "${VARIANTS[@]}"; do
        (run_variant "$1" "$2" "$variant" "$objects") || failed=1
    done
    echo "${PROCESSOR:-$1 $2}: ${#VARIANTS[@]} variants of options"
}

find_compilers gcc clang
failed=0
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        check "$cc" "$width"
    done
done
on_each_foreign check
exit "$failed"
