#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds everything into output/: the library and its programs in every variant, and on request the
# tests. A target is built again only if something that it is made of, or the command, is newer.
# Relies on bash 4.4, a C compiler and binutils; says what else is missing and how to get it.
set -euo pipefail

readonly USAGE="usage: ./make.sh [-i] [-o no-m32] [-o no-valgrind] [-o no-qemu] [-o no-musl]
                 [-o no-man] [-h] [library | run | tests | install | uninstall]

  (nothing)       build the library, the synopsis, the tutorials and the benchmark
  library         build the library alone
  run             build as with nothing, then run the synopsis and the benchmark's headline rows
  tests           build as with nothing, and the tests, too; ./test.sh runs them
  install         build one variant of the library, and install it, headers, manual pages and more
  uninstall       remove what install, called in the same way, has installed

  -i              first install what is missing (with apt-get)
  -o no-m32       leave out the 32-bit variants
  -o no-valgrind  leave out the variants that talk to valgrind
  -o no-qemu      leave out the variants for other processors, which qemu runs
  -o no-musl      leave out the tests with musl as libc
  -o no-man       install no manual pages
  -h              this text

  CC, CXX         the compilers (gcc, g++); for other processors it is always clang
  CFLAGS          more options for them, for instance CFLAGS=-O3. What of it configures the library,
                  as -DACO_CONFIG_SHARE_FPU_MXCSR_ENV, install tells pkg-config and CMake, too
  LDFLAGS         more options to link libaco.so with
  PREFIX          where to install (/usr/local); LIBDIR: where the libraries (lib, in PREFIX)
  DESTDIR         what to put before these names, for packagers

A variant is output/NAME..[m32.]{no_valgrind|valgrind}.{standaloneFPUenv|shareFPUenv}
or output/NAME..{arm64|riscv64|arm|thumb}.no_valgrind.{standaloneFPUenv|shareFPUenv};
the two dots, as in libaco, end NAME"

shopt -s nullglob
# Optional parts, each in a folder of its own.
EXTRA=(extra/*/aco_*.c)
TESTS=(tests/test_*.c extra/*/tests/test_*.c)
# Other processors: name|emulator|where it finds libraries|options for clang|Debian's packages.
# lld 14 can't link for riscv64.
readonly FOREIGN=(
    "arm64|qemu-aarch64|/usr/aarch64-linux-gnu|--target=aarch64-linux-gnu -fuse-ld=lld|\
lld libc6-dev-arm64-cross libgcc-12-dev-arm64-cross"
    "riscv64|qemu-riscv64|/usr/riscv64-linux-gnu|--target=riscv64-linux-gnu|\
binutils-riscv64-linux-gnu libc6-dev-riscv64-cross libgcc-12-dev-riscv64-cross"
    "arm|qemu-arm|/usr/arm-linux-gnueabihf|--target=arm-linux-gnueabihf -marm -fuse-ld=lld|\
lld libc6-dev-armhf-cross libgcc-12-dev-armhf-cross"
    "thumb|qemu-arm|/usr/arm-linux-gnueabihf|--target=arm-linux-gnueabihf -mthumb -fuse-ld=lld|\
lld libc6-dev-armhf-cross libgcc-12-dev-armhf-cross"
)
# The tests' library, in sources: no package of it for these can be installed beside this machine's,
# and there is none for musl.
readonly CMOCKA=cmocka-1.1.7 CMOCKA_URL=http://deb.debian.org/debian/pool/main/c/cmocka
readonly CMOCKA_SHA256=810570eb0b8d64804331f82b29ff47c790ce9cd6b163e98d47a4807047ecad82
# Not everywhere do compilers make unwind tables of C unasked.
readonly FOREIGN_FLAGS=(-fasynchronous-unwind-tables -Wno-unused-command-line-argument)
readonly PROGRAMS=(test_aco_synopsis test_aco_tutorial_{0..6} test_aco_benchmark)
readonly OUTPUT=output
read -r -a COMPILER <<< "${CC:-gcc}"
read -r -a CXX_COMPILER <<< "${CXX:-g++}"
read -r -a EXTRA_FLAGS <<< "${CFLAGS:-}"
read -r -a LINK_FLAGS <<< "${LDFLAGS:-}"

