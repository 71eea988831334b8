#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# acosw() keeps what docs/proof.md says, proved from its bytes for both processors, with own and
# with shared control words, and together with the inline switch as the compilers at hand emit it.
# The proof fails where it must: for every byte of acosw(), and for faults that were put into its
# source. By hand, --all-mutants changes each bit instead of two bits of each byte, which takes some
# minutes; here only the shortest build has that.

# shellcheck source=tests/harness.sh
. tests/harness.sh

MUTANTS=--mutants
[ "${1:-}" != --all-mutants ] || MUTANTS=--all-mutants
read -ra compiler <<<"$CC"

# The python3 that comes first may not be the one that Debian's modules belong to.
find_python() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        if "$candidate" -c 'import capstone, elftools, z3' 2>/dev/null; then
            PROVE=("$candidate" -B tools/proof/prove.py)
            return
        fi
    done
    lack "no prover: apt-get install python3-z3 python3-capstone python3-pyelftools"
}

assemble() {
    must "$1 does not assemble" "${compiler[@]}" "${@:3}" -I. -c "$1" -o "$2"
}

prove() {
    must "$1: no proof" "${PROVE[@]}" "${@:2}"
    echo "$1: $(<"$TMP/said")"
}

# ---- acosw() -------------------------------------------------------------------------------------

check_acosw() {
    local width=$1 option mutants
    for option in -UACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_SHARE_FPU_MXCSR_ENV; do
        assemble acosw.S "$TMP/acosw.o" "$width" "$option"
        mutants=$MUTANTS
        [[ $width$option != -m32-D* ]] || mutants=--all-mutants
        prove "$width $option" "$mutants" "$TMP/acosw.o"
        assemble acosw.S "$TMP/acosw.o" "$width" "$option" -fcf-protection=full
        prove "$width $option -fcf-protection=full" "$TMP/acosw.o"
    done
}

# ---- The inline switch ---------------------------------------------------------------------------

# Compilers mark what they take from an asm statement; a switch is one with an indirect jump.
label_switches() {
    awk '/^\t?#APP/ { is_asm = 1; text = ""; next }
         /^\t?#NO_APP/ {
             is_asm = 0
             if (text ~ /jmp[lq]?[ \t]+\*/) {
                 name = "inline_" ++n
                 text = name "_begin:\n" text name "_end:\n"
             }
             printf "%s", text
             next
         }
         is_asm { text = text $0 "\n"; next }
         { print }'
}

check_inline() {
    local cc=$1 width=$2 keeps=$3 what
    shift 3
    what="$cc $width $*"
    must "$what: inline_user.c does not compile" \
        "$cc" "$width" -O2 "$@" -I. -S tools/proof/inline_user.c -o "$TMP/user.s"
    label_switches <"$TMP/user.s" >"$TMP/labelled.s"
    must "$what: labels do not assemble" "$cc" "$width" -c "$TMP/labelled.s" -o "$TMP/user.o"
    assemble acosw.S "$TMP/acosw.o" "$width" "$@"
    must "$what: does not link" \
        "$cc" "$width" -nostdlib -r "$TMP/user.o" "$TMP/acosw.o" -o "$TMP/both.o"
    prove "$what" ${keeps:+"--inline-keeps=$keeps"} "$TMP/both.o"
    [[ $(<"$TMP/said") == *"acosw, inline_1, inline_2;"* ]] || fail "$what: no inline switch found"
}

check_all_inline() {
    local width=$1 cc keeps pic option
    for cc in "${FOUND[@]}"; do
        # clang is given back one register that it may be addressing its frame through.
        keeps=
        [ "$cc" = gcc ] || { [ "$width" = -m64 ] && keeps=rbx || keeps=esi; }
        for pic in -fno-pic -fPIC; do
            for option in -UACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_SHARE_FPU_MXCSR_ENV; do
                check_inline "$cc" "$width" "$keeps" "$pic" "$option"
            done
        done
    done
}

