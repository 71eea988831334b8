#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what is missing and runs every test: the programs of output/ in every variant, those that
# know valgrind under memcheck, those for other processors under qemu, and the test scripts. The
# longest go first. Ends with a summary, with what was not tested, and with 0 only if some test ran
# and none failed. Relies on make.sh next to it.
set -euo pipefail
shopt -s nullglob
STARTED_IN=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly USAGE="usage: ./test.sh [-i] [-o no-m32] [-o no-valgrind] [-o no-qemu] [-o no-musl]
                 [-o no-servers] [-h] [quick | [all | loop] [NAME...] | version_check=X.Y.Z]

  (nothing), all       every test once
  quick                the C tests of this processor alone, for the loop of editing: two minutes
  NAME                 the tests whose name has NAME in it: tutorial_3, growth, m32, ...
  loop                 every test, or those named, again and again, until one fails
  version_check=1.2.3  only whether header and library are of that version

  -i                   first install, with apt-get, a C++ compiler and cmocka; with all, that is
                       -i all, everything that tests use: other processors' compilers and servers,
                       which don't get started. A test that lacks what -i all installs fails
  -o ...               as for ./make.sh
  -h                   this text

  CC, CXX, CFLAGS, OUTPUT  as for ./make.sh"

# What programs are called with.
declare -rA ARGUMENTS=([test_aco_benchmark]=--check)

# Exit statuses other than 0: an offending coroutine ends in abort().
declare -rA EXPECTED=([test_aco_tutorial_4]=134 [test_aco_tutorial_5]=134)

readonly SKIPPED=77 TIMEOUT=600
readonly MEMCHECK=(valgrind --tool=memcheck --leak-check=full --show-leak-kinds=all
    "--errors-for-leak-kinds=definite,indirect,possible")

# Where make.sh builds. In names of tests and in what it lists, that is always output/.
OUTPUT=${OUTPUT:-$PWD/output}
[[ $OUTPUT == /* ]] || OUTPUT=$STARTED_IN/$OUTPUT
export OUTPUT=${OUTPUT#"$PWD"/}

# Seconds that tests took: in the last run of each here, and, for a first run, on two processors.
readonly DURATIONS=$OUTPUT/durations FIRST_DURATIONS=tests/durations

usage_error() {
    printf 'test.sh: %s (see ./test.sh -h)\n' "$1" >&2
    exit 2
}

# ---- One test ------------------------------------------------------------------------------------

# The command of the test at path $1, a script perhaps with its part, in COMMAND.
find_command() {
    local path=${1%% *} program=${1##*/}
    path=${path/#output\//"$OUTPUT/"}
    COMMAND=("$path")
    case $1 in
    *.sh) COMMAND=(bash "$path") ;;
    *.sh\ *) COMMAND=(bash "$path" "${1#* }") ;;
    *..valgrind.* | *.m32.valgrind.*)
        COMMAND=("${MEMCHECK[@]}" "--log-file=$log.memcheck" "$path")
        ;;
    *..*) find_emulator "${1#*..}" ;;
    esac
    program=${program%%..*}
    COMMAND+=(${ARGUMENTS[$program]:+"${ARGUMENTS[$program]}"})
}

