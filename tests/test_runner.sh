#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The runners can fail: a failing test, no test at all, words that they don't know, and packages that
# exclude others.
set -euo pipefail

# expect STATUS WORDS COMMAND...: the command ends so and prints a line with the words.
expect() {
    local wanted=$1 words=$2 status=0 output
    shift 2
    output=$("$@" 2>&1) || status=$?
    if ((status != wanted)) || ! grep -q -- "$words" <<< "$output"; then
        printf '%s: status %d, not %d, or no line with "%s":\n%s\n' \
            "$*" "$status" "$wanted" "$words" "$output"
        exit 1
    fi
    printf 'status %d, "%s": %s\n' "$status" "$words" "$*"
}

# What test.sh was called with, by which all is built.
read -ra options <<< "${OPTIONS:-}"

expect 1 '^0 passed, 1 failed, 0 skipped$' bash test.sh "${options[@]}" fails_on_purpose
PASSES=$(mktemp "${TMP:-/tmp}/passes.XXXXXX")
export PASSES
seq 2 > "$PASSES"
expect 1 '^0 passed, 1 failed, 0 skipped$' bash test.sh "${options[@]}" loop fails_on_purpose
[[ ! -s $PASSES ]] || { printf 'test.sh loop does not go on until a test fails\n'; exit 1; }
rm "$PASSES"
expect 1 'no test was executed' bash test.sh "${options[@]}" no_such_test
expect 2 'usage: ./test.sh' bash test.sh -o no-such-thing
expect 2 'usage: ./test.sh' bash test.sh -x
expect 2 'usage: ./make.sh' bash make.sh -o no-such-thing
expect 2 'usage: ./make.sh' bash make.sh no-such-goal
expect 0 'usage: ./make.sh' bash make.sh -h
expect 1 'header and library are' bash test.sh "${options[@]}" version_check=0.0.1
expect 0 '^1 passed, 0 failed, 0 skipped$' bash test.sh "${options[@]}" \
    "version_check=$(awk '/^#define ACO_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
                          END { print v }' aco.h)"
expect 1 'missing: no-such-compiler' env CC=no-such-compiler bash make.sh

# An apt-get that would have to remove packages, and is not to.
BIN=$(mktemp -d "${TMP:-/tmp}/bin.XXXXXX")
# shellcheck disable=SC2016 # for whoever runs it
printf '#!/bin/sh\n[ "$1" != install ] || case "$*" in *--no-remove*) exit 100 ;; esac\n' \
    > "$BIN/apt-get"
printf '#!/bin/sh\nexec "$@"\n' > "$BIN/sudo"
chmod +x "$BIN/apt-get" "$BIN/sudo"
expect 1 'exclude each other' env PATH="$BIN:$PATH" CC=no-such-compiler bash make.sh -i library
rm -r "$BIN"
