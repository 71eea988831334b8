#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh SOURCE OUT OPTION...: compiles a program of threads, installs aco-run and its library as
# users do, once for all peers, and makes OUT a script that runs the program by aco-run. Its
# paddings share the program.
set -euo pipefail

source=$1 out=$2
program=${out%"-$PADDING"}.program
installed=${out%/*}/installed
if [[ $PADDING == 0 ]]; then
    exec {lock}>"$installed.lock"
    flock "$lock"
    PREFIX=$installed OUTPUT=$installed.build ./make.sh install
    $CC -O2 -pthread -Ibench/peers -Ibench/runtime "${@:3}" "$source" -o "$program"
fi
printf '#!/bin/sh\nLAUNCHER=%q exec %q %q "$@"\n' \
    "$installed/bin/aco-run" "$installed/bin/aco-run" "$program" >"$out"
