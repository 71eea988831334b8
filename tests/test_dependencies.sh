#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# -i installs what a goal needs and no more: no server and no emulator but for `all`. Services of
# packages neither start nor get enabled, and afterwards the machine is as before, also where
# apt-get fails or is interrupted. Nothing is installed here: in a copy of the scripts, all packages
# are missing, and apt-get, compilers and others are stubs that record what they are asked for.
set -euo pipefail
trap 'echo "line $LINENO: $BASH_COMMAND: failed"' ERR
unset OUTPUT CC CXX

PROJECT=$(mktemp -d "${TMP:-/tmp}/dependencies.XXXXXX")
trap 'rm -rf "$PROJECT"' EXIT
export PROJECT PATH=$PROJECT/bin:$PATH

fail() {
    printf 'FAILED: %s\n%s\n' "$1" "$(cat "$PROJECT/said")"
    exit 1
}

# stub NAME LINE...: a command that comes before that of the machine.
stub() {
    printf '%s\n' '#!/bin/bash' "${@:2}" > "$PROJECT/bin/$1"
    chmod +x "$PROJECT/bin/$1"
}

# ---- A machine on which nothing is installed -----------------------------------------------------

mkdir -p "$PROJECT"/{bin,etc/rc2.d,packaging,tests,tools}
cp make.sh test.sh aco*.[chS] test_aco_*.c "$PROJECT"
cp tools/{dependencies*,libraries,warnings} "$PROJECT/tools"
cp tests/{arguments,harness.[ch],test_status.c} "$PROJECT/tests"
touch "$PROJECT/packaging/installed"
echo 'exit 0' > "$PROJECT/packaging/install.sh"
cd "$PROJECT"
# A thing is there if its packages have been asked for. Things that are no packages are left out.
sed -i '/ fetch_/d; s/^\([^#|][^|]*\)|\([^|]*\)|/came \2 |\2|/' tools/dependencies
sed -i "s,/usr/sbin/policy-rc.d,$PROJECT/policy-rc.d,; s,/etc/rc,$PROJECT/etc/rc," \
    tools/dependencies.sh
[[ $(grep -c "$PROJECT/policy-rc.d\|$PROJECT/etc/rc" tools/dependencies.sh) == 2 ]]

# shellcheck disable=SC2016 # the stubs are to expand these
{
    stub came 'for package; do grep -qx -- "$package" "$PROJECT/asked" || exit; done'
    stub sudo 'exec "$@"'
    stub dpkg
    stub update-rc.d 'echo "$@" >> "$PROJECT/update-rc.d"'
    # Compilers make programs that do nothing.
    stub gcc 'while (($#)); do
        [[ $1 != -o ]] || { printf "#!/bin/sh\n" > "$2"; chmod +x "$2"; }
        shift
    done'
    stub ar 'touch "$2"'
}
for name in g++ clang python3; do
    cp bin/gcc "bin/$name"
done

# A server comes with each package.
# shellcheck disable=SC2016
readonly APT_GET='[[ $1 == install ]] || exit 0
    ls -l "$PROJECT/policy-rc.d" > "$PROJECT/listed"
    "$PROJECT/policy-rc.d" > /dev/null; echo "$?" > "$PROJECT/policy"
    for package; do
        [[ $package == install || $package == -* ]] || echo "$package" >> "$PROJECT/asked"
    done
    touch "$PROJECT/etc/rc2.d/S01slapd"'
stub apt-get "$APT_GET"

# ---- Packages for each goal ----------------------------------------------------------------------

# installs PACKAGES COMMAND...: these, in alphabetic order, and no more.
installs() {
    local wanted=$1 asked
    shift
    rm -rf output etc/rc2.d/S01slapd
    : > asked
    bash "$@" > said 2>&1 || fail "$*: status $?"
    asked=$(LC_ALL=C sort -u asked | tr '\n' ' ')
    [[ $asked == "$wanted " ]] || fail "$* installs ${asked}instead of $wanted"
    printf '%s: %.75s\n' "$*" "$wanted"
}

