#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The figures that the design promises, measured here and now: every row in a fresh process, pinned
# to one processor, all rows interleaved, ROUNDS times; medians and their ratios. Takes two or three
# minutes. Absolute times mean nothing without the machine; ratios do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly ROUNDS=${ROUNDS:-7} OUT=output/bench
PIN=(taskset -c "${CPU:-$(($(nproc) - 1))}")
readonly SHARE=-DACO_CONFIG_SHARE_FPU_MXCSR_ENV

mkdir -p "$OUT"
build() {
    local name=$1
    shift
    gcc -std=gnu99 -O2 -I. "$@" -o "$OUT/$name"
}
build share $SHARE bench/figures.c aco.c acosw.S
build own bench/figures.c aco.c acosw.S
build plain -DPLAIN bench/figures.c bench/plain.c
g++ -std=c++20 -O2 bench/cxx20.cc -o "$OUT/cxx20"
POOL=(extra/stack_pool/aco_stack_pool.c aco.c acosw.S -lpthread)
build pool $SHARE bench/pool.c "${POOL[@]}"
build pool-own bench/pool.c "${POOL[@]}"
build pool-plain $SHARE -DACO_STACK_POOL_COLOURS=1u bench/pool.c "${POOL[@]}"
build skynet $SHARE examples/skynet.c "${POOL[@]}"
build skynet-own examples/skynet.c "${POOL[@]}"
ROWS=("cxx20" "share flat" "share deep" "own flat" "own main-divides" "own coroutine-divides"
    "share acosw" "share life" "own life" "pool get-put" "pool get-put-shared" "pool life"
    "pool-own life" "pool round-robin 1000 128" "pool-own round-robin 1000 128"
    "pool-plain round-robin 1000 128" "pool round-robin 30000 64" "pool-own round-robin 30000 64"
    "pool-plain round-robin 30000 64" skynet skynet-own)
if build m32 -m32 $SHARE bench/figures.c aco.c acosw.S 2> /dev/null; then
    ROWS+=("m32 flat" "m32 deep" "m32 acosw")
fi
for live in 8 120 1000 2024 4072 7992; do
    ROWS+=("plain copying $live" "share copying $live")
done

# Of what a program prints: its only number, or the one after "time".
run_row() {
    local words
    read -r -a words <<< "$1"
    "${PIN[@]}" "$OUT/${words[0]}" "${words[@]:1}" |
        awk 'NF == 1 { print $1 } $1 == "time" { print $2 }'
}

measured=$OUT/measured
: > "$measured"
for ((round = 1; round <= ROUNDS; round++)); do
    for row in "${ROWS[@]}"; do
        printf '%s\t%s\n' "$row" "$(run_row "$row")" >> "$measured"
        if [[ -t 2 ]]; then
            printf '\rround %d of %d: %-30s' "$round" "$ROUNDS" "$row" >&2
        fi
    done
done
for row in "share memory-default 0" "share memory-right 112" "share memory-default 112"; do
    read -r -a words <<< "$row"
    printf '%s\t%s\n' "$row" "$("$OUT/${words[0]}" "${words[@]:1}")" >> "$measured"
done
if [[ -t 2 ]]; then
    printf '\r%60s\r' "" >&2
fi

median() {
    awk -F '\t' -v row="$1" '$1 == row { print $2 }' "$measured" | sort -n |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# ratio OF TO WHAT
ratio() {
    awk -v of="$(median "$1")" -v to="$(median "$2")" -v what="$3" \
        'BEGIN { printf "%-66s %5.2f   (%.1f / %.1f ns)\n", what, of / to, of, to }'
}

lscpu | sed -n 's/^Model name: */machine: /p'
gcc --version | sed -n 1p
ratio "share flat" cxx20 "resume + yield, shared control words, to a C++20 resume"
ratio "share deep" cxx20 "the same, yielding four calls deep"
ratio "own flat" cxx20 "resume + yield, own control words, to a C++20 resume"
ratio "own main-divides" "own flat" "own control words, main's flags differ, to none differ"
ratio "own coroutine-divides" "own flat" "own control words, the coroutine's flags differ"
for live in 8 120 1000 2024 4072 7992; do
    ratio "plain copying $live" "share copying $live" \
        "plain to aco, 100,000 copying, $live live bytes"
done
if [[ " ${ROWS[*]} " == *m32* ]]; then
    ratio "m32 flat" "m32 acosw" "-m32: resume + yield to two plain acosw() from C"
    ratio "m32 deep" "m32 acosw" "-m32: the same, yielding four calls deep"
fi
printf '%-66s %5.1f ns\n' \
    "create, resume to the end, destroy; shared control words" "$(median "share life")" \
    "the same, own control words" "$(median "own life")"
printf '%-66s %5.1f ns\n' \
    "stack pool: get and put" "$(median "pool get-put")" \
    "the same, pool shared by threads" "$(median "pool get-put-shared")" \
    "stack pool: create, resume to the end, destroy; shared control words" \
    "$(median "pool life")" \
    "the same, own control words" "$(median "pool-own life")" \
    "stack pool: 1000 in turn, 128 KiB, resume + yield; shared control words" \
    "$(median "pool round-robin 1000 128")" \
    "the same, own control words" "$(median "pool-own round-robin 1000 128")" \
    "the same, shared control words, stacks of one colour" \
    "$(median "pool-plain round-robin 1000 128")" \
    "stack pool: 30,000 in turn, 64 KiB, resume + yield; shared control words" \
    "$(median "pool round-robin 30000 64")" \
    "the same, own control words" "$(median "pool-own round-robin 30000 64")" \
    "the same, shared control words, stacks of one colour" \
    "$(median "pool-plain round-robin 30000 64")"
printf '%-66s %5.1f ms\n' \
    "stack pool: Skynet, 1,111,111 nested; shared control words" "$(median skynet)" \
    "the same, own control words" "$(median skynet-own)"
printf '%-66s %5.0f bytes\n' \
    "5,000,000 suspended that only yield, per coroutine" "$(median "share memory-default 0")" \
    "112 bytes live, right save_stack_sz" "$(median "share memory-right 112")" \
    "112 bytes live, default save_stack_sz" "$(median "share memory-default 112")"
