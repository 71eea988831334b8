#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The built libraries serve programs: linked to the shared one, to the static one, and through
# dlopen(). The shared one exports what is public, by name, and nothing else.

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_libraries
read -ra compiler <<<"$CC"
compile=("${compiler[@]}" "${C_WARNINGS[@]}" -O2 -I.)
directory=$(realpath "$OUTPUT")

must "a program does not link with the shared library" \
    "${compile[@]}" tests/library_user.c -o "$TMP/linked" \
    -L"$directory" -Wl,-rpath,"$directory" -laco
must "a program linked to the shared library fails" "$TMP/linked"
[[ $(ldd "$TMP/linked") == *libaco* ]] || fail "the program does not load the shared library"
echo "linked to libaco.so"

must "a program does not link with the static library" \
    "${compile[@]}" tests/library_user.c "$OUTPUT/libaco.a" -o "$TMP/static"
must "a program linked to the static library fails" "$TMP/static"
echo "linked to libaco.a"

must "a program that opens the library does not compile" \
    "${compile[@]}" tests/library_dlopen.c -o "$TMP/dlopen" -ldl
must "a program that opens the library fails" "$TMP/dlopen" "$directory/libaco.so"
echo "opened by dlopen(), every public name found"

if have nm; then
    nm -D --defined-only "$OUTPUT/libaco.so" | awk '$2 != "A" { print $NF }' | sed 's/@.*//' >"$TMP/exported"
    grep -qx acosw "$TMP/exported" || fail "acosw is not exported"
    if grep -vxE 'aco_[A-Za-z0-9_]+|acosw' "$TMP/exported" >&2; then
        fail "these names are exported, and are not ours"
    fi
    echo "exported: $(wc -l <"$TMP/exported") names, all of them aco_* or acosw"
fi
