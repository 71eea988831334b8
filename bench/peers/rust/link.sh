#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The linker of build.sh: links $PROGRAM beside what cargo asks for, and for each number of bytes in
# $PADDINGS the same objects once more, as $PROGRAM-BYTES, with so many bytes before them. Code then
# lies elsewhere in the processor's caches and predictors.
set -euo pipefail

cc "$@"

# Cargo links programs of its own, too.
for ((i = 1; i < $#; i++)); do
    [[ ${!i} != -o ]] || break
done
((i++))
asked=${!i}
[[ $asked == */deps/"${PROGRAM##*/}"-* ]] || exit 0

install "$asked" "$PROGRAM"
padding=$(mktemp --suffix=.o)
trap 'rm "$padding"' EXIT
for bytes in $PADDINGS; do
    # R: it is retained though nothing refers to it.
    printf '.section .text, "axR"\n.skip %d\n.section .note.GNU-stack, "", %%progbits\n' \
        "$bytes" | as -o "$padding"
    cc "$padding" "${@:1:i-1}" "$PROGRAM-$bytes" "${@:i+1}"
done
