#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each example says in its first line what it shows, as the list of examples/README.md does,
# compiles without a warning and prints what its comment says: the lines that stand there with an
# indent of five, from "It prints:" to the end of the comment. One that prints times and the like
# has a test of its own, as those of the runtime have.
#
# seconds: 20
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

# The tests of examples that do not say what they print.
declare -rA OWN_TESTS=(
    [examples/skynet.c]=extra/stack_pool/tests/test_skynet.sh
)

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

can_compile_cxx() {
    have "$CXX" && echo '#include <string>' | "$CXX" "$@" -x c++ -fsyntax-only - 2>/dev/null
}

shopt -s nullglob
examples=(examples/*.c examples/*.cc)
[[ ${#examples[@]} -gt 0 ]] || skip "there are no examples"
check_words examples/copy_into_your_project/hello.c copy_into_your_project/
check_words examples/signal_on_heap/signal_on_heap.c signal_on_heap/
for example in examples/{runtime,embed}/*.c; do
    check_words "$example" "${example#examples/}"
done
for example in "${examples[@]}"; do
    check_words "$example" "${example##*/}"
    if [[ -z "$(expected "$example")" ]]; then
        own=${OWN_TESTS[$example]:-}
        [[ -f "$own" ]] || fail "$example does not say what it prints, and has no test"
        echo "$example: see $own"
        continue
    fi
    for width in "${WIDTHS[@]}"; do
        check "$example" "$width"
    done
    on_each_foreign check_foreign "$example"
done

# The commands of the list, where they may leave what they make.
mkdir "$TMP/tree"
cp -r aco.h aco.c acosw.S examples extra runtime hooks cpp "$TMP/tree"
awk '/^```sh/ { inside = 1; next } /^```/ { inside = 0 } inside' examples/README.md \
    >"$TMP/tree/commands"
must "the commands of examples/README.md fail" env -C "$TMP/tree" bash -euo pipefail commands
for example in generator runtime/two_threads; do
    diff <(expected "examples/$example.c") <("$TMP/tree/${example##*/}") >&2 ||
        fail "examples/README.md: its commands make something else than $example.c"
done
echo "examples/README.md: its commands make examples"
