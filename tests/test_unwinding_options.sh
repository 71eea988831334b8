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

# Objects of the library and of what tests have in common, for the words that follow the compiler.
build_objects() {
    local cc=$1 objects=$2 source
    shift 2
    mkdir -p "$objects"
    for source in "${SOURCES[@]}"; do
        must "$cc $*: $source does not compile" "$cc" "$@" -std=gnu99 -O2 -fPIC -I. -c "$source" \
            -o "$objects/$(basename "$source").o"
    done
}

# Compiles and runs one variant; 1 if that fails.
run_variant() {
    local cc=$1 width=$2 options objects
    read -ra options <<<"$3"
    objects=$TMP/$cc$width
    [[ $3 != *SHARE* ]] || objects+=-shared
    must "$cc $width $3: does not compile" "$cc" "$width" -std=gnu99 -g \
        -fasynchronous-unwind-tables "${options[@]}" "${C_WARNINGS[@]}" -I. \
        tests/test_unwinding.c "$objects"/*.o -o "$TMP/program" -lcmocka -lpthread -lm
    must "$cc $width $3: a backtrace is wrong" "$TMP/program"
}

find_compilers gcc clang
failed=0
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        build_objects "$cc" "$TMP/$cc$width" "$width"
        build_objects "$cc" "$TMP/$cc$width-shared" "$width" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
        # All are tried, whatever fails.
        for variant in "${VARIANTS[@]}"; do
            (run_variant "$cc" "$width" "$variant") || failed=1
        done
        echo "$cc $width: ${#VARIANTS[@]} variants of options"
    done
done
exit "$failed"
