#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Threads of programs that know nothing of aco are tasks, and the programs do what they do with
# threads of the kernel: own: programs of this folder; languages: those in C++20 and Rust, and with
# GLib; servers: those of the distribution, with load; python: CPython's own tests.
#
# parts: own languages servers python
# seconds: 10 40 25 40
# user: own
# shellcheck source=tests/harness.sh
. tests/harness.sh

# shellcheck source=pthreads/tests/tasks.sh
. pthreads/tests/tasks.sh
[[ ${1:-own} == own || $1 == languages || " $OPTIONS " != *" no-servers "* ]] ||
    skip "servers are left out (-o no-servers)"

read -ra COMPILER <<<"$CC"
readonly FOLDER=pthreads/tests

# ---- Own programs ------------------------------------------------------------------------------

build() {
    must "$FOLDER/$1 does not build" "${COMPILER[@]}" -std=gnu11 -g "${C_WARNINGS[@]}" \
        "${@:2}" "$FOLDER/$1" -o "$TMP/${1%.*}" -pthread -lm
}

# refuses STATUS WORDS ARGUMENT...: aco-run ends with the status, and with one line that has the
# words.
refuses() {
    local status=0
    pthreads/aco-run "${@:3}" 2>"$TMP/said" || status=$?
    ((status == $1)) || fail "aco-run ${*:3}: it ends with $status, not with $1"
    [[ $(wc -l <"$TMP/said") == 1 && $(<"$TMP/said") == "aco-run: "*"$2"* ]] ||
        fail "aco-run ${*:3}: $(<"$TMP/said")"
}

test_refusals() {
    local option
    for option in --unknown --threads --threads= --threads=0 --threads=two --stack=1M --real= \
        --share-tls= --list-on= --list-on=SIGNONE --list-on=99 --report=yes; do
        refuses 2 "$option: " "$option" true
    done
    refuses 2 "there is no program to run"
    refuses 2 "there is no program to run" --report --
    refuses 127 "aco-no-such-program: there is no such program" aco-no-such-program
    refuses 127 "/no/such: there is no such program" -- /no/such
    refuses 126 "$TMP: it can't be executed" "$TMP"
    touch "$TMP/text"
    refuses 126 "$TMP/text: it can't be executed" "$TMP/text"
    must "aco-run true fails" pthreads/aco-run true
    ! pthreads/aco-run -- false || fail "aco-run false succeeds"
}

# lists SIGNAL: aco-run --list-on=SIGNAL lists a thread when SIGQUIT comes.
lists() {
    local server
    pthreads/aco-run --list-on="$1" "$TMP/listed" >"$TMP/waits" 2>"$TMP/list" &
    server=$!
    for _ in {1..600}; do
        ! grep -q . "$TMP/waits" || kill -QUIT "$server" || break
        ! grep -q '^task .*"listed": ' "$TMP/list" || break
        sleep 0.05
    done
    { kill -KILL "$server" && wait "$server"; } 2>/dev/null || true
    grep -q '^task .*"listed": ' "$TMP/list" || fail "--list-on=$1: $(<"$TMP/list")"
}

test_options() {
    local ct
    test_refusals
    build listed.c
    lists SIGQUIT
    lists QUIT
    lists 3
    ct=$(pthreads/aco-run --threads=3 --report "$TMP/threads" 500 tells 2>"$TMP/report" |
        sed -n 's/ threads of the kernel$//p')
    ((ct == 4)) || fail "500 threads on three loops: $ct threads of the kernel"
    grep -Eq '^aco-run: [0-9]+ threads, 500 at a time' "$TMP/report" ||
        fail "--report: $(<"$TMP/report")"
    ct=$(pthreads/aco-run --real=threads "$TMP/threads" 50 tells |
        sed -n 's/ threads of the kernel$//p')
    ((ct == 51)) || fail "--real: 50 threads are $ct threads of the kernel"
}

# The watchdog, the trace, the profile and gdb name a thread as it names itself, or by its function.
test_observation() {
    local server
    build observed.c
    ACO_WATCHDOG=50ms ACO_TRACE=$TMP/trace ACO_PROFILE=$TMP/profile pthreads/aco-run \
        "$TMP/observed" >"$TMP/said" 2>"$TMP/watchdog" ||
        fail "observed.c fails: $(<"$TMP/watchdog")"
    grep -q '^aco: watchdog: task .* "worker" has kept its thread' "$TMP/watchdog" ||
        fail "the watchdog says: $(<"$TMP/watchdog")"
    grep -q '"name":"worker".*"then":"ends"' "$TMP/trace" || fail "the trace has no worker"
    grep -q '^worker;.*;works;compute [0-9]' "$TMP/profile" ||
        fail "the profile says: $(head -n 20 "$TMP/profile")"
    have gdb || return 0
    rm -f "$TMP/waits"
    pthreads/aco-run "$TMP/listed" >"$TMP/waits" &
    server=$!
    until [[ -s $TMP/waits ]]; do
        sleep 0.05
    done
    gdb -q -batch -p "$server" -ex "source tools/gdb/aco.py" -ex "info aco tasks" \
        >"$TMP/list" 2>&1 || true
    { kill -KILL "$server" && wait "$server"; } 2>/dev/null || true
    grep -q ' waiting  listed .* pause at ' "$TMP/list" || fail "gdb says: $(<"$TMP/list")"
}

