#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# With branch tracking enforced by an emulated arm64, a program and the library run; without any one
# of the landing pads of acosw.S, and without that of the inline switch, it dies of SIGILL. No
# emulated x86 enforces it: there the proof looks for landing pads.

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly SIGILL_STATUS=132

# A function or label of the preprocessed acosw.S, and the landing pad that it begins with.
PADS=(acosw:34 aco_save_fpucw_mxcsr:34 aco_funcp_protector_asm:34 .Lcontinued:36)

# build PROTECTION ASSEMBLY HEADERS: the library, and the program linked to it.
build() {
    local compile=("${cross[@]}" -O2 "-mbranch-protection=$1" -nostartfiles "-Wl,-z,force-bti"
        "-I$3" -I.)
    [[ -e "$TMP/aco-$1.o" ]] ||
        must "aco.c does not compile" "${compile[@]}" -fPIC -c aco.c -o "$TMP/aco-$1.o"
    must "the library does not link" \
        "${compile[@]}" -shared "$TMP/aco-$1.o" "$2" -o "$TMP/libaco.so"
    must "landing_pads.c does not link" \
        "${compile[@]}" tests/programs/landing_pads.c -o "$TMP/program" -L"$TMP" \
        -Wl,-rpath,"$TMP" -laco
}

# die WHAT: the program must die for lack of a landing pad.
die() {
    run_to_death "${RUN[@]}" "$TMP/program"
    [[ "$STATUS" -eq "$SIGILL_STATUS" ]] || fail "$1: status $STATUS, not $SIGILL_STATUS"
}

[[ -n "${CROSS[arm64]:-}" ]] || skip "no arm64 is emulated"
read -ra cross <<<"${CROSS[arm64]}"
read -ra RUN <<<"${EMULATOR[arm64]} -cpu max"

for protection in standard bti; do
    build "$protection" acosw.S .
    must "$protection: a landing pad is missing" "${RUN[@]}" "$TMP/program"
done
for pad in "${PADS[@]}"; do
    "${cross[@]}" -mbranch-protection=bti -I. -E -P acosw.S | tr ';' '\n' |
        sed "/^ *${pad%:*}:/,/hint/s/hint ${pad#*:}/nop/" >"$TMP/acosw.s"
    [[ "$(grep -c '^ *nop' "$TMP/acosw.s")" -eq 2 ]] || fail "$pad: not found"
    build bti "$TMP/acosw.s" .
    die "without the landing pad of ${pad%:*}"
done
mkdir "$TMP/headers"
sed 's/ACO_LANDING_PAD("hint 36/ACO_LANDING_PAD("nop/' aco.h >"$TMP/headers/aco.h"
! cmp -s aco.h "$TMP/headers/aco.h" || fail "the inline switch has no landing pad"
build bti acosw.S "$TMP/headers"
die "without the landing pad of the inline switch"
echo "arm64: branch tracking enforced, and ${#PADS[@]} + 1 landing pads missed"
