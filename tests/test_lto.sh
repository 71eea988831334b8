#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Position-independent objects with the inline switch, some compiled for link-time optimization and
# some not, link in every mixture and run.

# shellcheck source=tests/harness.sh
. tests/harness.sh

UNITS=(library_user header_user aco)
# Says for each of these units whether the linker optimizes it.
MIXTURES=("lto lto lto" "lto lto plain" "lto plain plain" "plain lto lto" "plain plain lto")

compile_units() {
    local unit source
    for unit in "${UNITS[@]}"; do
        source=tests/programs/$unit.c
        [[ "$unit" != aco ]] || source=aco.c
        must "$what: $source does not compile" "${compiler[@]}" -c "$source" \
            -o "$TMP/$unit.plain.o"
        must "$what: $source does not compile" "${compiler[@]}" "$lto" -c "$source" \
            -o "$TMP/$unit.lto.o"
    done
}

# check COMPILER WIDTH LTO LINKER...
check() {
    local compiler=("$1" "$2" -O2 -fPIC -I.) lto=$3 what="$1 $2 $3" linker mixture i kinds objects
    if ! can_build "${compiler[@]}" "$lto"; then
        echo "$what: does not link here, not tested"
        return
    fi
    compile_units
    for linker in "${@:4}"; do
        for mixture in "${MIXTURES[@]}"; do
            read -ra kinds <<<"$mixture"
            objects=()
            for i in "${!UNITS[@]}"; do
                objects+=("$TMP/${UNITS[i]}.${kinds[i]}.o")
            done
            must "$what, $linker, $mixture: does not link" "${compiler[@]}" "$lto" \
                "-fuse-ld=$linker" "${objects[@]}" acosw.S -o "$TMP/user"
            must "$what, $linker, $mixture: fails" "$TMP/user"
        done
    done
    echo "$what, with ${*:4}: ${#MIXTURES[@]} mixtures of objects"
}

find_compilers gcc clang
linkers=(bfd)
if have ld.lld; then
    linkers+=(lld)
else
    echo "ld.lld: not found, not tested"
fi
for width in "${WIDTHS[@]}"; do
    for cc in "${FOUND[@]}"; do
        if [[ "$cc" == gcc ]]; then
            check gcc "$width" -flto bfd
        else
            check clang "$width" -flto "${linkers[@]}"
            check clang "$width" -flto=thin "${linkers[@]}"
        fi
    done
done
