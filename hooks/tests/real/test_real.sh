#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Real libraries in tasks, by hooks, with their real servers: many at a time on one thread, with the
# results, errors and timeouts that they have in threads without hooks; a deadline ends a wait
# inside of them; a server that is killed is an error; random use leaks nothing. LOAD is the length
# of that in seconds (1), SEED its seed (1).
#
# parts: redis pg mariadb memcached curl openssl ssh ldap
# seconds: 8 10 14 5 18 5 9 5

# shellcheck source=tests/harness.sh
. tests/harness.sh

FOLDER=hooks/tests/real
[[ " $OPTIONS " != *" no-servers "* ]] || skip "servers are left out (-o no-servers)"
need_libraries
[[ -f "$OUTPUT/libaco_hooks.so" ]] || skip "there is no libaco_hooks.so"
need setpriv:util-linux
# shellcheck source=hooks/tests/real/servers.sh
. "$FOLDER/servers.sh"

read -ra compiler <<<"$CC"
readonly PATIENCE=$((120 + ${LOAD:-1}))

# build NAME PROGRAM OPTION...: builds $TMP/PROGRAM with hooks, $TMP/PROGRAM.plain without.
build() {
    local source=$FOLDER/real_$1.c program=$TMP/$2
    local command=("${compiler[@]}" -std=gnu99 -O1 -g "${C_WARNINGS[@]}" -I. -Iruntime
        -Ihooks -Iextra/stack_pool -pthread "$source" "$FOLDER/real.c")
    must "$2 does not build" "${command[@]}" -L"$OUTPUT" "-Wl,-rpath,$PWD/$OUTPUT" \
        -laco_runtime -laco "${@:3}" -o "$program.plain" -ldl
    must "$2 with hooks does not build" "${command[@]}" -Wl,-u,aco_hooks_active \
        "$OUTPUT"/libaco_{hooks,runtime}.a "$OUTPUT/libaco.a" "${@:3}" -o "$program" -ldl
}

# run FILE COMMAND...: writes the output of the command to the file.
run() {
    if ! timeout -k 5 "$PATIENCE" "${@:2}" >"$1" 2>"$TMP/said"; then
        fail "${*:2}: $(head -n 40 "$TMP/said")"
    fi
}

# demand FILE TEXT: checks that the file has the text, so that the comparison is of the right thing.
demand() {
    grep -qF -e "$2" "$1" || fail "$PROGRAM: nothing says '$2': $(head -c 2000 "$1")"
}

# compare WHAT CT TEXT...: tasks report the same as threads, and the report has the texts.
compare() {
    local text
    run "$TMP/threads" "$TMP/$PROGRAM.plain" threads "$1" "$2"
    [[ $1 != kill ]] || restart
    run "$TMP/tasks" "$TMP/$PROGRAM" tasks "$1" "$2"
    [[ $1 != kill ]] || restart
    sed -i "s/$PORT/PORT/g; s/$TLS_PORT/TLS_PORT/g" "$TMP/threads" "$TMP/tasks"
    diff "$TMP/threads" "$TMP/tasks" || fail "$PROGRAM: $1 in tasks differs from threads"
    (($(wc -l <"$TMP/tasks") == $2)) || fail "$PROGRAM: $1: $(<"$TMP/tasks")"
    for text in "${@:3}"; do
        demand "$TMP/tasks" "$text"
    done
}

restart() {
    stop_server
    start_server "$NAME"
}

# Preloaded hooks work, too; without hooks, the first wait stops all.
check_release() {
    compare release "$@"
    run "$TMP/preloaded" env LD_PRELOAD="$PWD/$OUTPUT/libaco_hooks.so" "$TMP/$PROGRAM.plain" tasks \
        release "$1"
    diff "$TMP/tasks" "$TMP/preloaded" || fail "$PROGRAM: preloaded hooks are not like linked ones"
}

# check_deadline TEXT: the wait ends by the library's own error, which has this text.
check_deadline() {
    run "$TMP/ended" "$TMP/$PROGRAM" tasks deadline
    demand "$TMP/ended" "$1"
    cat "$TMP/ended"
}

# check_load CT: runs CT sessions at a time. Memory that malloc() caches would count as in use.
check_load() {
    run "$TMP/load" env GLIBC_TUNABLES=glibc.malloc.tcache_count=0 "$TMP/$PROGRAM" tasks load \
        "$1" "${LOAD:-1}" "${SEED:-1}"
    cat "$TMP/load"
}

# ==== Libraries ===================================================================================

check_redis() {
    compiles_with hiredis/hiredis.h libhiredis-dev
    need redis-server:redis-server
    NAME=redis PROGRAM=redis
    build redis redis -lhiredis
    start_server redis
    compare talk 100 'Connection refused' 'temporarily unavailable' WRONGTYPE
    check_release 500 '[2 0 ]'
    ! timeout 2 "$TMP/redis.plain" tasks release 2 >/dev/null 2>&1 ||
        fail "tasks wait at the same time without hooks"
    restart
    check_deadline 'error'
    check_load 20
    compare kill 100 'Server closed the connection'
}

