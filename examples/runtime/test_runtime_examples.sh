#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The examples of the runtime do as they say: the servers serve 10,000 connections with every byte
# verified, on stacks of each kind and on several threads; the proxy, the chat, the web servers and
# the downloads pass on what they get, and report failures. Servers keep their limits, and end
# gracefully.
#
# parts: native others sanitized
# seconds: 30 25 30
# user: native

# shellcheck source=tests/harness.sh
. tests/harness.sh

FOLDER=examples/runtime
[[ -f $FOLDER/proxy.c ]] || skip "there is no $FOLDER"

readonly MANY=10000 OTHER_FILES=100
SERVERS=() LIMITED=()
trap 'kill "${SERVERS[@]}" 2>/dev/null || true; rm -rf "$TMP"' EXIT

# build COMPILER OPTION...: the runtime, each example as $TMP/NAME, and two that are faulty.
build() {
    local source command
    WHAT=$*
    use_library aco_runtime "$@"
    command=("$@" -std=gnu99 -g "${C_WARNINGS[@]}" "${INCLUDE[@]}" "-I$FOLDER" -pthread)
    sed 's/aco_write_all(fd, buffer,/++buffer[sz - 1] \&\& &/' "$FOLDER/echo_server.c" \
        >"$TMP/faulty_echo_server.c"
    sed '/200 OK.*st_size/s/);/ + 1);/' "$FOLDER/web.c" >"$TMP/faulty_web.c"
    for source in "$FOLDER"/*.c "$TMP"/faulty_*.c; do
        must "$WHAT: $source does not build" "${command[@]}" "$source" "${OBJECTS[@]}" \
            -o "$TMP/$(basename "$source" .c)"
    done
}

# start PROGRAM ARGUMENT...: starts a server, and returns when it listens; ADDRESS among the
# arguments stands for its address, which is then in ADDRESS. Its output is in $TMP/PROGRAM.said.
start() {
    local server port arguments=("${@:2}")
    for _ in {1..20}; do
        port=$((10000 + RANDOM % 20000))
        ADDRESS=127.0.0.1:$port
        "${LIMITED[@]}" "$TMP/$1" "${arguments[@]/#ADDRESS/$ADDRESS}" >"$TMP/$1.said" 2>&1 &
        server=$!
        while kill -0 "$server" 2>/dev/null; do
            if (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
                SERVERS+=("$server")
                return
            fi
            sleep 0.02
        done
        grep -q 'Address already in use' "$TMP/$1.said" || break
    done
    fail "$WHAT: $1 does not listen: $(<"$TMP/$1.said")"
}

# stop PROGRAM...: ends the servers that were started; these must not have said anything.
stop() {
    local name
    kill "${SERVERS[@]}"
    wait "${SERVERS[@]}" 2>/dev/null || true
    SERVERS=() LIMITED=()
    for name; do
        [[ ! -s $TMP/$name.said ]] || fail "$WHAT: $name says: $(head -n 40 "$TMP/$name.said")"
    done
}

# demand FILE PATTERN: a line of the file matches.
demand() {
    grep -qE -e "$2" "$1" || fail "$WHAT: no line is '$2': $(head -n 40 "$1")"
}

# connect NUMBER: a connection to the server, as this descriptor.
connect() {
    eval "exec $1<>/dev/tcp/${ADDRESS/://}"
}

# ==== Echo and proxy ==============================================================================

# Descriptors that the server has which was started last.
descriptors() {
    find "/proc/${SERVERS[-1]}/fd" -mindepth 1 | wc -l
}

# The same when all its threads listen, and it has closed what start() has opened.
descriptors_at_rest() {
    local before='' ct
    ct=$(descriptors)
    while [[ $ct != "$before" ]]; do
        before=$ct
        sleep 0.1
        ct=$(descriptors)
    done
    echo "$ct"
}

# await_descriptors COUNT: the server closes all others.
await_descriptors() {
    for _ in {1..200}; do
        (($(descriptors) > $1)) || return 0
        sleep 0.02
    done
    fail "$WHAT: $(descriptors) descriptors are open, $1 were"
}

# echo_to CONNECTIONS: one in ten breaks off; the server closes them all.
echo_to() {
    local before
    before=$(descriptors_at_rest)
    must "$WHAT: the client fails" timeout 100 "$TMP/echo_client" -c "$1" -r 3 -e 10 "$ADDRESS"
    demand "$TMP/said" "^$1 connections are open$"
    demand "$TMP/said" '^[1-9][0-9]* bytes came back right$'
    await_descriptors "$before"
}

check_echo() {
    local kind thread ns ct_busy=0
    for kind in pool own share; do
        start echo_server -s "$kind" ADDRESS
        echo_to "$1"
        stop echo_server
    done
    start echo_server -s share -t 2 ADDRESS
    echo_to "$1"
    for thread in "/proc/${SERVERS[-1]}"/task/*; do
        read -r ns _ <"$thread/schedstat"
        ct_busy=$((ct_busy + (ns > 1000 * $1)))
    done
    ((ct_busy >= 2)) || fail "$WHAT: one thread did the work of two"
    stop echo_server
    start faulty_echo_server ADDRESS
    must_not "$WHAT: an answer that is wrong" 'a wrong answer in round 0' \
        timeout 20 "$TMP/echo_client" -c 10 "$ADDRESS"
    stop faulty_echo_server
}

# A server that is short of descriptors says so, and goes on when clients have left.
check_shortage() {
    LIMITED=(bash -c 'ulimit -Sn 40 && exec "$@"' bash)
    start echo_server ADDRESS
    LIMITED=()
    if timeout 2 "$TMP/echo_client" -c 100 "$ADDRESS" >"$TMP/said" 2>&1; then
        fail "$WHAT: 100 clients of a server that may open 40 files"
    fi
    must "$WHAT: the server does not recover" timeout 20 "$TMP/echo_client" -c 20 "$ADDRESS"
    demand "$TMP/echo_server.said" 'a client has to wait: Too many open files'
    stop
}

check_proxy() {
    local target
    start echo_server ADDRESS
    target=$ADDRESS
    start proxy ADDRESS "$target"
    echo_to "$1"
    stop echo_server proxy
    start proxy ADDRESS "$target" # which nobody listens at any more
    connect 3
    timeout 10 cat <&3 || fail "$WHAT: a client of a proxy without a target is kept"
    exec 3>&-
    demand "$TMP/proxy.said" ': Connection refused$'
    stop
}

# A direction that ends does not end the other one; a silent one does not, either, while bytes pass.
check_half_closed() {
    have python3 || { echo "half-closed connections: no python3, not tested"; return; }
    cat >"$TMP/half_closed.py" <<'END'
import socket
import sys
import time

server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
host, port = input().split(":")
client = socket.create_connection((host, int(port)), 10)
client.sendall(b"question")
client.shutdown(socket.SHUT_WR)
question = b""
while question == b"":  # from the client that looked whether the proxy listens
    accepted, _ = server.accept()
    question = accepted.makefile("rb").read()
if question != b"question":
    sys.exit("the target gets something else")
for _ in range(4):  # longer than the proxy lets both be silent
    time.sleep(0.5)
    accepted.sendall(b"answer")
    if client.recv(6, socket.MSG_WAITALL) != b"answer":
        sys.exit("the client gets something else")
if client.recv(1) != b"" or accepted.fileno() < 0:
    sys.exit("silence does not end the connection")
END
    local port pid
    coproc { timeout 30 python3 "$TMP/half_closed.py" 2>"$TMP/said"; }
    pid=$COPROC_PID
    read -r port <&"${COPROC[0]}"
    start proxy -i 1 ADDRESS "127.0.0.1:$port"
    echo "$ADDRESS" >&"${COPROC[1]}"
    wait "$pid" || fail "$WHAT: half-closed connections: $(<"$TMP/said")"
    stop proxy
}

# ends STATUS: the server that was started last ends so.
ends() {
    local status=0
    timeout 20 tail --pid="${SERVERS[-1]}" -f /dev/null || fail "$WHAT: the server does not end"
    wait "${SERVERS[-1]}" || status=$?
    ((status == $1)) || fail "$WHAT: the server ends with $status"
    unset 'SERVERS[-1]'
}

# echoes DESCRIPTOR TEXT: what is sent comes back.
echoes() {
    local line=
    echo "$2" >&"$1"
    read -r -t 10 -u "$1" line || true
    [[ $line == "$2" ]] || fail "$WHAT: '$line' comes back instead of '$2'"
}

# After SIGTERM, a server listens no more, and its clients go on, for a while.
check_end() {
    local server=$1 options=("${@:2}")
    start "$server" -e 10 "${options[@]}"
    connect 3
    echoes 3 before
    kill "${SERVERS[-1]}"
    for _ in {1..200}; do
        (: <>"/dev/tcp/${ADDRESS/://}") 2>/dev/null || break
        sleep 0.02
    done
    must_not "$WHAT: $server still listens" refused bash -c ": <>/dev/tcp/${ADDRESS/://}"
    echoes 3 after
    exec 3>&-
    ends 0
    [[ ! -s $TMP/$server.said ]] || fail "$WHAT: $server says: $(<"$TMP/$server.said")"
    start "$server" -e 0.1 "${options[@]}"
    connect 3
    echoes 3 before
    kill -INT "${SERVERS[-1]}"
    timeout 10 cat <&3 || fail "$WHAT: a client of $server that stays is not cut off"
    ends 0
    demand "$TMP/$server.said" 'clients were cut off'
    start "$server" -e 100 "${options[@]}"
    connect 3
    echoes 3 before
    kill "${SERVERS[-1]}"
    sleep 0.2
    kill "${SERVERS[-1]}" # has no patience
    ends 143
    exec 3>&-
}

check_ends() {
    local target
    check_end echo_server ADDRESS
    check_end echo_server -t 2 -s share ADDRESS
    start echo_server ADDRESS
    target=$ADDRESS
    check_end proxy ADDRESS "$target"
    stop
    start echo_server -i 0.2 ADDRESS
    connect 3
    echoes 3 hello
    timeout 10 cat <&3 || fail "$WHAT: a silent client is kept"
    exec 3>&-
    stop echo_server
}

# ==== Chat ========================================================================================

# hears DESCRIPTOR LINE
hears() {
    local line=
    read -r -t 10 -u "$1" line || true
    [[ $line == "$2" ]] || fail "$WHAT: a chat client hears '$line' instead of '$2'"
}

check_chat() {
    local before
    start chat ADDRESS
    before=$(descriptors_at_rest)
    connect 3
    printf 'ann\n' >&3
    connect 4
    printf 'bob\nhello\n' >&4
    hears 3 'bob joins'
    hears 3 'bob: hello'
    printf 'good ' >&3
    printf 'morning\r\n' >&3
    hears 4 'ann: good morning'
    printf '%300s\n' 'too long' >&4
    hears 3 'bob leaves'
    connect 4
    exec 4>&-
    connect 4
    printf 'bob\n' >&4
    hears 3 'bob joins'
    exec 3>&- 4>&-
    await_descriptors "$before"
    connect 3
    printf 'ann\n' >&3
    kill "${SERVERS[-1]}"
    timeout 10 cat <&3 || fail "$WHAT: the chat does not end"
    exec 3>&-
    ends 0
    [[ ! -s $TMP/chat.said ]] || fail "$WHAT: chat says: $(<"$TMP/chat.said")"
}

# A client that reads nothing delays no other, and learns what it has missed.
check_slow_client() {
    local reader writer i
    start chat ADDRESS
    connect 3
    printf 'ann\n' >&3
    connect 4
    printf 'bob\n' >&4
    hears 3 'bob joins'
    connect 5
    printf 'eve\n' >&5
    hears 3 'eve joins'
    hears 4 'eve joins' # closing with bytes unread would drop what was sent
    for ((i = 0; i < 60000; i++)); do
        printf '%0190d\n' "$i"
    done >&4 &
    writer=$!
    exec 4>&-
    timeout 60 sed '/^bob leaves$/q' <&5 >"$TMP/heard" || fail "$WHAT: a slow client is waited for"
    demand "$TMP/heard" '^bob leaves$'
    wait "$writer"
    exec 5>&-
    timeout 60 cat <&3 >"$TMP/heard" &
    reader=$!
    for _ in {1..500}; do
        ! grep -q '^eve leaves' "$TMP/heard" || break
        sleep 0.02
    done
    exec 3>&-
    kill "$reader"
    wait "$reader" 2>/dev/null || true
    demand "$TMP/heard" '^[1-9][0-9]* lines are missing$'
    i=$(awk '/ lines are missing$/ { ct += $1 - 1 } END { print NR + ct }' "$TMP/heard")
    ((i == 60002)) || fail "$WHAT: $i lines were heard, or counted, instead of 60002"
    stop chat
}

# ==== Web and downloads ===========================================================================

# request TEXT: the answer is then in $TMP/answer. It may come before all of the text was sent.
request() {
    connect 3
    # shellcheck disable=SC2059 # it has escapes
    printf "$1" | cat >&3 2>/dev/null || true
    timeout 10 cat <&3 >"$TMP/answer" || fail "$WHAT: no end of the answer to $1"
    exec 3>&-
}

make_site() {
    local i
    mkdir -p "$TMP/site/folder" "$TMP/got"
    echo secret >"$TMP/secret"
    echo '<p>home</p>' >"$TMP/site/index.html"
    for ((i = 0; i < 20; i++)); do
        head -c $((i * i * i * 1000)) /dev/urandom >"$TMP/site/file$i"
    done
}

# Of $TMP/answer: what Prometheus reads, by its own parser.
check_metrics() {
    demand "$TMP/answer" '^Content-Type: text/plain; version=0.0.4'
    demand "$TMP/answer" '^aco_tasks_waiting\{for="input"\} [1-9]'
    demand "$TMP/answer" '^aco_wake_seconds_count [1-9]'
    if /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null; then
        sed '1,/^\r$/d' "$TMP/answer" | /usr/bin/python3 -c '
import sys
from prometheus_client.parser import text_fd_to_metric_families
types = {family.name: family.type for family in text_fd_to_metric_families(sys.stdin)}
assert types["aco_turn_seconds"] == "histogram" and types["aco_wakes"] == "counter", types' ||
            fail "$WHAT: Prometheus can not read $(<"$TMP/answer")"
    else
        echo "/metrics: no python3-prometheus-client, not parsed"
    fi
}

check_web() {
    start web -d "$TMP/site" -t 1 ADDRESS
    request 'GET / HTTP/1.0\r\n\r\n'
    demand "$TMP/answer" '^HTTP/1.0 200 OK'
    demand "$TMP/answer" '^Content-Type: text/html'
    [[ $(tail -n 1 "$TMP/answer") == '<p>home</p>' ]] || fail "$WHAT: $(<"$TMP/answer")"
    request 'GET /../secret HTTP/1.0\r\n\r\n'
    demand "$TMP/answer" '^HTTP/1.0 404 '
    request 'GET /folder HTTP/1.0\r\n\r\n'
    demand "$TMP/answer" '^HTTP/1.0 404 '
    request 'POST / HTTP/1.0\r\n\r\n'
    demand "$TMP/answer" '^HTTP/1.0 405 '
    request 'nonsense\r\n\r\n'
    demand "$TMP/answer" '^HTTP/1.0 400 '
    connect 4 # one that is in no hurry
    request 'GET /tasks HTTP/1.0\r\n\r\n'
    demand "$TMP/answer" '^Content-Type: text/html'
    demand "$TMP/answer" '^<h1>[3-9] tasks</h1>'
    demand "$TMP/answer" '^<p>[1-9][0-9]* started, [1-9][0-9]* switches</p>'
    demand "$TMP/answer" '^task [0-9]+ "client": waits for input of descriptor [0-9]+ '
    demand "$TMP/answer" '^task [0-9]+ "client": running, deadline in [01]\.[0-9]+ s'
    request 'GET /metrics HTTP/1.0\r\n\r\n'
    check_metrics
    timeout 5 cat <&4 || fail "$WHAT: a slow client is waited for"
    exec 4>&-
    stop web
}

# complains PATTERN ARGUMENT...: the download fails, and says why.
complains() {
    must_not "$WHAT: download ${*:2}" "$1" timeout 20 env -C "$TMP/got" "$TMP/download" "${@:2}"
}

# All files of the site come as they are from the server that was started.
download_all() {
    local i urls=()
    for ((i = 0; i < 20; i++)); do
        urls+=("http://$ADDRESS/file$i")
    done
    rm -f "$TMP"/got/*
    must "$WHAT: the downloads fail" timeout 60 env -C "$TMP/got" "$TMP/download" -c 3 "${urls[@]}"
    for ((i = 0; i < 20; i++)); do
        cmp "$TMP/site/file$i" "$TMP/got/file$i" || fail "$WHAT: file$i is not as it was"
    done
    tr '\r' '\n' <"$TMP/said" >"$TMP/progress"
    demand "$TMP/progress" '^\[ {40}\] 0 of 20 files, 0.0 MB $'
    demand "$TMP/progress" '^\[#{40}\] 20 of 20 files, 36.1 MB $'
}

check_download() {
    start web -d "$TMP/site" ADDRESS
    download_all
    complains 'does not answer with 200' "http://$ADDRESS/nothing" "http://$ADDRESS/file1"
    complains 'it names no file' "http://$ADDRESS/"
    complains 'it is not http' "ftp://$ADDRESS/file"
    complains 'Servname not supported' "http://127.0.0.1:no-such-service/file"
    stop web
    complains 'Connection refused' "http://$ADDRESS/file1"
    start faulty_web -d "$TMP/site" ADDRESS
    complains 'it ends too early' "http://$ADDRESS/file1"
    stop
    start chat ADDRESS # which does not answer
    complains 'Connection timed out' -t 0.2 "http://$ADDRESS/file1"
    stop
}

# Another server than ours.
check_foreign_server() {
    have python3 || { echo "downloads from another server: no python3, not tested"; return; }
    cat >"$TMP/python" <<'END'
#!/usr/bin/env bash
exec python3 -m http.server "${1#*:}" --bind "${1%:*}" --directory "$2"
END
    chmod +x "$TMP/python"
    start python ADDRESS "$TMP/site"
    download_all
    stop
}

# ==== HTTP/1.1 ====================================================================================

# answers STATUSES TEXT: the text, with escapes, is answered by these, and then the connection ends.
answers() {
    local statuses
    request "$2"
    statuses=$(sed -nE 's,^HTTP/1\.1 ([0-9]+) .*\r$,\1,p' "$TMP/answer" | xargs)
    [[ $statuses == "$1" ]] || fail "$WHAT: '${statuses}' instead of '$1' for ${2:0:300}"
}

# answers_to_fields STATUS FIELDS [REST]: those of a request with a body.
answers_to_fields() {
    answers "$1" "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n$2\r\n\r\n${3:-}"
}

check_requests() {
    local get='GET / HTTP/1.1\r\nHost: a\r\n' last='Connection: close\r\n\r\n' many
    many=$(printf '%09000d' 0)
    answers '200 200 404' "$get\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n${get/\/ /\/x }$last"
    [[ $(grep -c '^hello' "$TMP/answer") == 1 ]] || fail "$WHAT: HEAD is answered with a body"
    answers '200 405' "\r\n$get\r\nGET /echo HTTP/1.1\r\nHost: a\r\n$last"
    demand "$TMP/answer" '^Allow: POST'
    answers '405' "POST / HTTP/1.1\r\nHost: a\r\n$last"
    answers '200' "GET http://a/?b HTTP/1.1\r\nHost: a\r\nConnection: x, ClOsE\r\n\r\n$get\r\n"
    answers '200' "GET / HTTP/1.0\r\n\r\n$get\r\n"
    answers '200 200' "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n\r\n"
    answers '200 400' "$get\r\n/\r\n\r\n$get\r\n" # after which nothing is answered
    for text in '\0\r\n' 'GET /\r\n' 'GET  / HTTP/1.1\r\n' 'GET / http/1.1\r\n' \
        'GET / HTTP/11\r\n' 'GET / HTTP/1.10\r\n' \
        'GET x HTTP/1.1\r\n' 'GET /\t HTTP/1.1\r\n' 'GET / HTTP/1.1\n' \
        'GET / HTTP/1.1\r\r\n' "${get/Host/Hosts}\r\n" "${get}Host: b\r\n\r\n" "${get}a : b\r\n" \
        "$get folded\r\n" "${get}a\r\n" "${get}: a\r\n" "${get}a: \001\r\n" "${get}a: \0\r\n" \
        "${get}a: b\n" "${get}a: b\rc\r\n" 'GET /\177 HTTP/1.1\r\n' 'G@T / HTTP/1.1\r\n'; do
        answers '400' "$text"
    done
    answers '414' "GET /${many:0:2000} HTTP/1.1\r\n"
    answers '431' "GET /$many"
    answers '431' "${get}a: $many"
    answers '431' "$get$(printf 'a: b\\r\\n%.0s' {1..1500})"
    answers '501' 'PUT / HTTP/1.1\r\n'
    answers '501' 'TRANSMOGRIFY / HTTP/1.1\r\n'
    answers '505' 'GET / HTTP/2.0\r\n'
}

check_slow_requests() {
    local get='GET / HTTP/1.1\r\nHost: a\r\n' post='POST /echo HTTP/1.1\r\nHost: a\r\n'
    answers '' ''
    answers '200' "$get\r\n" # and then it is idle
    answers '408' 'GET / HTTP/1.1\r\nHo'
    answers '200 408' "$get\r\n${post}Content-Length: 3\r\n\r\nab"
    answers '408' "${post}Transfer-Encoding: chunked\r\n\r\n1\r\na"
}

check_bodies() {
    local chunked='Transfer-Encoding: chunked' length='Content-Length: 3' i
    answers_to_fields '200' "$length" 'abc'
    demand "$TMP/answer" '^abc$'
    answers_to_fields '200' 'Content-Length:  000  '
    answers_to_fields '200' "$chunked" '2;x="y"\r\nab\r\n00a\r\ncdefghijkl\r\n0\r\nx: y\r\n\r\n'
    demand "$TMP/answer" '^abcdefghijkl$'
    answers_to_fields '100 200' "$length\r\nExpect: 100-Continue" 'abc'
    answers_to_fields '200' 'Expect: 100-continue'
    answers_to_fields '417' "$length\r\nExpect: miracles"
    for i in '-1' '+1' '0x1' '1x' '1,1' '' '1 1'; do
        answers_to_fields '400' "Content-Length: $i" 'a'
    done
    answers_to_fields '400' "$length\r\n$length" 'abc'
    answers_to_fields '400' "$length\r\n$chunked" '0\r\n\r\n'
    answers_to_fields '400' "$chunked\r\n$chunked" '0\r\n\r\n'
    answers_to_fields '501' 'Transfer-Encoding: gzip, chunked' '0\r\n\r\n'
    answers '400' "POST /echo HTTP/1.0\r\n$chunked\r\n\r\n0\r\n\r\n"
    for i in '\r\n' 'x\r\n' '-1\r\n' '0x1\r\na\r\n0\r\n\r\n' '1\na' '1\r\nab\r\n0\r\n\r\n' \
        '1\r\na\n' "1;$(printf '%0400d' 0)"; do
        answers_to_fields '400' "$chunked" "$i"
    done
    answers_to_fields '431' "$chunked" "0\r\na: $(printf '%09000d' 0)"
    answers_to_fields '413' 'Content-Length: 2001' 'abc'
    answers_to_fields '413' 'Content-Length: 99999999999999999999999999'
    answers_to_fields '413' "$chunked" '7D1\r\n'
    answers_to_fields '413' "$chunked" 'fffffffffffffffffffffff\r\n'
    answers_to_fields '413' "$chunked" "7D0\r\n$(printf '%02000d' 0)\r\n1\r\n"
    answers_to_fields '200' "$chunked" "7CF\r\n$(printf '%01999d' 0)\r\n1\r\nx\r\n0\r\n\r\n"
}

# check_curl: bodies of a MiB, on a connection that is kept.
check_curl() {
    have curl || { echo "HTTP/1.1: no curl, not tested with it"; return; }
    local url=http://$ADDRESS curl=(curl -sv --max-time 20 -o "$TMP/got/body") option
    must "$WHAT: curl fails" "${curl[@]}" "$url/" -o "$TMP/got/other" "$url/x"
    demand "$TMP/said" '^\* Re-using existing connection'
    demand "$TMP/said" '^< HTTP/1.1 404 Not Found'
    [[ $(<"$TMP/got/body") == hello ]] || fail "$WHAT: curl gets $(<"$TMP/got/body")"
    must "$WHAT: curl fails with HEAD" "${curl[@]}" -I "$url/"
    demand "$TMP/got/body" '^Content-Length: 6'
    head -c 1048576 /dev/urandom >"$TMP/sent"
    for option in 'X: y' 'Expect: 100-continue' 'Transfer-Encoding: chunked'; do
        must "$WHAT: curl sends with $option" "${curl[@]}" -H "$option" --data-binary @"$TMP/sent" \
            "$url/echo"
        cmp "$TMP/sent" "$TMP/got/body" || fail "$WHAT: $option: something else comes back"
    done
    echo more >>"$TMP/sent"
    for option in 'Expect:' 'Expect: 100-continue' 'Transfer-Encoding: chunked'; do
        must "$WHAT: curl is not told why" "${curl[@]}" -H "$option" --data-binary @"$TMP/sent" \
            "$url/echo"
        demand "$TMP/said" '^< HTTP/1.1 413 '
    done
}

# A request that has begun is answered after SIGTERM; a later one is not.
check_http_end() {
    start http_server -i 100 -r 100 ADDRESS
    connect 3
    connect 4
    printf 'GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n' >&4
    timeout 5 grep -m 1 -q '^hello' <&4 || fail "$WHAT: no answer"
    kill "${SERVERS[-1]}"
    timeout 10 cat <&3 || fail "$WHAT: an idle connection is kept"
    printf 'Host: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n' | cat >&4 2>/dev/null || true
    timeout 10 cat <&4 >"$TMP/answer" || fail "$WHAT: no end after a request that had begun"
    exec 3>&- 4>&-
    [[ $(grep -c '^HTTP/1.1 200 ' "$TMP/answer") == 1 ]] || fail "$WHAT: $(<"$TMP/answer")"
    demand "$TMP/answer" '^Connection: close'
    ends 0
}

check_http() {
    start http_server -b 2000 ADDRESS
    check_requests
    check_bodies
    stop http_server
    start http_server -i 0.7 -r 0.7 ADDRESS
    check_slow_requests
    stop http_server
    start http_server ADDRESS
    check_curl
    stop http_server
    start http_server -c 2 ADDRESS
    connect 3
    connect 4
    connect 5
    printf 'GET / HTTP/1.0\r\n\r\n' >&5
    ! read -r -t 0.3 -u 5 || fail "$WHAT: three connections at a time instead of two"
    exec 3>&-
    read -r -t 10 -u 5 || fail "$WHAT: a connection that waited is not served"
    exec 4>&- 5>&-
    stop http_server
    check_http_end
}

# ==== The others ==================================================================================

# The lines that an example promises.
expected() {
    awk '/prints:$/ { inside = 1; next } /^ \*\// { exit } inside && sub(/^ \*     /, "")' "$1"
}

check_outputs() {
    local name
    for name in workers two_threads; do
        must "$WHAT: $name fails" timeout 60 "$TMP/$name"
        diff <(expected "$FOLDER/$name.c") "$TMP/said" || fail "$WHAT: $name prints something else"
    done
    printf '300 tea\n100 egg\n200 toast\n' | must "$WHAT: embed fails" timeout 60 "$TMP/embed"
    diff <(printf 'egg\ntoast\ntea\n') "$TMP/said" || fail "$WHAT: embed prints something else"
    printf '500 egg\n0 tea\n' >"$TMP/commands"
    must "$WHAT: embed fails with a file" timeout 60 "$TMP/embed" <"$TMP/commands"
    diff <(printf 'tea\negg\n') "$TMP/said" || fail "$WHAT: embed prints something else of a file"
}

# -h prints the usage; wrong arguments print it, too, and fail.
check_usage() {
    local source name
    for source in "$FOLDER"/*.c; do
        name=$(basename "$source" .c)
        must "$name -h fails" "$TMP/$name" -h
        demand "$TMP/said" "^usage: ($name )?"
        must_not "$name takes what it does not know" '^usage: ' "$TMP/$name" -x -x -x
    done
}

# check CONNECTIONS COMPILER OPTION...
check() {
    build "${@:2}"
    check_echo "$1"
    check_proxy "$(($1 / 10))"
    check_half_closed
    check_ends
    check_chat
    check_slow_client
    check_web
    check_http
    check_download
    check_outputs
    echo "$WHAT"
}

ulimit -Sn "$(ulimit -Hn)"
make_site
read -ra compiler <<<"$CC"

check_native() {
    local many=$MANY
    if (($(ulimit -n) < MANY + OTHER_FILES)); then
        many=$((($(ulimit -n) - OTHER_FILES) / 10 * 10))
        echo "$MANY connections: not tested, ulimit -Hn is $(ulimit -Hn); $many instead"
    fi
    check "$many" "${compiler[@]}" -O2
    check_shortage
    check_foreign_server
    check_usage
    check 500 "${compiler[@]}" -O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
}

check_others() {
    local command words
    for command in "clang -O2" "$CC -m32 -O2"; do
        read -ra words <<<"$command"
        if can_build "${words[@]}"; then
            check 500 "${words[@]}"
        else
            echo "$command: not available, not tested"
        fi
    done
}

check_sanitized() {
    local sanitizer
    for sanitizer in "address,undefined -fno-sanitize-recover=all" thread; do
        if can_run "${compiler[@]}" "-fsanitize=${sanitizer%% *}"; then
            # shellcheck disable=SC2086 # these are several words
            check 100 "${compiler[@]}" -O1 -fsanitize=$sanitizer
        else
            echo "-fsanitize=$sanitizer: does not run, not tested"
        fi
    done
}

(($# == 0)) && set -- native others sanitized
for part; do
    "check_$part"
done