# ---- Faults in the source ------------------------------------------------------------------------

# reject WHAT REASON EDIT: acosw.S with the edit must be refused for the reason. It is edited after
# the preprocessor, one instruction in a line.
reject() {
    local what=$1 reason=$2 edit=$3
    sed "$edit" "$TMP/acosw.s" >"$TMP/fault.s"
    if cmp -s "$TMP/acosw.s" "$TMP/fault.s"; then
        fail "$what: the edit finds nothing in acosw.S"
    fi
    assemble "$TMP/fault.s" "$TMP/fault.o" "$width"
    must_not "$what: proved" "NOT PROVED: .*$reason" "${PROVE[@]}" "$TMP/fault.o"
}

check_faults() {
    local word=8 to=%rsi from=%rdi sp=%rsp saved=%r15 scratch=%r11
    [ "$width" = -m64 ] || word=4 to=%ecx from=%eax sp=%esp saved=%edi scratch=%edx
    "${compiler[@]}" "$width" -I. -E -P acosw.S | tr ';' '\n' >"$TMP/acosw.s"
    local bp_load="mov[lq] .*($to), %[re]bp" jump='^ *jmp[lq] \*.*'

    reject "unknown instruction" "no meaning is known for cld" "s/$jump/cld\n&/"
    reject "prefix" "the prefixes of ret" 's/^ *ret$/rep ret/'
    reject "call of another file" "refers to what is in another" "s/$jump/call elsewhere\n&/"
    reject "x87 stack not empty" "C1.3: the x87" "s/$jump/fld1\n&/"
    reject "direction flag set" "C1.4: the direction" "s/$jump/std\n&/"
    reject "register not saved" "C2.0: ${saved#%} is" "s/push $saved//; s/pop $saved//"
    reject "another saved" "C2.0: ${saved#%} is" "s/push $saved/push $scratch/"
    reject "frame pointer not loaded" "C2.0: the frame pointer" "/$bp_load/d"
    reject "SP not loaded" "C2.1: SP is" "/mov[lq] .*($to), $sp/d"
    reject "x87 control word not loaded" "C2.2: the control words" 's/fldcw/fnstcw/'
    reject "MXCSR not loaded" "C2.2: the control words" 's/ldmxcsr/stmxcsr/'
    reject "SP saved too early" "C3: SP points at stack\\+$word" \
        "s/push $saved/mov $sp, $word($from)\n&/; /mov[lq] $sp, .*($from)/d"
    reject "record addressed through SP" "C3: SP points at to\\+0" "s/$bp_load/mov $to, $sp\n&/"
    reject "red zone used" "M: no known memory" \
        "s/$bp_load/mov $to, -$word($sp)\nmov -$word($sp), $to\n&/"
    reject "register saved below SP" "C2.0: ${saved#%} is" \
        "s/push $saved/mov $saved, -$word($sp)/; s/pop $saved/mov -$word($sp), $saved/"
    reject "record of the other written" "M: writes $word bytes at to\\+0" \
        "s/$jump/mov $from, ($to)\n&/"
    reject "\`to\` lost" "X1: the register" \
        "s/$jump/mov ($to), $scratch\nmov $from, $to\njmp *$scratch/"
    reject "flags of MXCSR taken over" "X2: the flags" \
        "/fldcw/,/ldmxcsr/s/andl .*, %edx/andl \$0xffff, %edx/"
    reject "x87 flag made to trap" "X3: no x87 flag traps" '/fnclex/d'
    reject "control words always loaded" "X4: control words" "s/orl %ebx, %edx/orl \$1, %edx/"
    reject "\`from\` lost" "X5: the register" "s/$jump/mov $to, $from\n&/"
}

find_python
find_compilers gcc clang
for width in "${WIDTHS[@]}"; do
    check_acosw "$width"
    check_all_inline "$width"
    check_faults
    echo "$width: each fault in the source is found"
done
