# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts real servers, each on a free port, with its data in a folder of its own. Sourced after
# tests/harness.sh. A server runs as the caller or, if that is root, as nobody.

# The servers' files; their user must be able to read them.
DATA=$(mktemp -d)
SERVER='' PORT='' TLS_PORT='' KILL='' STOP=TERM
trap 'stop_server; rm -rf "$TMP" "$DATA"' EXIT

if ((EUID == 0)); then
    chown nobody "$DATA"
    AS_USER=(setpriv --reuid nobody --regid nogroup --clear-groups --inh-caps=-all)
else
    AS_USER=()
fi
PATH=$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')

# Runs a command as the user of servers, in $DATA.
as_user() {
    must "$1 fails" env -C "$DATA" HOME="$DATA" "${AS_USER[@]}" "$@"
}

# Whether a server listens on this port.
answers() {
    (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# A port without a listener, below those that the kernel gives away.
find_port() {
    local port
    while port=$((10000 + RANDOM % 20000)); answers "$port"; do :; done
    echo "$port"
}

# start_server NAME OPTION...: with more options for its command. PORT is then the server's port,
# PID its process, and KILL the command that kills it and its children.
start_server() {
    local name=$1
    STOP=TERM
    [[ -d $DATA/$name ]] || {
        as_user mkdir "$DATA/$name"
        "make_$name"
    }
    for _ in {1..20}; do
        PORT=$(find_port) TLS_PORT=$(find_port)
        "command_$name"
        env -C "$DATA" HOME="$DATA" "${AS_USER[@]}" "${COMMAND[@]}" \
            "${@:2}" >"$DATA/$name.said" 2>&1 &
        SERVER=$!
        KILL="kill -9 $SERVER"
        while kill -0 "$SERVER" 2>/dev/null; do
            if answers "$PORT" && "is_ready_$name" >/dev/null 2>&1; then
                export PORT TLS_PORT KILL PID=$SERVER
                return
            fi
            sleep 0.05
        done
        wait "$SERVER" || true
    done
    fail "$name does not start: $(tail -n 20 "$DATA/$name.said")"
}

# Lets the server end by itself, or kills it.
stop_server() {
    [[ -n $SERVER ]] || return 0
    # Processes that sshd has left behind wait for a writer.
    [[ ! -p $DATA/sshd/fifo ]] || : <>"$DATA/sshd/fifo"
    kill -CONT "$SERVER" 2>/dev/null || true
    kill "-$STOP" "$SERVER" 2>/dev/null || true
    for _ in {1..400}; do
        kill -0 "$SERVER" 2>/dev/null || break
        sleep 0.02
    done
    ! kill -0 "$SERVER" 2>/dev/null || bash -c "$KILL"
    wait "$SERVER" 2>/dev/null || true
    SERVER=''
}

# ==== Each of them ================================================================================

make_redis() { :; }

command_redis() {
    COMMAND=(redis-server --port "$PORT" --bind 127.0.0.1 --save '' --appendonly no
        --dir "$DATA/redis" --maxclients 20000)
}

is_ready_redis() { :; }

make_pg() {
    as_user initdb -D "$DATA/pg" -U aco -A trust -E UTF8 --no-locale --no-sync
}

command_pg() {
    rm -f "$DATA/pg/postmaster.pid"
    STOP=INT # SIGINT does not wait for clients
    COMMAND=(postgres -D "$DATA/pg" -p "$PORT" -c listen_addresses=127.0.0.1 -c fsync=off
        -c unix_socket_directories= -c max_connections=300 -c autovacuum=off)
}

is_ready_pg() { pg_isready -q -h 127.0.0.1 -p "$PORT" -U aco; }

make_mariadb() {
    as_user mariadb-install-db --no-defaults --datadir="$DATA/mariadb" --skip-test-db \
        --auth-root-authentication-method=normal --skip-name-resolve
}

command_mariadb() {
    COMMAND=(mariadbd --no-defaults --datadir="$DATA/mariadb" --port="$PORT"
        --bind-address=127.0.0.1 --socket="$DATA/mariadb.socket" --max-connections=500
        --innodb-flush-log-at-trx-commit=0)
}

is_ready_mariadb() { :; }

make_memcached() { :; }

command_memcached() {
    COMMAND=(memcached -l 127.0.0.1 -p "$PORT" -U 0 -c 2000 -t 1)
}

is_ready_memcached() { :; }

make_nginx() {
    local site=$DATA/nginx/site
    as_user mkdir -p "$site"
    as_user openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
        -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
        -keyout "$DATA/nginx/key" -out "$DATA/nginx/cert"
    head -c 1000 /dev/urandom >"$site/small"
    seq 40000 >"$site/medium"
    truncate -s 100M "$site/large"
}

command_nginx() {
    cat >"$DATA/nginx/conf" <<NGINX
daemon off;
master_process off;
pid $DATA/nginx/pid;
error_log $DATA/nginx/log;
$(cat /etc/nginx/modules-enabled/*echo*.conf 2>/dev/null || true)
events { worker_connections 4000; }
http {
    access_log off;
    client_body_temp_path $DATA/nginx/body;
    proxy_temp_path $DATA/nginx/proxy;
    fastcgi_temp_path $DATA/nginx/fastcgi;
    scgi_temp_path $DATA/nginx/scgi;
    uwsgi_temp_path $DATA/nginx/uwsgi;
    server {
        listen 127.0.0.1:$PORT backlog=4000;
        listen 127.0.0.1:$TLS_PORT ssl backlog=4000;
        ssl_certificate $DATA/nginx/cert;
        ssl_certificate_key $DATA/nginx/key;
        root $DATA/nginx/site;
        location /chunked/ { alias $DATA/nginx/site/; gzip on; gzip_types *; }
        location /wait { echo_sleep 0.1; echo waited; }
        location /stay { echo begin; echo_flush; echo_sleep 600; echo end; }
    }
}
NGINX
    COMMAND=(nginx -e "$DATA/nginx/log" -c "$DATA/nginx/conf")
}

is_ready_nginx() { answers "$TLS_PORT"; }

make_sshd() {
    as_user ssh-keygen -q -t ed25519 -N '' -f "$DATA/sshd/host_key"
    # libssh2 of Debian 12 reads no other form of keys.
    as_user ssh-keygen -q -t ecdsa -m PEM -N '' -f "$DATA/sshd/user_key"
    as_user cp "$DATA/sshd/user_key.pub" "$DATA/sshd/authorized_keys"
    as_user mkfifo "$DATA/sshd/fifo"
}

command_sshd() {
    cat >"$DATA/sshd/conf" <<SSHD
Port $PORT
ListenAddress 127.0.0.1
HostKey $DATA/sshd/host_key
PidFile none
AuthorizedKeysFile $DATA/sshd/authorized_keys
StrictModes no
UsePAM yes
LogLevel ERROR
MaxStartups 1000
ForceCommand internal-sftp
Subsystem sftp internal-sftp
SSHD
    COMMAND=("$(type -P sshd)" -D -e -f "$DATA/sshd/conf")
    SSH_USER=$("${AS_USER[@]}" id -un) SSH_FOLDER=$DATA/sshd
    export SSH_USER SSH_FOLDER
}

# The server has a process for each client, which has others.
is_ready_sshd() {
    KILL="all=$SERVER more=$SERVER
        while more=\$(pgrep -d , -P \$more); do all=\$all,\$more; done
        kill -9 \$(echo \$all | tr , ' ')"
}

make_slapd() {
    local number
    as_user mkdir "$DATA/slapd/db"
    cat >"$DATA/slapd/conf" <<SLAPD
include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile $DATA/slapd/pid
argsfile $DATA/slapd/args
database mdb
directory $DATA/slapd/db
maxsize 1073741824
dbnosync
suffix dc=test
rootdn cn=admin,dc=test
rootpw secret
index cn,objectClass eq
SLAPD
    {
        printf 'dn: dc=test\nobjectClass: dcObject\nobjectClass: organization\n'
        printf 'o: test\ndc: test\n\n'
        printf 'dn: ou=people,dc=test\nobjectClass: organizationalUnit\nou: people\n\n'
        for number in {0..39}; do
            printf 'dn: cn=person %d,ou=people,dc=test\n' "$number"
            printf 'objectClass: person\ncn: person %d\nsn: person\n\n' "$number"
        done
    } >"$DATA/slapd/people"
    as_user slapadd -f "$DATA/slapd/conf" -l "$DATA/slapd/people"
}

command_slapd() {
    COMMAND=(slapd -d 0 -h "ldap://127.0.0.1:$PORT" -f "$DATA/slapd/conf")
    export LDAPNOINIT=1 # clients read no settings of this machine
}

is_ready_slapd() { :; }
