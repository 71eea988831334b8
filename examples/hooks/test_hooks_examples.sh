#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The examples of hooks do as they say, with real servers: many queries and downloads at a time on
# one thread, a pool of workers, commands in batches, a TLS server, and a server that is the same
# with threads and with tasks.
#
# seconds: 15
# user

# shellcheck source=tests/harness.sh
. tests/harness.sh

FOLDER=examples/hooks
[[ -f $FOLDER/pg_many.c && -d hooks ]] || skip "there is no $FOLDER"
need_libraries
[[ -f "$OUTPUT/libaco_hooks.a" ]] || skip "there is no libaco_hooks.a"
# shellcheck source=hooks/tests/real/servers.sh
. hooks/tests/real/servers.sh

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
        -Wl,-u,aco_hooks_active "$OUTPUT"/libaco_{hooks,runtime}.a "$OUTPUT/libaco.a" \
        "${options[@]}" -o "$TMP/$1" -ldl
}

# demand PATTERN: a line of what the last program said matches.
demand() {
    grep -qE -e "$1" "$TMP/said" || fail "no line is '$1': $(head -n 40 "$TMP/said")"
}

# -h prints the usage; wrong arguments print it, too, and fail.
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

# ==== A pool of workers ===========================================================================

# pool OPTION...: pg_pool, with queries from its input; results are in $TMP/results, and messages in
# $TMP/said.
pool() {
    timeout 100 "$TMP/pg_pool" "$@" "$SERVER_OPTIONS" >"$TMP/results" 2>"$TMP/said"
}

# told NUMBERS: queries read, done, failed, not run.
told() {
    local expected
    printf -v expected '%d queries read, %d done, %d failed, %d not run' "$@"
    [[ $(tail -n 1 "$TMP/said") == "$expected" ]] || fail "not '$expected': $(<"$TMP/said")"
}

# How many queries of pg_pool the server runs.
active() {
    psql -AtX -h 127.0.0.1 -p "$PORT" -U aco -d postgres -c "select count(*) from pg_stat_activity
        where state = 'active' and query like '%pg_sleep%' and pid <> pg_backend_pid()"
}

# await_active COUNT
await_active() {
    for _ in {1..200}; do
        (($(active) != $1)) || return 0
        sleep 0.05
    done
    fail "$(active) queries run instead of $1: $(<"$TMP/said")"
}

# Starts the server that was stopped again, at its port.
start_again() {
    rm -f "$DATA/pg/postmaster.pid"
    env -C "$DATA" HOME="$DATA" "${AS_USER[@]}" "${COMMAND[@]}" >"$DATA/pg.said" 2>&1 9>&- &
    SERVER=$!
    for _ in {1..200}; do
        ! is_ready_pg >/dev/null 2>&1 || return 0
        sleep 0.05
    done
    fail "the server does not start again: $(<"$DATA/pg.said")"
}

check_results() {
    seq -f 'select %.0f * 2, pg_sleep(0.002)' 1000 | pool -c 20 || fail "pg_pool: $(<"$TMP/said")"
    told 1000 1000 0 0
    diff <(seq -f '%.0f' 1000 | awk '{ print $1 ": " $1 * 2 }') <(sort -n "$TMP/results") >&2 ||
        fail "pg_pool: results are not those of their queries"
    (($(sort -nc "$TMP/results" 2>&1 | wc -l) == 1)) || fail "pg_pool: one query at a time"
}

# One connection, that a query loses, that a deadline makes unknown, or that goes on.
check_failures() {
    printf '%s\n' 'nonsense' 'select 2' 'select pg_terminate_backend(pg_backend_pid())' 'select 4' \
        'select pg_sleep(600)' 'select 6' 'copy pg_type to stdout' 'select 8 where false' |
        pool -c 1 -t 1 && fail "pg_pool hides that queries have failed"
    told 8 4 4 0
    diff - <(cut -c 1-39 "$TMP/results") >&2 <<'END' || fail "pg_pool: other results"
1: ERROR:  syntax error at or near "non
2: 2
3: server closed the connection unexpec
4: 4
5: select() failed: Connection timed ou
6: 6
7: PGRES_COPY_OUT
8: no rows
END
    await_active 0
}

