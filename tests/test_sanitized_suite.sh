#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The test programs of the project, and of its optional parts, under AddressSanitizer with
# UndefinedBehaviorSanitizer, and under ThreadSanitizer; each in the plain and in the stress build.
# Where a test can't be run so, REASONS says why.
# parts: address address.stress thread thread.stress
# seconds: 48 48 20 20

# shellcheck source=tests/harness.sh
. tests/harness.sh
need_cmocka

shopt -s nullglob
declare -rA BUILDS=(
    [address]="-fsanitize=address,undefined"
    [address.stress]="-fsanitize=address,undefined -DACO_CONFIG_STRESS"
    [thread]="-fsanitize=thread"
    [thread.stress]="-fsanitize=thread -DACO_CONFIG_STRESS"
)
PARTS=("$@")
(($#)) || PARTS=("${!BUILDS[@]}")
readonly TESTS=(tests/test_*.c extra/*/tests/test_*.c)
readonly LIBRARY=(aco.c acosw.S extra/*/aco_*.c)

# Why a test is not run; before the bar, a word of the builds in which it is not.
declare -rA REASONS=(
    [test_small_stack]="address|its malloc() needs more stack than the 4096 bytes that are left"
    [test_single_step]="sanitize|steps through the sanitizer's own code as well, for minutes"
    [test_unwinding]="sanitize|steps through the sanitizer's own code as well, for minutes"
    [test_cancel]="sanitize|leaks what is half unwound, as told, and comes back by acosw() alone"
    [test_stack_pool]="sanitize|200,000 coroutines are too many for it; test_tools.sh has fewer"
    [test_limits]="thread|its jumps from one stack to another are not switches to it"
    [test_thread_end]="thread|its pthread_exit() aborts in a fiber, for a reason of its own"
    [test_overflow]="thread|the fault is first met, and the signal first handled, by its runtime"
)

read -ra compiler <<<"$CC"
compile=("${compiler[@]}" -std=gnu99 -g -O1 -fno-sanitize-recover=all "${C_WARNINGS[@]}" -I.)

# Sanitizers write to files, since the tests look at stderr themselves. They refuse impossible
# requests instead of dying of them, leave signals and their stacks to the tests, let forked
# children have threads, and keep locals in the frames, where the tests look.
COMMON=allocator_may_return_null=1:log_path=$TMP/report
export ASAN_OPTIONS=$COMMON:detect_stack_use_after_return=0:use_sigaltstack=0:handle_segv=0
export UBSAN_OPTIONS=$COMMON
export TSAN_OPTIONS=$COMMON:die_after_fork=0:atexit_sleep_ms=0

build_objects() {
    local source object
    OBJECTS=()
    for source in "${LIBRARY[@]}" tests/harness.c; do
        object=$TMP/$(basename "${source%.*}").o
        must "$*: $source does not compile" "${compile[@]}" "$@" -c "$source" -o "$object"
        OBJECTS+=("$object")
    done
}

# run_test TEST OPTION...
run_test() {
    local source=$1 more
    shift
    read -ra more < <(sed -n 's,^// build: ,,p' "$source" | tr '\n' ' ' && echo)
    must "$*: $source does not compile" "${compile[@]}" "$@" "$source" "${OBJECTS[@]}" \
        "${more[@]}" -o "$TMP/program" -lcmocka -lpthread -lm -ldl
    rm -f "$TMP/report."*
    if ! "${SANITIZED[@]}" "$TMP/program" >"$TMP/said" 2>&1; then
        cat "$TMP/said" "$TMP/report."* >&2
        fail "$*: $source"
    fi
    tell_skips
}

run_build() {
    local source name reason ct=0
    build_objects "$@"
    for source in "${TESTS[@]}"; do
        name=$(basename "$source" .c)
        reason=${REASONS[$name]:-}
        if [[ -n $reason && "$*" == *"${reason%|*}"* ]]; then
            echo "$*: $name not run: ${reason#*|}"
            continue
        fi
        run_test "$source" "$@"
        ct=$((ct + 1))
    done
    echo "$*: $ct tests"
}

ct_builds=0
for part in "${PARTS[@]}"; do
    build=${BUILDS[$part]}
    read -ra options <<<"$build"
    if can_run "${compile[@]}" "${options[@]}"; then
        run_build "${options[@]}"
        ct_builds=$((ct_builds + 1))
    else
        echo "$build: such programs can't be made or run, not tested"
    fi
done
((ct_builds)) || skip "${compiler[*]} has no sanitizer"
