#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs of the distribution whose threads are tasks: databases, with load; tools, which compute
# or are clients.
#
# parts: databases tools
# seconds: 8 8
# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=pthreads/tests/tasks.sh
. pthreads/tests/tasks.sh
[[ " $OPTIONS " != *" no-servers "* ]] || skip "servers are left out (-o no-servers)"
need setpriv:util-linux
# shellcheck source=hooks/tests/real/servers.sh
. hooks/tests/real/servers.sh

# start_with_tasks NAME OPTION...: a server of servers.sh.
start_with_tasks() {
    local before=("${AS_USER[@]}")
    AS_USER+=(env "LD_PRELOAD=$DATA/libaco_pthreads.so")
    start_server "$@"
    AS_USER=("${before[@]}")
}

# end_server NAME: it ends when asked to.
end_server() {
    local id=$SERVER
    kill -TERM "$id"
    for _ in {1..400}; do
        kill -0 "$id" 2>/dev/null || break
        sleep 0.05
    done
    ! kill -0 "$id" 2>/dev/null || fail "$1 does not end"
    stop_server
}

# ---- Databases ---------------------------------------------------------------------------------

# change_people WRITER: adds 20 entries, and searches.
change_people() {
    local i
    for ((i = 0; i < 20; i++)); do
        printf 'dn: cn=%d of %d,ou=people,dc=test\nobjectClass: person\ncn: %d of %d\nsn: new\n\n' \
            "$i" "$1" "$i" "$1"
    done | ldapadd -x -H "ldap://127.0.0.1:$PORT" -D cn=admin,dc=test -w secret >/dev/null
    search_people "(cn=19 of $1)" 1
}

# search_people FILTER CT: finds so many entries.
search_people() {
    local ct
    ct=$(ldapsearch -x -LLL -H "ldap://127.0.0.1:$PORT" -b dc=test "$1" dn | grep -c '^dn:')
    [[ $ct == "$2" ]]
}

check_slapd() {
    local i jobs=()
    start_with_tasks slapd
    for ((i = 0; i < 20; i++)); do
        change_people "$i" 2>"$TMP/ldap.$i" &
        jobs+=($!)
        search_people "(cn=person $i)" 1 2>>"$TMP/ldap.$i" &
        jobs+=($!)
    done
    are_few "$PID"
    for i in "${jobs[@]}"; do
        wait "$i" || fail "slapd: $(cat "$TMP/ldap".*)"
    done
    search_people "(sn=new)" 400 || fail "slapd has not all that was added"
    are_few "$PID"
    end_server slapd
}

check_memcached() {
    local name
    start_with_tasks memcached -t 4
    for name in set get mget; do
        must "memcslap $name" "${RUN[@]}" 60 memcslap --servers="127.0.0.1:$PORT" --test="$name" \
            --concurrency=50 --execute-number=100
    done
    must "memcstat fails" memcstat --servers="127.0.0.1:$PORT"
    grep -q 'threads: 4' "$TMP/said" || fail "memcached: $(<"$TMP/said")"
    (($(sed -n 's/.*cmd_get: //p' "$TMP/said") >= 10000)) || fail "memcached: $(<"$TMP/said")"
    are_few "$PID"
    end_server memcached
}

check_redis() {
    start_server redis
    must "redis-benchmark fails" env ACO_PTHREADS_REPORT=1 "${RUN[@]}" 60 redis-benchmark \
        -p "$PORT" --threads 4 -c 50 -n 10000 --csv -t set,get
    grep -q '^aco-run: 8 threads' "$TMP/said" || fail "redis-benchmark: $(<"$TMP/said")"
    must "redis-cli fails" redis-cli -p "$PORT" info commandstats
    for name in set get; do
        grep -q "^cmdstat_$name:calls=10000," "$TMP/said" || fail "redis: $(<"$TMP/said")"
    done
    stop_server
}

test_databases() {
    need slapd:slapd ldapadd:ldap-utils memcached:memcached memcslap:libmemcached-tools \
        redis-server:redis-server redis-benchmark:redis-tools
    cp "$OUTPUT/libaco_pthreads.so" "$DATA" # servers may read it
    check_slapd
    check_memcached
    check_redis
    echo "databases do the same with tasks"
}

# ---- Tools -------------------------------------------------------------------------------------

# packs CT COMMAND...: it writes the same bytes from $TMP/file, with that many threads at least.
packs() {
    local ct
    "${@:2}" <"$TMP/file" >"$TMP/expected" 2>"$TMP/report" || fail "${*:2}: $(<"$TMP/report")"
    ACO_PTHREADS_REPORT=1 "${RUN[@]}" 60 "${@:2}" <"$TMP/file" >"$TMP/got" 2>"$TMP/report" ||
        fail "${*:2}: with tasks: $(<"$TMP/report")"
    cmp "$TMP/expected" "$TMP/got" || fail "${*:2}: writes other bytes with tasks"
    ct=$(sed -nE 's/^aco-run: ([0-9]+) threads.*/\1/p' "$TMP/report")
    ((${ct:-0} >= $1)) || fail "${*:2}: ${ct:-0} threads: $(<"$TMP/report")"
}

test_tools() {
    need perl:perl xz:xz-utils zstd:zstd pigz:pigz pbzip2:pbzip2 x264:x264 sort:coreutils
    /usr/bin/perl -Mthreads -MThread::Queue -e 1 2>/dev/null ||
        lack "no threads: apt-get install perl"
    both 60 /usr/bin/perl pthreads/tests/threads.pl
    { head -c 1500000 /dev/urandom && seq 300000; } >"$TMP/file"
    packs 0 xz -0 -T4 --block-size=300000 # closes stderr, as sort does, before the report
    packs 4 zstd -q -1 -T4 -B524288
    packs 4 pigz -p4 -1
    packs 4 pbzip2 -q -p4 -1
    packs 0 sort --parallel=4 -S 40M
    packs 4 x264 --quiet --threads 4 --preset ultrafast --demuxer raw --input-res 160x120 -o - -
    echo "tools do the same with tasks"
}

case ${1:-databases} in
databases | tools) "test_${1:-databases}" ;;
*) fail "no such part: $1" ;;
esac
