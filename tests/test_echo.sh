#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The echo server and its client serve 10,000 connections at a time on each kind of stack: every
# byte comes back, whoever breaks off is cancelled, and every buffer is freed. The same, with fewer,
# for several threads, in each width and compiler, and under sanitizers. A buffer on a share stack
# is refused in words.

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly SERVER=examples/echo_server.c CLIENT=examples/echo_client.c
readonly MANY=10000 FEW=500 OTHER_FILES=100
SERVER_PID=

for example in "$SERVER" "$CLIENT"; do
    [[ -f "$example" ]] || skip "there is no $example"
done

# build COMPILER WIDTH OPTION...: $TMP/server and $TMP/client, of the same build.
build() {
    CC=$1 build_example "$SERVER" "$2" "$TMP/server" "${@:3}"
    CC=$1 build_example "$CLIENT" "$2" "$TMP/client" "${@:3}"
}

# Waits until the server listens; its port is then in PORT.
await_port() {
    local try
    for ((try = 0; try < 200; try++)); do
        PORT=$(sed -n 's/^listening at port //p' "$TMP/served")
        [[ -z "$PORT" ]] || return 0
        sleep 0.05
    done
    fail "the server does not listen: $(<"$TMP/complaints")"
}

# start OPTION...: a server, when it listens; its number is then in SERVER_PID.
start() {
    : >"$TMP/served"
    timeout 120 "${RUN[@]}" "$TMP/server" -p 0 "$@" >"$TMP/served" 2>"$TMP/complaints" &
    SERVER_PID=$!
    await_port
}

# Waits for the server; its exit status is then in STATUS.
await() {
    STATUS=0
    wait "$SERVER_PID" || STATUS=$?
}

# demand_line FILE LINE
demand_line() {
    grep -qxF -e "$2" "$1" || fail "$WHAT: no line '$2': $(<"$1")"
}

# serve CONNECTIONS STACKS OPTION...: one in ten connections breaks off.
serve() {
    local ct=$1 buffers=$1
    [[ "$*" != *"-b stack"* ]] || buffers=0
    start -n "$ct" -s "${@:2}"
    must "$WHAT: the client fails: $(<"$TMP/complaints")" \
        timeout 120 "${RUN[@]}" "$TMP/client" -c "$ct" -r 3 -e 10 "$PORT"
    await
    ((STATUS == 0)) || fail "$WHAT: the server ends with $STATUS: $(<"$TMP/complaints")"
    demand_line "$TMP/said" "$ct connections are open"
    grep -qE "^$((ct - ct / 10)) ended in order, $((ct / 10)) early; [1-9][0-9]* bytes" \
        "$TMP/said" || fail "$WHAT: not all were served: $(<"$TMP/said")"
    grep -qE "^$ct connections, $((ct / 10)) cancelled; [1-9][0-9]* bytes echoed" \
        "$TMP/served" || fail "$WHAT: not all were served: $(<"$TMP/served")"
    demand_line "$TMP/served" "$buffers buffers allocated, $buffers freed"
    echo "$WHAT: $ct connections"
    echo "  server: $(tail -n 1 "$TMP/served")"
    echo "  client: $(tail -n 1 "$TMP/said")"
}

# How many connections may be open, up to $1.
connections() {
    local hard
    hard=$(ulimit -Hn)
    if [[ $hard != unlimited ]] && ((hard < $1 + OTHER_FILES)); then
        echo "$(((hard - OTHER_FILES) / 10 * 10))"
    else
        echo "$1"
    fi
}

many=$(connections "$MANY")
((many == MANY)) || echo "$MANY connections: not tested, ulimit -Hn is $(ulimit -Hn); $many instead"
build "$CC" -m64
for stacks in standalone pool share; do
    WHAT="-s $stacks"
    serve "$many" "$stacks"
done
for arguments in "share -t 2" "standalone -b stack" "pool -b stack -t 3"; do
    WHAT="-s $arguments"
    read -r -a words <<<"$arguments"
    serve "$FEW" "${words[@]}"
done

# With several threads, each gets its share.
WHAT="-t 2"
serve "$FEW" share -t 2 >/dev/null
grep -qx 'thread 0: [1-9][0-9]* connections' "$TMP/served" || fail "nothing for thread 0"
grep -qx 'thread 1: [1-9][0-9]* connections' "$TMP/served" || fail "nothing for thread 1"

# The pitfall: the first client that has the server wait is the end of it.
: >"$TMP/served"
(await_port && exec timeout 120 "$TMP/client" -c 1 "$PORT") >/dev/null 2>&1 &
run_to_death timeout 20 "$TMP/server" -p 0 -s share -b stack >"$TMP/served"
wait $! || true
((STATUS == 134)) || fail "a buffer on a share stack: the server ends with $STATUS"
grep -q 'the buffer is on a share stack, .*: take it from the heap' "$TMP/said" ||
    fail "a buffer on a share stack: not in words: $(<"$TMP/said")"
echo "a buffer on a share stack: $(<"$TMP/said")"

# A server that is told to end cancels who is connected.
start -s share
"$TMP/client" -c 10 -r 1000000 "$PORT" >"$TMP/interrupted" 2>&1 &
client=$!
until [[ -s "$TMP/interrupted" ]]; do
    sleep 0.05
done
kill -TERM "$SERVER_PID" # timeout passes it on
await
wait "$client" && fail "the client was served to the end"
((STATUS == 0)) || fail "told to end: the server ends with $STATUS: $(<"$TMP/complaints")"
WHAT="told to end"
demand_line "$TMP/served" "10 buffers allocated, 10 freed"
grep -q '^10 connections, 10 cancelled' "$TMP/served" || fail "not cancelled: $(<"$TMP/served")"
echo "told to end: all are cancelled"

# check COMPILER WIDTH
check() {
    local stacks
    WHAT=${PROCESSOR:-$1 $2}
    build "$1" "$2"
    for stacks in standalone pool share; do
        serve "$FEW" "$stacks" >/dev/null
    done
    echo "$WHAT: all kinds of stacks"
}

find_compilers gcc clang
for compiler in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        check "$compiler" "$width"
    done
done
on_each_foreign check
for sanitizer in address thread; do
    WHAT="$CC -fsanitize=$sanitizer"
    if can_run "$CC" "-fsanitize=$sanitizer"; then
        build "$CC" -m64 "-fsanitize=$sanitizer" -g
        serve 100 share -t 2 >/dev/null
        serve 100 pool -t 2 >/dev/null
        echo "$WHAT: clean"
    else
        echo "$WHAT: does not run, not tested"
    fi
done