# Puts the emulator that the variant $1 needs, if any, before the command.
find_emulator() {
    local name emulator
    while IFS='|' read -r name emulator _; do
        # shellcheck disable=SC2206 # it is a command of several words
        [[ $1 != "$name".* ]] || COMMAND=($emulator "${COMMAND[@]}")
    done < "$OUTPUT/.foreign"
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

# Runs a test and writes a line with its result; the output, too, of one that failed.
run_test() {
    local name log seconds status=0 expected TIMEFORMAT=%1R
    name=${1#output/}
    name=${name#tests/}
    log=$LOGS/${name//[\/ ]/.}
    rm -f "$log" "$log.memcheck"
    expected=${EXPECTED[${name%%..*}]:-0}
    find_command "$1"
    seconds=$({ time timeout --kill-after=5 "$TIMEOUT" "${COMMAND[@]}" \
        > "$log" 2>&1 < /dev/null; } 2>&1) || status=$?
    if ((status == expected)) && memcheck_is_clean "$log.memcheck" "$expected"; then
        printf 'passed   %-70s %6s s\n' "$name" "$seconds"
        grep 'not tested' "$log" >> "$UNTESTED" || true
    elif ((status == SKIPPED)); then
        printf 'skipped  %-70s %s\n' "$name" "$(tail -n 1 "$log")"
        tail -n 1 "$log" >> "$UNTESTED"
    else
        printf 'FAILED   %-70s status %d, expected %d\n' "$name" "$status" "$expected"
        cat "$log"
        [[ ! -e $log.memcheck ]] || cat "$log.memcheck"
    fi
}

# ---- All of them ---------------------------------------------------------------------------------

# The scripts; one with a line "# parts: ..." once for each part, which is its argument.
list_scripts() {
    local script parts
    for script in {tests,tests/*,extra/*/tests,runtime/{,*/}tests{,/*},tools/*,examples/*,packaging,bench}/test_*.sh; do
        read -r -a parts < <(sed -n 's/^# parts: //p' "$script" && echo)
        if ((${#parts[@]})); then
            printf "$script %s\n" "${parts[@]}"
        else
            printf '%s\n' "$script"
        fi
    done
}

# All tests, or those that the arguments name: what make.sh has built, then scripts. The one that
# fails on purpose, to prove that this script can fail, runs only when named.
list_tests() {
    local path name
    if [[ "$*" == quick ]]; then
        grep '^output/tests/test_' "$OUTPUT/.built"
        return
    fi
    {
        grep -E '^output/(tests/)?test_' "$OUTPUT/.built" || true
        list_scripts
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

# Fails if a name is in that of no test, before anything is built for the others.
check_names() {
    local name listed
    (($#)) || return 0
    listed=$(bash make.sh "${without[@]}" list; list_scripts; echo tests/fails_on_purpose.sh)
    for name in "$@"; do
        [[ $listed == *"$name"* ]] || usage_error "no test has $name in its name"
    done
}

# Puts before each path that it reads how long that test takes, and the longest first.
sort_by_duration() {
    awk '{ name = substr($0, index($0, " ") + 1) }
         FILENAME != "-" { seconds[name] = $1; next }
         { name = $0; sub(/^output\//, "", name); sub(/^tests\//, "", name)
           print (name in seconds ? seconds[name] : 0.5) "\t" $0 }' \
        "$FIRST_DURATIONS" "$DURATIONS" - | sort -s -k 1,1nr
}

# Says how long the tests will take that have been sorted.
tell_duration() {
    awk -v jobs="$JOBS" '
        { sum += $1; if (NR == 1) longest = $1 }
        END { seconds = sum / jobs > longest ? sum / jobs : longest
              printf "test.sh: %d tests, about ", NR
              if (seconds < 100) printf "%d seconds", seconds + 1
              else printf "%d minutes", seconds / 60 + 0.5
              printf " on %d processor%s\n", jobs, jobs == 1 ? "" : "s" }'
}

# Notes how long the tests took whose results it reads.
note_durations() {
    awk '{ seconds = $1; name = substr($0, index($0, " ") + 1) }
         FILENAME == "-" { if ($1 != "passed" || $NF != "s") next
                           seconds = $(NF - 1); name = $2; if (NF == 5) name = name " " $3 }
         { last[name] = seconds }
         END { for (name in last) print last[name], name }' "$DURATIONS" - | sort -k 1,1nr \
        > "$TMP/durations"
    mv "$TMP/durations" "$DURATIONS"
}

# Runs the tests whose paths it reads, as many at a time as there are processors.
run_tests() {
    local path result
    while IFS= read -r path; do
        while (($(jobs -rp | wc -l) >= JOBS)); do
            wait -n || true
        done
        # One write per result, so that results don't mix.
        { result=$(run_test "$path"); printf '%s\n' "$result"; } &
    done
    wait
}

# Lists what make.sh has left out, why tests were skipped, and what others have left out.
tell_untested() {
    [[ -s $OUTPUT/.left_out || -s $UNTESTED ]] || return 0
    printf '\nnot tested; ./test.sh -i all installs what this machine can have:\n'
    cat "$OUTPUT/.left_out"
    LC_ALL=C sort "$UNTESTED" | uniq -c | sed -E 's/ \(or .*-i all\)$//
        /^ *([0-9]+) skipped: (.*)/ { s//  \2 (skipped: \1)/; b }
        s/^ *[0-9]+/ /'
}

run_once() {
    local results=$TMP/results tests=$TMP/tests listed passed failed skipped
    list_tests "$@" | sort_by_duration > "$tests"
    tell_duration < "$tests"
    : > "$UNTESTED"
    cut -f 2 "$tests" | run_tests | tee "$results"
    note_durations < "$results"
    listed=$(wc -l < "$tests")
    passed=$(grep -c '^passed ' "$results" || true)
    failed=$(grep -c '^FAILED ' "$results" || true)
    skipped=$(grep -c '^skipped ' "$results" || true)
    tell_untested
    if ((passed + failed == 0)); then
        printf 'FAILED: no test was executed%s\n' "${*:+ (none matches $*)}"
        failed=1
    fi
    if ((passed + failed + skipped < listed)); then
        printf 'FAILED: %d tests were listed, not all of them came to an end\n' "$listed"
        failed=$((failed + 1))
    fi
    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}

# Prints the path of a compiler that adds the options in $1, if there are any: scripts take CC and
# CXX for one word.
in_one_word() {
    local name=${1%% *}
    if [[ $name != "$1" ]]; then
        mkdir -p "$TMP/compilers"
        printf '#!/bin/sh\nexec %s "$@"\n' "$1" > "$TMP/compilers/${name##*/}"
        name=$TMP/compilers/${name##*/}
        chmod +x "$name"
    fi
    printf '%s\n' "$name"
}

check_version() {
    local wanted=$1 program=$TMP/version
    printf '#include "aco.h"\nint main(void) { printf("%%d %%d\\n", %s); }\n' \
        'ACO_VERSION, aco_version()' |
        ${CC:-gcc} -x c - -x none -I. "$OUTPUT/libaco.a" -o "$program" -lpthread
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

install=0 make_options=() without=()
while getopts :io:h option; do
    case $option in
    i) make_options+=(-i) install=1 ;;
    o)
        [[ $OPTARG == no-@(m32|valgrind|qemu|musl|man|servers) ]] || usage_error "unknown option -o $OPTARG"
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

goal=tests installed='' names=("$@")
case ${1:-} in
all)
    goal=all
    ((install == 0)) || installed=1
    shift
    names=("$@")
    ;;
version_check=*) goal=library names=() ;;
quick) without=(-o no-m32 -o no-valgrind -o no-qemu) names=() ;;
loop) names=("${@:2}") ;;
esac
check_names "${names[@]}"
bash make.sh "${make_options[@]}" "${without[@]}" "$goal"

LOGS=$(realpath "$OUTPUT/logs") JOBS=$(nproc)
mkdir -p "$LOGS"
touch "$DURATIONS"
# For the scripts in tests/.
TMP=$(mktemp -d)
trap 'rm -rf "$TMP"' EXIT
UNTESTED=$TMP/untested
CC=$(in_one_word "${CC:-gcc}") CXX=$(in_one_word "${CXX:-g++}")
export TMP CC CXX
M32=$(grep -m 1 -o '\.\.m32\.' "$OUTPUT/.built" || true)
export M32 OPTIONS=${without[*]} INSTALLED=$installed

# All tests, for test_ci.sh.
list_tests > "$OUTPUT/.tests"

case ${1:-} in
version_check=*) check_version "${1#version_check=}" ;;
loop)
    shift
    while run_once "$@"; do :; done
    exit 1
    ;;
*) run_once "$@" ;;
esac
