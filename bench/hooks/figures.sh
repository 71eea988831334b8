#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures hooks, in rounds that alternate: libraries in tasks beside threads, a server of blocking
# calls beside one of epoll, and single calls beside libc's. Prints medians, and what they are to be
# at most. Run from the root of the project, after ./make.sh; ROUNDS says how many (5). Takes some
# five minutes.

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=runtime/hooks/tests/real/servers.sh
. runtime/hooks/tests/real/servers.sh

readonly ROUNDS=${ROUNDS:-5} REQUESTS=50000
readonly LIBRARY=(-std=gnu99 -O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -I. -Iruntime -Iruntime/hooks
    -Iextra/stack_pool -pthread runtime/hooks/*.c runtime/*.c extra/stack_pool/*.c aco.c acosw.S)
export CERTIFICATE=$DATA/nginx/cert
ulimit -Sn "$(ulimit -Hn)"

# print WHAT MOST MEASURED
print() {
    printf '%-42s %-18s %s\n' "$@"
}

# median FILE COLUMN
median() {
    cut -d ' ' -f "$2" "$1" | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

# ratio A B
ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'
}

# ==== Servers of echo =============================================================================

build_echo() {
    local options=(-std=gnu99 -O2 -pthread -Ibench/peers) name
    for name in client epoll; do
        "$CC" "${options[@]}" "bench/runtime/$name.c" -o "$TMP/$name"
    done
    "$CC" -Ibench/peers bench/runtime/hooks.c "${LIBRARY[@]}" -ldl -o "$TMP/recv"
    "$CC" -Ibench/peers -DREAD_AND_WRITE bench/runtime/hooks.c "${LIBRARY[@]}" -ldl -o "$TMP/read"
}

# echo_with CONNECTIONS: nanoseconds of the server's processor for a request.
echo_with() {
    local server i ns=()
    rm -f "$TMP"/ns.*
    for ((i = 0; i < ROUNDS; i++)); do
        for server in epoll recv read; do
            CPUS='0 1' "$TMP/client" "$TMP/$server" apart "$1" "$REQUESTS" |
                sed -n 's/^server_ns //p' >>"$TMP/ns.$server"
        done
    done
    for server in epoll recv read; do
        ns+=("$(median "$TMP/ns.$server" 1)")
    done
    print "echo, $1 connections, recv and send" '1.05 of epoll' \
        "$(ratio "${ns[1]}" "${ns[0]}"): ${ns[1]}, ${ns[0]} ns"
    print "echo, $1 connections, read and write" '1.15 of epoll' \
        "$(ratio "${ns[2]}" "${ns[0]}"): ${ns[2]}, ${ns[0]} ns"
}

# ==== Libraries ===================================================================================

# measure SERVER WORKLOAD COUNT MOST
measure() {
    local kind seconds=() used=() i
    [[ -z $1 ]] || start_server "$1"
    rm -f "$TMP"/used.*
    for ((i = 0; i < ROUNDS; i++)); do
        for kind in tasks threads; do
            "$TMP/figures" "$kind" "$2" "$3" >>"$TMP/used.$kind"
        done
    done
    [[ -z $1 ]] || stop_server
    for kind in tasks threads; do
        seconds+=("$(median "$TMP/used.$kind" 1)")
        used+=("$(median "$TMP/used.$kind" 2)")
    done
    print "$2, $3 at a time" "$4" "${seconds[0]} s, in threads ${seconds[1]} s"
    print "    of processor time" "${5:-}" \
        "$(ratio "${used[0]}" "${used[1]}") of threads': ${used[0]}, ${used[1]} s"
}

read -ra options < <(pkg-config --cflags --libs hiredis libpq libmariadb libcurl && echo)
"$CC" bench/hooks/figures.c "${LIBRARY[@]}" "${options[@]}" -ldl -o "$TMP/figures"
build_echo
print WHAT 'AT MOST' MEASURED
for connections in 100 1000 10000; do
    echo_with "$connections"
done
measure '' nanosleep 1000 '0.12 s'
measure redis blpop 9000 '1.3 s' "0.33 of threads'"
measure pg pg 100 '0.8 s'
measure mariadb mariadb 100 '0.2 s'
measure nginx http 1000 '0.3 s'
measure nginx https 100 '0.5 s'
for name in pipe mutex; do
    most=2
    [[ $name == mutex ]] || most=1.02
    IFS=: read -r what result <<<"$("$TMP/figures" "$name")"
    print "$what" "$most of libc's" "${result# }"
done
