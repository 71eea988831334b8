#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# acosw() keeps what docs/proof.md says, proved from its bytes for x86-64, i386 and arm64, with own
# and with shared control words; so do the inline switch and aco_i_ferry() as the compilers at hand
# emit them, and what an entry function returns to. The proof fails where it must: for every byte of
# acosw.S that it executes, and for faults put into the sources. By hand, --all-mutants changes
# each bit instead of two bits of each byte, which takes some minutes; here only the shortest builds
# have that.
# parts: x86_64 i386 arm64
# seconds: 63 55 59

# shellcheck source=tests/harness.sh
. tests/harness.sh

MUTANTS=--mutants
[[ "${1:-}" != --all-mutants ]] || MUTANTS=--all-mutants
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

# The processor at hand, the compiler for it, and the option that protects branches.
NAME='' COMPILE=() PROTECTION=''

assemble() {
    must "$1 does not assemble" "${COMPILE[@]}" "${@:3}" -I. -c "$1" -o "$2"
}

prove() {
    must "$1: no proof" "${PROVE[@]}" "${@:2}"
    echo "$1: $(<"$TMP/said")"
}

# Objects that must be refused: of each what is wrong with it, and the reason. They go to the prover
# together, as it takes longer to start than to refuse one.
FAULTS=() REASONS=()

# expect_refusal WHAT REASON OBJECT: the object is kept for refuse_all.
expect_refusal() {
    mv "$3" "$TMP/${#FAULTS[@]}.fault.o"
    FAULTS+=("$1") REASONS+=("$2")
}

