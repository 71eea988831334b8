# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Shared by the test scripts; each sources this file first. They are run from the root of the
# project, with these in their environment:
#   CC, CXX  compilers, gcc and g++ if not set
#   OUTPUT   directory with libaco.a and libaco.so for x86-64, output if not set
#   M32      not empty if programs for i386 can be built and run
#   TMP      directory in which each script makes one of its own for what it builds
#   INSTALLED  not empty if ./test.sh -i all has installed all that tests need
#   OPTIONS  those that ./test.sh was called with, -o no-m32 and the like
# test.sh lists in $OUTPUT/.foreign the other processors that programs can be built for.
# A script whose header has a line "# parts: ..." is run once for each of these, with it as
# argument. If they are processors, this file limits the script to the one that is its argument.
# They exit with 0 if all is well, 77 if there is nothing they can test here, and otherwise with
# another status after having said why.
#
# shellcheck disable=SC2034 # variables are for the scripts that source this

set -euo pipefail

: "${CC:=gcc}" "${CXX:=g++}" "${OUTPUT:=output}" "${M32:=}" "${INSTALLED:=}" "${OPTIONS:=}"
# A copy of the project that a script builds has an output/ of its own.
export -n OUTPUT
TMP=$(mktemp -d "${TMP:-/tmp}/${0##*/}.XXXXXX")
trap 'rm -rf "$TMP"' EXIT

# glibc fills what malloc() returns and what free() takes, for tests to fail that read it.
export MALLOC_PERTURB_=165

# Options for every source of the project; C++ knows all but one.
mapfile -t C_WARNINGS < <(grep -s '^-' tools/warnings && echo -Werror)
mapfile -t WARNINGS < <(printf '%s\n' "${C_WARNINGS[@]}" | grep -v -e -Wstrict-prototypes)

# The processor that a script with parts is to test; all of them if not set.
PART=
case ${1:-} in
x86_64 | i386 | arm64 | riscv64 | arm | thumb) PART=$1 ;;
esac

# Options for each kind of processor that can be tested.
WIDTHS=()
[[ -n $PART && $PART != x86_64 ]] || WIDTHS+=(-m64)
if [[ -z $PART || $PART == i386 ]]; then
    if [[ -n $M32 ]]; then
        WIDTHS+=(-m32)
    else
        echo "i386: not available, not tested"
    fi
fi

# The names of other processors for which programs can be built and run, and for each the compiler
# with options, the emulator, and more options for programs that use cmocka.
FOREIGN=()
declare -A CROSS EMULATOR CROSS_CMOCKA
if [[ -f "$OUTPUT/.foreign" ]]; then
    while IFS='|' read -r name emulator command cmocka; do
        [[ -z $PART || $PART == "$name" ]] || continue
        FOREIGN+=("$name")
        EMULATOR[$name]=$emulator CROSS[$name]=$command CROSS_CMOCKA[$name]=$cmocka
    done <"$OUTPUT/.foreign"
