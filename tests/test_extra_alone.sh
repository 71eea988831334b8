#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each optional part compiles and links when nothing but its .h and .c lies beside the library, in
# one folder; its header is good for C99 and C++11.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# check PART COMPILER WIDTH
check() {
    local part=$1 cc=$2 width=$3 name copy=$TMP/alone
    name=$(basename "$part")
    rm -rf "$copy"
    mkdir "$copy"
    cp aco.h aco.c acosw.S "$part.h" "$part.c" "$copy"
    printf '#include "%s.h"\nint main(void) { return 0; }\n' "$name" >"$copy/user.c"
    must "$cc $width: $name does not link alone" "$cc" "$width" -std=gnu99 -O2 \
        "${C_WARNINGS[@]}" "$copy"/{user,aco,"$name"}.c "$copy/acosw.S" -o "$copy/user" -lpthread
    must "$cc $width: $name.h is no C99" "$cc" "$width" -std=c99 -pedantic "${C_WARNINGS[@]}" \
        -fsyntax-only "$copy/user.c"
    must "$cc $width: $name.h is no C++11" "$cc" "$width" -std=c++11 -pedantic "${WARNINGS[@]}" \
        -fsyntax-only -x c++ "$copy/user.c"
}

shopt -s nullglob
parts=(extra/*/aco_*.c)
[ ${#parts[@]} -gt 0 ] || skip "there are no optional parts"
find_compilers gcc clang
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        for part in "${parts[@]}"; do
            check "${part%.c}" "$cc" "$width"
        done
        echo "$cc $width: each of ${#parts[@]} optional parts is complete"
    done
done
