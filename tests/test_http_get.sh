#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The example of many fetches gets every byte of its own pages, keeps up its line of progress, and
# gets on with another server; what goes wrong is said.

# shellcheck source=tests/harness.sh
. tests/harness.sh

EXAMPLE=examples/http_get.c
[[ -f "$EXAMPLE" ]] || skip "there is no $EXAMPLE"

# The bytes of pages 0 to $1 - 1, as the example makes them.
bytes_of_pages() {
    local page sum=0
    for ((page = 0; page < $1; page++)); do
        ((sum += page * 7919 % 50000, 1))
    done
    echo "$sum"
}

# check COMPILER WIDTH: its own pages.
check() {
    local what=${PROCESSOR:-$2} at_a_time
    CC=$1 build_example "$EXAMPLE" "$2" "$TMP/http_get"
    for at_a_time in 1 7 200; do
        must "$what: it fails" timeout 60 "${RUN[@]}" "$TMP/http_get" -n 500 -c "$at_a_time"
        grep -qF "$(bytes_of_pages 500) bytes of pages, at most $at_a_time at a time" "$TMP/said" ||
            fail "$what: not all pages came: $(<"$TMP/said")"
        tr '\r' '\n' <"$TMP/said" >"$TMP/progress"
        grep -qF '] 500 of 500 pages' "$TMP/progress" || fail "$what: no line of progress"
        (($(grep -c '^\[#.*\] [0-9]* of 500 pages$' "$TMP/progress") >= 3)) ||
            fail "$what: no progress to be seen: $(<"$TMP/progress")"
    done
    echo "$what: $(tail -n 2 "$TMP/said" | tr '\n' ' ')"
}

on_each_foreign check
for width in "${WIDTHS[@]}"; do
    check "$CC" "$width"
done

# A server of another make.
cat >"$TMP/server.py" <<'PYTHON'
import http.server
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = False
print(server.server_address[1], flush=True)
for i in range(int(sys.argv[1])):
    server.handle_request()
PYTHON
if ! have python3; then
    echo "another server: python3 was not found, not tested"
    exit 0
fi
timeout 60 python3 "$TMP/server.py" 51 >"$TMP/port" &
for ((try = 0; try < 200; try++)); do
    [[ ! -s "$TMP/port" ]] || break
    sleep 0.05
done
port=$(<"$TMP/port")
must "it does not get on with another server" timeout 60 "$TMP/http_get" -n 50 -c 5 "$port" /LICENSE
grep -qF "$((50 * $(wc -c <LICENSE))) bytes of pages" "$TMP/said" ||
    fail "another server: not all came: $(<"$TMP/said")"
must_not "a page that does not exist" "does not answer with 200" \
    timeout 60 "$TMP/http_get" -n 1 -c 1 "$port" /no_such_page
wait
must_not "a server that does not exist" "nobody listens" \
    timeout 60 "$TMP/http_get" -n 1 -c 1 "$port" /LICENSE
echo "another server: the same page 50 times"