cd "$(dirname "${BASH_SOURCE[0]}")"

mapfile -t WARNINGS < <(grep -s '^-' tools/warnings)
# DWARF 4, since memcheck of Debian 12 can't read the version 5 that clang writes.
readonly OPTIONS=(-std=gnu99 -gdwarf-4 -O2 "${WARNINGS[@]}" -Werror "${EXTRA_FLAGS[@]}" -I.)

usage_error() {
    printf 'make.sh: %s\n%s\n' "$1" "$USAGE" >&2
    exit 2
}

# ---- What is needed ------------------------------------------------------------------------------

# Compiles and links a program that includes the header $1, with the options that follow.
can_build() {
    local header=$1
    shift
    printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>
#include <%s>\nint main(void) { return 0; }\n' "$header" |
        "${COMPILER[@]}" -x c - -o /dev/null "$@" 2> /dev/null
}

has_package() {
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null) == installed ]]
}

# Sets MISSING to lines of "package|why|option that does without".
find_missing() {
    MISSING=()
    local target=$1 all=$2
    if ! can_build stdio.h; then
        # What else is missing can't be told without it.
        MISSING+=("${COMPILER[0]} libc6-dev|to compile|CC=another compiler")
        return
    fi
    # <errno.h> needs what only gcc-multilib brings, also where -m32 compiles already.
    if ((m32)) && ! can_build errno.h -m32; then
        MISSING+=("gcc-multilib|to compile with -m32|-o no-m32")
    fi
    if ((valgrind)) && ! { command -v valgrind > /dev/null && can_build valgrind/memcheck.h; }; then
        MISSING+=("valgrind|for the variants that memcheck understands|-o no-valgrind")
    fi
    if [[ $target == *install ]] && ((man)) && ! command -v python3 > /dev/null; then
        MISSING+=("python3|to write the manual pages|-o no-man")
    fi
    if [[ $target == tests || $all == all ]]; then
        can_build cmocka.h -lcmocka || MISSING+=("libcmocka-dev|for tests/|(none)")
        command -v "${CXX_COMPILER[0]}" > /dev/null || MISSING+=("g++|for the C++ tests|(none)")
        if ((m32)); then
            can_build cmocka.h -m32 -lcmocka ||
                MISSING+=("libcmocka-dev:i386|for tests/ with -m32|-o no-m32")
            if ((valgrind)) && command -v dpkg-query > /dev/null; then
                has_package libc6-dbg:i386 ||
                    MISSING+=("libc6-dbg:i386|for memcheck of 32-bit programs|-o no-m32")
            fi
        fi
    fi
    if ((qemu)); then
        find_missing_foreign
    fi
    if [[ $all == all ]]; then
        find_missing_tools
    fi
}

# What compiles for other processors, and runs that.
find_missing_foreign() {
    local entry name emulator triple packages without="-o no-qemu"
    command -v clang > /dev/null || MISSING+=("clang|to compile for other processors|$without")
    for entry in "${FOREIGN[@]}"; do
        IFS='|' read -r name emulator _ triple packages <<< "$entry"
        can_link "$triple" || MISSING+=("$packages|to compile for $name|$without")
    done
    command -v xz > /dev/null ||
        MISSING+=("xz-utils|to unpack cmocka for other processors|$without")
    command -v "$emulator" > /dev/null ||
        MISSING+=("qemu-user|to run programs for other processors|$without")
}

# Compiles and links a program for another processor, whose options are given in one word.
can_link() {
    local triple
    read -r -a triple <<< "$1"
    printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' |
        clang "${triple[@]}" -x c - -o /dev/null 2> /dev/null
}

