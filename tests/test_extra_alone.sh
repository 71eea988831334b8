#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Each optional part compiles and links when nothing but its .h and .c lies beside the library, in
# one folder; its header is good for C99 and C++11. All sources in the folders of parts are parts:
# their tests lie in tests/ below. They and the runtime use only what is in the API, or in the
# section "For parts" of aco.h.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# check COMPILER WIDTH PART
check() {
    local cc=$1 width part=$3 name copy=$TMP/alone
    read -ra width <<<"$2"
    name=$(basename "$part")
    [[ -e "$part.h" ]] || fail "$part.c is no part, as it has no header: tests lie in tests/ below"
    rm -rf "$copy"
    mkdir "$copy"
    cp aco.h "$part.h" "$part.c" "$copy"
    printf '#include "%s.h"\nint main(void) { return 0; }\n' "$name" >"$copy/user.c"
    must "$cc $2: $name does not link alone" "$cc" "${width[@]}" -std=gnu99 -O2 \
        "${C_WARNINGS[@]}" "$copy"/{user,"$name"}.c "$TMP"/{aco,acosw}.o -o "$copy/user" -lpthread
    must "$cc $2: $name.h is no C99" "$cc" "${width[@]}" -std=c99 -pedantic "${C_WARNINGS[@]}" \
        -fsyntax-only "$copy/user.c"
    ! speaks_cxx "$cc" ||
        must "$cc $2: $name.h is no C++11" \
            "$cc" "${width[@]}" -std=c++11 -pedantic "${WARNINGS[@]}" \
        -fsyntax-only -x c++ "$copy/user.c"
}

# check_all COMPILER WIDTH
check_all() {
    local width part
    read -ra width <<<"$2"
    must "$1 $2: the library does not compile" \
        env -C "$TMP" "$1" "${width[@]}" -O2 -c "$PWD/aco.c" "$PWD/acosw.S"
    for part in "${parts[@]}"; do
        check "$1" "$2" "${part%.c}"
    done
    echo "${PROCESSOR:-$1 $2}: each of ${#parts[@]} optional parts is complete"
}

# names: all in the standard input that the core has for its own sources or for parts.
names() {
    grep -oE '\<(aco_i|ACO)_\w+' | LC_ALL=C sort -u
}

# check_names: sources name nothing of the core but what aco.h has for them.
check_names() {
    local others=() directory
    for directory in runtime hooks cpp compat pthreads; do
        [[ ! -d $directory ]] || others+=("$directory")
    done
    sed '/^\/\* ==== Internals/,/^\/\* ==== For parts/d; /^\/\* ==== For the library/,$d' aco.h |
        names >"$TMP/for_parts"
    [[ $(<"$TMP/for_parts") == *aco_i_fail* && $(<"$TMP/for_parts") != *aco_i_ferry* ]] ||
        fail 'aco.h has no section "For parts" between internals'
    cat aco.h aco.c acosw.S | names | comm -23 - "$TMP/for_parts" >"$TMP/internal"
    find extra "${others[@]}" -path '*/tests/*' -prune -o -name '*.[ch]*' -exec cat {} + |
        names >"$TMP/used"
    comm -12 "$TMP/used" "$TMP/internal" >"$TMP/leaks"
    [[ ! -s $TMP/leaks ]] ||
        fail "a part uses these internals of the core: $(tr '\n' ' ' <"$TMP/leaks")"
    echo "of the core, parts use what aco.h has for them:" \
        "$(comm -12 "$TMP/used" "$TMP/for_parts" | grep -c '^aco_i_') internals"
}

shopt -s nullglob
parts=(extra/*/*.c)
[[ ${#parts[@]} -gt 0 ]] || skip "there are no optional parts"
check_names
on_each_native check_all gcc clang
on_each_foreign check_all
