#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The commands of the README make the project, from a copy of the folder that lies elsewhere, with
# each compiler and in each configuration, and it prints what is printed there.
#
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

FOLDER=examples/copy_into_your_project
ACO=$PWD
export ACO

# block LANGUAGE: the code block of that language in the README.
block() {
    awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ { inside = 0 } inside' \
        "$FOLDER/README.md"
}

# check COMPILER OPTION...
check() {
    local what="$*" copy=$TMP/project
    rm -rf "$copy"
    cp -r "$FOLDER" "$copy"
    block sh >"$copy/commands"
    must "$what: the commands fail" \
        env -C "$copy" "CC=$1" "CFLAGS=-O2 -Wall ${*:2}" bash -euo pipefail commands
    diff <(block text) <(tail -n 1 "$TMP/said") >&2 || fail "$what: it prints something else"
    echo "$what: made, and prints what the README says"
}

need make:make
[[ -n $(block sh) && -n $(block text) ]] || fail "no commands in the README"
find_compilers gcc clang
for compiler in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        check "$compiler" "$width"
        check "$compiler" "$width" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
    done
done

# An object that is configured in another way does not link.
cp -r "$TMP/project" "$TMP/mixed"
rm "$TMP/mixed/hello" "$TMP/mixed/hello.o"
must_not "a mixed configuration links" "undefined reference" \
    env -C "$TMP/mixed" make "CC=${FOUND[-1]}" "CFLAGS=-O2 ${WIDTHS[-1]}"
