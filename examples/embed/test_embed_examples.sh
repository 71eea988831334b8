#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The examples of foreign main loops do as they say: what comes in by the loop, and its ticks, reach
# all clients, which are tasks; these have timers of their own; and the program ends, with what was
# on its way, at the end of the input and at a signal.

# shellcheck source=tests/harness.sh
. tests/harness.sh

FOLDER=examples/embed
[[ -f $FOLDER/libuv.c && -d runtime ]] || skip "there is no $FOLDER"
need pkg-config:pkg-config

PROGRAM='' PORT='' WHAT='' RUN_BY=() NAMES=()
trap '[[ -z $PROGRAM ]] || kill "$PROGRAM" 2>/dev/null || true; rm -rf "$TMP"' EXIT

# flags NAME OPTION: pkg-config's options for the library that the example names.
flags() {
    pkg-config "$2" "$(sed -n 's,^// libraries: ,,p' "$FOLDER/$1.c")"
}

# build COMPILER OPTION...: the runtime, and of NAMES $TMP/NAME.
build() {
    local name source objects=() options libraries
    local command=("$@" -std=gnu99 -g "${C_WARNINGS[@]}" -I. -Iruntime -Iextra/stack_pool -pthread)
    WHAT=$*
    for source in runtime/*/*.c extra/stack_pool/aco_stack_pool.c aco.c acosw.S; do
        objects+=("$TMP/${source##*/}.o")
        must "$WHAT: $source does not compile" "${command[@]}" -c "$source" -o "${objects[-1]}"
    done
    for name in "${NAMES[@]}"; do
        read -ra options < <(flags "$name" --cflags | sed 's/-I/-isystem /g')
        read -ra libraries < <(flags "$name" --libs)
        must "$WHAT: $name does not build" "${command[@]}" "${options[@]}" "$FOLDER/$name.c" \
            "${objects[@]}" "${libraries[@]}" -o "$TMP/$name"
    done
}

# start NAME OPTION...: the program; descriptor 9 is its input.
start() {
    rm -f "$TMP/input"
    mkfifo "$TMP/input"
    for _ in {1..20}; do
        PORT=$((10000 + RANDOM % 20000))
        "${RUN_BY[@]}" "$TMP/$1" "${@:2}" "127.0.0.1:$PORT" \
            <"$TMP/input" >"$TMP/program.said" 2>&1 9>&- &
        PROGRAM=$!
        exec 9>"$TMP/input"
        while kill -0 "$PROGRAM" 2>/dev/null; do
            ! (: <>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null || return 0
            sleep 0.02
        done
        grep -q 'Address already in use' "$TMP/program.said" || break
    done
    fail "$WHAT: $1 does not listen: $(<"$TMP/program.said")"
}

# ends NAME: it has ended well, or does so within seconds, and has said nothing.
ends() {
    local status=0
    timeout 20 tail --pid="$PROGRAM" -f /dev/null || fail "$WHAT: $1 does not end"
    wait "$PROGRAM" || status=$?
    PROGRAM=''
    ((status == 0)) || fail "$WHAT: $1 ends with $status: $(<"$TMP/program.said")"
    [[ ! -s $TMP/program.said ]] || fail "$WHAT: $1 says $(<"$TMP/program.said")"
}

# hears DESCRIPTOR PATTERN: a client's next line, apart from ticks unless that is the pattern.
hears() {
    local line=
    while read -r -t 20 -u "$1" line && [[ $line == "tick "* && $2 != tick* ]]; do :; done
    # shellcheck disable=SC2053 # it is a pattern
    [[ $line == $2 ]] || fail "$WHAT: a client hears '$line' instead of '$2'"
}

# is_left DESCRIPTOR: the server ends the connection, and sends ticks at most before.
is_left() {
    local line='' ct=0
    while read -r -t 20 -u "$1" line && [[ $line == "tick "* ]] && ((++ct < 500)); do :; done
    [[ -z $line ]] || fail "$WHAT: a client that was to be left hears '$line'"
}

# connect DESCRIPTOR: a client, when the server has it.
connect() {
    eval "exec $1<>/dev/tcp/127.0.0.1/$PORT"
    hears "$1" 'tick *'
}

# Clients hear the input, and what was sent last also when the input has ended.
check_input() {
    start "$1" -t 0.02
    connect 3
    connect 4
    echo hello >&9
    hears 3 hello
    hears 4 hello
    exec 4>&-
    echo again >&9
    hears 3 again
    echo last >&9
    exec 9>&-
    hears 3 last
    is_left 3
    ends "$1"
}

# Ticks of the loop reach clients, which leave by a timer of their task; a signal ends the program.
check_timers() {
    local before=${EPOCHREALTIME/./}
    start "$1" -t 0.02 -s 0.5
    connect 3
    hears 3 'tick *'
    hears 3 'tick *'
    is_left 3
    ((${EPOCHREALTIME/./} - before >= 500000)) || fail "$WHAT: a client is left too early"
    connect 3
    kill -TERM "$PROGRAM"
    is_left 3
    ends "$1"
    exec 9>&-
}

# A client that does not read delays neither the loop nor others.
check_slow_client() {
    local line=
    start "$1" -t 0.02 -s 30
    connect 3
    seq 2000000 >&9
    exec 4<>"/dev/tcp/127.0.0.1/$PORT"
    while read -r -t 20 -u 4 line && [[ $line != *tick* ]]; do :; done
    [[ $line == *tick* ]] || fail "$WHAT: a client has to wait for one that does not read"
    exec 9>&-
    timeout 20 cat <&4 >"$TMP/rest" || fail "$WHAT: a client is not left at the end"
    kill -TERM "$PROGRAM" # it would wait for that client
    wait "$PROGRAM" || true
    PROGRAM=''
    exec 3>&- 4>&-
}

# -h prints the usage; wrong arguments print it, too, and fail.
check_usage() {
    must "$1 -h fails" "$TMP/$1" -h
    grep -q "^usage: $1 " "$TMP/said" || fail "$1 -h does not tell its usage"
    must_not "$1 takes what it does not know" '^usage: ' "$TMP/$1" -x
}

# check COMPILER OPTION...
check() {
    local name
    build "$@"
    for name in "${NAMES[@]}"; do
        WHAT="$*, $name"
        check_input "$name"
        check_timers "$name"
        check_slow_client "$name"
        check_usage "$name"
        echo "$WHAT"
    done
}

for name in libuv glib; do
    flags "$name" --exists || lack "no $name: apt-get install libuv1-dev libglib2.0-dev"
    NAMES+=("$name")
done
read -ra compiler <<<"$CC"
check "${compiler[@]}" -O2
for sanitizer in address thread; do
    if can_run "${compiler[@]}" "-fsanitize=$sanitizer"; then
        RUN_BY=("${SANITIZED[@]:2}") # without the limit in time, as the program is to get signals
        check "${compiler[@]}" -O1 "-fsanitize=$sanitizer"
    else
        echo "-fsanitize=$sanitizer: does not run, not tested"
    fi
done
