#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The benchmark reports when others take the processor from it.

# shellcheck source=tests/harness.sh
. tests/harness.sh

need taskset:util-linux
cpu=$(awk '/^Cpus_allowed_list/ { split($2, numbers, /[,-]/); print numbers[1] }' \
    /proc/self/status)

must "the benchmark does not compile" "$CC" -O2 -I. test_aco_benchmark.c aco.c acosw.S \
    -o "$TMP/benchmark" -lpthread
taskset -c "$cpu" bash -c 'while :; do :; done' &
trap 'kill $!; rm -rf "$TMP"' EXIT
must "the benchmark fails" taskset -c "$cpu" "$TMP/benchmark" --check
grep -q 'TOO BUSY: others had the processor [1-9][0-9] % of this time' "$TMP/said" ||
    fail "the benchmark does not tell of another program on its processor: $(tail -n 3 "$TMP/said")"
tail -n 2 "$TMP/said"
