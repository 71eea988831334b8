#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what is missing and runs tests: the programs of output/ in every variant, those that know
# valgrind under memcheck, those for other processors under qemu, and the test scripts. The longest
# go first. Ends with the times, a summary and what was not tested, and with 0 only if some test ran
# and none failed. tests/README.md says which tests there are. Relies on make.sh next to it.
set -euo pipefail
shopt -s nullglob
STARTED_IN=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly USAGE="usage: ./test.sh [-i] [-o no-m32] [-o no-valgrind] [-o no-qemu] [-o no-musl]
                 [-o no-servers] [-h]
                 [[loop] [quick | all | [all] NAME...] | version_check=X.Y.Z]

  (nothing)            what should pass on every machine: the libraries, C++ and examples, on this
                       processor and for i386, and memcheck; five minutes
  quick                the C tests of this processor alone, for the loop of editing: two minutes
  all                  every test: also sanitizers, other processors and compilers, musl, proofs,
                       fuzzing, servers, packages, documents; twenty minutes
  NAME                 the tests whose name has NAME in it: tutorial_3, growth, m32, ...
  loop                 these again and again, until one fails
  version_check=1.2.3  only whether header and library are of that version

  -i                   first install, with apt-get, a C++ compiler and cmocka; with all, that is
                       -i all, everything that tests use: other processors' compilers and servers,
                       which don't get started. A test that lacks what -i all installs fails
  -o ...               as for ./make.sh
  -h                   this text

  CC, CXX, CFLAGS, OUTPUT  as for ./make.sh"

# Exit statuses other than 0: an offending coroutine ends in abort().
declare -rA EXPECTED=([test_aco_tutorial_4]=134 [test_aco_tutorial_5]=134)

readonly SKIPPED=77 TIMEOUT=900
readonly MEMCHECK=(valgrind --tool=memcheck --leak-check=full --show-leak-kinds=all
    "--errors-for-leak-kinds=definite,indirect,possible")

# The directory in which make.sh builds. In names of tests and in lists it is always output/.
OUTPUT=${OUTPUT:-$PWD/output}
[[ $OUTPUT == /* ]] || OUTPUT=$STARTED_IN/$OUTPUT
export OUTPUT=${OUTPUT#"$PWD"/}

# Tests without a word leave these out.
readonly USER_WITHOUT=(-o no-qemu -o no-musl -o no-servers)

usage_error() {
    printf 'test.sh: %s (see ./test.sh -h)\n' "$1" >&2
    exit 2
}

# ---- One test ------------------------------------------------------------------------------------

# The command of a test, which is its path and arguments, in COMMAND.
find_command() {
    local path=$1 name=${1##*/} arguments=()
    shift
    arguments=("$@")
    path=${path/#output\//"$OUTPUT/"}
    COMMAND=("$path")
    case $path in
    *.sh) COMMAND=(bash "$path") ;;
    *..valgrind.* | *.m32.valgrind.*)
        COMMAND=("${MEMCHECK[@]}" "--log-file=$log.memcheck" "$path")
        ;;
    *..*) find_emulator "${name#*..}" ;;
    esac
    COMMAND+=("${arguments[@]}")
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

# The tests of cmocka that skipped themselves in a run, each with the reason that tests/skips has.
list_skips() {
    local name=$1 log=$2
    awk -F ' *[|] *' -v name="$name" '
        FILENAME == ARGV[1] && /^[^ #]/ {
            is_here = $1 == "any"
            for (i = split($1, words, " "); i > 0; i--)
                is_here = is_here || index(name, words[i])
            reason = $2
        }
        FILENAME == ARGV[1] && /^ / && is_here { sub(/^ */, ""); reasons[$0] = reason }
        /^\[  SKIPPED \] [A-Za-z0-9_]+$/ && !seen[$0]++ {
            sub(/.* /, "")
            print $0 ": " ($0 in reasons ? reasons[$0] : "NO REASON in tests/skips")
        }' tests/skips "$log"
}

