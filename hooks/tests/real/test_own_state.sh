#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Libraries that keep their last error or settings in pthread keys have them for each task. Without
# keys of their own, each of them mixes up those of two tasks.
#
# seconds: 3

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly PACKAGES=(libgit2 libnats libtirpc)
need_libraries
need pkg-config:pkg-config
read -ra compiler <<<"$CC"
for package in "${PACKAGES[@]}"; do
    pkg-config --exists "$package" || lack "no $package for pkg-config"
done
echo "#include <cups/cups.h>" | "${compiler[@]}" -fsyntax-only -x c - 2>/dev/null ||
    lack "no cups/cups.h: apt-get install libcups2-dev"
read -ra includes < <(pkg-config --cflags "${PACKAGES[@]}")
read -ra libraries < <(pkg-config --libs "${PACKAGES[@]}")
must "own_state does not build" "${compiler[@]}" -std=gnu99 -O1 -g "${C_WARNINGS[@]}" -I. \
    -Iruntime -Ihooks -pthread "${includes[@]/#-I\/usr/-isystem/usr}" hooks/tests/real/own_state.c \
    "$OUTPUT"/libaco_{hooks,runtime}.a "$OUTPUT/libaco.a" "${libraries[@]}" -lcups -ldl \
    -o "$TMP/own_state"
must "tasks have each other's state" timeout 60 "$TMP/own_state"
must "tasks that share keys have states of their own" timeout 60 "$TMP/own_state" shared
cat "$TMP/said"
