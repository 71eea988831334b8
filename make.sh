#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds everything that can be built here into output/: the library and its programs in every
# variant, the runtime, and on request the tests. Lists at the end what is missing for the rest. A
# target is built again only if something that it is made of, or the command, has changed. Relies on
# bash 4.4, a C compiler and binutils; tools/dependencies lists what else there is to have.
set -euo pipefail
shopt -s nullglob
STARTED_IN=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly USAGE="usage: ./make.sh [-i] [-o no-m32] [-o no-valgrind] [-o no-qemu] [-o no-musl]
                 [-o no-man] [-o no-servers] [-h]
                 [library | run | tests | all | list | install | uninstall]
       ./make.sh objects LIBRARY [VARIANT]

  (nothing)       build the libraries, the synopsis, the tutorials and the benchmark
  library         build the libraries alone, for this machine's own programs
  run             build as with nothing, then run the synopsis and the benchmark's headline rows
  tests           build as with nothing, and the tests, too; ./test.sh runs them
  all             the same, for ./test.sh -i all
  list            build nothing, and list the programs that test and that there can be
  objects         build one of the libraries in tools/libraries, and those below it, by CC and
                  CFLAGS or in a variant, and list what programs are linked with; for scripts
  install         build one variant of the library, and install it, headers, manual pages and more
  uninstall       remove what install, called in the same way, has installed

  -i              first install, with apt-get, what the word needs: a compiler; for install also
                  python3, for tests a C++ compiler and cmocka; for all everything that tests
                  use, other processors' compilers and servers, too. No service gets started
  -o no-m32       leave out the 32-bit variants
  -o no-valgrind  leave out the variants that talk to valgrind
  -o no-qemu      leave out the variants for other processors, which qemu runs
  -o no-musl      leave out the tests with musl as libc
  -o no-man       install no manual pages
  -o no-servers   leave out the tests of hooks with databases and other servers
  -h              this text

  CC, CXX         the compilers (gcc, g++); for other processors it is always clang
  CFLAGS          more options for them, for instance CFLAGS=-O3. Those that configure the library,
                  as -DACO_CONFIG_SHARE_FPU_MXCSR_ENV, install passes on to pkg-config and CMake
  LDFLAGS         more options to link the shared libraries with
  OUTPUT          where to build (output, beside the sources), for instance if these are read-only
  PREFIX          where to install (/usr/local); LIBDIR: where the libraries (lib, in PREFIX)
  DESTDIR         what to put before these names, for packagers
  RUNPATH         where the shared libraries look for each other first (\$ORIGIN, the directory that
                  they are in); empty: only where the system does

A variant is output/NAME..[m32.]{no_valgrind|valgrind}.{standaloneFPUenv|shareFPUenv}
or output/NAME..{arm64|riscv64|arm|thumb}.no_valgrind.{standaloneFPUenv|shareFPUenv};
the two dots, as in libaco, end NAME"

