#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Clients of many libraries in tasks that are late or cancelled, while their server does not answer:
# what each call returns, and whether the handle works afterwards, is what docs/hooks.md says.
#
# seconds: 15

# shellcheck source=tests/harness.sh
. tests/harness.sh

need_libraries
need_packages librabbitmq libcares libgit2 gio-2.0 gnutls smbclient libssh librtmp libmodbus \
    libmosquitto libnats neon libnfs sqlite3
read -ra compiler <<<"$CC"
for header in cups/cups.h sybdb.h; do
    echo "#include <$header>" | "${compiler[@]}" -fsyntax-only -x c - 2>/dev/null ||
        lack "no $header: apt-get install libcups2-dev freetds-dev"
done
must "late_clients does not build" "${compiler[@]}" -std=gnu99 -O1 -g "${C_WARNINGS[@]}" -I. \
    -Iruntime -Ihooks -Iextra/stack_pool -pthread "${INCLUDES[@]}" \
    hooks/tests/real/late_clients.c -Wl,-u,aco_hooks_active "$OUTPUT"/libaco_{hooks,runtime}.a \
    "$OUTPUT/libaco.a" "${LIBRARIES[@]}" -lcups -lsybdb -ldl -o "$TMP/late_clients"

# A busy machine may need more time until a client has asked its question.
unset ACO_HOOKS_ON_DEADLINE
sed -n '/^| library | call | deadline/,/^$/p' docs/hooks.md | sed '1,2d; /^$/d' >"$TMP/expected"
[[ -s $TMP/expected ]] || fail "docs/hooks.md has no table of late calls"
for ms in 100 1000; do
    (cd "$TMP" && rm -f late.db && timeout 100 ./late_clients "$ms") >"$TMP/rows" 2>"$TMP/said" ||
        fail "late_clients ends with $?: $(<"$TMP/said")"
    ! cmp -s "$TMP/expected" "$TMP/rows" || break
done
diff "$TMP/expected" "$TMP/rows" >&2 || fail "docs/hooks.md has other rows"
echo "$(wc -l <"$TMP/rows") clients"
