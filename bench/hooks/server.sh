#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts the server that a workload needs on the first processor of $CPUS, then the program on the
# last one: server PROGRAM WORKLOAD COUNT.
#
# peer: server
# kind: runner
# build: cp "$SRC" "$OUT"

# shellcheck source=tests/harness.sh
. tests/harness.sh >/dev/null
# shellcheck source=hooks/tests/real/servers.sh
. hooks/tests/real/servers.sh
unset MALLOC_PERTURB_ # it takes time

declare -rA SERVERS=([blpop]=redis [pg]=pg [mariadb]=mariadb [http]=nginx [https]=nginx)
ulimit -Sn "$(ulimit -Hn)"
if [[ -n ${SERVERS[$2]:-} ]]; then
    taskset -p -c "${CPUS% *}" $$ >/dev/null
    start_server "${SERVERS[$2]}"
fi
CERTIFICATE=$DATA/nginx/cert taskset -c "${CPUS#* }" "$@"
