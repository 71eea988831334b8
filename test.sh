#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what is missing and runs every test: the programs of output/ in every variant, those that
# know valgrind under memcheck, those for other processors under qemu, and those of tests/. Ends with a summary, and with 0 only if some
# test ran and none failed. Relies on make.sh next to it.
set -euo pipefail

readonly USAGE="usage: ./test.sh [-i] [-o no-m32] [-o no-valgrind] [-o no-qemu] [-o no-musl] [-h]
                 [loop | version_check=X.Y.Z | NAME...]

  (nothing)            every test once
  loop                 every test again and again, until one fails
  version_check=1.2.3  only whether header and library are of that version
  NAME                 only the tests whose name has NAME in it: tutorial_3, growth, m32, ...

  -i, -o ...           as for ./make.sh; with -i, a test that lacks what -i installs fails
  -h                   this text

  CC, CXX, CFLAGS      as for ./make.sh"

# What the programs are called with, so that all of them take a minute or two.
declare -rA ARGUMENTS=([test_aco_benchmark]=--quick)
declare -rA EMULATED_ARGUMENTS=([test_aco_benchmark]=--check)

# Exit statuses other than 0: an offending coroutine ends in abort().
declare -rA EXPECTED=([test_aco_tutorial_4]=134 [test_aco_tutorial_5]=134)

readonly SKIPPED=77 TIMEOUT=600
readonly MEMCHECK=(valgrind --tool=memcheck --leak-check=full --show-leak-kinds=all
    "--errors-for-leak-kinds=definite,indirect,possible")

cd "$(dirname "${BASH_SOURCE[0]}")"

usage_error() {
    printf 'test.sh: %s\n%s\n' "$1" "$USAGE" >&2
    exit 2
}

# ---- One test ------------------------------------------------------------------------------------

# The command of the test at path $1, in COMMAND.
find_command() {
    local path=$1 program
    program=$(basename "${path%%..*}")
    COMMAND=("./$path")
    case $path in
    *.sh) COMMAND=(bash "$path") ;;
    *..valgrind.* | *.m32.valgrind.*)
        COMMAND=("${MEMCHECK[@]}" "--log-file=$log.memcheck" "./$path")
        ;;
    *..*) find_emulator "${path#*..}" ;;
    esac
    if [[ ${COMMAND[0]} == qemu-* ]]; then
        COMMAND+=(${EMULATED_ARGUMENTS[$program]:+"${EMULATED_ARGUMENTS[$program]}"})
    else
        COMMAND+=(${ARGUMENTS[$program]:+"${ARGUMENTS[$program]}"})
    fi
}

# Puts the emulator that the variant $1 needs, if any, before the command.
find_emulator() {
    local name emulator
    while IFS='|' read -r name emulator _; do
        # shellcheck disable=SC2206 # it is a command of several words
        [[ $1 != "$name".* ]] || COMMAND=($emulator "${COMMAND[@]}")
    done < output/.foreign
}

# Whether memcheck ran and found nothing. One that aborts can't free, so its leaks don't count.
memcheck_is_clean() {
    local report=$1 expected=$2
    [[ -e $report ]] || return 0
    if ((expected != 0)); then
        if grep -Eq 'Invalid (read|write)|uninitialised|Jump to the invalid' "$report"; then
            return 1
        fi
    fi
    grep -q "ERROR SUMMARY: $( ((expected == 0)) && echo '0 ')" "$report"
}