check_pg() {
    compiles_with libpq-fe.h libpq-dev -I/usr/include/postgresql
    need initdb:postgresql postgres:postgresql
    NAME=pg PROGRAM=pg
    build pg pg -I/usr/include/postgresql -lpq
    start_server pg
    compare talk 30 'division by zero' 'COPY 2000' 'hello 7' 'statement timeout' 'too late' \
        'Connection refused'
    check_release 100 '[1 free]'
    check_deadline 'Connection timed out'
    check_load 20
    compare kill 30 'server closed the connection unexpectedly'
}

check_mariadb() {
    local options
    read -ra options < <(pkg-config --cflags --libs libmariadb 2>/dev/null) || true
    compiles_with mysql.h libmariadb-dev "${options[@]}"
    need mariadbd:mariadb-server-core mariadb-install-db:mariadb-server-core
    NAME=mariadb PROGRAM=mariadb
    build mariadb mariadb "${options[@]}"
    start_server mariadb
    compare talk 50 '1064 You have an error' 12502500 'Access denied' '2013 Lost connection'
    check_release 100 '[1 2]'
    check_deadline 'Lost connection'
    check_load 20
    compare kill 50 '2013 Lost connection'
}

check_memcached() {
    compiles_with libmemcached/memcached.h libmemcached-dev
    need memcached:memcached
    NAME=memcached PROGRAM=memcached
    build memcached memcached -lmemcached
    start_server memcached
    compare talk 50 'NOT STORED' '40 values' TIMEOUT 'CONNECTION FAILURE'
    check_release 100 'NOT FOUND'
    check_deadline 'NOT FOUND' # libmemcached's error for any of poll()
    restart
    check_load 20
    compare kill 50 'CONNECTION FAILURE'
}

# libcurl has two builds, with the same headers.
check_curl() {
    local library
    compiles_with curl/curl.h libcurl4-openssl-dev
    need nginx:nginx-light openssl:openssl
    NAME=nginx
    start_server nginx
    export CERTIFICATE=$DATA/nginx/cert
    for library in curl :libcurl-gnutls.so.4; do
        if ! can_build "${compiler[@]}" "-l$library"; then
            lack "no $library: apt-get install libcurl4-openssl-dev libcurl3-gnutls"
        fi
        PROGRAM=${library//:/}
        build curl "$PROGRAM" "-l$library"
        compare talk 20 104857600 'certificate' "Couldn't connect" 'Timeout was reached'
        check_deadline 'bad argument' # libcurl's error for any of poll()
        check_load 20
        compare kill 40 'Transferred a partial file'
    done
}

check_openssl() {
    compiles_with openssl/ssl.h libssl-dev
    need nginx:nginx-light openssl:openssl
    NAME=nginx PROGRAM=openssl
    build openssl openssl -lssl -lcrypto
    start_server nginx
    export CERTIFICATE=$DATA/nginx/cert
    compare talk 40 'certificate verify failed' '[still wrong version number]' '[0 6 no error]'
    run "$TMP/shared" env OWN_KEYS=nothing "$TMP/openssl" tasks talk 40
    ! diff -q "$TMP/tasks" "$TMP/shared" >/dev/null || fail "queues of errors need no keys"
    check_deadline ']'
    check_load 20
    compare kill 40 'unexpected eof'
}

check_ssh() {
    compiles_with libssh2.h libssh2-1-dev
    need sshd:openssh-server ssh-keygen:openssh-client pgrep:procps
    NAME=sshd PROGRAM=ssh
    build ssh ssh -lssh2
    start_server sshd
    compare talk 6 'Failed opening remote file' 'Timed out' 'login: -18'
    check_release 10 '[open]'
    check_deadline 'wait: '
    check_load 5
    compare kill 6 'wait: '
}

check_ldap() {
    compiles_with ldap.h libldap-dev
    need slapd:slapd
    NAME=slapd PROGRAM=ldap
    build ldap ldap -lldap -llber
    start_server slapd
    compare talk 30 '[40 in 6 pages]' '[30 at once]' 'Invalid credentials' 'Timed out' \
        "Can't contact LDAP server"
    check_release 100 Success
    check_deadline "Can't contact LDAP server"
    restart
    check_load 10
    compare kill 50 "Can't contact LDAP server"
}

# compiles_with HEADER PACKAGE OPTION...
compiles_with() {
    echo "#include <$1>" | "${compiler[@]}" "${@:3}" -fsyntax-only -x c - 2>/dev/null ||
        lack "no $1: apt-get install $2"
}

(($# == 0)) && set -- redis pg mariadb memcached curl openssl ssh ldap
for part; do
    "check_$part"
    stop_server
done
