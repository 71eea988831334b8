#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each row of the tables "Coming from ..." in docs/cpp.md that name a row in their last column is
# one of the program that the section links to, which runs both sides, and exits with 1 if they
# differ.
#
# seconds: 40

# shellcheck source=tests/harness.sh
. tests/harness.sh

compiles_cxx "$CXX" "$CXX" || tell_untested
read -ra compiler <<<"$CC"
use_library aco_runtime "${compiler[@]}" -O2

readonly DIRECTORY=examples/cpp/coming_from

# rows_of SECTION: the names in the last column of its table.
rows_of() {
    sed -n "/^## Coming from $1\$/,/^## Coming from/p" docs/cpp.md |
        sed -nE 's/^\|.*\| [^a-z]([a-z_]+)[^a-z] \|$/\1/p'
}

# check SECTION NAME OPTION...: the program NAME.cc, linked with these.
check() {
    local section=$1 name=$2
    shift 2
    grep -q "(../$DIRECTORY/$name.cc)" docs/cpp.md || fail "docs/cpp.md has no link to $name.cc"
    must "$name.cc does not compile" "$CXX" -std=c++20 -O1 "${WARNINGS[@]}" "${INCLUDE[@]}" \
        -pthread "$DIRECTORY/$name.cc" "${OBJECTS[@]}" "$@" -o "$TMP/$name"
    must "$name.cc: the two sides of a row differ" timeout 60 "$TMP/$name"
    sed 's/:.*//' "$TMP/said" | sort >"$TMP/ran"
    rows_of "$section" | sort | diff - "$TMP/ran" >&2 ||
        fail "docs/cpp.md, $section: other rows than $name.cc ran"
    (($(wc -l <"$TMP/ran") > 8)) || fail "$name.cc has few rows"
    echo "$section: $(wc -l <"$TMP/ran") rows"
}

# has_header HEADER: after <utility>, which Asio forgets.
has_header() {
    printf '#include <%s>\n' utility "$1" | "$CXX" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null
}

check std::thread std_thread
check cppcoro cppcoro
if has_header boost/fiber/fiber.hpp; then
    check Boost.Fiber boost_fiber -lboost_fiber -lboost_context
else
    lack "no Boost.Fiber: apt-get install libboost-fiber-dev"
fi
if has_header boost/asio.hpp; then
    check Boost.Asio asio
else
    lack "no headers of Boost.Asio: apt-get install libboost-dev"
fi
