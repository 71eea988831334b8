#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Real libraries in tasks that are late or cancelled, without a server: by their default answers,
# they end their waits or go on, and work afterwards; with errors, as other libraries get them, they
# end the process or break. LMDB has no answer of its own, as its writes end in any case.
#
# seconds: 15

# shellcheck source=tests/harness.sh
. tests/harness.sh

FOLDER=hooks/tests/real
need_libraries
read -ra compiler <<<"$CC"

# build NAME HEADER PACKAGE OPTION...
build() {
    local name=$1 header=$2 package=$3
    shift 3
    echo "#include <$header>" | "${compiler[@]}" "$@" -fsyntax-only -x c - 2>/dev/null ||
        lack "no $header: apt-get install $package"
    must "late_$name does not build" "${compiler[@]}" -std=gnu99 -O1 -g "${C_WARNINGS[@]}" -I. \
        -Iruntime -Ihooks -Iextra/stack_pool -pthread "$FOLDER/late_$name.c" "$FOLDER/late.c" \
        -Wl,-u,aco_hooks_active "$OUTPUT"/libaco_{hooks,runtime}.a "$OUTPUT/libaco.a" "$@" \
        -o "$TMP/$name" -ldl
}

# run NAME ANSWERS: runs the program, and sets STATUS; what it says is in $TMP/said.
run() {
    rm -rf "$TMP/data"
    mkdir "$TMP/data"
    export DATA=$TMP/data ACO_HOOKS_ON_DEADLINE=$2
    run_to_death timeout --foreground -k 5 120 "$TMP/$1"
}

# check NAME TEXT: each of the three waits ends with this text, and the library works.
check() {
    local what expected=''
    run "$1" ''
    for what in deadline passed cancelled; do
        expected+="$what: $2; works"$'\n'
    done
    [[ $STATUS == 0 && $(<"$TMP/said") == "${expected%$'\n'}" ]] ||
        fail "$1 ends with $STATUS: $(<"$TMP/said")"
    echo "$1: $2"
}

# check_without NAME ANSWERS STATUS TEXT: with other answers, the program ends so, and says this.
check_without() {
    run "$1" "$2"
    [[ $STATUS == "$3" && $(<"$TMP/said") == *"$4"* ]] ||
        fail "$1 with $2 ends with $STATUS: $(<"$TMP/said")"
}

build zmq zmq.h libzmq3-dev -lzmq
check zmq 'bind 0, recv -1 Interrupted system call'
check_without zmq libzmq=error 134 'Connection timed out'

build nanomsg nanomsg/nn.h libnanomsg-dev -lnanomsg
check nanomsg 'bind 0, recv -1 Interrupted system call'
check_without nanomsg libnanomsg=error 134 libnanomsg.so

build nng nng/nng.h libnng-dev -lnng
check nng 'recv Hunky dory'
check_without nng libnng=error 134 nng_recv

build uv uv.h libuv1-dev -luv
check uv 'run 0, close 0'
check_without uv libuv=error 134 ''
check_without uv libuv=EINTR 0 'cancelled: run 0, close 0; works'

build event event2/event.h libevent-dev -levent
check event 'dispatch 1, 1 bytes'
check_without event libevent=error 0 'deadline: dispatch -1, 0 bytes'

build unbound unbound.h libunbound-dev -lunbound
check unbound 'resolve no error, data 1'
check_without unbound libevent=error 1 'fatal error: event_dispatch returned error -1'

build lmdb lmdb.h liblmdb-dev -llmdb
check lmdb 'commit: Successful return: 0'

build bdb db.h libdb-dev -ldb
check bdb 'put 0, end 0'
check_without bdb libdb-=error 0 'PANIC: Operation canceled'

read -ra options < <(pkg-config --cflags --libs python3-embed 2>/dev/null) || true
build python Python.h python3-dev "${options[@]}"
check python acquired
check_without python libpython=error 134 'Fatal Python error'
