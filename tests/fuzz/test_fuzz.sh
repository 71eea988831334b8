#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Lets libFuzzer run programs of all that coroutines do to each other against a model, in every
# build that the model knows. FUZZ_SECONDS in the environment, 60 if not set, is the time in all: it
# is split evenly, and as many builds run at a time as there are processors. A program that fails is
# left in $OUTPUT/fuzz together with the fuzzer, which replays it.
# parts: standaloneFPUenv standaloneFPUenv.stress shareFPUenv shareFPUenv.stress
# seconds: 25 25 25 25

# shellcheck source=tests/harness.sh
. tests/harness.sh
need_cmocka

: "${FUZZ_SECONDS:=60}"
[[ $FUZZ_SECONDS =~ ^[1-9][0-9]*$ ]] || fail "FUZZ_SECONDS=$FUZZ_SECONDS is no number of seconds"
readonly SANITIZERS=fuzzer,address,undefined
BUILDS=({standaloneFPUenv,shareFPUenv}{,.stress})
readonly EACH=$(((FUZZ_SECONDS + ${#BUILDS[@]} - 1) / ${#BUILDS[@]})) # seconds
(($# == 0)) || BUILDS=("$1")
readonly RESULTS=$OUTPUT/fuzz

# The model has no constants that a mutation would have to guess, so comparisons are not watched.
readonly SANITIZED_CODE=(-g -O1 -fno-omit-frame-pointer -I. -fsanitize="$SANITIZERS"
    -fno-sanitize-recover=all "-fno-sanitize-coverage=trace-cmp,trace-div,trace-gep,stack-depth")
readonly COMPILE=(clang -std=gnu99 -fexceptions "${C_WARNINGS[@]}" "${SANITIZED_CODE[@]}")
readonly SOURCES=(tests/fuzz/{fuzz_programs,operations,model}.c tests/{no_inline,harness}.c
    extra/{cancel/aco_cancel,exceptions/aco_exceptions,returning/aco_returning}.c
    extra/{stack_pool/aco_stack_pool,threads/aco_threads,value/aco_value}.c aco.c acosw.S)

# UndefinedBehaviorSanitizer would need another library for C++.
readonly COMPILE_CXX=(clang++ -std=c++11 "${WARNINGS[@]}" "${SANITIZED_CODE[@]}"
    -fno-sanitize=undefined -c tests/fuzz/catching_level.cc)

# Programs of 200 bytes are some 60 operations, more than any fault was seen to need.
readonly FUZZ=(-max_len=200 -timeout=20 -print_final_stats=1)

need_libfuzzer() {
    need clang:"clang libclang-rt-dev" clang++:clang
    printf 'int LLVMFuzzerTestOneInput(const char *data, long sz);
int LLVMFuzzerTestOneInput(const char *data, long sz) { return data == 0 && sz == 0; }\n' |
        "${COMPILE[@]}" -x c - -o "$TMP/fuzzer" 2> /dev/null ||
        lack "clang has no libFuzzer for -fsanitize=$SANITIZERS: apt-get install libclang-rt-dev"
}

program_of() {
    printf '%s/fuzz_programs..%s' "$RESULTS" "$1"
}

compile() {
    local build=$1 flags=()
    [[ $build == shareFPUenv* ]] && flags+=(-DACO_CONFIG_SHARE_FPU_MXCSR_ENV)
    [[ $build == *.stress ]] && flags+=(-DACO_CONFIG_STRESS)
    must "$build: its level in C++ does not compile" "${COMPILE_CXX[@]}" -o "$TMP/catching_level.o"
    must "$build: the fuzzer does not compile" "${COMPILE[@]}" "${flags[@]}" "${SOURCES[@]}" \
        "$TMP/catching_level.o" -o "$(program_of "$build")" -lcmocka -lstdc++
}

# Fails with what a fuzzer said last, and how to see it again.
report() {
    local build=$1 log=$2 program reproducer seed
    program=$(program_of "$build")
    reproducer=$(sed -n 's/.*Test unit written to //p' "$log")
    seed=$(sed -n 's/^INFO: Seed: //p' "$log")
    tail -n 40 "$log" >&2
    if [[ -n $reproducer ]]; then
        fail "$build fails with $reproducer; replay it with: $program $reproducer"
    fi
    fail "$build left no reproducer; find it again with: $program ${FUZZ[*]} -seed=$seed"
}

# A build's compilation and its share of the time; leaves the log at $TMP/BUILD/log.
fuzz() {
    local build=$1 TMP=$TMP/$1
    mkdir -p "$TMP"
    compile "$build"
    (ulimit -c 0 && exec "$(program_of "$build")" "${FUZZ[@]}" -max_total_time="$EACH" \
        -artifact_prefix="$RESULTS/$build.") > "$TMP/log" 2>&1 || report "$build" "$TMP/log"
}

need_libfuzzer
jobs=$(nproc)
mkdir -p "$RESULTS"

pids=()
for build in "${BUILDS[@]}"; do
    while (($(jobs -rp | wc -l) >= jobs)); do
        wait -n || true
    done
    fuzz "$build" &
    pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do
    wait "$pid" || failed=1
done
((failed == 0)) || fail "see above"

total=0
for build in "${BUILDS[@]}"; do
    count=$(awk '/^stat::number_of_executed_units:/ { print $2 }' "$TMP/$build/log")
    ((count > 0)) || fail "$build: no program was run"
    printf '%-24s %9d programs, %d s\n' "$build" "$count" "$EACH"
    total=$((total + count))
done
printf '%d programs run\n' "$total"