# Other processors: name|emulator|where it finds libraries|options for clang. lld 14 can't link for
# riscv64.
readonly FOREIGN=(
    "arm64|qemu-aarch64|/usr/aarch64-linux-gnu|--target=aarch64-linux-gnu -fuse-ld=lld"
    "riscv64|qemu-riscv64|/usr/riscv64-linux-gnu|--target=riscv64-linux-gnu"
    "arm|qemu-arm|/usr/arm-linux-gnueabihf|--target=arm-linux-gnueabihf -marm -fuse-ld=lld"
    "thumb|qemu-arm|/usr/arm-linux-gnueabihf|--target=arm-linux-gnueabihf -mthumb -fuse-ld=lld"
)
# Compilers don't make unwind tables of C unasked everywhere.
readonly FOREIGN_FLAGS=(-fasynchronous-unwind-tables -Wno-unused-command-line-argument)
readonly PROGRAMS=(test_aco_synopsis test_aco_tutorial_{0..6} test_aco_benchmark)
# The directory to build in: beside the sources, or the one that the caller names, from where it is.
OUTPUT=${OUTPUT:-$PWD/output}
[[ $OUTPUT == /* ]] || OUTPUT=$STARTED_IN/$OUTPUT
readonly OUTPUT=${OUTPUT#"$PWD"/}
readonly CMOCKA=$OUTPUT/cmocka-1.1.7
: "${CC:=gcc}" "${CXX:=g++}" "${RUNPATH=\$ORIGIN}"
read -r -a COMPILER <<< "$CC"
read -r -a CXX_COMPILER <<< "$CXX"
read -r -a EXTRA_FLAGS <<< "${CFLAGS:-}"
read -r -a LINK_FLAGS <<< "${LDFLAGS:-}"
mapfile -t WARNINGS < <(grep -s '^-' tools/warnings)
# DWARF 4, since memcheck of Debian 12 can't read the version 5 that clang writes.
readonly OPTIONS=(-std=gnu99 -gdwarf-4 -O2 "${WARNINGS[@]}" -Werror "${EXTRA_FLAGS[@]}" -I.)

usage_error() {
    printf 'make.sh: %s (see ./make.sh -h)\n' "$1" >&2
    exit 2
}

die() {
    printf 'make.sh: %s\n' "$@" >&2
    exit 1
}

# ---- Parts that are left out ---------------------------------------------------------------------

# Whether neither a part nor anything that it belongs to is left out.
is_in() {
    local word
    for word in "$1" ${1//-/ }; do
        [[ -z ${WITHOUT[$word]:-} ]] || return 1
    done
}

# Fails if a compiler that was asked for is not there; without g++, C++ is left out.
check_compilers() {
    local name=${COMPILER[0]}
    type -P "$name" > /dev/null ||
        die "there is no compiler $name, which CC names; ./make.sh -i installs gcc"
    is_in all || die "$CC can't compile; missing: ${MISSING[0]/|/, }" "./make.sh -i installs it"
    name=${CXX_COMPILER[0]}
    if ! type -P "$name" > /dev/null; then
        [[ $name == g++ ]] || die "there is no compiler $name, which CXX names"
        WITHOUT[cxx]=1
    fi
}

make_output() {
    [[ $OUTPUT != *[[:space:]]* ]] || usage_error "OUTPUT=$OUTPUT: there may be no space in it"
    { mkdir -p "$OUTPUT" && [[ -w $OUTPUT ]]; } ||
        die "can't write to $OUTPUT/: OUTPUT=DIRECTORY, before the command, builds elsewhere"
}

# Leaves in a file, for test.sh, what is left out for want of packages, and prints that.
tell_left_out() {
    local entry
    for entry in "${MISSING[@]}"; do
        entry=${entry/fetch_/}
        printf '  %-36s %s\n' "${entry#*|}" "${entry%%|*}"
    done > "$OUTPUT/.left_out"
    if ((${#MISSING[@]})); then
        printf 'make.sh: left out, for want of packages that ./make.sh -i all installs:\n'
        cat "$OUTPUT/.left_out"
    fi
}

# ---- Building ------------------------------------------------------------------------------------

# make_target TARGET SOURCE... -- COMMAND...: runs the command, in the background, if the target is
# missing, older than a source, or was made by another command. finish_targets sees a failure.
# It forks nothing where the target is up to date. TARGETS lists all targets of the run.
make_target() {
    local target=$1 record=$OUTPUT/.commands/${1#"$OUTPUT"/} known='' stale=0
    shift
    TARGETS+=("$target")
    [[ $goal != list ]] || return 0
    { read -r known < "$record"; } 2> /dev/null || true
    while [[ $1 != -- ]]; do
        [[ ! $1 -nt $target ]] || stale=1
        shift
    done
    shift
    [[ -e $target && $known == "$*" ]] || stale=1
    ((stale)) || return 0
    mkdir -p "${target%/*}" "${record%/*}"
    rm -f "$target" "$record"
    while (($(jobs -rp | wc -l) >= JOBS)); do
        wait -n || true
    done
    built=$((built + 1))
    {
        if "$@"; then
            printf '%s\n' "$*" > "$record"
        else
            printf 'make.sh: failed: %s\n' "$*" | tee -a "$FAILED" >&2
        fi
    } &
}

# Waits for all targets. Failures are noted in a file: with thousands of short-lived processes, the
# number of one that has ended may be another's by the time that its status is asked for.
finish_targets() {
    wait
    [[ ! -s $FAILED ]] || exit 1
}

# The entry of FOREIGN for a variant, in the array ENTRY; fails if it is for this processor.
find_foreign() {
    local entry
    for entry in "${FOREIGN[@]}"; do
        if [[ $1 == "${entry%%|*}".* ]]; then
            IFS='|' read -r -a ENTRY <<< "$entry"
            return
        fi
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

# All variants with the words given, {no_valgrind|valgrind}, that are not left out.
variants() {
    local bits word name
    for bits in "" m32.; do
        for word in "$@"; do
            ! is_in "${bits:+m32-}$word" ||
                printf '%s\n' "$bits$word."{standaloneFPUenv,shareFPUenv}
        done
    done
    for name in "${FOREIGN[@]%%|*}"; do
        ! is_in "qemu-$name" ||
            printf '%s\n' "$name.no_valgrind."{standaloneFPUenv,shareFPUenv}
    done
}

# The variants of tests: each one also as a stress build.
test_variants() {
    local variant part
    for variant in $(variants no_valgrind); do
        case $variant in
        no_valgrind.*) part=native-tests ;;
        m32.*) part=m32-tests ;;
        *) part=qemu-tests ;;
        esac
        ! is_in "$part" || printf '%s\n' "$variant" "$variant.stress"
    done
}

# ---- Libraries -----------------------------------------------------------------------------------

# Sets LIBRARIES to the names in tools/libraries whose sources are there, without it to the core,
# and for each of them its columns there.
read_libraries() {
    local name below sources headers tests
    LIBRARIES=()
    declare -gA BELOW=() HOLDS=() SOURCES=() HEADERS=() TESTS_IN=()
    while IFS='|' read -r name below sources headers tests; do
        name=${name// /}
        # shellcheck disable=SC2206 # they are patterns
        sources=($sources) headers=($headers) tests=($tests)
        ((${#sources[@]})) || continue
        LIBRARIES+=("$name")
        HOLDS[$name]=
        [[ $below != *+* ]] || HOLDS[$name]=1
        BELOW[$name]=${below/+/} SOURCES[$name]=${sources[*]} HEADERS[$name]=${headers[*]}
        TESTS_IN[$name]=${tests[*]}
    done < <(grep -sv '^#' tools/libraries ||
        printf 'aco || aco.c acosw.S extra/*/aco_*.c | . extra/* | tests extra/*/tests\n')
}

# Sets INCLUDE to the options for the headers of the library $1 and of those below it, with "tests"
# as $2 also for those that their tests share, and NEWEST to the newest header.
find_headers() {
    local word folder file folders='' shared=''
    for word in $1 ${BELOW[$1]}; do
        [[ $word != -* ]] || continue
        folders+=" ${HEADERS[$word]}"
        [[ -z ${2:-} || $word == aco ]] || shared+=" ${TESTS_IN[$word]}"
    done
    INCLUDE=() NEWEST=aco.h
    for folder in $folders; do
        INCLUDE+=("-I$folder")
    done
    for folder in $shared; do # -I would hide <threads.h>
        INCLUDE+=("-iquote$folder")
    done
    for folder in $folders $shared; do
        for file in "$folder"/{,*/}*.h; do
            [[ ! $file -nt $NEWEST ]] || NEWEST=$file
        done
    done
}

# The objects of the library $1 in the variant $2, in OBJECTS.
list_objects() {
    local source
    OBJECTS=()
    for source in ${SOURCES[$1]}; do
        OBJECTS+=("$OUTPUT/objects/${source%.*}..$2.o")
    done
}

# Sets COMPILE_CXX to COMPILE for sources in C++, which need nothing of its library.
find_compile_cxx() {
    local options=("${COMPILE[@]:${#COMPILER[@]}}")
    options=("${options[@]/#-std=gnu99/-std=c++11}")
    COMPILE_CXX=("${CXX_COMPILER[@]}" "${options[@]/#-Wstrict-prototypes/-Wall}" -fno-exceptions
        -fno-rtti)
}

# make_objects LIBRARY VARIANT: by COMPILE.
make_objects() {
    local source object compile more=(-pthread)
    find_headers "$1"
    find_compile_cxx
    [[ $1 != aco ]] || more=()
    for source in ${SOURCES[$1]}; do
        object=$OUTPUT/objects/${source%.*}..$2.o
        compile=("${COMPILE[@]}")
        [[ $source != *.cc ]] || compile=("${COMPILE_CXX[@]}")
        make_target "$object" "$source" "${source%.*}".[h] "$NEWEST" -- \
            "${compile[@]}" "${more[@]}" "${INCLUDE[@]}" -fPIC -c "$source" -o "$object"
    done
}

# make_archive LIBRARY VARIANT ARCHIVE: of its objects.
make_archive() {
    list_objects "$1" "$2"
    make_target "$3" "${OBJECTS[@]}" -- ar rcs "$3" "${OBJECTS[@]}"
}

make_libraries() {
    local variant
    for variant in "${VARIANTS[@]}"; do
        find_compile "$variant"
        make_objects aco "$variant"
    done
    finish_targets
    for variant in "${VARIANTS[@]}"; do
        make_archive aco "$variant" "$OUTPUT/libaco..$variant.a"
    done
}

# make_shared LIBRARY VARIANT: libNAME.so of its objects, linked with those below it or, if it holds
# them, of theirs, too. packaging/libNAME.map, where it is there, says what it exports.
make_shared() {
    local so=lib$1.so map=packaging/lib$1.map word link=() objects=()
    for word in ${BELOW[$1]}; do
        if [[ $word == -* ]]; then
            link+=("$word")
        elif [[ -z ${HOLDS[$1]} ]]; then
            link+=("$OUTPUT/lib$word.so")
        else
            list_objects "$word" "$2"
            objects+=("${OBJECTS[@]}")
        fi
    done
    list_objects "$1" "$2"
    objects+=("${OBJECTS[@]}")
    [[ $1 == aco ]] || link+=(-pthread ${RUNPATH:+"-Wl,--enable-new-dtags,-rpath,$RUNPATH"})
    [[ -f $map ]] || map=
    make_target "$OUTPUT/$so.$VERSION" "${objects[@]}" ${map:+"$map"} -- \
        "${COMPILE[@]}" -shared "-Wl,-soname,$so.${VERSION%%.*}" \
        ${map:+"-Wl,--version-script=$map"} "${LINK_FLAGS[@]}" "${objects[@]}" "${link[@]}" \
        -o "$OUTPUT/$so.$VERSION"
    ln -sf "$so.$VERSION" "$OUTPUT/$so.${VERSION%%.*}"
    ln -sf "$so.${VERSION%%.*}" "$OUTPUT/$so"
}

# The libraries without a variant in their names.
make_default_libraries() {
    local library variant=no_valgrind.standaloneFPUenv
    find_compile "$variant"
    for library in "${LIBRARIES[@]}"; do
        is_buildable "$library" || continue
        make_objects "$library" "$variant"
    done
    finish_targets
    for library in "${LIBRARIES[@]}"; do
        is_buildable "$library" || continue
        [[ -n ${HOLDS[$library]} ]] ||
            make_archive "$library" "$variant" "$OUTPUT/lib$library.a"
        make_shared "$library" "$variant"
        finish_targets
    done
}

# Whether there is a compiler for the sources in C++.
is_buildable() {
    [[ ${SOURCES[$1]} != *.cc ]] || is_in cxx
}

# For scripts: builds a library, and those below it, in a variant of make.sh or, without one, by CC
# and CFLAGS. Prints a line with the options for headers, and the objects that programs are linked
# with. Only one process at a time builds a variant.
print_objects() {
    local library=$1 variant=${2:-} word words
    if [[ -z $variant ]]; then
        COMPILE=("${COMPILER[@]}" "${OPTIONS[@]}")
        variant="${COMPILER[*]} ${EXTRA_FLAGS[*]}"
        variant=${variant//[ \/]/_}
    else
        find_compile "$variant"
    fi
    mkdir -p "$OUTPUT/.commands"
    FAILED=$OUTPUT/.commands/failed..$variant
    exec 9> "$OUTPUT/.commands/lock..$variant"
    flock 9
    : > "$FAILED"
    read -r -a words <<< "$library ${BELOW[$library]}"
    for word in "${words[@]}"; do
        [[ $word == -* ]] || make_objects "$word" "$variant"
    done
    finish_targets
    make_archive aco "$variant" "$OUTPUT/objects/libaco..$variant.a"
    finish_targets
    find_headers "$library" tests
    printf '%s\n' "${INCLUDE[*]}"
    for word in "${words[@]}"; do
        case $word in
        -*) printf '%s\n' "$word" ;;
        aco) printf '%s\n' "$OUTPUT/objects/libaco..$variant.a" ;;
        *) list_objects "$word" "$variant" && printf '%s\n' "${OBJECTS[@]}" ;;
        esac
    done
}

