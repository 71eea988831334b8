#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each example for C++ says in its first line what it shows, as the list of examples/README.md does,
# has a link in docs/cpp.md, compiles without a warning and prints what its comment says. Each name
# of aco.hpp is in a program of docs/cpp.md; tests/test_docs.sh compiles and runs these.
#
# seconds: 20
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

compiles_cxx "$CXX" "$CXX" || tell_untested

read -ra compiler <<<"$CC"
use_library aco_runtime "${compiler[@]}" -O2

# The lines that an example promises.
expected() {
    awk '/prints:$/ { inside = 1; next } /^ \*\// { exit } inside && sub(/^ \*     /, "")' "$1"
}

# names HEADER...: those in namespaces aco and aco::co that programs write.
names() {
    awk '
        /^namespace detail \{/ { is_private = 1 }
        /^} \/\/ namespace detail/ { is_private = 0 }
        is_private || !/^[a-z]/ || /co_await|__attribute__|extern/ { next }
        {
            sub(/\[\[nodiscard\]\] /, "")
            sub(/^using std::/, "using ")
            if (match($0, /(^|> )(class|enum class) [a-z_]+/) || match($0, /^using [a-z_]+/) ||
                match($0, /^inline constexpr [a-z_]+ [a-z_]+/) || match($0, /(^|[ ])[a-z_]+\(/)) {
                name = substr($0, RSTART, RLENGTH)
                sub(/\($/, "", name)
                sub(/.* /, "", name)
                print name
            }
        }' "$@" | sort -u | grep -vxE 'yielder|async_result|nostopstate_t'
}

# Of $TMP/said: a script on a share stack has less than a page, the least of a stack of its own.
check_measured() {
    local sz
    sz=$(sed -nE 's/^measured: ([0-9]+) bytes a script$/\1/p' "$TMP/said")
    [[ -n $sz ]] || fail "scripts.cc does not tell the memory of a script: $(<"$TMP/said")"
    ((sz > 0 && sz < 4096)) || fail "scripts.cc: a script has $sz bytes"
    grep -qE '^measured: [0-9]+ us a tick, [0-9]+ ns a turn of a script$' "$TMP/said" ||
        fail "scripts.cc does not tell the time of a tick: $(<"$TMP/said")"
}

programs=$(awk '/^```/ { is_program = $0 == "```cpp"; next } is_program' docs/cpp.md)
ct_names=0
for name in $(names cpp/aco/*.hpp); do
    grep -qE "aco::(co::)?$name\\b" <<<"$programs" ||
        fail "no program of docs/cpp.md uses aco::$name"
    ct_names=$((ct_names + 1))
done
for name in join cancel "then" id send recv close resume "done"; do
    grep -qE "[.]$name\(" <<<"$programs" || fail "no program of docs/cpp.md calls .$name()"
done
((ct_names > 30)) || fail "$ct_names names were found in cpp/aco"
echo "$ct_names names are in docs/cpp.md"

for example in examples/cpp/*.cc; do
    name=${example##*/}
    line=$(head -n 1 "$example")
    [[ $line == "// $name shows "*. ]] ||
        fail "$example: its first line is not of the form '// $name shows what it shows.'"
    line=${line#* shows }
    [[ $(tr -d '`' <examples/README.md) == *"| cpp/$name | ${line%.} |"* ]] ||
        fail "examples/README.md does not have cpp/$name with what its first line says"
    [[ $(<docs/cpp.md) == *"(../examples/cpp/$name)"* ]] || fail "docs/cpp.md has no link to $name"
    must "$example does not compile" "$CXX" -std=c++20 -O1 "${WARNINGS[@]}" "${INCLUDE[@]}" \
        -pthread "$example" "${OBJECTS[@]}" -o "$TMP/program"
    must "$example fails" timeout 60 "$TMP/program"
    diff <(expected "$example") <(grep -v '^measured: ' "$TMP/said") >&2 ||
        fail "$example prints otherwise"
    [[ $name != scripts.cc ]] || check_measured
    echo "$example prints what it says"
done