# Tools without which some tests are skipped, and the benchmark runs with another allocator.
find_missing_tools() {
    [[ -n $(find_tcmalloc) ]] || MISSING+=("google-perftools|for the benchmark under tcmalloc|")
    command -v make > /dev/null || MISSING+=("make|for the test of the example to copy|")
    command -v gdb > /dev/null || MISSING+=("gdb|for the tests of backtraces|")
    ((!musl)) || find_missing_musl_tools
    find_missing_neighbours
    command -v clang > /dev/null || MISSING+=("clang|for the tests with a second compiler|")
    printf 'int main(void) { return 0; }\n' |
        clang -fsanitize=address -x c - -o /dev/null 2> /dev/null ||
        MISSING+=("libclang-rt-dev|for the tests under clang's sanitizers, and fuzzing|")
    command -v llvm-symbolizer > /dev/null ||
        MISSING+=("llvm|for names of functions in what clang's sanitizers report|")
    /usr/bin/python3 -c 'import capstone, elftools, z3' 2> /dev/null ||
        MISSING+=("python3-z3 python3-capstone python3-pyelftools|for the proof of acosw|")
    if ((m32)) && ! printf '#include <vector>\n' |
        "${CXX_COMPILER[@]}" -m32 -x c++ -c - -o /dev/null 2> /dev/null; then
        MISSING+=("g++-multilib|for the C++ tests with -m32|")
    fi
    printf '#include <boost/context/fiber.hpp>\n#include <boost/asio/coroutine.hpp>\n' |
        "${CXX_COMPILER[@]}" -x c++ -c - -o /dev/null 2> /dev/null ||
        MISSING+=("libboost-context-dev libboost-dev|for peers in bench/|")
    local tool
    for tool in time luajit; do
        command -v "/usr/bin/$tool" > /dev/null || MISSING+=("$tool|for the test of bench/|")
    done
    /usr/bin/python3 -c 'import matplotlib' 2> /dev/null ||
        MISSING+=("python3-matplotlib|for the charts of bench/|")
    for tool in cmake pkg-config dpkg-buildpackage:dpkg-dev dh:debhelper lintian; do
        command -v "${tool%:*}" > /dev/null || MISSING+=("${tool#*:}|for the tests of packaging/|")
    done
    for tool in build-essential:packaging libjemalloc2:bench libmimalloc2.0:bench; do
        [[ $(dpkg-query -W -f '${Status}' "${tool%:*}" 2> /dev/null) == *' installed' ]] ||
            MISSING+=("${tool%:*}|for the tests of ${tool#*:}/|")
    done
    for tool in python3 mandoc man:man-db; do
        command -v "${tool%:*}" > /dev/null || MISSING+=("${tool#*:}|for the manual pages|")
    done
    have_conan || /usr/bin/python3 -c 'import ensurepip' 2> /dev/null ||
        MISSING+=("python3-venv|to install Conan, for the test of its recipe|")
    if ((qemu)); then
        find_missing_foreign_tools
    fi
}

have_conan() {
    command -v conan > /dev/null || [[ -x $OUTPUT/conan/bin/conan ]]
}

# It is no package of Debian's. Only one test needs it, and fails if it was to be installed.
install_conan() {
    have_conan && return
    printf 'make.sh: installing conan in %s/conan (for the test of its recipe)\n' "$OUTPUT"
    /usr/bin/python3 -m venv "$OUTPUT/conan" &&
        "$OUTPUT/conan/bin/pip" install --quiet --disable-pip-version-check 'conan>=2.4,<3' ||
        printf 'make.sh: going on without conan\n' >&2
}

find_missing_musl_tools() {
    local tool
    for tool in musl-gcc:musl-tools xz:xz-utils; do
        command -v "${tool%:*}" > /dev/null || MISSING+=("${tool#*:}|for the tests with musl|")
    done
}

# What docs/limits.md speaks of, and tests/test_limits.sh tries.
find_missing_neighbours() {
    local entry
    for entry in bdw-gc:libgc-dev lua5.4:liblua5.4-dev python3-embed:python3-dev; do
        pkg-config --exists "${entry%%:*}" 2> /dev/null ||
            MISSING+=("${entry#*:}|for the tests of docs/limits.md|")
    done
}

