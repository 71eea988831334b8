#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Objects and libraries as tools see them: every function of acosw.S has a type and a size, no stack
# is executable, no text needs relocation, nothing but libc is needed, branch tracking and signed
# return addresses are claimed where the compiler was asked for them, and a shadow stack never.

# shellcheck source=tests/harness.sh
. tests/harness.sh

if ! have readelf || ! have objdump; then
    skip "readelf and objdump are needed"
fi
read -ra native <<<"$CC"
# The compiler, with the options for a kind of processor.
compiler=("${native[@]}")

build() {
    must "aco.c does not compile" "${compiler[@]}" -O2 "$@" -I. -c aco.c -o "$TMP/aco.o"
    must "acosw.S does not compile" "${compiler[@]}" "$@" -I. -c acosw.S -o "$TMP/acosw.o"
}

check_symbols() {
    local width=$1 name names=(acosw aco_save_fpucw_mxcsr aco_funcp_protector_asm)
    [[ $width != -m* ]] || names+=(aco_i_load_fpucw_mxcsr)
    readelf -sW "$TMP/acosw.o" |
        awk '$1 ~ /^[0-9]+:$/ && $7 ~ /^[0-9]+$/ && $4 != "SECTION" && $8 !~ /^(\$|\.L|$)/ {
                 print $4, $3, $8
             }' >"$TMP/symbols"
    for name in "${names[@]}"; do
        grep -q " $name\$" "$TMP/symbols" || fail "$width: acosw.o has no symbol $name"
    done
    if awk '$1 !~ /^(FUNC|OBJECT)$/ || $2 + 0 == 0' "$TMP/symbols" | grep . >&2; then
        fail "$width: these symbols of acosw.o have no type or no size"
    fi
}

# The flags of the stack in the header of a program or library.
stack_flags() {
    readelf -lW "$1" | awk '$1 == "GNU_STACK" { print $7 $8 }'
}

check_stack() {
    local width=$1
    [[ $(readelf -SW "$TMP/acosw.o") == *.note.GNU-stack* ]] ||
        fail "$width: acosw.o does not say that its stack is not executable"
    must "$width: a program does not link" "${compiler[@]}" -O2 -I. tests/programs/library_user.c \
        "$TMP/aco.o" "$TMP/acosw.o" -o "$TMP/program"
    [[ $(stack_flags "$TMP/program") == RW0* ]] ||
        fail "$width: a program wants an executable stack"
}

# No relocation of text, nothing left undefined but what libc and the compiler's own library have.
check_shared_library() {
    local width=$1 libraries=(-lc -lgcc)
    # Its tables of unwinding name functions of the unwinder.
    [[ $width != @(arm|thumb) ]] || libraries+=(-lgcc_s)
    must "$width: the shared library needs relocations of text, or more than libc" \
        "${compiler[@]}" -shared -nostdlib -Wl,-z,text,-z,defs,--fatal-warnings \
        "$TMP/aco.o" "$TMP/acosw.o" -o "$TMP/libaco.so" "${libraries[@]}"
    if [[ $(readelf -dW "$TMP/libaco.so") == *TEXTREL* ]]; then
        fail "$width: the shared library has relocations of text"
    fi
    [[ $(stack_flags "$TMP/libaco.so") == RW0* ]] ||
        fail "$width: the shared library wants an executable stack"
}

# The instruction of acosw.o at which a symbol starts.
first_instruction() {
    local address
    address=$(readelf -sW "$TMP/acosw.o" | awk -v name="$1" '$8 == name { print $2 }')
    objdump -d --no-show-raw-insn --start-address="0x$address" "$TMP/acosw.o" |
        awk '$1 ~ /^[0-9a-f]+:$/ && !found { print $2; found = 1 }'
}

# The instruction after the jump of each switch in an object: all ways to arrive.
instructions_after_jumps() {
    objdump -d --no-show-raw-insn "$1" | awk '
        after && NF > 1 && $2 != "int3" { print $2; after = 0 }
        $2 ~ /^jmp/ && $3 ~ /^\*\(%(rsi|ecx)\)/ { after = 1 }'
}

