# shellcheck shell=bash disable=SC2004,SC2034,SC2153,SC2154 # names of make.sh
# SPDX-License-Identifier: Apache-2.0
#
# Finds out which of the things in tools/dependencies are missing, and installs them. make.sh
# sources this, and has what it uses: CC, CXX, COMPILER, OUTPUT, CMOCKA, goal, install, WITHOUT,
# is_in, die, find_foreign, find_tcmalloc.

# ---- Probes --------------------------------------------------------------------------------------

has() {
    local name
    for name in "$@"; do
        command -v "$name" || return
    done
}

# Without dpkg-query, a package counts as installed.
has_package() {
    ! has dpkg-query || [[ $(dpkg-query -W -f '${db:Status-Status}' "$1") == installed ]]
}

# compiles HEADERS COMPILER OPTION...: whether a program with these headers compiles and links.
compiles() {
    local header
    {
        for header in $1; do
            printf '#include <%s>\n' "$header"
        done
        printf 'int main(void) { return 0; }\n'
    } | "$2" -x c "${@:3}" - -o /dev/null
}

links_for() {
    local options
    find_foreign "$1."
    read -r -a options <<< "${ENTRY[3]}"
    compiles stdio.h clang "${options[@]}"
}

# has_cmocka OPTION...: for tests compiled with these.
has_cmocka() {
    compiles "stdarg.h stddef.h stdint.h setjmp.h cmocka.h" "${COMPILER[@]}" -lcmocka "$@"
}

has_cmocka_sources() {
    [[ -f $CMOCKA/src/cmocka.c ]]
}

has_conan() {
    has conan || [[ -x $OUTPUT/conan/bin/conan ]]
}

# Ruff's and mypy's rules differ between versions.
readonly LINTERS=(ruff==0.17.6 mypy==2.4.1)

has_linters() {
    [[ -e $OUTPUT/linters/${LINTERS[*]} ]]
}

# ---- What is missing -----------------------------------------------------------------------------

# Whether the goal needs a part; with -i, all are wanted, since tests are to follow.
is_needed() {
    local goals='library programs run tests'
    case $1 in
    all) goals+=' install uninstall' ;;
    man) goals='install uninstall' ;;
    *tests) goals=tests ;;
    *scripts) goals= ;;
    esac
    [[ " $goals " == *" $goal "* ]] || { ((install)) && [[ $goal != *install ]]; }
}

# Sets MISSING to "packages|what for" of what is not there. Without -i, its part is left out.
find_missing() {
    local probe packages purpose part
    MISSING=()
    while IFS='|' read -r probe packages purpose part; do
        part=${part//[[:space:]]/}
        if [[ $probe == '#'* || -z $part ]] || ! is_needed "$part" || ! is_in "$part" ||
            eval "$probe" &> /dev/null < /dev/null; then
            continue
        fi
        read -r packages <<< "${packages//\$CC/${COMPILER[0]}}"
        read -r purpose <<< "$purpose"
        MISSING+=("$packages|$purpose")
        ((install)) || WITHOUT[$part]=1
        # No other probe can succeed without a compiler.
        [[ $part != all ]] || break
    done < tools/dependencies
}

# ---- Installing it -------------------------------------------------------------------------------

as_root() {
    if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# Lists of packages may fail to arrive, for a moment or in part; those that are there may do.
update_packages() {
    local try
    for try in 1 2 3; do
        as_root apt-get update -qq && return
        printf 'make.sh: apt-get update failed (try %d of 3)\n' "$try" >&2
    done
    printf 'make.sh: going on with the lists of packages that are there\n' >&2
}

install_packages() {
    has apt-get > /dev/null || die "-i needs apt-get; install by hand what stands for: $*"
    [[ "$*" != *:i386* ]] || as_root dpkg --add-architecture i386
    update_packages
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends --no-remove "$@" ||
        die "apt-get has not installed them. If it had to remove packages: gcc-multilib and" \
            "Debian's gcc-*-linux-gnu exclude each other. Remove the latter, or leave out what" \
            "needs the former, with -o no-m32"
}

# Debian's packages of it for several processors exclude each other, and there is none for musl.
fetch_cmocka() {
    local name=${CMOCKA##*/} url=http://deb.debian.org/debian/pool/main/c/cmocka
    local sum=810570eb0b8d64804331f82b29ff47c790ce9cd6b163e98d47a4807047ecad82
    mkdir -p "$OUTPUT"
    has_cmocka_sources ||
        /usr/lib/apt/apt-helper -qq download-file "$url/${name/-/_}.orig.tar.xz" \
            "$CMOCKA.tar.xz" "SHA256:$sum" &&
        tar -xf "$CMOCKA.tar.xz" -C "$OUTPUT"
}

fetch_conan() {
    /usr/bin/python3 -m venv "$OUTPUT/conan" &&
        "$OUTPUT/conan/bin/pip" install --quiet --disable-pip-version-check 'conan>=2.4,<3'
}

fetch_linters() {
    /usr/bin/python3 -m venv --clear "$OUTPUT/linters" &&
        "$OUTPUT/linters/bin/pip" install --quiet --disable-pip-version-check "${LINTERS[@]}" &&
        touch "$OUTPUT/linters/${LINTERS[*]}"
}

# Installs what is missing; the compiler goes first, as other probes need it.
install_missing() {
    local entry word before='' packages functions
    find_missing
    while ((${#MISSING[@]})); do
        packages=() functions=()
        for entry in "${MISSING[@]}"; do
            printf 'make.sh: installing %s (%s)\n' "${entry%%|*}" "${entry#*|}"
            for word in ${entry%%|*}; do
                if [[ $word == fetch_* ]]; then functions+=("$word"); else packages+=("$word"); fi
            done
        done
        [[ ${MISSING[*]} != "$before" ]] || die "installed, but still missing: $before"
        before=${MISSING[*]}
        ((${#packages[@]} == 0)) || install_packages "${packages[@]}"
        for word in "${functions[@]}"; do
            "$word" || die "$word failed"
        done
        find_missing
    done
}
