#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# C and C++ look as .clang-format says, and text files as .editorconfig says. No line of a source is
# longer than 100 columns, and each sentence of a comment or a document names the thing first.
# shellcheck source=tests/harness.sh
source "$(dirname "${BASH_SOURCE[0]}")/harness.sh"
need clang-format-14:clang-format-14 python3:python3

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

# find_long_lines FOLDER: those of more than 100 columns. Documents, data, and the tables in
# tools/dependencies and tools/libraries, whose rows are lines, may have them.
find_long_lines() {
    LC_ALL=C.UTF-8 grep -rnIE --exclude-dir={.git,output} --exclude='*.'{md,csv,json,svg} \
        --exclude={LICENSE,dependencies,libraries,fitting} '.{101}' "$1" || true
}

# find_openings FOLDER: sentences of comments and documents that don't name the thing first.
find_openings() {
    grep -rlIZ --exclude-dir={.git,output} --exclude='*.'{csv,json,svg} --exclude=LICENSE '' "$1" |
        LC_ALL=C sort -z | xargs -0 python3 tests/openings.py
}

# opens FILE TEXT: whether find_openings finds a fault in the text, in a file of this name.
opens() {
    rm -rf "$TMP/faults"
    mkdir "$TMP/faults"
    printf '%b\n' "$2" >"$TMP/faults/$1"
    [[ -n "$(find_openings "$TMP/faults")" ]]
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
printf '// é%096d\n' 0 >"$fault"
[[ -z "$(find_long_lines "$TMP/faults")" ]] || fail "find_long_lines finds a line of 100 columns"
for name in a.c a.hpp a.S a.sh a.py CMakeLists.txt a.map run; do
    printf 'short\n%0101d\n' 0 >"$TMP/faults/$name"
    [[ "$(find_long_lines "$TMP/faults")" == *"/$name:2:"* ]] ||
        fail "find_long_lines misses a line of $name"
done

while IFS='|' read -r name text; do
    opens "$name" "$text" || fail "find_openings misses in $name: $text"
done <<'END'
a.c|/* What it does. */
a.c|int x; /* Of the task. */
a.h|/*\n * A task. Who waits\n * for it is unknown.\n */
a.cc|// It waits.\n// Whose turn it is.
a.S|    ret // Whom it calls
a.h|/* ==== What it does ==== */
a.sh|# A script.\n#\n# What it does
a.sh|x=1 \x23 What it is
a.py|def f():\n    ""\x22What it does."""
a.cmake|# Of each library: a name.
run|# Who runs it
a.md|## What it costs
a.md|It waits.\x20What it waits for\nis unknown.
a.md|- Of two,\n  one is taken.
a.md|1. Who comes first
a.md|| a | What it is | b? |
a.md|**Why?**\x20What it is.
END
while IFS='|' read -r name text; do
    ! opens "$name" "$text" || fail "find_openings finds in $name: $text"
done <<'END'
a.c|/* The task that\n * What is in. Who, then? Whatever. Office hours. */
a.c|/* What does it\n * do? */\nconst char *text = "What it does.";
a.sh|echo "# What"; echo 'What it is.'
a.py|"""Does what it says. Whole files."""
a.md|## What is it?\n\n```sh\nWhat it does\n```
a.md|| What does it do, and why? | it waits: of what |
END

mapfile -t sources < <(find . -name output -prune -o -name '*.[ch]' -print -o -name '*.cc' -print)
must "not as .clang-format says: clang-format-14 -i FILE brings it into shape" \
    is_formatted "${sources[@]}"
echo "${#sources[@]} files in C and C++ are as .clang-format says"
find_faults . >"$TMP/found"
[[ ! -s "$TMP/found" ]] || fail "not as .editorconfig says: $(head -n 20 "$TMP/found")"
echo "text files are as .editorconfig says"
find_long_lines . >"$TMP/found"
[[ ! -s "$TMP/found" ]] || fail "longer than 100 columns: $(head -n 20 "$TMP/found")"
find_openings . >"$TMP/found"
[[ ! -s "$TMP/found" ]] || fail "the first word names no thing: $(head -n 20 "$TMP/found")"
echo "no line of a source is longer than 100 columns, and sentences name the thing first"
