#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Libraries that keep their last error or settings in pthread keys have them for each task. Without
# keys of their own, each of them mixes up those of two tasks.
#
# seconds: 3

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_libraries
need_packages libgit2 libnats libtirpc
read -ra compiler <<<"$CC"
echo "#include <cups/cups.h>" | "${compiler[@]}" -fsyntax-only -x c - 2>/dev/null ||
    lack "no cups/cups.h: apt-get install libcups2-dev"
must "own_state does not build" "${compiler[@]}" -std=gnu99 -O1 -g "${C_WARNINGS[@]}" -I. \
    -Iruntime -Ihooks -pthread "${INCLUDES[@]}" hooks/tests/real/own_state.c \
    "$OUTPUT"/libaco_{hooks,runtime}.a "$OUTPUT/libaco.a" "${LIBRARIES[@]}" -lcups -ldl \
    -o "$TMP/own_state"
must "tasks have each other's state" timeout 60 "$TMP/own_state"
must "tasks that share keys have states of their own" timeout 60 "$TMP/own_state" shared
cat "$TMP/said"
