# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs programs whose threads are tasks. Sourced after tests/harness.sh.

[[ -f "$OUTPUT/libaco_pthreads.so" ]] || skip "there is no libaco_pthreads.so"
RUN=(env "LD_PRELOAD=$PWD/$OUTPUT/libaco_pthreads.so" timeout -k 5)

# both SECONDS COMMAND...: the command succeeds with threads of the kernel and with tasks, and says
# the same.
both() {
    must "with threads of the kernel: ${*:2}" timeout -k 5 "$@"
    mv "$TMP/said" "$TMP/expected"
    must "with tasks: ${*:2}" "${RUN[@]}" "$@"
    diff "$TMP/expected" "$TMP/said" || fail "${*:2}: says something else with tasks"
}

# are_few PROCESS: it has few threads of the kernel, besides the loops and their helpers.
are_few() {
    local ct
    ct=$(cat "/proc/$1/task"/*/comm | grep -cvx aco-pthreads) || true
    ((ct >= 1 && ct <= 2)) || fail "$(<"/proc/$1/comm") has $ct threads of the kernel of its own"
}