# ---- Programs and tests --------------------------------------------------------------------------

make_programs() {
    local variant program target
    for variant in "${VARIANTS[@]}"; do
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

# Sets TEST_OPTIONS and TEST_LIBRARY, with which tests of a variant find cmocka.
find_cmocka() {
    TEST_OPTIONS=() TEST_LIBRARY=-lcmocka
    if find_foreign "$1"; then
        TEST_OPTIONS=(-DEMULATED=1 -isystem "$CMOCKA/include")
        TEST_LIBRARY=$OUTPUT/objects/cmocka..${ENTRY[0]}.o
    fi
}

# Builds the objects that all tests of a variant share. The warnings of cmocka are not ours.
make_harness() {
    local source=$CMOCKA/src/cmocka.c options
    find_compile "$1"
    find_cmocka "$1"
    make_target "$OUTPUT/objects/harness..$1.o" aco.h tests/harness.[ch] -- \
        "${COMPILE[@]}" "${TEST_OPTIONS[@]}" -c tests/harness.c -o "$OUTPUT/objects/harness..$1.o"
    if [[ $1 == *.no_valgrind.standaloneFPUenv ]] && find_foreign "$1"; then
        read -r -a options <<< "${ENTRY[3]}"
        make_target "$TEST_LIBRARY" "$source" -- clang "${options[@]}" "${FOREIGN_FLAGS[@]}" \
            -O1 -w -DHAVE_SIGNAL_H -I"$CMOCKA/include" -c "$source" -o "$TEST_LIBRARY"
    fi
}

# A test may ask for more options and sources in a line "// build: ...", for x86 alone in a line
# "// build x86: ...". A line "// only ..." names the processors that it is for, "// built by ..."
# the script that makes it, and "// not stress: ..." the reason why it has no stress build.
read_asked() {
    local source line
    declare -gA ASKED=() ASKED_X86=() ONLY=() NOT_STRESS=()
    while IFS=: read -r source line; do
        case $line in
        "// build: "*) ASKED[$source]+=" ${line#*: }" ;;
        "// build x86: "*) ASKED_X86[$source]+=" ${line#*: }" ;;
        "// only "*) ONLY[$source]=" ${line#// only } " ;;
        "// not stress: "*) NOT_STRESS[$source]=1 ;;
        "// built by "*) ONLY[$source]=' ' ;;
        esac
    done < <(grep -HE '^// (build|built|only|not)' "${TESTS[@]}")
}

