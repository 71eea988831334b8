#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A coroutine that keeps nothing on its stack is known to have begun, also where functions that
# never return get no frame, as without unwind tables.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# check NAME COMMAND...: by the compiler with these options, and the emulator in RUN.
check() {
    local name=$1 options
    shift
    for options in -O0 -O1 -O2 "-Os -fPIC" "-O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"; do
        read -ra OPTIONS <<<"$options"
        must "$name $options: does not compile" "$@" "${OPTIONS[@]}" -fno-unwind-tables \
            -fno-asynchronous-unwind-tables "${C_WARNINGS[@]}" -I. \
            tests/programs/empty_frames.c aco.c acosw.S -o "$TMP/program"
        must "$name $options: a coroutine has begun unseen" "${RUN[@]}" "$TMP/program"
    done
    echo "$name: every coroutine is known to have begun"
}

find_compilers gcc clang
RUN=()
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        check "$cc $width" "$cc" "$width"
    done
done
for name in "${FOREIGN[@]}"; do
    read -ra RUN <<<"${EMULATOR[$name]}"
    read -ra COMMAND <<<"${CROSS[$name]}"
    check "$name" "${COMMAND[@]}"
done
