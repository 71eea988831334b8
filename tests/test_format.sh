#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# C and C++ look as .clang-format says, and text files as .editorconfig says.
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/harness.sh"
need clang-format-14:clang-format-14

is_formatted() {
    clang-format-14 --style=file --dry-run -Werror "$@"
}

# find_faults FOLDER: lines with blanks at their end, with tabs or with CR, and last lines that have
# no end. Charts are generated; make and Go indent with tabs, and documents show some.
find_faults() {
    local search=(grep -rnI --exclude-dir={.git,output} --exclude='*.svg') file
    "${search[@]}" '[[:blank:]]$' "$1" || true
    "${search[@]}" $'\r' "$1" || true
    "${search[@]}" --exclude={Makefile,rules,'*.go','*.md'} $'\t' "$1" || true
    "${search[@]}" -l '' "$1" | while IFS= read -r file; do
        [[ -z "$(tail -c 1 "$file")" ]] || echo "$file: its last line has no end"
    done
}

cp .clang-format "$TMP"
mkdir "$TMP/faults"
fault=$TMP/faults/fault.c
printf 'int f(void) { return 0; }\n' >"$fault"
must_not "another style passes" 'code should be clang-formatted' is_formatted "$fault"
for text in 'blank \n' 'tab:\tx\n' 'cr\r\n' 'no end'; do
    # shellcheck disable=SC2059 # it has escapes
    printf "$text" >"$fault"
    [[ -n "$(find_faults "$TMP/faults")" ]] || fail "find_faults misses '$text'"
done

mapfile -t sources < <(find . -name output -prune -o -name '*.[ch]' -print -o -name '*.cc' -print)
must "not as .clang-format says: clang-format-14 -i FILE brings it into shape" \
    is_formatted "${sources[@]}"
echo "${#sources[@]} files in C and C++ are as .clang-format says"
find_faults . >"$TMP/found"
[[ ! -s "$TMP/found" ]] || fail "not as .editorconfig says: $(head -n 20 "$TMP/found")"
echo "text files are as .editorconfig says"
