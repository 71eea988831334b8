#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Nothing changes outside of tasks: programs that don't know the hooks do the same with the library
# preloaded as without it. Python runs its own tests of sockets, waits, threads and processes.
#
# parts: python tools
# seconds: 50 8

# shellcheck source=tests/harness.sh
. tests/harness.sh

[[ " $OPTIONS " != *" no-servers "* ]] || skip "servers are left out (-o no-servers)"
need_libraries
[[ -f "$OUTPUT/libaco_hooks.so" ]] || skip "there is no libaco_hooks.so"
need setpriv:util-linux

readonly PRELOADED=(env "LD_LIBRARY_PATH=$PWD/$OUTPUT" LD_PRELOAD=libaco_hooks.so)

# ==== Python ======================================================================================

readonly PYTHON_TESTS=(test_socket test_select test_poll test_epoll test_selectors test_threading
    test_subprocess)

# run_python COMMAND...: runs tests, and writes their names and results to $TMP/results, in order.
run_python() {
    env -C "$TMP" timeout 400 "$@" >"$TMP/said" 2>&1 || true
    grep -E '^\w+ \(test\..*\.\.\. \w+' "$TMP/said" | sed 's/).* \.\.\. / /' >"$TMP/results" || true
}

# Sockets of virtual machines wait for ever on some machines. A test that fails is tried again, with
# and without the library: one that fails by itself, or by chance, is no difference.
check_python() {
    local command=(/usr/bin/python3 -m test -v -j 7 -i '*VSOCK*' -i '*Vsock*') name failed=()
    "${command[@]:0:1}" -c 'import test.test_socket' 2>/dev/null ||
        lack "no tests of Python: apt-get install libpython3.11-testsuite"
    run_python "${PRELOADED[@]}" "${command[@]}" "${PYTHON_TESTS[@]}"
    mapfile -t failed < <(grep -E ' (FAIL|ERROR)$' "$TMP/results" | cut -d ' ' -f 1 | sort -u)
    (($(wc -l <"$TMP/results") > 1000)) || fail "Python has no results: $(tail -n 20 "$TMP/said")"
    for name in "${failed[@]}"; do
        run_python "${PRELOADED[@]}" "${command[@]}" -m "$name" "${PYTHON_TESTS[@]}"
        grep -qE ' (FAIL|ERROR)$' "$TMP/results" || continue
        cp "$TMP/said" "$TMP/with"
        run_python "${command[@]}" -m "$name" "${PYTHON_TESTS[@]}"
        grep -qE ' (FAIL|ERROR)$' "$TMP/results" ||
            fail "with the library preloaded, Python's $name fails: $(tail -n 40 "$TMP/with")"
        echo "Python's $name fails without the library, too"
    done
}

# ==== Tools =======================================================================================

# same COMMAND...: prints and ends the same with the library and without it.
same() {
    local status=0 status_preloaded=0
    "$@" >"$TMP/without" 2>&1 </dev/null || status=$?
    "${PRELOADED[@]}" "$@" >"$TMP/with" 2>&1 </dev/null || status_preloaded=$?
    diff "$TMP/without" "$TMP/with" || fail "the library changes: $*"
    ((status == status_preloaded)) || fail "status $status, then $status_preloaded: $*"
    [[ -s $TMP/without ]] || fail "nothing said: $*"
}

check_redis_cli() {
    start_server redis
    local cli=(redis-cli -h 127.0.0.1 -p "$PORT")
    same "${cli[@]}" set key value
    same "${cli[@]}" get key
    same "${cli[@]}" eval 'return {1, 2, redis.call("get", "key")}' 0
    same "${cli[@]}" nonsense
    same "${cli[@]}" blpop nothing 0.1
    same bash -c "printf 'set a 1\nget a\n' | redis-cli -h 127.0.0.1 -p $PORT"
    same redis-cli -h 127.0.0.1 -p 1 ping
    stop_server
}

check_psql() {
    start_server pg
    local psql=(psql -X -h 127.0.0.1 -p "$PORT" -U aco postgres)
    "${psql[@]}" -q -c 'create table t (n int)'
    same "${psql[@]}" -c 'select generate_series(1, 5)'
    same "${psql[@]}" -c '\copy (select 1, 2) to stdout' -c '\d t'
    same "${psql[@]}" -c 'select pg_sleep(0.1)'
    same "${psql[@]}" -c 'set statement_timeout = 50' -c 'select pg_sleep(60)'
    same "${psql[@]}" -c 'select 1 / 0'
    same "${psql[@]}" -c '\! echo shell'
    same psql -X -h 127.0.0.1 -p 1 -U aco postgres -c 'select 1'
    stop_server
}

check_curl() {
    start_server nginx
    same curl -sS "http://localhost:$PORT/medium"
    same curl -sS --cacert "$DATA/nginx/cert" "https://localhost:$TLS_PORT/medium"
    same curl -sS "https://localhost:$TLS_PORT/medium"
    same curl -sS --no-progress-meter -Z "http://localhost:$PORT/"{wait,wait} \
        -o /dev/null -o /dev/null -w '%{http_code} %{size_download}\n'
    same curl -s -m 0.2 "http://localhost:$PORT/stay" -o /dev/null -w '%{http_code}\n'
    same curl -s "http://localhost:1/" -w '%{http_code} %{exitcode}\n'
    stop_server
}

check_tools() {
    # shellcheck source=hooks/tests/real/servers.sh
    . hooks/tests/real/servers.sh
    need redis-cli:redis-tools psql:postgresql-client curl:curl nginx:nginx-light openssl:openssl
    check_redis_cli
    check_psql
    check_curl
}

(($# == 0)) && set -- python tools
for part; do
    "check_$part"
done
