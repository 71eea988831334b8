#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The switch on other processors, instruction by instruction: gdb steps emulated_steps.c under
# qemu, and emulated_steps.py looks. It must find faults, too, that are put into acosw.S. Needs
# gdb-multiarch.
# parts: arm64 riscv64 arm thumb
# seconds: 25 25 22 22

# shellcheck source=tests/harness.sh
. tests/harness.sh

# For each processor.
VARIANTS=(
    "-O0"
    "-O2"
    "-O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"
    "-O2 -DACO_CONFIG_NO_INLINE_SWITCH"
    "-O2 -DACO_CONFIG_NO_INLINE_SWITCH -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"
)
GDB=(gdb-multiarch -nx -batch -ex "set debuginfod enabled off" -ex "set confirm off")

# Faults in what the preprocessor makes of acosw.S, one instruction in a line, as edits by sed; and
# what must be said of each.
declare -A FAULTS=(
    [arm64]="s/ldr x30, \[sp\]\$//|protector
s/ldr x29, \[x1.*//|frame pointer
s/RESTORE x27, x28, 64//|x28 is not
s/RESTORE d14, d15, 128//|d15 is not
s/msr fpcr, x3//|control words
s/SAVE x19, x20, 0/&\nstr x19, [sp, -16]/;s/RESTORE x19, x20, 0/&\nldr x19, [sp, -16]/|x19 is not
s/str x3, \[x0, .*/add x3, x3, 16\n&/|SP
s/sub sp, sp, 160/sub sp, sp, 168/;s/add sp, sp, 160/add sp, sp, 168/|SP is not aligned
s/add sp, sp, 160/add sp, sp, 144/|SP is not that of the call
s/.cfi_escape 0x0f.*//|backtrace"
    [riscv64]="s/ld ra, 0(sp)\$//|protector
s/ld s0, .*(a1)//|frame pointer
s/RESTORE ld, s11, 88//|s11 is not
s/RESTORE fld, fs11, 184//|fs11 is not
s/fsrm a3//|control words
s/.cfi_escape 0x0f.*//|backtrace"
    [arm]="s/ldr lr, \[sp\]\$//|protector
s/mov r11, r7//|frame pointer
s/vmsr fpscr, r3//|control words
s/ vpop {d8-d15}/ add sp, sp, 64/|d15 is not"
)
FAULTS[thumb]=${FAULTS[arm]}

# Steps through the program under gdb from the start: 0 if nothing is wrong.
step() {
    local name=$1 status=0
    start_stub "${EMULATOR[$name]}" "$TMP/program"
    timeout 100 "${GDB[@]}" -ex "target remote $TMP/socket" -x tests/programs/emulated_steps.py \
        "$TMP/program" >"$TMP/said" 2>&1 || status=$?
    wait
    return "$status"
}

# build PROCESSOR ASSEMBLY OPTIONS...
build() {
    local name=$1 assembly=$2 cross
    shift 2
    read -ra cross <<<"${CROSS[$name]}"
    must "$name $*: does not compile" "${cross[@]}" -static -no-pie -gdwarf-4 "$@" -I. \
        tests/programs/emulated_steps.c aco.c "$assembly" -o "$TMP/program" -lm
}

check_variant() {
    local name=$1 options
    read -ra options <<<"$2"
    build "$name" acosw.S "${options[@]}"
    if ! step "$name"; then
        grep -E 'FAULT|[Ee]rror' "$TMP/said" >&2 || tail -n 5 "$TMP/said" >&2
        fail "$name $2: a rule is broken"
    fi
    [[ $(<"$TMP/said") == *" 4 switches, "* ]] || fail "$name $2: nothing was stepped"
}

check_faults() {
    local name=$1 edit said cross
    read -ra cross <<<"${CROSS[$name]}"
    "${cross[@]}" -DACO_CONFIG_NO_INLINE_SWITCH -I. -E -P acosw.S | tr ';' '\n' >"$TMP/acosw.s"
    while IFS='|' read -r edit said; do
        sed "$edit" "$TMP/acosw.s" >"$TMP/fault.s"
        if cmp -s "$TMP/acosw.s" "$TMP/fault.s"; then
            fail "$name: the edit $edit finds nothing in acosw.S"
        fi
        build "$name" "$TMP/fault.s" -O2 -DACO_CONFIG_NO_INLINE_SWITCH
        if step "$name" || [[ $(grep FAULT "$TMP/said") != *"$said"* ]]; then
            tail -n 5 "$TMP/said" >&2
            fail "$name: $edit is not found to be a fault of $said"
        fi
    done <<<"${FAULTS[$name]}"
}

[[ ${#FOREIGN[@]} -gt 0 ]] || skip "no other processor is emulated"
need gdb-multiarch:gdb-multiarch
for name in "${FOREIGN[@]}"; do
    for variant in "${VARIANTS[@]}"; do
        check_variant "$name" "$variant"
    done
    check_faults "$name"
    echo "$name: ${#VARIANTS[@]} variants, and each fault in acosw.S is found"
done
