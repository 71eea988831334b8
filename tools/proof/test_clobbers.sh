#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The inline switch names as clobbered every register that a compiler may keep a value in, on each
# processor and with whatever options give a compiler more of them, or has it as an operand that it
# reads and writes; and each name in each of these lists, taken out, is missed, as is each operand
# taken for an input. Only preprocessors run, so this needs none of the processors.

# shellcheck source=tests/harness.sh
. tests/harness.sh

need clang:clang python3:python3
# gcc 12 does not know -mapxf, so the macro stands for it.
cat >"$TMP/commands" <<'END'
clang -m64
clang -m64 -mno-mmx
clang -m64 -mavx512f
clang -m64 -D__APX_F__
clang -m64 -D__EGPR__
clang -m32
clang -m32 -march=i386
clang -m32 -msse2
clang -m32 -mavx512f
clang --target=aarch64-linux-gnu
clang --target=aarch64-linux-gnu -march=armv8-a+sve
clang --target=riscv64-linux-gnu
clang --target=riscv64-linux-gnu -march=rv64gcv
clang --target=arm-linux-gnueabihf -marm
clang --target=arm-linux-gnueabihf -mthumb
END
if have gcc; then
    printf 'gcc -m64 %s\n' '' -mavx2 -mavx512f -mgeneral-regs-only >>"$TMP/commands"
    printf 'gcc -m32 %s\n' '' -mmmx -msse2 -mavx512f -msoft-float >>"$TMP/commands"
fi
if ! python3 -B tools/proof/clobbers.py aco.h tools/proof/inline_user.c <"$TMP/commands"; then
    fail "a list of clobbers is not right, or a name in it is not needed"
fi
