#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures libraries in tasks by hooks, beside threads, in rounds that alternate: medians of seconds
# and of seconds of processor time. Run from the root of the project, after ./make.sh; ROUNDS says
# how many (5). The echo server on hooks is a peer of bench/run.sh.

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=runtime/hooks/tests/real/servers.sh
. runtime/hooks/tests/real/servers.sh

read -ra options < <(pkg-config --cflags --libs hiredis libpq libmariadb libcurl && echo)
"$CC" -std=gnu99 -O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -I. -Iruntime -Iruntime/hooks \
    -Iextra/stack_pool -pthread bench/hooks/figures.c runtime/hooks/*.c runtime/*.c \
    extra/stack_pool/*.c aco.c acosw.S "${options[@]}" -ldl -o "$TMP/figures"
export CERTIFICATE=$DATA/nginx/cert
ulimit -Sn "$(ulimit -Hn)"

# median FILE COLUMN
median() {
    cut -d ' ' -f "$2" "$1" | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

# measure SERVER WORKLOAD COUNT
measure() {
    local kind
    [[ -z $1 ]] || start_server "$1"
    : >"$TMP/tasks"
    : >"$TMP/threads"
    for ((i = 0; i < ${ROUNDS:-5}; i++)); do
        for kind in tasks threads; do
            "$TMP/figures" "$kind" "$2" "$3" >>"$TMP/$kind"
        done
    done
    for kind in tasks threads; do
        printf '%-10s %5d %-8s %8s s %8s s of processor time\n' "$2" "$3" "$kind" \
            "$(median "$TMP/$kind" 1)" "$(median "$TMP/$kind" 2)"
    done
    [[ -z $1 ]] || stop_server
}

measure '' nanosleep 1000
measure redis blpop 9000
measure pg pg 100
measure mariadb mariadb 100
measure nginx http 1000
measure nginx https 100
"$TMP/figures" pipe
"$TMP/figures" mutex