# Sets TEST_VARIANTS, in which the library $1 has tests: all of x86 for the core; else two, the
# plain one and the one that differs most from it, for the core on each processor, for others on
# x86.
find_test_variants() {
    local variant variants
    mapfile -t variants < <(test_variants)
    TEST_VARIANTS=()
    for variant in "${variants[@]}"; do
        if [[ $1 != aco || $variant != ?(m32.)no_valgrind.* ]]; then
            [[ $variant == *.@(standaloneFPUenv|shareFPUenv.stress) ]] || continue
            [[ $1 == aco || $variant == ?(m32.)no_valgrind.* ]] || continue
        fi
        TEST_VARIANTS+=("$variant")
    done
}

# The C tests of the library $1 in TESTS: what is in its folders of tests, random programs, too.
find_tests() {
    local folder
    TESTS=()
    for folder in ${TESTS_IN[$1]}; do
        TESTS+=("$folder"/{test,random}_*.c)
    done
}

# make_tests_in LIBRARY VARIANT: all of TESTS.
make_tests_in() {
    local source target more shared objects=() word processor=x86 options=(-pthread)
    find_compile "$2"
    find_cmocka "$2"
    [[ $1 != aco ]] || options=("${TEST_OPTIONS[@]}") objects=("$OUTPUT/objects/harness..$2.o")
    for word in "$1" ${BELOW[$1]}; do
        [[ $word != -* ]] || continue
        list_objects "$word" "$2"
        objects+=("${OBJECTS[@]}")
    done
    ! find_foreign "$2" || processor=${ENTRY[0]}
    for source in "${TESTS[@]}"; do
        [[ ${ONLY[$source]:- $processor } == *" $processor "* ]] || continue
        [[ $2 != *.stress || -z ${NOT_STRESS[$source]:-} ]] || continue
        target=$OUTPUT/${source%.c}..$2
        more=${ASKED[$source]:-}
        [[ $processor != x86 ]] || more+=${ASKED_X86[$source]:-}
        shared=() # sources
        for word in $more; do
            [[ $word != *.c ]] || shared+=("$word")
        done
        # shellcheck disable=SC2086 # these are several words
        make_target "$target" "$source" "${shared[@]}" "$NEWEST" "${objects[@]}" -- \
            "${COMPILE[@]}" "${options[@]}" "${INCLUDE[@]}" "$source" "${objects[@]}" $more \
            -o "$target" "$TEST_LIBRARY" -lpthread -lm -ldl
    done
}