# Runs a test and writes a line with its result; the output, too, of one that failed. A line of
# $TIMES has the seconds that it took, and those of processors. After -i all, each test of cmocka
# that skips itself needs a reason.
run_test() {
    local name log seconds status=0 expected words skips TIMEFORMAT='%1R %1U %1S'
    name=${1#output/}
    log=$LOGS/${name//[\/ ]/.}
    rm -f "$log" "$log.memcheck"
    expected=${EXPECTED[${name%%..*}]:-0}
    read -r -a words <<< "$1"
    find_command "${words[@]}"
    seconds=$({ time timeout --kill-after=5 "$TIMEOUT" "${COMMAND[@]}" \
        > "$log" 2>&1 < /dev/null; } 2>&1) || status=$?
    printf '%s %s\n' "$seconds" "$name" >> "$TIMES"
    skips=$(list_skips "$name" "$log")
    printf '%s' "${skips:+$skips$'\n'}" >> "$SKIPS"
    if [[ -n $INSTALLED && $skips == *': NO REASON'* ]]; then
        printf 'FAILED   %-70s skips tests\n%s\n' "${name#tests/}" "$skips"
    elif ((status == expected)) && memcheck_is_clean "$log.memcheck" "$expected"; then
        printf 'passed   %-70s %6s s\n' "${name#tests/}" "${seconds%% *}"
        grep 'not tested' "$log" >> "$UNTESTED" || true
    elif ((status == SKIPPED)); then
        printf 'skipped  %-70s %s\n' "${name#tests/}" "$(tail -n 1 "$log")"
        tail -n 1 "$log" >> "$UNTESTED"
    else
        printf 'FAILED   %-70s status %d, expected %d\n' "${name#tests/}" "$status" "$expected"
        cat "$log"
        [[ ! -e $log.memcheck ]] || cat "$log.memcheck"
    fi
}

# ---- All of them ---------------------------------------------------------------------------------

# The scripts, each with the seconds that it takes and with 1 if users are to run it. Their headers
# say so: tests/README.md.
list_scripts() {
    find . -name output -prune -o -name '.?*' -prune -o -name 'test_*.sh' -print | LC_ALL=C sort |
        while IFS= read -r script; do
            awk -v script="${script#./}" '
                !/^#/ { exit }
                /^# parts: / { ct = split(substr($0, 10), parts, " ") }
                /^# seconds: / { split(substr($0, 12), seconds, " ") }
                /^# user/ { users = ct == 0 || $0 == "# user" ? "all" : substr($0, 9) " " }
                END {
                    for (i = 1; i <= (ct ? ct : 1); i++) {
                        is_user = users == "all" || index(" " users, " " parts[i] " ") && ct
                        print seconds[i] + 0 ? seconds[i] : 5, is_user + 0,
                            script (ct ? " " parts[i] : "")
                    }
                }' "$script"
        done
}

# The programs in $PROGRAMS, in the same form, with the arguments that tests/arguments has for them.
list_programs() {
    { grep -E '/(test|random)_[^/]*$' "$PROGRAMS" || true; } | awk -F ' *[|] *' '
        FILENAME != "-" {
            if (!/^#/ && NF == 3) { ct[$1]++; plain[$1, ct[$1]] = $2; slow[$1, ct[$1]] = $3 }
            next
        }
        {
            name = $0
            sub(/.*\//, "", name)
            variant = name
            sub(/\.\..*/, "", name)
            sub(/.*\.\./, "", variant)
            is_plain = variant ~ /^no_valgrind\.[A-Za-z]*$/
            is_user = variant ~ /^(m32\.no_|no_|)valgrind\./
            for (i = 1; i <= ct[name]; i++)
                print 1, is_user, $0 " " (is_plain ? plain[name, i] : slow[name, i])
            if (ct[name] == 0)
                print 0.5, is_user, $0
        }' tests/arguments -
}

# The tests that the words of the command line select, the longest first, each after its seconds.
# The one that fails on purpose, to prove that this script can fail, runs only when named.
list_tests() {
    local seconds is_user path name
    { list_scripts && list_programs; } | sort -s -k 1,1nr | while read -r seconds is_user path; do
        for name in "${@:-user}"; do
            case $name in
            all) ;;
            user) ((is_user)) || continue ;;
            quick) [[ $path == output/*tests/*..no_valgrind.* ]] || continue ;;
            *) [[ $path == *"$name"* ]] || continue ;;
            esac
            printf '%s\t%s\n' "$seconds" "$path"
            break
        done
    done
    if [[ "$*" == fails_on_purpose ]]; then
        printf '1\ttests/fails_on_purpose.sh\n'
    fi
}

# Each word must select a possible test; this needs nothing to be built.
check_words() {
    local name
    bash make.sh "${without[@]}" list > "$TMP/programs"
    PROGRAMS=$TMP/programs
    for name in "$@"; do
        if [[ -z $(list_tests "$name") ]]; then
            usage_error "no test has $name in its name"
        fi
    done
}

# Says how long the listed tests will take.
tell_duration() {
    awk -v jobs="$PROCESSORS" '
        { sum += $1; if (NR == 1) longest = $1 }
        END { seconds = sum / jobs > longest ? sum / jobs : longest
              printf "test.sh: %d tests, about ", NR
              if (seconds < 100) printf "%d seconds", seconds + 1
              else printf "%d minutes", seconds / 60 + 0.5
              printf " on %d processor%s\n", jobs, jobs == 1 ? "" : "s" }'
}

# Prints, after a run of some length, which tests took longest, and the sums of folders.
tell_times() {
    (($(wc -l < "$TIMES") >= 20)) || return 0
    printf '\nseconds, and those of processors:\n'
    sort -k 1,1nr "$TIMES" | awk 'NR <= 10 {
        name = $0
        sub(/^[^ ]* [^ ]* [^ ]* /, "", name)
        printf "  %7.1f %7.1f  %s\n", $1, $2 + $3, name }'
    printf '\nby folder:\n'
    awk '{ folder = $4; if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
           ct[folder]++; seconds[folder] += $1; busy[folder] += $2 + $3
           ct["all"]++; seconds["all"] += $1; busy["all"] += $2 + $3 }
         END { for (folder in ct)
             printf "  %7.1f %7.1f  %s (%d)\n", seconds[folder], busy[folder], folder, ct[folder] }
        ' "$TIMES" | sort -k 1,1nr
}

# Runs the tests whose paths it reads.
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

# Counts the tests of cmocka that skipped themselves, and says why.
tell_skips() {
    [[ -s $SKIPS ]] || return 0
    printf '\n%d times a test of a program skipped itself:\n' "$(wc -l < "$SKIPS")"
    LC_ALL=C sort "$SKIPS" | uniq -c
}

run_once() {
    local results=$TMP/results tests=$TMP/tests listed passed failed skipped
    list_tests "$@" > "$tests"
    tell_duration < "$tests"
    : > "$UNTESTED"
    : > "$SKIPS"
    : > "$TIMES"
    cut -f 2 "$tests" | run_tests | tee "$results"
    listed=$(wc -l < "$tests")
    passed=$(grep -c '^passed ' "$results" || true)
    failed=$(grep -c '^FAILED ' "$results" || true)
    skipped=$(grep -c '^skipped ' "$results" || true)
    tell_times
    tell_untested
    tell_skips
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
        [[ $OPTARG == no-@(m32|valgrind|qemu|musl|man|servers) ]] ||
            usage_error "unknown option -o $OPTARG"
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

# For the scripts in tests/.
TMP=$(mktemp -d)
trap 'rm -rf "$TMP"' EXIT
goal=tests is_loop='' installed=''
if [[ ${1:-} == loop ]]; then
    is_loop=1
    shift
fi
case ${1:-} in
version_check=*) goal=library ;;
quick) without=(-o no-m32 -o no-valgrind -o no-qemu) ;;
all)
    goal=all
    ((install == 0)) || installed=1
    (($# == 1)) || shift # to the names of those that are to run
    ;;
'') without+=("${USER_WITHOUT[@]}") ;;
esac
[[ $goal == library ]] || check_words "$@"
bash make.sh "${make_options[@]}" "${without[@]}" "$goal"

LOGS=$(realpath "$OUTPUT/logs") PROCESSORS=$(nproc)
# One more at a time, since many tests wait.
JOBS=$((PROCESSORS + 1))
mkdir -p "$LOGS"
UNTESTED=$TMP/untested SKIPS=$TMP/skips TIMES=$TMP/times PROGRAMS=$OUTPUT/.built
CC=$(in_one_word "${CC:-gcc}") CXX=$(in_one_word "${CXX:-g++}")
export TMP CC CXX
M32=$(grep -m 1 -o '\.\.m32\.' "$OUTPUT/.built" || true)
export M32 OPTIONS=${without[*]} INSTALLED=$installed
# glibc fills what malloc() returns and what free() takes, for tests to fail that read it.
export MALLOC_PERTURB_=165

# All tests, for test_ci.sh.
list_tests all | cut -f 2 > "$OUTPUT/.tests"

case ${1:-} in
version_check=*) check_version "${1#version_check=}" ;;
*)
    while run_once "$@"; do
        [[ -n $is_loop ]] || exit 0
    done
    exit 1
    ;;
esac
