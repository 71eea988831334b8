#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Skynet example prints the right sum, and takes little memory.

# shellcheck source=tests/harness.sh
. tests/harness.sh

EXAMPLE=examples/skynet.c
[ -f "$EXAMPLE" ] || skip "there is no $EXAMPLE"

find_compilers gcc clang
for compiler in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        what="$compiler $width"
        CC=$compiler build_example "$EXAMPLE" "$width" "$TMP/skynet"
        must "$what: the example fails" "$TMP/skynet"
        [[ $(sed -n 's/^sum //p' "$TMP/said") == 499999500000 ]] || fail "$what: wrong sum"
        peak=$(sed -n 's/^peak memory \([0-9]*\)\..*/\1/p' "$TMP/said")
        ((peak < 10)) || fail "$what: $peak MiB of memory"
        echo "$what: $(tr '\n' ' ' <"$TMP/said")"
    done
done