fi
if [[ -n $PART ]]; then
    ((${#WIDTHS[@]} + ${#FOREIGN[@]})) || {
        echo "skipped: $PART is not available"
        exit 77
    }
elif ((${#FOREIGN[@]} == 0)); then
    echo "other processors: not available, not tested"
fi

# The one of them that on_each_foreign is at; what runs programs: nothing, or its emulator; and
# options for what uses cmocka.
PROCESSOR='' RUN=() CMOCKA=(-lcmocka)

# on_each_foreign FUNCTION ARGUMENT...: calls it for each other processor, with its compiler, the
# options for that in one word, and the arguments.
on_each_foreign() {
    for PROCESSOR in "${FOREIGN[@]}"; do
        read -ra RUN <<<"${EMULATOR[$PROCESSOR]}"
        read -ra CMOCKA <<<"${CROSS_CMOCKA[$PROCESSOR]}"
        "$1" "${CROSS[$PROCESSOR]%% *}" "${CROSS[$PROCESSOR]#* }" "${@:2}"
    done
    PROCESSOR='' RUN=() CMOCKA=(-lcmocka)
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

have() {
    command -v "$1" >/dev/null
}

# Skips the test for lack of something that ./test.sh -i all installs; fails after -i all.
lack() {
    [[ -z "$INSTALLED" ]] ||
        fail "$*, though -i all was to install it (without that, this test is skipped)"
    skip "$* (or ./test.sh -i all)"
}

# Targets that C++ programs can't be compiled for, as there are no headers.
WITHOUT_CXX=()

# compiles_cxx WHAT CXX OPTION...: whether C++ programs can be compiled. If not, the test goes on
# with the rest, and ends in tell_untested.
compiles_cxx() {
    local what=$1
    shift
    if ! echo '#include <string>' | "$@" -x c++ -fsyntax-only - 2>/dev/null; then
        echo "$what: no C++ headers, not tested"
        WITHOUT_CXX+=("$what")
        return 1
    fi
}

# For the end of a test: it is skipped, or has failed, if C++ was left out.
tell_untested() {
    [[ ${#WITHOUT_CXX[@]} -eq 0 ]] || lack "no C++ headers for ${WITHOUT_CXX[*]}:" \
        "apt-get install g++-multilib and libstdc++-12-dev-{arm64,riscv64,armhf}-cross"
}

# need COMMAND:PACKAGE...: skips the test where a command is missing.
need() {
    local tool
    for tool in "$@"; do
        have "${tool%%:*}" || lack "no ${tool%%:*}: apt-get install ${tool#*:}"
    done
}

# need_packages PACKAGE...: skips unless pkg-config knows them all. Puts options for their headers
# into INCLUDES, and those for linking into LIBRARIES.
need_packages() {
    local package
    need pkg-config:pkg-config
    for package in "$@"; do
        pkg-config --exists "$package" || lack "no $package for pkg-config"
    done
    read -ra INCLUDES < <(pkg-config --cflags "$@")
    INCLUDES=("${INCLUDES[@]/#-I\/usr/-isystem/usr}")
    # shellcheck disable=SC2034 # for the caller
    read -ra LIBRARIES < <(pkg-config --libs "$@")
}

# Shows test.sh which tests of cmocka skipped themselves, by what a command said.
tell_skips() {
    grep '^\[  SKIPPED \] ' "$TMP/said" || true
}

# Runs a command quietly; on failure shows what it said and fails with the given words.
must() {
    local words=$1
    shift
    if ! "$@" >"$TMP/said" 2>&1; then
        echo "$*" >&2
        head -n 40 "$TMP/said" >&2
        fail "$words"
    fi
    tell_skips
}

# The contrary: the command must fail, and what it says must match a regular expression.
must_not() {
    local words=$1 expected=$2
    shift 2
    if "$@" >"$TMP/said" 2>&1; then
        echo "$*" >&2
        fail "$words"
    fi
    if ! grep -qE -e "$expected" "$TMP/said"; then
        head -n 40 "$TMP/said" >&2
        fail "$words: not for the expected reason, $expected"
    fi
}

# Commands whose objects make.sh builds in any case, and the names of these variants.
declare -rA MADE_VARIANTS=(
    ["$CC -O2"]=no_valgrind.standaloneFPUenv
    ["$CC -O2 -DACO_USE_VALGRIND"]=valgrind.standaloneFPUenv
    ["$CC -O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"]=no_valgrind.shareFPUenv
    ["$CC -O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_STRESS"]=no_valgrind.shareFPUenv.stress
    ["$CC -m32 -O2"]=m32.no_valgrind.standaloneFPUenv
)

# use_library LIBRARY COMPILER OPTION...: compiles the library of that name in tools/libraries, and
# those below it, with this command once for all scripts. OBJECTS has then what programs are linked
# with, and INCLUDE the options for headers, those that tests share, too.
use_library() {
    local library=$1 compiler=() variant
    shift
    variant=${MADE_VARIANTS["$*"]:-}
    if [[ -n $variant ]]; then
        must "$library: $* fails" env OUTPUT="$OUTPUT" bash make.sh objects "$library" "$variant"
    else
        while [[ $1 != -* ]]; do
            compiler+=("$1")
            shift
        done
        must "$library: ${compiler[*]} $* fails" env OUTPUT="$OUTPUT" CC="${compiler[*]}" \
            CFLAGS="$*" bash make.sh objects "$library"
    fi
    mapfile -t OBJECTS <"$TMP/said"
    read -ra INCLUDE <<<"${OBJECTS[0]}"
    OBJECTS=("${OBJECTS[@]:1}")
}

# use_program SOURCE COMPILER OPTION...: a test program, in $TMP under its name, with OBJECTS and
# what its lines "// build: ..." ask for. For -lNAME with NAME.c beside the source, the library is
# built there, too, without sanitizers.
use_program() {
    local source=$1 more word beside options
    shift
    read -ra more < <(sed -n 's,^// build: ,,p' "$source" | tr '\n' ' ' && echo)
    for word in "${more[@]}"; do
        beside=${source%/*}/${word#-l}.c
        [[ $word == -l* && -f $beside ]] || continue
        options=("${@/-fsanitize*/-O1}")
        must "$*: $beside does not build" "${options[@]}" -std=gnu99 "${C_WARNINGS[@]}" -shared \
            -fPIC "$beside" -ldl -o "$TMP/lib${word#-l}.so"
        more+=(-L"$TMP" "-Wl,-rpath,\$ORIGIN")
    done
    must "$*: $source does not build" "$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" \
        -pthread "$source" "${OBJECTS[@]}" "${more[@]}" -o "$TMP/$(basename "$source" .c)" \
        "${CMOCKA[@]}" -lm -ldl
}

# run_arguments PROGRAM COMMAND...: the command, for each line of tests/arguments about the program,
# with the arguments there for where it is slow. SEED in the environment is another one than 1.
run_arguments() {
    local name=$1 line arguments ct=0
    shift
    while read -r line; do
        read -ra arguments <<<"$line"
        [[ -z ${SEED:-} ]] || arguments[1]=$SEED
        must "$name $line fails" "$@" "${arguments[@]}"
        ct=$((ct + 1))
    done < <(awk -F ' *[|] *' -v name="$name" '$1 == name { print $3 }' tests/arguments)
    ((ct)) || must "$name fails" "$@"
}

# Runs a command that is to die. STATUS has then its exit status, as a shell reports it, and
# $TMP/said what it wrote to stderr.
run_to_death() {
    STATUS=0
    { (ulimit -c 0 && exec "$@") 2>"$TMP/said" || STATUS=$?; } 2>/dev/null
    # The emulator adds this line, not the program.
    sed -i '/^qemu: uncaught target signal/d' "$TMP/said"
}

# start_stub EMULATOR PROGRAM: starts it in the background; it waits for a gdb at $TMP/socket. The
# emulator is in one word.
start_stub() {
    local emulator
    read -ra emulator <<<"$1"
    rm -f "$TMP/socket"
    timeout 100 "${emulator[@]}" -g "$TMP/socket" "$2" >"$TMP/output" 2>&1 &
    for _ in {1..100}; do
        [[ ! -S "$TMP/socket" ]] || break
        sleep 0.1
    done
}

# The command that runs a program with a sanitizer: older ones die of the random addresses of newer
# kernels, and may hang when they meet a fault of their own.
SANITIZED=(timeout 100)
if setarch -R true 2>/dev/null; then
    SANITIZED+=(setarch -R)
fi

# Whether programs can be made by this command.
can_build() {
    echo 'int main(void) { return 0; }' >"$TMP/empty.c"
    "$@" "$TMP/empty.c" -o "$TMP/empty" 2>/dev/null
}

# Whether such programs run, too.
can_run() {
    can_build "$@" &&
        "${SANITIZED[@]}" "$TMP/empty" >"$TMP/said" 2>&1
}

# The compilers of the given names that there are, in the array FOUND.
find_compilers() {
    local name
    FOUND=()
    for name in "$@"; do
        if have "$name"; then
            FOUND+=("$name")
        else
            [[ -z "$INSTALLED" ]] || fail "$name was not found, though -i was to install it"
            echo "$name: not found, not tested"
        fi
    done
    [[ ${#FOUND[@]} -gt 0 ]] || skip "none of $* was found"
}

# on_each_native FUNCTION COMPILER...: calls it for each of these compilers that is there, and each
# width of this processor, with compiler and width.
on_each_native() {
    local compiler width
    find_compilers "${@:2}"
    for compiler in "${FOUND[@]}"; do
        for width in "${WIDTHS[@]}"; do
            "$1" "$compiler" "$width"
        done
    done
}

# Whether a command, with the library of that, makes a C test.
links_cmocka() {
    {
        printf '#include <%s>\n' stdarg.h stddef.h stdint.h setjmp.h cmocka.h
        echo 'int main(void) { return 0; }'
    } | "$@" -x c - -o "$TMP/empty" 2>/dev/null
}

# Leaves of WIDTHS and FOREIGN those for which there is cmocka; skips the test if there is none.
need_cmocka() {
    local name words left=("${WIDTHS[@]}" "${FOREIGN[@]}")
    WIDTHS=() FOREIGN=()
    for name in "${left[@]}"; do
        if [[ $name == -m* ]]; then
            read -ra words <<<"$CC $name -lcmocka"
        else
            read -ra words <<<"${CROSS[$name]} ${CROSS_CMOCKA[$name]}"
        fi
        if ! links_cmocka "${words[@]}"; then
            echo "$name: no cmocka, not tested"
        elif [[ $name == -m* ]]; then
            WIDTHS+=("$name")
        else
            FOREIGN+=("$name")
        fi
    done
    ((${#WIDTHS[@]} + ${#FOREIGN[@]})) || lack "no cmocka: apt-get install libcmocka-dev"
}

# Whether a command compiles C++, with or without headers.
speaks_cxx() {
    echo 'int i;' | "$@" -x c++ -fsyntax-only - 2>/dev/null || {
        echo "$1: no C++, not tested"
        return 1
    }
}

# The libraries that make.sh has built.
need_libraries() {
    if [[ ! -f "$OUTPUT/libaco.a" ]] || [[ ! -f "$OUTPUT/libaco.so" ]]; then
        fail "no libaco.a and libaco.so in $OUTPUT: build them first"
    fi
}

# build_example EXAMPLE WIDTH PROGRAM OPTION...: compiles an example, with the library and what its
# lines "// build: ..." name. WIDTH has the options for a processor in one word. Objects are kept in
# $TMP for the next one of the same kind.
build_example() {
    local example=$1 width=$2 program=$3 more word options=("${@:4}") sources=() object processor
    read -r -a processor <<<"$width"
    read -r -a more < <(sed -n 's,^// build: ,,p' "$example" | tr '\n' ' ' && echo)
    for word in "${more[@]}"; do
        [[ $word != -* ]] || options+=("$word")
    done
    for word in aco.c acosw.S "${more[@]}"; do
        [[ $word != -* ]] || continue
        object=$TMP/${word##*/}${CC##*/}$width${options[*]//\//.}.o
        sources+=("$object")
        [[ -e "$object" ]] || must "$width ${options[*]}: $word does not compile" \
            "$CC" "${processor[@]}" -O2 "${C_WARNINGS[@]}" "${options[@]}" -I. -c "$word" \
            -o "$object"
    done
    case $example in
    *.cc) must "$width: $example does not compile" "$CXX" "${processor[@]}" -std=c++11 -O2 \
        "${WARNINGS[@]}" "${options[@]}" -I. "$example" "${sources[@]}" -o "$program" ;;
    *) must "$width: $example does not compile" "$CC" "${processor[@]}" -std=gnu99 -O2 \
        "${C_WARNINGS[@]}" "${options[@]}" -I. "$example" "${sources[@]}" -o "$program" \
        -lpthread ;;
    esac
}
