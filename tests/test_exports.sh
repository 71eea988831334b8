#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The global names of each library, in every configuration and for every processor, are those of
# libaco.map: all functions listed there, and besides them internals, aco_i_*, that a header refers
# to; those that aco.hpp needs are listed, too. The version of the names is that of aco.h.

# shellcheck source=tests/harness.sh
. tests/harness.sh

HEADERS=(aco.h extra/*/aco_*.h)

# Prints the names in a list that nm writes, without version and configuration. Names that begin
# with two underscores are the compiler's.
names() {
    awk 'NF == 3 && $2 != "A" && $3 !~ /^__/ { print $3 }' |
        sed -E 's/@.*//; s/_?aco_acosw_.*//; /^$/d' | LC_ALL=C sort -u
}

# check WHAT: compares the names in $TMP/names with the list.
check() {
    local what=$1 name
    grep -v '^aco_i_' "$TMP/names" >"$TMP/documented" || true
    diff "$TMP/listed" "$TMP/documented" >&2 ||
        fail "$what: libaco.map (left) and the library (right) have different names"
    while read -r name; do
        grep -qw -e "$name" "${HEADERS[@]}" ||
            fail "$what: $name is global, but no header refers to it: make it static"
    done < <(grep '^aco_i_' "$TMP/names")
    echo "$what: $(wc -l <"$TMP/names") names, as listed"
}

# check_configuration COMPILER OPTION...: objects of a configuration that make.sh doesn't build.
check_configuration() {
    local what=$* object objects=() source
    for source in aco.c acosw.S extra/*/aco_*.c; do
        object=$TMP/$(basename "${source%.*}").o
        must "$what: $source does not compile" "$@" -I. -c "$source" -o "$object"
        objects+=("$object")
    done
    nm -g --defined-only "${objects[@]}" | names >"$TMP/names"
    check "$what"
}

have nm || skip "nm is needed"
need_libraries
sed -nE 's/^ +([a-z0-9_]+)(_aco_acosw_\*)?;/\1/p' packaging/libaco.map |
    grep -v '^aco_i_' | LC_ALL=C sort -u >"$TMP/listed"
grep -qx aco_resume "$TMP/listed" || fail "no names were found in libaco.map"
major=$(awk '$2 == "ACO_VERSION_MAJOR" { print $3 }' aco.h)
grep -qx "ACO_$major {" packaging/libaco.map ||
    fail "libaco.map is not of version $major, as aco.h is"

nm -D --defined-only "$OUTPUT/libaco.so" | names >"$TMP/names"
check "$OUTPUT/libaco.so"
for library in "$OUTPUT"/libaco{,..*}.a; do
    nm -g --defined-only "$library" | names >"$TMP/names"
    check "$library"
done
find_compilers gcc clang
for compiler in "${FOUND[@]}"; do
    check_configuration "$compiler" -DACO_CONFIG_LIST -DACO_CONFIG_STRESS
    for sanitizer in address thread; do
        check_configuration "$compiler" -DACO_CONFIG_LIST "-fsanitize=$sanitizer"
    done
done
