#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Assembles objects that can't be run here: acosw.S and the inline switch for Mach-O, whose names
# have an underscore. For x32, and for a processor without a block, the message of the error says
# what to do. Needs clang, which has all these targets.

# shellcheck source=tests/harness.sh
. tests/harness.sh

need clang:clang

# System headers of other systems are not there: these do for what aco.h needs of them.
mkdir "$TMP/include"
for header in limits stdio stdlib string time unistd sys/mman; do
    mkdir -p "$TMP/include/$(dirname "$header")"
    printf '#include <stddef.h>\nvoid *malloc(size_t); void abort(void);\n' \
        >"$TMP/include/$header.h"
done
printf '#include "aco.h"\nvoid user(aco_t *);\n%s\n' \
    'void user(aco_t *co) { aco_resume(co); aco_yield(); }' >"$TMP/user.c"

# Whether an object is one of Mach-O and has the names.
check_mach_o() {
    local object=$1 name
    shift
    [[ "$(od -An -tx1 -N4 "$object" | tr -d ' ')" == cffaedfe ]] ||
        fail "$object is no Mach-O object"
    for name in "$@"; do
        grep -qaF "$name" "$object" || fail "$object has no $name"
    done
}

for processor in x86_64 arm64; do
    target=$processor-apple-darwin
    names=(_acosw _aco_save_fpucw_mxcsr _aco_funcp_protector_asm _aco_funcp_protector _aco_acosw_)
    [[ $processor != x86_64 ]] || names+=(_aco_i_load_fpucw_mxcsr)
    for option in -UACO_CONFIG_SHARE_FPU_MXCSR_ENV -DACO_CONFIG_SHARE_FPU_MXCSR_ENV; do
        compile=(clang "--target=$target" "$option" "${WARNINGS[@]}" -I. -c)
        must "$target $option: acosw.S does not assemble" "${compile[@]}" acosw.S -o "$TMP/acosw.o"
        check_mach_o "$TMP/acosw.o" "${names[@]}"
        # The first version with thread-local variables must be named.
        must "$target $option: the inline switch does not assemble" "${compile[@]}" -O2 \
            "--target=$processor-apple-macosx11" -ffreestanding -isystem "$TMP/include" \
            "$TMP/user.c" -o "$TMP/user.o"
        check_mach_o "$TMP/user.o" _user _aco_i_acquire
        [[ $processor/$option != x86_64/-U* ]] ||
            check_mach_o "$TMP/user.o" _aco_i_load_fpucw_mxcsr
    done
    echo "$target: assembled, not run"
done

must_not "x32 is compiled" 'x32.*compile with -m64 or -m32' \
    clang --target=x86_64-linux-gnux32 -I. -c acosw.S -o "$TMP/object.o"
for target in powerpc64le-linux-gnu arm-linux-gnueabi riscv64-linux-gnu; do
    soft=()
    [[ $target != riscv64* ]] || soft=(-march=rv64imac -mabi=lp64)
    must_not "$target ${soft[*]} is compiled" 'aco\.h, section Processor.*acosw\.S.*porting' \
        clang "--target=$target" "${soft[@]}" -I. -c acosw.S -o "$TMP/object.o"
done
echo "x32, unknown processors and soft float: refused with words"