# What some tests of other processors need beyond what builds for them.
find_missing_foreign_tools() {
    local entry name packages part
    command -v gdb-multiarch > /dev/null ||
        MISSING+=("gdb-multiarch|to step through the switch of other processors|")
    for entry in "${FOREIGN[@]}"; do
        IFS='|' read -r name _ _ _ packages <<< "$entry"
        part=libstdc++-12-dev-${packages##*libgcc-12-dev-}
        has_package "$part" || MISSING+=("$part|for the C++ tests for $name|")
    done
}

find_tcmalloc() {
    # ldconfig is not on the PATH of every user.
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null |
        awk '/libtcmalloc_minimal\.so/ && /x86-64/ { path = $NF } END { if (path) print path }'
}

as_root() {
    if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# The lists of packages may fail to come, passingly or in part; what is there may do.
update_packages() {
    local try
    for try in 1 2 3; do
        as_root apt-get update -qq && return
        printf 'make.sh: apt-get update failed (try %d of 3)\n' "$try" >&2
    done
    printf 'make.sh: going on with the lists of packages that are there\n' >&2
}

packages_of_missing() {
    printf '%s\n' "${MISSING[@]%%|*}"
}

install_missing() {
    if [[ $goal == *install ]]; then find_missing "$goal" needed; else find_missing tests all; fi
    ((${#MISSING[@]})) || return 0
    local without_compiler=0
    can_build stdio.h || without_compiler=1
    command -v apt-get > /dev/null || {
        printf 'make.sh: -i needs apt-get; install by hand what stands for: %s\n' \
            "$(packages_of_missing | tr '\n' ' ')" >&2
        exit 1
    }
    local entry package why packages
    for entry in "${MISSING[@]}"; do
        IFS='|' read -r package why _ <<< "$entry"
        printf 'make.sh: installing %s (%s)\n' "$package" "$why"
    done
    if [[ $(packages_of_missing) == *:i386* ]]; then
        as_root dpkg --add-architecture i386
    fi
    update_packages
    mapfile -t packages < <(packages_of_missing | tr ' ' '\n')
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends --no-remove "${packages[@]}" || {
        printf 'make.sh: apt-get has not installed them. If it had to remove packages: %s\n' \
            "gcc-multilib and Debian's gcc-*-linux-gnu exclude each other. Remove the latter, or \
leave out what needs the former, with -o no-m32" >&2
        exit 1
    }
    if ((without_compiler)) && can_build stdio.h; then
        install_missing
    fi
}

has_cmocka_sources() {
    [[ -f $OUTPUT/$CMOCKA/src/cmocka.c ]]
}

fetch_cmocka() {
    [[ $goal == tests ]] && ((qemu || musl)) && ! has_cmocka_sources || return 0
    printf 'make.sh: fetching %s into %s (for tests/ for other processors and with musl)\n' \
        "$CMOCKA" "$OUTPUT"
    mkdir -p "$OUTPUT"
    /usr/lib/apt/apt-helper -qq download-file "$CMOCKA_URL/${CMOCKA/-/_}.orig.tar.xz" \
        "$OUTPUT/$CMOCKA.tar.xz" "SHA256:$CMOCKA_SHA256" || {
        printf 'make.sh: could not be fetched; without: -o no-qemu -o no-musl\n' >&2
        exit 1
    }
    tar -xf "$OUTPUT/$CMOCKA.tar.xz" -C "$OUTPUT"
}

# Names what is missing, the command that installs it and the option that does without; then ends.
require() {
    find_missing "$1" needed
    local entry package why option architecture without_sources=0
    [[ $1 != tests ]] || ((!qemu)) || has_cmocka_sources || without_sources=1
    ((${#MISSING[@]} + without_sources)) || return 0
    for entry in "${MISSING[@]}"; do
        IFS='|' read -r package why option <<< "$entry"
        architecture=
        if [[ $package == *:i386 ]]; then
            architecture='dpkg --add-architecture i386 && apt-get update && '
        fi
        printf 'make.sh: missing: %s, %s\n  install: %sapt-get install %s\n  without: %s\n' \
            "$package" "$why" "$architecture" "$package" "$option"
    done >&2
    if ((without_sources)); then
        printf 'make.sh: missing: %s in %s, for tests/ for other processors\n  without: %s\n' \
            "$CMOCKA" "$OUTPUT" "-o no-qemu" >&2
    fi
    printf 'make.sh: ./make.sh -i installs all of it\n' >&2
    exit 1
}

# ---- Building ------------------------------------------------------------------------------------

# make_target TARGET SOURCE... -- COMMAND...: runs the command, in the background, if the target is
# missing, older than a source, or was made by another command. A failure is seen by finish_targets.
# BUILT lists all targets of the run, whether they were up to date or not.
make_target() {
    local target=$1 source stale=0
    shift
    printf '%s\n' "$target" >> "$BUILT"
    local sources=()
    while [[ $1 != -- ]]; do
        sources+=("$1")
        shift
    done
    shift
    local record=$OUTPUT/.commands/${target#"$OUTPUT"/}
    [[ -e $target && -e $record && $(< "$record") == "$*" ]] || stale=1
    for source in "${sources[@]}"; do
        [[ $source -nt $target ]] && stale=1
    done
    ((stale)) || return 0
    mkdir -p "$(dirname "$target")" "$(dirname "$record")"
    rm -f "$target" "$record"
    while (($(jobs -rp | wc -l) >= JOBS)); do
        wait -n || true
    done
    built=$((built + 1))
    {
        if "$@"; then
            printf '%s' "$*" > "$record"
        else
            printf 'make.sh: failed: %s\n' "$*" | tee -a "$FAILED" >&2
        fi
    } &
}

# Waits for all targets. What failed is noted in a file: with thousands of short-lived processes, the
# number of one that has ended may be another's by the time that somebody asks for its status.
finish_targets() {
    wait
    [[ ! -s $FAILED ]] || exit 1
}

# The entry of FOREIGN for a variant, in the array ENTRY; fails if it is for this processor.
find_foreign() {
    local entry
    for entry in "${FOREIGN[@]}"; do
        IFS='|' read -r -a ENTRY <<< "$entry"
        [[ $1 != "${ENTRY[0]}".* ]] || return 0
    done
    return 1
}

# The command, in COMPILE, for the variant {[m32.]|{arm64}.}{no_valgrind|valgrind}.
# {standaloneFPUenv|shareFPUenv}[.stress].
find_compile() {
    local variant=.$1. triple
    COMPILE=("${COMPILER[@]}")
    if find_foreign "$1"; then
        read -r -a triple <<< "${ENTRY[3]}"
        COMPILE=(clang "${triple[@]}" "${FOREIGN_FLAGS[@]}")
    fi
    COMPILE+=("${OPTIONS[@]}")
    [[ $variant != *.m32.* ]] || COMPILE+=(-m32)
    [[ $variant != *.valgrind.* ]] || COMPILE+=(-DACO_USE_VALGRIND)
    [[ $variant != *.shareFPUenv.* ]] || COMPILE+=(-DACO_CONFIG_SHARE_FPU_MXCSR_ENV)
    [[ $variant != *.stress.* ]] || COMPILE+=(-DACO_CONFIG_STRESS)
}

# All combinations of [m32.] with the words given and the two builds of control words, and those for
# other processors.
variants() {
    native_variants "$@"
    local entry
    for entry in "${FOREIGN[@]}"; do
        ((qemu)) || continue
        printf '%s.no_valgrind.%s\n' "${entry%%|*}" standaloneFPUenv "${entry%%|*}" shareFPUenv
    done
}

native_variants() {
    local bits valgrind_word fpu
    for bits in "" m32.; do
        [[ $bits == m32. && $m32 == 0 ]] && continue
        for valgrind_word in "$@"; do
            [[ $valgrind_word == valgrind && $valgrind == 0 ]] && continue
            for fpu in standaloneFPUenv shareFPUenv; do
                printf '%s%s.%s\n' "$bits" "$valgrind_word" "$fpu"
            done
        done
    done
}

# The objects of the library in a variant, in OBJECTS.
make_objects() {
    local variant=$1 source object
    find_compile "$variant"
    OBJECTS=()
    for source in aco.c acosw.S "${EXTRA[@]}"; do
        object=$(basename "${source%.*}")
        object=$OUTPUT/objects/$object..$variant.o
        make_target "$object" aco.h "${source%.*}".[chS] -- \
            "${COMPILE[@]}" -fPIC -c "$source" -o "$object"
        OBJECTS+=("$object")
    done
}

make_libraries() {
    local variant
    for variant in $(variants no_valgrind valgrind); do
        make_objects "$variant"
    done
    finish_targets
    for variant in $(variants no_valgrind valgrind); do
        make_objects "$variant"
        make_target "$OUTPUT/libaco..$variant.a" "${OBJECTS[@]}" -- \
            ar rcs "$OUTPUT/libaco..$variant.a" "${OBJECTS[@]}"
    done
    make_default_libraries
}

# The libraries without a variant in their names. libaco.map says what the shared one exports.
make_default_libraries() {
    local so=libaco.so.$VERSION
    make_objects no_valgrind.standaloneFPUenv
    finish_targets
    make_objects no_valgrind.standaloneFPUenv
    make_target "$OUTPUT/libaco.a" "${OBJECTS[@]}" -- ar rcs "$OUTPUT/libaco.a" "${OBJECTS[@]}"
    make_target "$OUTPUT/$so" "${OBJECTS[@]}" libaco.map -- \
        "${COMPILE[@]}" -shared "-Wl,-soname,libaco.so.${VERSION%%.*}" \
        -Wl,--version-script=libaco.map "${LINK_FLAGS[@]}" "${OBJECTS[@]}" \
        -o "$OUTPUT/$so"
    ln -sf "$so" "$OUTPUT/libaco.so.${VERSION%%.*}"
    ln -sf "libaco.so.${VERSION%%.*}" "$OUTPUT/libaco.so"
    finish_targets
}

make_programs() {
    local variant program target
    for variant in $(variants no_valgrind valgrind); do
        find_compile "$variant"
        for program in "${PROGRAMS[@]}"; do
            target=$OUTPUT/$program..$variant
            make_target "$target" "$program.c" aco_assert_override.h \
                "$OUTPUT/libaco..$variant.a" -- \
                "${COMPILE[@]}" "$program.c" "$OUTPUT/libaco..$variant.a" \
                -o "$target" -lpthread
        done
    done
    finish_targets
}

# Each test is built four times for each processor.
test_variants() {
    local variant
    for variant in $(variants no_valgrind); do
        printf '%s\n' "$variant" "$variant.stress"
    done
}

# The object file of cmocka for a processor.
cmocka_object() {
    printf '%s/objects/cmocka..%s.o' "$OUTPUT" "$1"
}

# Makes these for all other processors. Its warnings are not ours.
make_cmocka() {
    local entry name triple object source=$OUTPUT/$CMOCKA/src/cmocka.c
    for entry in "${FOREIGN[@]}"; do
        IFS='|' read -r name _ _ triple _ <<< "$entry"
        read -r -a triple <<< "$triple"
        object=$(cmocka_object "$name")
        make_target "$object" "$source" -- clang "${triple[@]}" "${FOREIGN_FLAGS[@]}" -O1 -w \
            -DHAVE_SIGNAL_H -I"$OUTPUT/$CMOCKA/include" -c "$source" -o "$object"
    done
}

# What tests of a variant are compiled and linked with, for cmocka: TEST_OPTIONS and TEST_LIBRARY.
find_cmocka() {
    TEST_OPTIONS=() TEST_LIBRARY=-lcmocka
    if find_foreign "$1"; then
        TEST_OPTIONS=(-DEMULATED=1 -isystem "$OUTPUT/$CMOCKA/include")
        TEST_LIBRARY=$(cmocka_object "${ENTRY[0]}")
    fi
}

# What tests have in common, for a variant, in HARNESS.
make_harness() {
    find_compile "$1"
    find_cmocka "$1"
    HARNESS=$OUTPUT/objects/harness..$1.o
    make_target "$HARNESS" aco.h tests/harness.[ch] -- \
        "${COMPILE[@]}" "${TEST_OPTIONS[@]}" -c tests/harness.c -o "$HARNESS"
}

# A test may ask for more options and sources in a line "// build: ...", for x86 alone in a line
# "// build x86: ...". A line "// only ..." names the processors that it is for.
make_tests() {
    local variant source target more asks processor only
    for variant in $(test_variants); do
        make_objects "$variant"
        make_harness "$variant"
    done
    ((!qemu)) || make_cmocka
    finish_targets
    for variant in $(test_variants); do
        make_objects "$variant"
        make_harness "$variant"
        if find_foreign "$variant"; then
            processor=${ENTRY[0]} asks=build
        else
            processor=x86 asks='build\( x86\)*'
        fi
        for source in "${TESTS[@]}"; do
            only=$(sed -n 's,^// only ,,p' "$source")
            [[ -z $only || " $only " == *" $processor "* ]] || continue
            target=$OUTPUT/tests/$(basename "$source" .c)..$variant
            mapfile -t more < <(sed -n "s|^// $asks: ||p" "$source" | tr ' ' '\n')
            make_target "$target" "$source" {tests,extra/*}/*.[ch] "$HARNESS" "${OBJECTS[@]}" -- \
                "${COMPILE[@]}" "${TEST_OPTIONS[@]}" "$source" "$HARNESS" "${OBJECTS[@]}" \
                "${more[@]}" -o "$target" "$TEST_LIBRARY" -lpthread -lm -ldl
        done
    done
    finish_targets
}

# ---- Installing ----------------------------------------------------------------------------------

# `install` or `uninstall`: packaging/install.sh knows what goes where.
install_or_remove() {
    local pages=()
    if ((man)); then
        pages=("$OUTPUT/man")
        # shellcheck disable=SC2046 # they are patterns of files
        python3 tools/man/pages.py "$OUTPUT/man" libaco.map \
            $(sed -n 's/^include //p' packaging/installed)
    fi
    if [[ $1 == install ]]; then
        make_default_libraries
    fi
    env VERSION="$VERSION" OUTPUT="$OUTPUT" bash packaging/install.sh "$1" "${pages[@]}"
}

# ---- Running -------------------------------------------------------------------------------------

run() {
    local variant=no_valgrind.standaloneFPUenv tcmalloc
    printf '\n==== synopsis\n'
    "$OUTPUT/test_aco_synopsis..$variant"
    for variant in no_valgrind.standaloneFPUenv no_valgrind.shareFPUenv; do
        tcmalloc=$(find_tcmalloc)
        printf '\n==== benchmark, headline rows, %s%s\n' "$variant" "${tcmalloc:+, under tcmalloc}"
        LD_PRELOAD=$tcmalloc "$OUTPUT/test_aco_benchmark..$variant" --headline
    done
}

# ---- Command line --------------------------------------------------------------------------------

m32=1 valgrind=1 qemu=1 musl=1 man=1 install=0 built=0
while getopts :io:h option; do
    case $option in
    i) install=1 ;;
    o)
        case $OPTARG in
        no-m32) m32=0 ;;
        no-valgrind) valgrind=0 ;;
        no-qemu) qemu=0 ;;
        no-musl) musl=0 ;;
        no-man) man=0 ;;
        *) usage_error "unknown option -o $OPTARG" ;;
        esac
        ;;
    h)
        printf '%s\n' "$USAGE"
        exit 0
        ;;
    :) usage_error "option -$OPTARG needs an argument" ;;
    *) usage_error "unknown option -$OPTARG" ;;
    esac
done
shift $((OPTIND - 1))
goal=${1:-programs}
if (($# > 1)) || [[ ! $goal =~ ^(library|programs|run|tests|install|uninstall)$ ]]; then
    usage_error "unknown argument $goal${2:+ $2}"
fi

VERSION=$(awk '/^#define ACO_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
               END { print v }' aco.h)
JOBS=$(nproc)
if [[ $goal == *install ]]; then
    m32=0 valgrind=0 qemu=0 musl=0
fi
if ((install)); then
    install_missing
    [[ $goal == *install ]] || install_conan
    [[ $goal == *install ]] || fetch_cmocka
fi
require "$goal"
mkdir -p "$OUTPUT"
BUILT=$OUTPUT/.built FAILED=$OUTPUT/.failed
: > "$BUILT"
: > "$FAILED"
if [[ $goal == *install ]]; then
    install_or_remove "$goal"
    exit
fi
# For test.sh and the scripts that it runs: name|emulator|command that compiles|options for tests.
for entry in "${FOREIGN[@]}"; do
    ((qemu)) || break
    IFS='|' read -r -a ENTRY <<< "$entry"
    find_cmocka "${ENTRY[0]}."
    printf '%s|%s -L %s|clang %s %s|%s\n' "${ENTRY[@]:0:4}" "${FOREIGN_FLAGS[*]}" \
        "${TEST_OPTIONS[*]} $TEST_LIBRARY"
done > "$OUTPUT/.foreign.new"
mv "$OUTPUT/.foreign.new" "$OUTPUT/.foreign"
make_libraries
if [[ $goal != library ]]; then
    make_programs
fi
if [[ $goal == tests ]]; then
    make_tests
fi
printf 'make.sh: %d targets built in %s/, all others up to date\n' "$built" "$OUTPUT"
if [[ $goal == run ]]; then
    run
fi