# Names of libc that libaco_pthreads.so need not replace. They don't wait, and read no pthread_t:
# they set attributes, make objects or compare; pthread_yield() of old programs calls the kernel.
readonly OF_LIBC="pthread_(attr|mutexattr|rwlockattr|condattr|barrierattr)_.*
pthread_getattr_default_np
pthread_setattr_default_np|pthread_(cond|rwlock|mutex)_(init|destroy)
pthread_spin_(init|destroy|unlock)
pthread_mutex_consistent(_np)?|pthread_mutex_[gs]etprioceiling|(cnd|mtx|sem)_(init|destroy)
sem_(open|close|unlink|getvalue)|pthread_[gs]etconcurrency|pthread_equal|thrd_equal|pthread_atfork
pthread_yield|pthread_kill_other_threads_np"

test_names() {
    local libc
    libc=$("${COMPILER[@]}" -print-file-name=libc.so.6)
    nm -D --defined-only "$libc" | sed -nE 's/.* [TWi] ([^@]*).*/\1/p' | sort -u |
        grep -E '^(pthread|thrd|tss|cnd|mtx|sem)_|^(tgkill|gettid|call_once|raise)$' |
        grep -vxE "${OF_LIBC//$'\n'/|}" >"$TMP/libc"
    (($(wc -l <"$TMP/libc") > 80)) || fail "$libc has no names of threads"
    nm -D --defined-only "$OUTPUT/libaco_pthreads.so" | sed -nE 's/.* ([^@ ]*)(@.*)?$/\1/p' |
        sort -u >"$TMP/replaced"
    comm -23 "$TMP/libc" "$TMP/replaced" >"$TMP/missing"
    [[ ! -s $TMP/missing ]] || fail "not replaced: $(tr '\n' ' ' <"$TMP/missing")"
}

test_random() {
    local loops
    build random_threads.c -O1
    for loops in 1 2 4; do
        ACO_PTHREADS_LOOPS=$loops both 500 "$TMP/random_threads" "${SEED:-$RANDOM}" \
            "${CT_STEPS:-3000}"
    done
}

# A thread that waits for its thread-local word is told of, once.
test_own_word() {
    build own_word.c
    must "own_word" timeout 60 "$TMP/own_word"
    must "own_word as a task" "${RUN[@]}" 60 "$TMP/own_word"
    [[ $(<"$TMP/said") == "aco-run: thread waiter waits for a futex among "*$'\nall held' &&
        $(wc -l <"$TMP/said") == 2 ]] || fail "own_word: $(<"$TMP/said")"
}

test_own() {
    local options
    test_names
    for options in -O0 "-O2 -fexceptions"; do
        # shellcheck disable=SC2086 # several words
        build endings.c $options -Wno-infinite-recursion
        both 60 "$TMP/endings"
        # shellcheck disable=SC2086
        build process.c $options
        both 60 "$TMP/process"
        ACO_PTHREADS_LOOPS=1 both 60 "$TMP/process"
        # shellcheck disable=SC2086
        build children.c $options
        both 60 "$TMP/children"
        # shellcheck disable=SC2086
        build numbers.c $options
        both 60 "$TMP/numbers"
        # shellcheck disable=SC2086
        build signals.c $options
        both 60 "$TMP/signals"
        ACO_PTHREADS_LOOPS=1 both 60 "$TMP/signals"
        # shellcheck disable=SC2086
        build interrupted.c $options
        both 60 "$TMP/interrupted"
        # shellcheck disable=SC2086
        build busy.c $options -fno-pie -no-pie
        both 120 "$TMP/busy"
        ACO_PTHREADS_LOOPS=1 both 120 "$TMP/busy"
        # shellcheck disable=SC2086
        build points.c $options -Wno-nonnull -Wno-unused-result
        both 60 "$TMP/points"
        # shellcheck disable=SC2086
        build threads.c $options
        both 60 "$TMP/threads" 1000
        ACO_PTHREADS_LOOPS=1 both 60 "$TMP/threads" 1000
    done
    must "plugin.c does not build" "${COMPILER[@]}" -shared -fPIC "$FOLDER/plugin.c" \
        -o "$TMP/plugin.so"
    cp "$TMP/plugin.so" "$TMP/other.so"
    build plugins.c
    both 60 "$TMP/plugins" "$TMP/plugin.so" "$TMP/other.so"
    build openmp.c -fopenmp
    both 60 "$TMP/openmp"
    test_own_word
    test_random
    test_options
    test_observation
    must "100,000 threads" "${RUN[@]}" 120 "$TMP/threads" 100000
    if have "${CXX:-g++}"; then
        must "cxx.cc does not build" "${CXX:-g++}" -std=c++17 -O2 -g "$FOLDER/cxx.cc" \
            -o "$TMP/cxx" -pthread
        both 60 "$TMP/cxx"
    fi
    echo "own programs do the same with tasks"
}