check_branch_tracking() {
    local width=$1 pad=$2 name
    build -fPIC -fcf-protection=full
    readelf -nW "$TMP/acosw.o" >"$TMP/notes"
    grep -q IBT "$TMP/notes" || fail "$width: acosw.o does not claim branch tracking"
    if grep -q SHSTK "$TMP/notes"; then
        fail "$width: acosw.o claims a shadow stack"
    fi
    for name in acosw aco_i_load_fpucw_mxcsr aco_save_fpucw_mxcsr aco_funcp_protector_asm; do
        [[ "$(first_instruction "$name")" == "$pad" ]] ||
            fail "$width: $name does not start with $pad"
    done
    for object in acosw aco; do
        instructions_after_jumps "$TMP/$object.o" | sort -u >"$TMP/arrivals"
        [[ "$(cat "$TMP/arrivals")" == "$pad" ]] ||
            fail "$width: $object.o arrives at $(tr '\n' ' ' <"$TMP/arrivals"), not at $pad only"
    done
    check_shared_library "$width"
    readelf -nW "$TMP/libaco.so" >"$TMP/notes"
    if grep -q SHSTK "$TMP/notes"; then
        fail "$width: the shared library claims a shadow stack"
    fi

    build -fPIC -fcf-protection=none
    if [[ $(readelf -nW "$TMP/acosw.o") =~ IBT|SHSTK ]]; then
        fail "$width: acosw.o claims branch tracking though it was not asked for"
    fi
    if [[ "$(first_instruction acosw)" == "$pad" ]]; then
        fail "$width: acosw starts with $pad though it was not asked for"
    fi
}

# On arm64, arrivals are seen in the text, as objdump may not know the processor.
claims_of_arm64() {
    local protection=$1 claimed
    build -fPIC "$protection"
    claimed=$(readelf -nW "$TMP/acosw.o" | sed -n 's/.*AArch64 feature: //p')
    echo "${claimed:-none}"
    "${compiler[@]}" "$protection" -I. -E -P acosw.S | tr ';' '\n' >"$TMP/text"
    "${compiler[@]}" "$protection" -I. -O2 -S aco.c -o - >>"$TMP/text"
    awk '/br[ \t]+x17/ { after = 1; next }
         after && /^[ \t]*[a-z]/ && !/brk/ {
             sub(/#/, "", $2)
             print $1, $2
             after = 0
         }' "$TMP/text" | sort -u
}

check_branch_protection() {
    local options option claim arrival
    for options in "none|none|" "bti|BTI|hint 36" "pac-ret|PAC|" "standard|BTI, PAC|hint 36"; do
        IFS='|' read -r option claim arrival <<<"$options"
        claims_of_arm64 "-mbranch-protection=$option" >"$TMP/claims"
        [[ "$(head -n 1 "$TMP/claims")" == "$claim" ]] ||
            fail "arm64 $option: acosw.o claims $(head -n 1 "$TMP/claims"), not $claim"
        if [[ -n "$arrival" ]] && [[ "$(tail -n +2 "$TMP/claims")" != "$arrival" ]]; then
            fail "arm64 $option: arrives at $(tail -n +2 "$TMP/claims"), not at $arrival only"
        elif [[ -z "$arrival" ]] && [[ $(<"$TMP/claims") == *"hint 36"* ]]; then
            fail "arm64 $option: arrives at landing pads though it was not asked for"
        fi
        check_shared_library "arm64 $option"
    done
    echo "arm64: branch tracking, signed return addresses"
}

for width in "${WIDTHS[@]}"; do
    pad=endbr64
    [[ "$width" == -m64 ]] || pad=endbr32
    compiler=("${native[@]}" "$width")
    build -fPIC
    check_symbols "$width"
    check_stack "$width"
    check_shared_library "$width"
    check_branch_tracking "$width" "$pad"
    echo "$width: symbols, stack, relocations, what is undefined, branch tracking"
done

for name in "${FOREIGN[@]}"; do
    read -ra compiler <<<"${CROSS[$name]}"
    build -fPIC
    check_symbols "$name"
    check_stack "$name"
    check_shared_library "$name"
    [[ "$name" != arm64 ]] || check_branch_protection
    echo "$name: symbols, stack, relocations, what is undefined"
done

need_libraries
if [[ $(readelf -dW "$OUTPUT/libaco.so") == *TEXTREL* ]]; then
    fail "the shared library that is built has relocations of text"
fi
nm -D --undefined-only "$OUTPUT/libaco.so" | awk '$1 != "w" { print $2 }' >"$TMP/undefined"
# The unwinder, for cancellation, comes with the compiler.
if grep -vE '@GLIBC_|^_Unwind_[A-Za-z]+@GCC_' "$TMP/undefined" >&2; then
    fail "the shared library that is built needs more than libc and the unwinder"
fi
echo "$OUTPUT/libaco.so: relocations, what is undefined"