# Builds objects of all libraries first, so that processors have enough to do.
make_tests() {
    local library variant
    for library in "${LIBRARIES[@]}"; do
        find_tests "$library"
        ((${#TESTS[@]})) || continue
        find_test_variants "$library"
        for variant in "${TEST_VARIANTS[@]}"; do
            find_compile "$variant"
            make_objects "$library" "$variant"
            [[ $library != aco ]] || make_harness "$variant"
        done
    done
    finish_targets
    for library in "${LIBRARIES[@]}"; do
        find_tests "$library"
        ((${#TESTS[@]})) || continue
        read_asked
        find_headers "$library" tests
        find_test_variants "$library"
        for variant in "${TEST_VARIANTS[@]}"; do
            make_tests_in "$library" "$variant"
        done
    done
    finish_targets
}

# For test.sh and its scripts: name|emulator|command that compiles|options for tests in C.
note_foreign() {
    local name
    for name in "${FOREIGN[@]%%|*}"; do
        is_in "qemu-$name" || continue
        find_cmocka "$name."
        printf '%s|%s -L %s|clang %s %s|%s\n' "${ENTRY[@]}" "${FOREIGN_FLAGS[*]}" \
            "${TEST_OPTIONS[*]} $TEST_LIBRARY"
    done > "$OUTPUT/.foreign.new"
    mv "$OUTPUT/.foreign.new" "$OUTPUT/.foreign"
}

# ---- Installing ----------------------------------------------------------------------------------

# `install` or `uninstall`: packaging/install.sh knows what goes where.
install_or_remove() {
    local pages=() library maps
    if is_in man; then
        pages=("$OUTPUT/man")
        maps=()
        for library in "${LIBRARIES[@]}"; do # pages are made of contracts in C
            [[ ${SOURCES[$library]} == *.cc ]] || maps+=("packaging/lib$library.map")
        done
        # shellcheck disable=SC2046 # they are patterns of files
        python3 tools/man/pages.py "$OUTPUT/man" "${maps[@]}" \
            $(sed -n '/\.h$/s/^include //p' packaging/installed) pthreads/[a]co-run
    fi
    if [[ $1 == install ]]; then
        make_default_libraries
    fi
    env VERSION="$VERSION" OUTPUT="$OUTPUT" bash packaging/install.sh "$1" "${pages[@]}"
}

# ---- Running -------------------------------------------------------------------------------------

find_tcmalloc() {
    # ldconfig is not on the PATH of every user.
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null |
        awk '/libtcmalloc_minimal\.so/ && /x86-64/ { path = $NF } END { if (path) print path }'
}

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

# WITHOUT has the parts that are left out.
declare -A WITHOUT=()
TARGETS=() install=0 built=0
while getopts :io:h option; do
    case $option in
    i) install=1 ;;
    o)
        [[ $OPTARG == no-@(m32|valgrind|qemu|musl|man|servers) ]] ||
            usage_error "unknown option -o $OPTARG"
        WITHOUT[${OPTARG#no-}]=1
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
if (($# > 1)) && [[ $goal != objects ]] ||
    [[ $goal != @(library|programs|run|tests|all|list|objects|install|uninstall) ]]; then
    usage_error "unknown argument $goal${2:+ $2}"
fi
read_libraries

VERSION=$(awk '/^#define ACO_VERSION_(MAJOR|MINOR|PATCH) / { v = v dot $3; dot = "." }
               END { print v }' aco.h)
JOBS=$(nproc)
MISSING=()
[[ $goal != library ]] || WITHOUT+=([m32]=1 [valgrind]=1 [qemu]=1)
if [[ -f tools/dependencies && $goal != @(list|objects) ]]; then
    # shellcheck source=tools/dependencies.sh
    . tools/dependencies.sh
    if ((install)); then install_missing; fi
    find_missing is_used
fi
[[ $goal == @(list|uninstall) ]] || check_compilers
make_output
FAILED=$OUTPUT/.failed
: > "$FAILED"
mapfile -t VARIANTS < <(variants no_valgrind valgrind)
case $goal in
*install) install_or_remove "$goal" ;;
list)
    make_programs
    make_tests
    printf '%s\n' "${TARGETS[@]/#"$OUTPUT"/output}" | grep -E '/(test|random)_[^/]*$'
    exit
    ;;
objects)
    [[ -n ${BELOW[${2:-}]+known} ]] || usage_error "no such library: ${2:-}"
    print_objects "${@:2}"
    exit
    ;;
*)
    note_foreign
    make_libraries
    make_default_libraries
    [[ $goal == library ]] || make_programs
    [[ $goal != @(tests|all) ]] || make_tests
    printf '%s\n' "${TARGETS[@]/#"$OUTPUT"/output}" > "$OUTPUT/.built"
    printf 'make.sh: %d targets built in %s/, all others up to date\n' "$built" "$OUTPUT"
    [[ $goal != run ]] || run
    ;;
esac
tell_left_out
