#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each example says in its first line what it shows, as the list of examples/README.md does,
# compiles without a warning and prints what its comment says: the lines that
# stand there with an indent of five, from "It prints:" to the end of the comment. One that prints
# times and the like has a test of its own, which names it. One with options has -h, which tells
# them all.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# The lines that an example promises.
expected() {
    awk '/prints:$/ { inside = 1; next } /^ \*\// { exit } inside && sub(/^ \*     /, "")' "$1"
}

# check_words EXAMPLE NAME: its first line is "// EXAMPLE shows WHAT.", the list has NAME with that.
check_words() {
    local line
    line=$(head -n 1 "$1")
    [[ $line == "// ${1##*/} shows "*. ]] ||
        fail "$1: its first line is not of the form '// ${1##*/} shows what it shows.'"
    line=${line#* shows }
    [[ $(tr -d '`' <examples/README.md) == *"| $2 | ${line%.} |"* ]] ||
        fail "examples/README.md does not have $2 with what its first line says"
}

# check EXAMPLE WIDTH
check() {
    local what=${PROCESSOR:-$2} width
    read -ra width <<<"$2"
    if [[ $1 == *.cc ]] && ! can_compile_cxx "${width[@]}"; then
        echo "$what: no C++, $1 not tested"
        return
    fi
    build_example "$1" "$2" "$TMP/program"
    must "$what: $1 fails" "${RUN[@]}" "$TMP/program"
    diff <(expected "$1") "$TMP/said" >&2 || fail "$what: $1 prints something else than it says"
    echo "$what: $1 prints what it says"
}

# check_foreign COMPILER WIDTH EXAMPLE
check_foreign() {
    CC=$1 CXX=clang++ check "$3" "$2"
}

# The test that names example $1.
own_test() {
    grep -lF -e "$1" {tests,tests/*,extra/*/tests,examples/*}/test_*.sh 2>/dev/null || true
}

# check_usage EXAMPLE: -h tells its options, if it has any; so does, on stderr, a wrong one.
check_usage() {
    local letters letter status=0
    letters=$(sed -n 's/.*getopt(argc, argv, "\(.*\)").*/\1/p' "$1" | tr -d :)
    [[ -n "$letters" ]] || return 0
    build_example "$1" -m64 "$TMP/program"
    "$TMP/program" -h >"$TMP/usage" || fail "$1: -h fails"
    while read -r -n 1 letter; do
        grep -q "^  -$letter " "$TMP/usage" || fail "$1: -h does not tell of -$letter"
    done < <(printf '%s' "$letters")
    "$TMP/program" '-?' 2>"$TMP/complaint" || status=$?
    ((status == 2)) || fail "$1: a wrong option: status $status, not 2"
    diff "$TMP/usage" <(grep -v 'invalid option' "$TMP/complaint") >&2 ||
        fail "$1: a wrong option brings another text than -h"
    echo "$1: -h tells its options"
}

can_compile_cxx() {
    have "$CXX" && echo '#include <string>' | "$CXX" "$@" -x c++ -fsyntax-only - 2>/dev/null
}

shopt -s nullglob
examples=(examples/*.c examples/*.cc)
[[ ${#examples[@]} -gt 0 ]] || skip "there are no examples"
check_words examples/copy_into_your_project/hello.c copy_into_your_project/
check_words examples/signal_on_heap/signal_on_heap.c signal_on_heap/
for example in "${examples[@]}"; do
    check_words "$example" "${example##*/}"
    if [[ -z "$(expected "$example")" ]]; then
        own=$(own_test "$example")
        [[ -n "$own" ]] || fail "$example does not say what it prints, and has no test"
        echo "$example: see ${own//$'\n'/ }"
        check_usage "$example"
        continue
    fi
    for width in "${WIDTHS[@]}"; do
        check "$example" "$width"
    done
    on_each_foreign check_foreign "$example"
done

# The command of the list, where it may leave what it makes.
mkdir "$TMP/tree"
cp -r aco.h aco.c acosw.S examples extra "$TMP/tree"
awk '/^```sh/ { inside = 1; next } /^```/ { inside = 0 } inside' examples/README.md >"$TMP/tree/command"
must "the command of examples/README.md fails" env -C "$TMP/tree" bash -euo pipefail command
diff <(expected examples/generator.c) <("$TMP/tree/generator") >&2 ||
    fail "examples/README.md: its command makes something else than the generator"
echo "examples/README.md: its command makes the generator"
