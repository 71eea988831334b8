# shellcheck shell=bash disable=SC2004,SC2034,SC2153,SC2154 # names of make.sh
# SPDX-License-Identifier: Apache-2.0
#
# Finds out which of the things in tools/dependencies are missing, and installs them. make.sh
# sources this, and defines what it uses: CC, CXX, COMPILER, CXX_COMPILER, OUTPUT, CMOCKA, goal,
# install, WITHOUT, is_in, die, find_foreign, find_tcmalloc.

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

# ---- Missing things ------------------------------------------------------------------------------

# Whether the goal uses a part where it is there.
is_used() {
    local goals='library programs run tests all'
    case $1 in
    all | cxx) goals+=' install' ;;
    man) goals='install uninstall' ;;
    *tests) goals='tests all' ;;
    # Without -i, test scripts find out for themselves.
    *scripts) ((install)) && goals=all || goals= ;;
    esac
    [[ " $goals " == *" $goal "* ]]
}

# Whether -i brings it: for a goal other than `all`, only what this machine's own variants need.
is_brought() {
    is_used "$1" || return
    case $1 in
    all | man | native-tests) ;;
    cxx) [[ $goal == @(tests|all) ]] ;;
    *) [[ $goal == all ]] ;;
    esac
}

# find_missing is_used|is_brought: sets MISSING to "packages|what for" of such parts that are not
# there. Used parts that are missing are left out then.
find_missing() {
    local probe packages purpose part
    MISSING=()
    while IFS='|' read -r probe packages purpose part; do
        part=${part//[[:space:]]/}
        if [[ $probe == '#'* || -z $part ]] || ! "$1" "$part" || ! is_in "$part" ||
            eval "$probe" &> /dev/null < /dev/null; then
            continue
        fi
        packages=${packages//\$CC/${COMPILER[0]}}
        # The package of clang++ is clang.
        read -r packages <<< "${packages//\$CXX/${CXX_COMPILER[0]/#clang++/clang}}"
        read -r purpose <<< "$purpose"
        MISSING+=("$packages|$purpose")
        [[ $1 != is_used ]] || WITHOUT[$part]=1
        # No other probe can succeed without a compiler.
        [[ $part != all ]] || break
    done < tools/dependencies
}

# ---- Services ------------------------------------------------------------------------------------

# Packages of servers start and enable these. Tests start servers of their own, so that neither is
# to happen: this file, while it is there, keeps services from being started.
readonly POLICY=/usr/sbin/policy-rc.d POLICY_TEXT='#!/bin/sh
# By make.sh -i of aco, for as long as it installs packages.
exit 101'

has_own_policy() {
    [[ -e $POLICY && $(< "$POLICY") == "$POLICY_TEXT" ]]
}

# The services that start with the machine.
list_services() {
    local link
    for link in /etc/rc[2-5].d/S[0-9][0-9]*; do
        printf '%s\n' "${link##*/S[0-9][0-9]}"
    done | LC_ALL=C sort -u
}

deny_services() {
    SERVICES=$(list_services)
    # Bash runs these when apt-get has ended.
    trap 'exit 1' INT TERM HUP
    trap allow_services EXIT
    if [[ -e $POLICY ]] && ! has_own_policy; then
        printf 'make.sh: %s, which was there, decides whether services start\n' "$POLICY"
    else
        # shellcheck disable=SC2016 # for sh to expand
        as_root sh -c 'printf "%s\n" "$1" > "$0" && chmod 755 "$0"' "$POLICY" "$POLICY_TEXT"
    fi
}

# Disables services that have come meanwhile.
allow_services() {
    local name
    trap - INT TERM HUP EXIT
    LC_ALL=C comm -13 <(printf '%s\n' "$SERVICES") <(list_services) | while IFS= read -r name; do
        as_root update-rc.d "$name" disable < /dev/null
    done
    ! has_own_policy || as_root rm -f "$POLICY"
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
    local hint=()
    has apt-get > /dev/null || die "-i needs apt-get; install by hand what stands for: $*"
    ((EUID == 0)) || has sudo > /dev/null || die "-i needs root, or sudo, to install: $*"
    [[ "$*" != *gcc-multilib* ]] || hint=("If it had to remove packages: gcc-multilib and" \
        "Debian's gcc-*-linux-gnu exclude each other. Remove the latter, or leave out what" \
        "needs the former, with -o no-m32")
    [[ "$*" != *:i386* ]] || as_root dpkg --add-architecture i386
    update_packages
    deny_services
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends --no-remove "$@" ||
        die "apt-get has not installed: $*" "${hint[@]}"
    allow_services
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

# Installs what the goal lacks; the compiler goes first, as other probes need it.
install_missing() {
    local entry word before='' packages functions
    find_missing is_brought
    while ((${#MISSING[@]})); do
        packages=() functions=()
        printf 'make.sh: -i installs for %s:\n' "$goal"
        for entry in "${MISSING[@]}"; do
            printf '  %-36s %s\n' "${entry#*|}" "${entry%%|*}"
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
        find_missing is_brought
    done
}