refuse_all() {
    local n refused
    "${PROVE[@]}" "$TMP"/*.fault.o >"$TMP/refused" 2>&1 || true
    for n in "${!FAULTS[@]}"; do
        refused=$(sed -n "s/^$n\.fault\.o: //p" "$TMP/refused")
        if ! grep -qE "^NOT PROVED: .*${REASONS[n]}" <<<"$refused"; then
            tail -n 3 "$TMP/refused" >&2
            fail "${COMPILE[0]} $NAME, ${FAULTS[n]}: not refused for ${REASONS[n]}: $refused"
        fi
    done
    rm -f "$TMP"/*.fault.o
    FAULTS=() REASONS=()
}

# ---- acosw() -------------------------------------------------------------------------------------

check_acosw() {
    local option mutants
    for option in -UACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_SHARE_FPU_MXCSR_ENV; do
        assemble acosw.S "$TMP/acosw.o" "$option"
        mutants=$MUTANTS
        [[ $NAME$option != @(-m32|arm64)-D* ]] || mutants=--all-mutants
        prove "$NAME $option" "$mutants" "$TMP/acosw.o"
        assemble acosw.S "$TMP/acosw.o" "$option" "$PROTECTION"
        prove "$NAME $option $PROTECTION" "$TMP/acosw.o"
        [[ $(<"$TMP/said") == *" X7:"* ]] || fail "$NAME $option: no landing pad is looked at"
    done
}

# ---- The inline switch ---------------------------------------------------------------------------

# Compilers mark what they take from an asm statement; a switch is one with an indirect jump.
label_switches() {
    awk '/^\t?(#|\/\/)APP/ { is_asm = 1; text = ""; next }
         /^\t?(#|\/\/)NO_APP/ {
             is_asm = 0
             if (text ~ /jmp[lq]?[ \t]+\*|\tbr\tx17/) {
                 name = "inline_" ++n
                 text = name "_begin:\n" text name "_end:\n"
             }
             printf "%s", text
             next
         }
         is_asm { text = text $0 "\n"; next }
         { print }'
}

# link_inline WHAT ASSEMBLY: both ways to switch in $TMP/both.o, and the object LIBRARY, if there is
# one.
LIBRARY=''
link_inline() {
    assemble "$2" "$TMP/user.o"
    must "$1: does not link" "${COMPILE[@]}" -nostdlib -r "$TMP/user.o" "$TMP/acosw.o" \
        ${LIBRARY:+"$LIBRARY"} -o "$TMP/both.o"
}

# compile_library WHAT SOURCE OPTION...: aco.c, with no more of vectors than the proof understands.
compile_library() {
    local scalar=-fno-tree-slp-vectorize
    LIBRARY=$TMP/aco.o
    must "$1: $2 does not compile" \
        "${COMPILE[@]}" -O2 "$scalar" "${@:3}" -I. -c "$2" -o "$LIBRARY"
}

# check_inline WHAT REGISTER OPTION...: the inline switch has to keep the register, if one is given.
check_inline() {
    local what=$1 keeps=$2
    shift 2
    must "$what: inline_user.c does not compile" \
        "${COMPILE[@]}" -O2 "$@" -I. -S tools/proof/inline_user.c -o "$TMP/user.s"
    must "$what: inline_user.c is not read" \
        "${COMPILE[@]}" "$@" -I. -E -P -dD tools/proof/inline_user.c -o "$TMP/source"
    label_switches <"$TMP/user.s" >"$TMP/labelled.s"
    assemble acosw.S "$TMP/acosw.o" "$@"
    LIBRARY=''
    [[ "$1" != -fno-pic ]] || compile_library "$what" aco.c "$@"
    link_inline "$what" "$TMP/labelled.s"
    prove "$what" ${keeps:+"--inline-keeps=$keeps"} "--source=$TMP/source" "$TMP/both.o"
    [[ $(<"$TMP/said") == *"acosw, inline_1, inline_2;"* ]] || fail "$what: no inline switch found"
}

# check_all_inline REGISTER: with the library, whose variables of threads the proof knows only where
# code is not position-independent, branches are protected.
check_all_inline() {
    local options pic protection option
    for options in "-fPIC -UNONE" "-fno-pic $PROTECTION"; do
        read -r pic protection <<<"$options"
        for option in -DACO_CONFIG_SHARE_FPU_MXCSR_ENV -UACO_CONFIG_SHARE_FPU_MXCSR_ENV; do
            check_inline "${COMPILE[0]} $NAME $pic $option" "$1" "$pic" "$protection" "$option"
        done
        "check_inline_faults_$pic"
    done
}

# reject_inline WHAT REASON EDIT [FILE]: the last of these, after an edit of its assembly or of its
# preprocessed source, must be refused for the reason.
reject_inline() {
    local what="${COMPILE[0]} $NAME, inline: $1" reason=$2 edit=$3 file=${4:-labelled.s}
    sed "$edit" "$TMP/$file" >"$TMP/fault.$file"
    ! cmp -s "$TMP/$file" "$TMP/fault.$file" || fail "$what: the edit finds nothing"
    if [[ "$file" == labelled.s ]]; then
        link_inline "$what" "$TMP/fault.$file"
        expect_refusal "$what" "$reason" "$TMP/both.o"
    else
        must_not "$what: proved" "NOT PROVED: .*$reason" \
            "${PROVE[@]}" "--source=$TMP/fault.$file" "$TMP/both.o"
    fi
}

check_inline_faults_-fPIC() {
    [[ "$NAME" != -m32 ]] ||
        reject_inline "wrong GOT" "C5: calls through the PLT" \
            's/\(_GLOBAL_OFFSET_TABLE_+([^)]*\))/\1+1)/'
}

check_inline_faults_-fno-pic() {
    local named=rdx pad="s/^\\t*endbr64//" operand='"+D"([a-z_]*)' from=rdi
    local push='push %rdx; pop %rdx'
    case $NAME in
    -m32) named=edx pad="s/^\\t*endbr32//" operand='"+a"([a-z_]*)' from=eax push=${push//r/e} ;;
    arm64)
        named=v9 pad="s/hint.#*36//" operand='"+r"(aco_i_from)' from=x0
        push='str x2, [sp, -16]!; ldr x2, [sp], 16'
        ;;
    esac
    reject_inline "operand an input only" "C2.0: $from is" \
        "s/: \($operand\), \(\"[^:]*\):/: \2: \1/; s/\"+\(.\"([a-z_]*)\) *:/\"\1 :/" source
    reject_inline "register not named" "C2.0: " "s/\"$named\",//" source
    [[ "$NAME" != -m64 ]] || reject_inline "MMX not named" "C2.0: .* mm7" 's/"mm7"/"mm6"/' source
    reject_inline "no landing pad" "X7: .from. has no landing pad" \
        "/^inline_.*_begin/,/^inline_.*_end/{$pad}"
    reject_inline "pushes and pops" "X9: SP points at .*stack-" "s/^inline_1_begin:/&\n$push/"
    [[ "${COMPILE[*]}" != "gcc -m64" ]] || check_ferry_faults
}

# reject_ferry WHAT REASON EDIT: aco.c with the edit.
reject_ferry() {
    sed "/^aco_t \*aco_i_ferry(/,/^}/{$3}" aco.c >"$TMP/fault.c"
    ! cmp -s aco.c "$TMP/fault.c" || fail "ferry: $1: the edit finds nothing"
    compile_library "$1" "$TMP/fault.c" -fno-pic
    link_inline "$1" "$TMP/labelled.s"
    expect_refusal "ferry: $1" "$2" "$TMP/both.o"
}

check_ferry_faults() {
    reject_ferry "no room for it" "F: the ferry is below" 's/ - sizeof(aco_t)//'
    reject_ferry "within the red zone" "F: the ferry is below" 's/ - RED_ZONE_SZ//'
    reject_ferry "not aligned" "M: no known memory" 's/STACK_ALIGNMENT/1/g'
    reject_ferry "too much written" "M: writes 8 bytes at ferry-16" \
        's/\*return_address = NULL/*--return_address = NULL/'
    reject_ferry "return address unset" "C2: not all of the 8 bytes at ferry-8" \
        '/^ *\*return_address = /d'
    reject_ferry "SP of another" "F: the ferry has its return" \
        's/\(IDX_SP. = return_address\)/\1 - 1/'
    reject_ferry "control words of none" "C2: not all of the 4 bytes at ferry" '/IDX_FPU/d'
    reject_ferry "another function" "F: the ferry starts in" 's/)run_ferry/)aco_i_ferry/'
    reject_ferry "frame pointer of the parent" "F: the ferry has no frame" \
        's/\(IDX_BP. = \)NULL/\1parent->reg[ACO_REG_IDX_BP]/'
    reject_ferry "self told for the parent" "F: parent is told" \
        's/aco_gtls_co = parent/aco_gtls_co = self/'
    LIBRARY=''
}

# ---- Faults in the source ------------------------------------------------------------------------

# Writes the source that faults are put into: acosw.S preprocessed, one instruction in a line.
preprocess() {
    must "acosw.S is not read" "${COMPILE[@]}" "$@" -I. -E -P acosw.S -o "$TMP/preprocessed.s"
    tr ';' '\n' <"$TMP/preprocessed.s" >"$TMP/acosw.s"
}

# reject WHAT REASON EDIT: acosw.S with the edit must be refused for the reason.
reject() {
    local what=$1 reason=$2 edit=$3
    sed "$edit" "$TMP/acosw.s" >"$TMP/fault.s"
    if cmp -s "$TMP/acosw.s" "$TMP/fault.s"; then
        fail "$what: the edit finds nothing in acosw.S"
    fi
    assemble "$TMP/fault.s" "$TMP/fault.o"
    expect_refusal "$what" "$reason" "$TMP/fault.o"
}

check_x86_faults() {
    local word=8 to=%rsi from=%rdi sp=%rsp saved=%r15 scratch=%r11
    [[ "$NAME" == -m64 ]] || word=4 to=%ecx from=%eax sp=%esp saved=%edi scratch=%edx
    local bp_load="mov[lq] .*($to), %[re]bp" jump='^ *jmp[lq] \*.*'
    preprocess

    reject "unknown instruction" "no meaning is known for cld" "s/$jump/cld\n&/"
    reject "prefix" "the prefixes of ret" 's/^ *ret$/rep ret/'
    reject "call of another file" "goes to elsewhere" "s/$bp_load/call elsewhere\n&/"
    reject "jump to another file" "a relocation that is no call" "s/$bp_load/jmp elsewhere\n&/"
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
    check_protector_faults
    check_x86_protector_faults
}

# With the names of registers that check_x86_faults() has, and what it works on.
check_x86_protector_faults() {
    local name
    [[ "$NAME" == -m64 ]] || reject "wrong GOT" "C5: calls through the PLT" 's/(\.-1b)/(.-1b+1)/'
    [[ "$NAME" == -m64 ]] ||
        reject "protector not written anew" "stack-4 are written" '/movl %eax, 12(%esp)/d'
    reject "protector overwritten" "(I4: the protector|M: writes 4 bytes at stack\\+12)" \
        "s/sub[lq] \$16, $sp/sub \$0, $sp/"
    reject "protector changes frame pointer" "C2.0: the frame pointer is as at the return" \
        "s/sub[lq] \$16, $sp/mov $scratch, ${sp/s/b}\n&/"

    preprocess "$PROTECTION"
    for name in acosw aco_i_load_fpucw_mxcsr aco_save_fpucw_mxcsr aco_funcp_protector_asm; do
        reject "$name without landing pad" "X7: $name has" "/^ *$name:/,/endbr/s/endbr.*//"
    done
    reject "resumed without landing pad" "X7: .from. has" '/Lcontinued:/,/endbr/s/endbr.*//'
}