# shellcheck disable=SC2016 # the names are meant
everything=$(sed -n '/^came/p' tools/dependencies | cut -d '|' -f 2 |
    sed 's/\$CC/gcc/; s/\$CXX/g++/' | tr ' ' '\n' | sed '/^$/d' | LC_ALL=C sort -u | tr '\n' ' ')
[[ $everything == *nginx*openssh-server*slapd* ]]

for goal in '' library run; do
    installs "gcc libc6-dev" make.sh -i ${goal:+"$goal"}
done
installs "gcc libc6-dev python3" make.sh -i install
installs "gcc libc6-dev" make.sh -i -o no-man install
installs "g++ gcc libc6-dev libcmocka-dev" make.sh -i tests
[[ $(< said) == *'for tests:'*'C tests  '*'libcmocka-dev'*'left out'*'-i all'*'gcc-multilib'* ]] ||
    fail "make.sh -i does not say what it installs, and why"
installs "${everything% }" make.sh -i all
[[ $(< said) != *'left out'* ]] || fail "make.sh -i all leaves something out"
installs "g++ gcc libc6-dev libcmocka-dev" test.sh -i tutorial_3..no_valgrind.
installs "${everything% }" test.sh -i all tutorial_3..no_valgrind.
CC=clang CXX=clang++ installs "clang libc6-dev" make.sh -i run

# ---- Services ------------------------------------------------------------------------------------

# The last command has installed a service.
[[ $(< policy) == 101 && $(< listed) == -rwxr-xr-x* ]] || fail "services could have started"
[[ $(sort -u update-rc.d) == 'slapd disable' ]] || fail "services stay enabled"
[[ ! -e policy-rc.d ]] || fail "policy-rc.d stays"

# breaks WORDS LINE...: apt-get ends with these lines, and make.sh -i with an error and no trace.
breaks() {
    local words=$1
    shift
    rm -rf output etc/rc2.d/S01slapd update-rc.d
    : > asked
    stub apt-get "$APT_GET" "$@"
    ! bash make.sh -i all > said 2>&1 || fail "make.sh -i goes on after $*"
    [[ $(< said) == *"$words"* ]] || fail "make.sh -i does not say $words after $*"
    [[ ! -e policy-rc.d && $(< update-rc.d) == 'slapd disable' ]] || fail "a trace is left by $*"
    printf '%s: %s\n' "$*" "$words"
}

breaks 'apt-get has not installed: gcc libc6-dev' 'exit 1'
for signal in INT TERM; do
    # shellcheck disable=SC2016
    breaks '' "kill -$signal"' "$PPID"; sleep 0.3
        [[ ! -e $PROJECT/policy-rc.d ]] || echo ended >> "$PROJECT/asked"; exit 1'
    [[ $(< asked) == *ended* ]] || fail "after SIG$signal, policy-rc.d goes before apt-get ends"
done
# shellcheck disable=SC2016 # packages that exclude each other
breaks 'exclude each other' '[[ "$*" != *--no-remove*gcc-multilib* ]]'
stub apt-get
: > asked
! bash make.sh -i all > said 2>&1 || fail "make.sh -i goes on without what it has installed"
[[ $(< said) == *'still missing: gcc libc6-dev'* ]] ||
    fail "make.sh -i does not say what is missing"

# That of an administrator stays as it is.
stub apt-get "$APT_GET"
printf '#!/bin/sh\nexit 0\n' > policy-rc.d
chmod +x policy-rc.d
installs "${everything% }" make.sh -i all
[[ $(< policy-rc.d) == $'#!/bin/sh\nexit 0' && $(< said) == *"decides whether services start"* ]] ||
    fail "an administrator's policy-rc.d does not stay"

# ---- The goal `library` --------------------------------------------------------------------------

# Only programs of this machine are linked with it, even where all compilers are there.
rm -rf output
bash make.sh library > said 2>&1 || fail "make.sh library fails"
[[ $(echo output/libaco..*.a) == $(echo output/libaco..no_valgrind.{share,standalone}FPUenv.a) ]] ||
    fail "make.sh library builds $(echo output/libaco..*.a)"
bash make.sh > said 2>&1 || fail "make.sh fails"
for variant in m32.valgrind riscv64.no_valgrind; do
    [[ -e output/libaco..$variant.shareFPUenv.a ]] || fail "make.sh builds no $variant"
done