# Runs the test at path $1 and writes a line with its result; the output, too, of one that failed.
run_test() {
    local path=$1 name log status=0 start=$SECONDS
    name=${path#output/}
    name=${name#tests/}
    log=$LOGS/${name//\//.}
    rm -f "$log" "$log.memcheck"
    local expected=${EXPECTED[$(basename "${path%%..*}" .sh)]:-0}
    find_command "$path"
    timeout --kill-after=5 "$TIMEOUT" "${COMMAND[@]}" > "$log" 2>&1 < /dev/null || status=$?
    if ((status == expected)) && memcheck_is_clean "$log.memcheck" "$expected"; then
        printf 'passed   %-70s %4d s\n' "$name" $((SECONDS - start))
    elif ((status == SKIPPED)); then
        printf 'skipped  %-70s %s\n' "$name" "$(tail -n 1 "$log")"
    else
        printf 'FAILED   %-70s status %d, expected %d\n' "$name" "$status" "$expected"
        cat "$log"
        [[ ! -e $log.memcheck ]] || cat "$log.memcheck"
    fi
}

# ---- All of them ---------------------------------------------------------------------------------

# The paths of all tests, or of those that the arguments name: what make.sh has built, then scripts.
# The one that fails on purpose, to prove that this script can fail, runs only when named.
list_tests() {
    local path name
    {
        grep -E '^output/(tests/)?test_' output/.built
        printf '%s\n' {tests,tests/*,extra/*/tests,tools/*,examples/*,packaging,bench}/test_*.sh
    } | while IFS= read -r path; do
        if (($# == 0)); then
            printf '%s\n' "$path"
            continue
        fi
        for name in "$@"; do
            if [[ $path == *"$name"* ]]; then
                printf '%s\n' "$path"
                break
            fi
        done
    done
    if [[ "$*" == fails_on_purpose ]]; then
        printf 'tests/fails_on_purpose.sh\n'
    fi
}

# Runs the tests whose paths it reads, as many at a time as there are processors.
run_tests() {
    local path
    while IFS= read -r path; do
        [[ -n $path ]] || continue
        while (($(jobs -rp | wc -l) >= JOBS)); do
            wait -n || true
        done
        # One write per result, so that results don't mix.
        { result=$(run_test "$path"); printf '%s\n' "$result"; } &
    done
    wait
}

run_once() {
    local results=$TMP/results listed passed failed skipped
    mapfile -t listed < <(list_tests "$@")
    printf '%s\n' "${listed[@]}" | run_tests | tee "$results"
    passed=$(grep -c '^passed ' "$results" || true)
    failed=$(grep -c '^FAILED ' "$results" || true)
    skipped=$(grep -c '^skipped ' "$results" || true)
    if ((passed + failed == 0)); then
        printf 'FAILED: no test was executed%s\n' "${*:+ (none matches $*)}"
        failed=1
    fi
    if ((passed + failed + skipped < ${#listed[@]})); then
        printf 'FAILED: %d tests were listed, not all of them came to an end\n' "${#listed[@]}"
        failed=$((failed + 1))
    fi
    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}

check_version() {
    local wanted=$1 program=$TMP/version
    printf '#include "aco.h"\nint main(void) { printf("%%d %%d\\n", %s); }\n' \
        'ACO_VERSION, aco_version()' |
        ${CC:-gcc} -x c - -x none -I. output/libaco.a -o "$program" -lpthread
    local major minor patch number
    IFS=. read -r major minor patch <<< "$wanted"
    [[ $wanted =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || usage_error "version_check=$wanted is no X.Y.Z"
    number=$((10#$major * 10000 + 10#$minor * 100 + 10#$patch))
    if [[ $("$program") == "$number $number" ]]; then
        printf 'passed   version_check=%s\n\n1 passed, 0 failed, 0 skipped\n' "$wanted"
    else
        printf 'FAILED   version_check=%s: header and library are %s (MAJOR * 10000 + %s)\n' \
            "$wanted" "$("$program")" 'MINOR * 100 + PATCH'
        printf '\n0 passed, 1 failed, 0 skipped\n'
        return 1
    fi
}

# ---- Command line --------------------------------------------------------------------------------

m32=1 installed='' make_options=() without=()
while getopts :io:h option; do
    case $option in
    i) make_options+=(-i) installed=1 ;;
    o)
        case $OPTARG in
        no-m32) m32=0 ;;
        no-valgrind | no-qemu | no-musl | no-man) ;;
        *) usage_error "unknown option -o $OPTARG" ;;
        esac
        without+=(-o "$OPTARG")
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

shopt -s nullglob
goal=tests
[[ ${1:-} != version_check=* ]] || goal=library
bash make.sh "${make_options[@]}" "${without[@]}" "$goal"

LOGS=$PWD/output/logs JOBS=$(nproc)
mkdir -p "$LOGS"
# For the scripts in tests/.
TMP=$(mktemp -d)
trap 'rm -rf "$TMP"' EXIT
export TMP OUTPUT=output M32=${m32#0} CC=${CC:-gcc} CXX=${CXX:-g++}
export OPTIONS=${without[*]} INSTALLED=$installed

case ${1:-} in
version_check=*) check_version "${1#version_check=}" ;;
loop)
    shift
    while run_once "$@"; do :; done
    exit 1
    ;;
*) run_once "$@" ;;
esac