# Queries beyond those that run, and that the channel and the reader have, are not even read.
check_back_pressure() {
    local pid writer
    mkfifo "$TMP/queries"
    "$TMP/pg_pool" -c 4 -q 8 -t 100 "$SERVER_OPTIONS" <"$TMP/queries" >"$TMP/results" \
        2>"$TMP/said" &
    pid=$!
    exec 9>"$TMP/queries"
    seq -f 'select pg_sleep(600), %.0f' 100000 >&9 2>/dev/null &
    writer=$!
    await_active 4
    sleep 0.3
    kill -0 "$writer" || fail "pg_pool: 100000 queries were taken"
    kill -TERM "$pid" # itself, as timeout would send it twice
    exec 9>&-
    ! wait "$pid" || fail "pg_pool hides that it was ended"
    told 13 0 4 9
    await_active 0
    wait "$writer" || true # it has lost its reader
}

# await_lines COUNT FILE
await_lines() {
    for _ in {1..400}; do
        (($(wc -l <"$2") < $1)) || return 0
        sleep 0.05
    done
    fail "pg_pool: $(wc -l <"$2") lines instead of $1: $(<"$TMP/said")"
}

# A server that is lost and comes back: each connection loses a query, all others are done.
check_lost_server() {
    local pid status=0
    rm "$TMP/queries"
    mkfifo "$TMP/queries"
    pool -c 3 -r 60 <"$TMP/queries" &
    pid=$!
    exec 9>"$TMP/queries"
    seq -f 'select %.0f, pg_sleep(0.1)' 10 >&9
    await_lines 10 "$TMP/results"
    stop_server
    seq -f 'select %.0f' 90 >&9
    await_lines 13 "$TMP/results"
    await_lines 3 "$TMP/said" # tries to connect that have failed
    start_again
    exec 9>&-
    wait "$pid" || status=$?
    ((status == 1)) || fail "pg_pool ends with $status: $(<"$TMP/said")"
    told 100 97 3 0
}

check_pg_pool() {
    start_server pg
    SERVER_OPTIONS="host=127.0.0.1 port=$PORT user=aco dbname=postgres"
    check_results
    check_failures
    check_back_pressure
    check_lost_server
    stop_server
    ! pool -c 2 -r 0.3 <<<'select 1' || fail "pg_pool works without a server"
    grep -q 'Connection refused' "$TMP/said" || fail "pg_pool does not tell why: $(<"$TMP/said")"
    told 1 0 0 1
}

# ==== TLS =========================================================================================

# A server of servers.sh, with the certificate of nginx.
make_tls_echo() {
    cp "$TMP/tls_echo" "$DATA/tls_echo/server"
    as_user openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
        -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -keyout "$DATA/tls_echo/key" -out "$DATA/tls_echo/cert"
}
command_tls_echo() {
    COMMAND=("$DATA/tls_echo/server" -c "$DATA/tls_echo/cert" -k "$DATA/tls_echo/key" -t 1
        "127.0.0.1:$PORT")
}
is_ready_tls_echo() { :; }

# Runs tls_clients.py: 200 clients at a time, and others that break the protocol.
check_tls_echo() {
    start_server tls_echo
    echo hello | must "s_client fails" timeout 20 openssl s_client -connect "127.0.0.1:$PORT" \
        -CAfile "$DATA/tls_echo/cert" -verify_return_error -quiet -no_ign_eof
    if ! have python3; then
        echo "TLS with 200 connections: no python3, not tested"
        stop_server
        return
    fi
    must "TLS clients fail" timeout 100 python3 "$FOLDER/tls_clients.py" "$PORT" "$SERVER" \
        "$DATA/tls_echo/cert"
    wait "$SERVER" || fail "tls_echo ends with $?: $(<"$DATA/tls_echo.said")"
    SERVER=''
}