# On any processor.
check_protector_faults() {
    reject "protector with a caller" "X8: to unwinders" '/cfi_undefined/d'
    reject "another function before the protector" "X8: aco_coroutine_end is" \
        's/size aco_coroutine_end, .*/size aco_coroutine_end, 0/'
}

check_arm64_faults() {
    local jump='^ *br x17' bp_load='^ *ldr x29, .*'
    preprocess "$PROTECTION"

    reject "unknown instruction" "no meaning is known for nop" "s/$jump/nop\n&/"
    reject "base register changed" "X1: the register" \
        "s/$jump/ldr x4, [x1], 8\n&/"
    reject "call of another file" "goes to elsewhere" "s/$jump/bl elsewhere\n&/"
    reject "jump to another file" "refers to what is in another" "s/$jump/b elsewhere\n&/"
    reject "address between instructions" "X7: .from. has no landing" 's/^ *adr x2, .*/&+2/'
    reject "register not saved" "C2.0: x28 is" 's/SAVE x27, x28/SAVE x27, x2/'
    reject "vector register not saved" "C2.0: d15 is" 's/SAVE d14, d15/SAVE d14, d16/'
    reject "vector register not restored" "C2.0: d8 is" 's/RESTORE d8, d9/RESTORE d0, d9/'
    reject "registers swapped" "C2.0: x19 is" 's/RESTORE x19, x20/RESTORE x20, x19/'
    reject "registers saved below SP" "C2.0: x27 is" \
        's/^ *sub sp, sp, 160/stp x27, x28, [sp, -96]\n&/; /SAVE x27, x28/d'
    reject "frame pointer not loaded" "C2.0: the frame pointer" "/$bp_load/d"
    reject "return address not saved" "C2.1: authenticates" '/str x30, .sp, 144./d'
    reject "protector not loaded" "C2.1: init: the protector" '/ldr x30, .sp.$/d'
    reject "signed with another SP" "C2.1: authenticates" \
        's/hint 25/hint 34\nsub sp, sp, 16\n&\nadd sp, sp, 16/'
    reject "not signed" "C2.1: authenticates" 's/hint 25/hint 34/'
    reject "SP not loaded" "C2.1: SP is" '/mov sp, x3/d'
    reject "FPCR not loaded" "C2.2: the control words" '/msr fpcr/d'
    reject "reserved bits of FPCR" "C2.2: may load reserved" 's/ldr w3,/ldrsw x3,/'
    reject "SP not aligned" "C3: SP points at stack-152, which is not aligned" \
        's/sub sp, sp, 160/sub sp, sp, 152/'
    reject "record addressed through SP" "C3: SP points at to\\+0" "s/$bp_load/mov sp, x1\n&/"
    reject "memory below SP used" "M: no known memory" \
        's/^ *sub sp, sp, 160/stp x0, x1, [sp, -16]\nldp x0, x1, [sp, -16]\n&/'
    reject "SP saved too early" "M: reads 8 bytes at stack\\+8" \
        '/mov x3, sp/d; s/^ *sub sp, sp, 160/mov x3, sp\n&/'
    reject "record of the other written" "M: writes 8 bytes at to\\+0" "s/$jump/str x0, [x1]\n&/"
    reject "control words of the other written" "M: writes 4 bytes at to\\+24" \
        "s/$jump/str w2, [x1, 24]\n&/"
    reject "\`to\` lost" "X1: the register" "s/$jump/mov x1, x0\n&/"
    reject "flags changed" "X2: FPSR" "s/$jump/mrs x2, fpcr\nmsr fpsr, x2\n&/"
    reject "control words always loaded" "X4: control words" '/b.eq/d'
    reject "\`from\` lost" "X5: the register" "s/$jump/mov x0, x1\n&/"
    reject "jump by another register" "X6: no landing pad" 's/x17/x4/'
    check_protector_faults
    check_arm64_protector_faults
}