# ---- Languages ---------------------------------------------------------------------------------

# both_with PROGRAM: with as many loops as there are processors, and with one.
both_with() {
    both 60 "$1"
    ACO_PTHREADS_LOOPS=1 both 60 "$1"
}

# With a C++ runtime of its own, too, whose thread-local variables are the program's.
test_cxx20() {
    local compiler options
    for compiler in g++ clang++; do
        for options in -O0 "-O2 -static-libstdc++ -rdynamic"; do
            # shellcheck disable=SC2086 # several words
            must "cxx20.cc does not build" "$compiler" -std=c++20 -g -Wall -Wextra $options \
                "$FOLDER/cxx20.cc" -o "$TMP/cxx20" -pthread
            both_with "$TMP/cxx20"
        done
    done
    echo "C++20 does the same with tasks"
}

test_glib() {
    local flags libs compiler
    read -ra flags <<<"$(pkg-config --cflags glib-2.0)"
    read -ra libs <<<"$(pkg-config --libs glib-2.0)"
    for compiler in gcc clang; do
        must "glib.c does not build" "$compiler" -std=gnu11 -O2 -g -Wall -Wextra "${flags[@]}" \
            "$FOLDER/glib.c" -o "$TMP/glib" "${libs[@]}" -pthread
        both_with "$TMP/glib"
    done
    echo "GLib does the same with tasks"
}

test_rust() {
    local options
    for options in "-C opt-level=0" "-C opt-level=2"; do
        # shellcheck disable=SC2086 # several words
        must "standard.rs does not build" rustc --edition 2021 -g $options -D warnings \
            "$FOLDER/standard.rs" -o "$TMP/standard"
        both_with "$TMP/standard"
    done
    echo "Rust does the same with tasks"
}

test_languages() {
    need g++:g++ clang++:clang rustc:rustc pkg-config:pkg-config
    pkg-config --exists glib-2.0 || lack "there is no GLib: apt-get install libglib2.0-dev"
    test_cxx20
    test_glib
    test_rust
}

# ---- Servers -----------------------------------------------------------------------------------

