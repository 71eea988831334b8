#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The examples of hooks do as they say, with real servers: many queries and downloads at a time on
# one thread, commands in batches, and a server that is the same with threads and with tasks.

# shellcheck source=tests/harness.sh
. tests/harness.sh

FOLDER=examples/hooks
[[ -f $FOLDER/pg_many.c && -d runtime/hooks ]] || skip "there is no $FOLDER"
need_libraries
[[ -f "$OUTPUT/libaco_hooks.a" ]] || skip "there is no libaco_hooks.a"
# shellcheck source=runtime/hooks/tests/real/servers.sh
. runtime/hooks/tests/real/servers.sh

read -ra compiler <<<"$CC"
readonly BUILD=("${compiler[@]}" -std=gnu99 -O2 "${C_WARNINGS[@]}" -I. -Iruntime
    -Iextra/stack_pool -pthread)

# build NAME: $TMP/NAME.
build() {
    local libraries options
    libraries=$(sed -n 's,^// libraries: ,,p' "$FOLDER/$1.c")
    have pkg-config || lack "no pkg-config: apt-get install pkg-config"
    read -ra options < <(pkg-config --cflags --libs ${libraries:+"$libraries"} 2>/dev/null) || true
    [[ -z $libraries || -n ${options[*]} ]] || lack "no $libraries"
    must "$1 does not build" "${BUILD[@]}" "${options[@]}" "$FOLDER/$1.c" \
        -Wl,-u,aco_hooks_active "$OUTPUT"/libaco_{hooks,runtime}.a "$OUTPUT/libaco.a" "${options[@]}" -o "$TMP/$1" -ldl
}

# demand PATTERN: a line of what the last program said matches.
demand() {
    grep -qE -e "$1" "$TMP/said" || fail "no line is '$1': $(head -n 40 "$TMP/said")"
}

# -h tells the usage; what is wrong brings it, too, and fails.
check_usage() {
    must "$1 -h fails" "$TMP/$1" -h
    demand "^usage: $1 "
    must_not "$1 takes what it does not know" '^usage: ' "$TMP/$1" -x
}

check_pg_many() {
    local server
    start_server pg
    server="host=127.0.0.1 port=$PORT user=aco dbname=postgres"
    must "pg_many fails" timeout 100 "$TMP/pg_many" -c 100 -n 1000 "$server" \
        'select generate_series(1, 3)'
    demand '^1000 queries done, 0 failed, 3000 rows, '
    must_not "a query that has no time" '5 failed' timeout 100 "$TMP/pg_many" -c 5 -n 5 -t 0.1 \
        "$server" 'select pg_sleep(600)'
    must_not "a query that is wrong" 'syntax error' timeout 100 "$TMP/pg_many" -c 1 -n 1 \
        "$server" 'nonsense'
    stop_server
}

check_fetch_many() {
    local i urls=() scheme
    start_server nginx
    for ((i = 0; i < 50; i++)); do
        scheme=http://localhost:$PORT
        ((i % 2)) || scheme=https://localhost:$TLS_PORT
        urls+=("$scheme/medium?/$i")
    done
    mkdir "$TMP/got"
    must "fetch_many fails" timeout 100 env -C "$TMP/got" "$TMP/fetch_many" -c 20 \
        -a "$DATA/nginx/cert" "${urls[@]}"
    for ((i = 0; i < 50; i++)); do
        cmp "$DATA/nginx/site/medium" "$TMP/got/$i" || fail "file $i is not as it was"
    done
    tr '\r' '\n' <"$TMP/said" >"$TMP/progress"
    grep -q '^\[#\{40\}\] 50 of 50 files, 11.4 MB $' "$TMP/progress" ||
        fail "no progress: $(tail -n 3 "$TMP/progress")"
    must_not "a certificate that is not known" 'certificate' timeout 100 env -C "$TMP/got" \
        "$TMP/fetch_many" "https://localhost:$TLS_PORT/small"
    must_not "an answer that never ends" 'x: no time is left' timeout 100 env -C "$TMP/got" \
        "$TMP/fetch_many" -t 0.2 "http://localhost:$PORT/stay?/x"
    stop_server
}

check_redis_pipeline() {
    start_server redis
    must "redis_pipeline fails" timeout 100 "$TMP/redis_pipeline" -c 500 -n 20 127.0.0.1 "$PORT"
    demand '^10000 commands in [0-9]+ batches$'
    (($(cut -d ' ' -f 4 "$TMP/said") < 1000)) || fail "nearly as many batches: $(<"$TMP/said")"
    stop_server
}

# ==== A thread for each connection, or a task =====================================================

# Servers of servers.sh.
make_per_connection() { cp "$TMP/per_connection" "$DATA/per_connection/server"; }
command_per_connection() { COMMAND=("$DATA/per_connection/server" "$PORT"); }
is_ready_per_connection() { :; }
make_threads() { cp "$TMP/per_connection_threads" "$DATA/threads/server"; }
command_threads() { COMMAND=("$DATA/threads/server" "$PORT"); }
is_ready_threads() { :; }

# Clients that wait for each other's lock: each gets another count. The connections are open at the
# same time.
count_words() {
    local i fd fds=() line
    start_server "$1"
    for ((i = 0; i < 100; i++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$PORT"
        fds+=("$fd")
    done
    for i in {0..99} {0..99}; do
        printf 'word%d\n' $((i % 3)) >&"${fds[i]}"
    done
    for i in {0..99} {0..99}; do
        read -r -t 60 -u "${fds[i]}" line || fail "$1: no answer"
        echo "$line"
    done | LC_ALL=C sort >"$TMP/$1.counts"
    for fd in "${fds[@]}"; do
        exec {fd}>&-
    done
    stop_server
}

check_per_connection() {
    must "per_connection with threads does not build" "${BUILD[@]}" -DTHREADS \
        "$FOLDER/per_connection.c" -o "$TMP/per_connection_threads"
    count_words threads
    count_words per_connection
    diff "$TMP/threads.counts" "$TMP/per_connection.counts" || fail "tasks differ from threads"
    (($(wc -l <"$TMP/threads.counts") == 200)) || fail "too few answers"
    grep -qx 'word0 68' "$TMP/threads.counts" || fail "words got lost"
}

NAMES=(redis_pipeline pg_many fetch_many per_connection)
if [[ " $OPTIONS " == *" no-servers "* ]]; then
    NAMES=(per_connection)
    echo "examples of hooks with databases: not tested (-o no-servers)"
else
    need redis-server:redis-server initdb:postgresql nginx:nginx-light openssl:openssl
fi
for name in "${NAMES[@]}"; do
    build "$name"
    check_usage "$name"
    "check_$name"
done
