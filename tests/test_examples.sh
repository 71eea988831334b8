#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each example compiles without a warning and prints what its comment says: the lines that stand
# there with an indent of five, from "It prints:" to the end of the comment. One that prints times
# has a test of its own, by its name.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# The lines that an example promises.
expected() {
    awk '/prints:$/ { inside = 1; next } /^ \*\// { exit } inside && sub(/^ \*     /, "")' "$1"
}

# check EXAMPLE WIDTH
check() {
    local example=$1 width=$2 more sources=() object
    read -r -a more < <(sed -n 's,^// build: ,,p' "$example" && echo)
    for object in aco.c acosw.S "${more[@]}"; do
        sources+=("$TMP/${object##*/}$width.o")
        [ -e "${sources[-1]}" ] || must "$width: $object does not compile" \
            "$CC" "$width" -O2 "${C_WARNINGS[@]}" -I. -c "$object" -o "${sources[-1]}"
    done
    case $example in
    *.cc) must "$width: $example does not compile" "$CXX" "$width" -std=c++11 -O2 "${WARNINGS[@]}" \
        -I. "$example" "${sources[@]}" -o "$TMP/program" ;;
    *) must "$width: $example does not compile" "$CC" "$width" -std=gnu99 -O2 "${C_WARNINGS[@]}" \
        -I. "$example" "${sources[@]}" -o "$TMP/program" -lpthread ;;
    esac
    must "$width: $example fails" "$TMP/program"
    diff <(expected "$example") "$TMP/said" >&2 ||
        fail "$width: $example prints something else than it says"
    echo "$width: $example prints what it says"
}

can_compile_cxx() {
    have "$CXX" && echo '#include <string>' | "$CXX" "$1" -x c++ -fsyntax-only - 2>/dev/null
}

shopt -s nullglob
examples=(examples/*.c examples/*.cc)
[ ${#examples[@]} -gt 0 ] || skip "there are no examples"
for example in "${examples[@]}"; do
    if [ -z "$(expected "$example")" ]; then
        name=$(basename "${example%.*}")
        own=({tests,extra/*}/test_"$name".sh)
        [ ${#own[@]} -gt 0 ] || fail "$example does not say what it prints, and has no test"
        echo "$example: see ${own[0]}"
        continue
    fi
    for width in "${WIDTHS[@]}"; do
        if [[ $example == *.cc ]] && ! can_compile_cxx "$width"; then
            echo "$width: no C++, $example not tested"
        else
            check "$example" "$width"
        fi
    done
done