# start PORT COMMAND...: a server in the background, until it answers.
start() {
    "${@:2}" >"$TMP/$1.said" 2>&1 &
    SERVERS+=($!)
    disown
    for _ in {1..100}; do
        ! (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null || return 0
        sleep 0.05
    done
    fail "$2 does not listen: $(<"$TMP/$1.said")"
}

# fetch CT CURL_OPTION... URL: so many requests at a time get the file.
fetch() {
    local ct=$1 i jobs=()
    shift
    for ((i = 0; i < ct; i++)); do
        curl -sS --max-time 30 "$@" -o "$TMP/got.$i" 2>"$TMP/curl.$i" &
        jobs+=($!)
    done
    wait "${jobs[@]}" || true
    for ((i = 0; i < ct; i++)); do
        cmp "$TMP/file" "$TMP/got.$i" || fail "$*: $(<"$TMP/curl.$i")"
    done
}

free_port() {
    local port
    while port=$((10000 + RANDOM % 20000)) && (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        :
    done
    echo "$port"
}

build_web_servers() {
    local header options
    need pkg-config:pkg-config
    for header in microhttpd.h:libmicrohttpd-dev httplib.h:libcpp-httplib-dev; do
        echo "#include <${header%:*}>" | "${CXX:-g++}" -fsyntax-only -x c++ - 2>/dev/null ||
            lack "no ${header%:*}: apt-get install ${header#*:}"
    done
    build web.c -Wl,--no-as-needed -lmicrohttpd
    read -ra options < <(pkg-config --cflags --libs cpp-httplib)
    must "httplib.cc does not build" "${CXX:-g++}" -std=c++17 -g "${WARNINGS[@]}" \
        "$FOLDER/httplib.cc" -o "$TMP/httplib" -pthread "${options[@]}"
}

# 500 requests by way of stunnel, which the server answers when all of them are there.
meet_by_tls() {
    local i jobs=()
    for i in 1 2; do # a curl has 300 connections at most
        curl -sSkZ --parallel-immediate --parallel-max 250 --max-time 60 -o "$TMP/met.$i.#1" \
            "https://127.0.0.1:$1/together/500?[1-250]" >"$TMP/curl.$i" 2>&1 &
        jobs+=($!)
    done
    wait "${jobs[@]}" || true
    [[ $(cat "$TMP/met".* | grep -cx met) == 500 ]] || fail "500 by TLS: $(cat "$TMP/curl."[12])"
    are_few "$(pgrep -P "${SERVERS[-1]}")"
    are_few "$(pgrep -P "$WEB")"
}

# The server has counted what it was asked for, and ends.
end_web() {
    kill "$WEB"
    for _ in {1..200}; do
        ! kill -0 "$WEB" 2>/dev/null || sleep 0.05
    done
    [[ $(<"$TMP/$1.said") == "550 requests" ]] || fail "web: $(<"$TMP/$1.said")"
}

test_servers() {
    local port proxy origin web many
    need tinyproxy:tinyproxy-bin microsocks:microsocks stunnel4:stunnel4 siege:siege curl:curl \
        openssl:openssl
    build_web_servers
    SERVERS=()
    trap 'kill -KILL -- "${SERVERS[@]/#/-}" 2>/dev/null; rm -rf "$TMP"' EXIT # groups of timeout
    head -c 300000 /dev/urandom >"$TMP/file"
    origin=$(free_port)
    start "$origin" "${RUN[@]}" 100 python3 -m http.server -b 127.0.0.1 -d "$TMP" "$origin"
    fetch 50 "http://127.0.0.1:$origin/file"
    are_few "$(pgrep -P "${SERVERS[-1]}")"

    proxy=$(free_port)
    printf '%s\n' "Port $proxy" "Listen 127.0.0.1" "Timeout 60" "MaxClients 500" \
        "LogLevel Critical" "Allow 127.0.0.1" >"$TMP/tinyproxy.conf"
    start "$proxy" "${RUN[@]}" 100 tinyproxy -d -c "$TMP/tinyproxy.conf"
    fetch 50 -x "127.0.0.1:$proxy" "http://127.0.0.1:$origin/file"
    are_few "$(pgrep -P "${SERVERS[-1]}")"

    port=$(free_port)
    start "$port" "${RUN[@]}" 100 microsocks -i 127.0.0.1 -p "$port"
    fetch 50 --socks5 "127.0.0.1:$port" "http://127.0.0.1:$origin/file"
    are_few "$(pgrep -P "${SERVERS[-1]}")"

    both 60 "$TMP/httplib"
    web=$(free_port)
    start "$web" "${RUN[@]}" 100 "$TMP/web" "$web" "$TMP/file"
    fetch 50 "http://127.0.0.1:$web/file"
    are_few "$(pgrep -P "${SERVERS[-1]}")"
    WEB=${SERVERS[-1]}

    port=$(free_port)
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout "$TMP/key.pem" \
        -out "$TMP/cert.pem" 2>/dev/null
    many=$(free_port)
    printf '%s\n' "foreground = yes" "pid =" "debug = 3" "cert = $TMP/cert.pem" \
        "key = $TMP/key.pem" "[tls]" "accept = 127.0.0.1:$port" "connect = 127.0.0.1:$origin" \
        "[many]" "accept = 127.0.0.1:$many" "connect = 127.0.0.1:$web" >"$TMP/stunnel.conf"
    start "$port" "${RUN[@]}" 100 stunnel4 "$TMP/stunnel.conf"
    fetch 50 -k "https://127.0.0.1:$port/file"
    are_few "$(pgrep -P "${SERVERS[-1]}")"
    meet_by_tls "$many"
    end_web "$web"

    must "siege fails" env HOME="$TMP" "${RUN[@]}" 60 siege -b -c 50 -r 10 -j \
        "http://127.0.0.1:$origin/file"
    grep -q '"successful_transactions":[^0-9]*500,' "$TMP/said" ||
        fail "siege: $(tail -n 20 "$TMP/said")"
    must "siege with a time fails" env HOME="$TMP" "${RUN[@]}" 60 siege -b -c 20 -t 2s -j \
        "http://127.0.0.1:$origin/file"
    echo "servers do the same with tasks"
}

# ---- Python ------------------------------------------------------------------------------------

test_python() {
    local name
    /usr/bin/python3 -c 'import test.test_threading' 2>/dev/null ||
        lack "no tests of CPython: apt-get install libpython3.11-testsuite"
    for name in test_thread test_threading test_threading_local test_queue test_httpservers; do
        must "$name of CPython" "${RUN[@]}" 300 /usr/bin/python3 -m test "$name"
        echo "$name passes"
    done
}

case ${1:-own} in
own | languages | servers | python) "test_${1:-own}" ;;
*) fail "no such part: $1" ;;
esac
