#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Skynet example prints the right sum, and takes little memory.
#
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

EXAMPLE=examples/skynet.c
[[ -f "$EXAMPLE" ]] || skip "there is no $EXAMPLE"

# check COMPILER WIDTH
check() {
    local what=${PROCESSOR:-$1 $2} peak
    CC=$1 build_example "$EXAMPLE" "$2" "$TMP/skynet"
    must "$what: the example fails" "${RUN[@]}" "$TMP/skynet"
    [[ $(sed -n 's/^sum //p' "$TMP/said") == 499999500000 ]] || fail "$what: wrong sum"
    # For an emulated program it includes the emulator.
    peak=$(sed -n 's/^peak memory \([0-9]*\)\..*/\1/p' "$TMP/said")
    [[ -n $PROCESSOR ]] || ((peak < 10)) || fail "$what: $peak MiB of memory"
    echo "$what: $(tr '\n' ' ' <"$TMP/said")"
}

find_compilers gcc clang
for compiler in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        check "$compiler" "$width"
    done
done
on_each_foreign check