# ==== A thread for each connection, or a task =====================================================

# Servers of servers.sh.
make_threads_before() { cp "$TMP/threads_before" "$DATA/threads_before/server"; }
command_threads_before() { COMMAND=("$DATA/threads_before/server" "$PORT" "$DATA/journal"); }
is_ready_threads_before() { :; }
make_threads_after() { cp "$TMP/threads_after" "$DATA/threads_after/server"; }
command_threads_after() { COMMAND=("$DATA/threads_after/server" "$PORT" "$DATA/journal"); }
is_ready_threads_after() { :; }

# talk_to NAME: clients that are connected at the same time, and send the bytes of their lines in
# turn; what they hear is in $TMP/NAME.heard.
talk_to() {
    local i fd fds=() line byte
    start_server "$1"
    for ((i = 0; i < 50; i++)); do
        exec {fd}<>"/dev/tcp/127.0.0.1/$PORT"
        fds+=("$fd")
    done
    for line in 'set key%02d a value' 'get key%02d' 'get none%02d' 'nonsense%02d'; do
        for ((byte = 0; byte < 20; byte++)); do
            for ((i = 0; i < 50; i++)); do
                # shellcheck disable=SC2059 # it is a format
                printf -v text "$line\n" "$i"
                printf '%s' "${text:byte:1}" >&"${fds[i]}"
            done
        done
        for fd in "${fds[@]}"; do
            read -r -t 60 -u "$fd" line || fail "$1: no answer"
            echo "$line"
        done
    done >"$TMP/$1.heard"
    for fd in "${fds[@]}"; do
        exec {fd}>&-
    done
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    printf '%300s\n' 'too long' >&3
    ! read -r -t 20 -u 3 line 2>/dev/null || fail "$1: an answer to a line that is too long"
    exec 3>&-
    stop_server
    start_server "$1"
    exec 3<>"/dev/tcp/127.0.0.1/$PORT"
    printf 'get key07\n' >&3
    read -r -t 20 -u 3 line || fail "$1: no answer after a new start"
    [[ $line == 'a value' ]] || fail "$1 has forgotten: '$line'"
    exec 3>&-
    stop_server
    rm -f "$DATA/journal"
}

check_threads_after() {
    must "threads_before does not build" "${compiler[@]}" -std=gnu99 -O2 "${C_WARNINGS[@]}" \
        -pthread "$FOLDER/threads_before.c" -o "$TMP/threads_before"
    check_usage threads_before
    talk_to threads_before
    talk_to threads_after
    diff "$TMP/threads_before.heard" "$TMP/threads_after.heard" || fail "tasks differ from threads"
    for line in 'done' 'a value' '' 'what?'; do
        (($(grep -cx -e "$line" "$TMP/threads_after.heard") == 50)) || fail "not 50 times '$line'"
    done
}

# docs/hooks.md shows the difference, without blanks at the ends of lines.
check_diff() {
    {
        diff -U 1 --label threads_before.c --label threads_after.c \
            "$FOLDER"/threads_{before,after}.c || true
    } | sed 's/^ $//' >"$TMP/diff"
    diff <(awk '/^```/ { inside = $0 == "```diff"; next } inside' docs/hooks.md) "$TMP/diff" >&2 ||
        fail "docs/hooks.md shows another difference"
}

NAMES=(redis_pipeline pg_many pg_pool fetch_many tls_echo threads_after)
if [[ " $OPTIONS " == *" no-servers "* ]]; then
    NAMES=(threads_after)
    echo "examples of hooks with databases: not tested (-o no-servers)"
else
    need redis-server:redis-server initdb:postgresql nginx:nginx-light openssl:openssl
fi
for name in "${NAMES[@]}"; do
    build "$name"
    check_usage "$name"
    "check_$name"
done
check_diff
