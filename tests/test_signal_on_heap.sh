#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The harness of the single-step test catches a switch that moves SP off the stack: the example of
# that compiles by the command in its README and prints, numbers aside, what is printed there.
#
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

EXAMPLE=examples/signal_on_heap

# block LANGUAGE NUMBER: the code block of that language and number in the README.
block() {
    awk -v fence="\`\`\`$1" -v number="$2" \
        '$0 == fence { n++; inside = 1; next } /^```/ { inside = 0 } inside && n == number' \
        "$EXAMPLE/README.md"
}

# Signal frames are of another size on each processor, instructions as the compiler has them.
without_numbers() {
    sed 's/[0-9][0-9]*/N/g'
}

# check COMPILER WIDTH NUMBER: the output in the README is the text block of that number.
check() {
    local what="$1 $2" sources
    # The command's words between gcc and -o; a pattern among them is expanded.
    # shellcheck disable=SC2207
    sources=($(block sh 1 | sed -n 's/^gcc \(.*\) -o .*/\1/p'))
    [[ ${#sources[@]} -gt 0 ]] || fail "no command in the README"
    must "$what: the example does not compile" \
        "$1" "$2" "${C_WARNINGS[@]}" "${sources[@]}" -o "$TMP/program"
    must "$what: the example does not see what it should" "$TMP/program"
    mv "$TMP/said" "$TMP/printed"
    diff <(block text "$3" | without_numbers) <(without_numbers <"$TMP/printed") >&2 ||
        fail "$what: the example prints something else than its README says"
    echo "$what: caught; $(sed -n 's/^ *\(.*main: overwritten\)/\1/p' "$TMP/printed")"
}

[[ -d "$EXAMPLE" ]] || skip "there is no $EXAMPLE"
find_compilers gcc clang
for compiler in "${FOUND[@]}"; do
    for i in "${!WIDTHS[@]}"; do
        check "$compiler" "${WIDTHS[i]}" $((i + 1))
    done
done