check_arm64_protector_faults() {
    reject "protector not aligned" "C3: SP points at stack-8" 's/^ *bl aco/sub sp, sp, 8\n&/'
    reject "protector changes frame pointer" "C2.0: the frame pointer is as at the return" \
        's/^ *bl aco/mov x29, x0\n&/'
    reject "acosw without landing pad" "X7: acosw has" '/^ *acosw:/,/hint/s/hint 25/nop/'
    reject "aco_save_fpucw_mxcsr without landing pad" "X7: aco_save_fpucw_mxcsr has" \
        '/^ *aco_save_fpucw_mxcsr:/,/hint/s/hint.*//'
    reject "aco_funcp_protector_asm without landing pad" "X7: aco_funcp_protector_asm has" \
        '/^ *aco_funcp_protector_asm:/,/hint/s/hint.*//'
    reject "resumed without landing pad" "X7: .from. has" '/Lcontinued:/,/hint/s/hint 36//'
}

# ---- All processors ------------------------------------------------------------------------------

# check_x86 WIDTH COMPILER: the inline switch with each compiler. clang is given back one register
# that it may be addressing its frame through.
check_x86() {
    local cc base=rbx
    [[ "$1" == -m64 ]] || base=esi
    NAME=$1 PROTECTION=-fcf-protection=full
    for cc in "${FOUND[@]}"; do
        COMPILE=("$cc" "$1")
        [[ "$cc" == clang ]] || check_all_inline ""
        [[ "$cc" != clang ]] || check_all_inline "$base"
    done
    COMPILE=("${compiler[@]}" "$1")
    check_acosw
    check_x86_faults
    refuse_all
}

check_arm64() {
    NAME=arm64 PROTECTION=-mbranch-protection=standard
    read -ra COMPILE <<<"${CROSS[arm64]}"
    check_all_inline x19
    check_acosw
    check_arm64_faults
    refuse_all
}

find_python
find_compilers gcc clang
for width in "${WIDTHS[@]}"; do
    check_x86 "$width"
    echo "$width: each fault in the source is found"
done
if [[ -n "${CROSS[arm64]:-}" ]]; then
    check_arm64
    echo "arm64: each fault in the source is found"
fi
