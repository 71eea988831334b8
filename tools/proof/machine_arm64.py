# SPDX-License-Identifier: Apache-2.0
"""
A symbolic arm64. An instruction is what capstone writes of it: operands of another form than those
below, as with a shift, an extension or a changed base register, are not understood. Of the vector
registers only the lower halves are there, some of which are callee-saved.

Relies on machine.py, for what processors have in common, and on capstone, z3 and elftools.
"""
from __future__ import annotations

import re

import capstone
import z3
from elftools.elf.elffile import ELFFile

from machine import Image, Machine, NotProved, Processor, Region, State, low

INSTRUCTION_SZ = 4  # bytes

# Operands: registers of 64 bits, of either size, and those that are loaded and stored; numbers;
# registers of control words and flags; memory, which is a base and an offset.
X = r"(x\d+|sp)"
X_OR_W = r"(x\d+|w\d+)"
DATA = r"(x\d+|w\d+|d\d+)"
NUMBER = r"#(-?\w+)"
X_OR_NUMBER = r"(x\d+|#-?\w+)"
SYSTEM = r"(fpcr|fpsr)"
MEMORY = rf"\[{X}(?:, {NUMBER})?\]"

# Return addresses may be signed together with SP, in a way that nobody knows; a processor may lack
# that, and then it is the identity.
WORD = z3.BitVecSort(64)
SIGNED = z3.Function("signed", WORD, WORD, WORD)
PACIASP, AUTIASP, BTI_C, BTI_J = 25, 29, 34, 36  # by number, hints


# ---- The processor -------------------------------------------------------------------------------


class Arm64(Processor):
    """FPCR is the control word, the flags are in FPSR: 32 bits each, above which nothing is."""

    def control(self, state: State) -> z3.BitVecRef:
        return state.regs["fpcr"]

    def observed(self, state: State) -> list[z3.BitVecRef]:
        return [state.regs["fpcr"], state.regs["fpsr"]]

    def flag_claims(self, call: State, away: State) -> list[tuple[str, str, z3.BoolRef]]:
        return [("X2", "FPSR is as it was", away.regs["fpsr"] == call.regs["fpsr"])]


ARM64 = Arm64(
    name="arm64", bits=64,
    registers=(dict.fromkeys([*(f"x{n}" for n in range(31)), "sp"], 64)
               | dict.fromkeys((f"d{n}" for n in range(32)), 64) | {"fpcr": 32, "fpsr": 32}),
    sp="sp", bp="x29", link="x30",
    callee_saved=(*(f"x{n}" for n in range(19, 30)), *(f"d{n}" for n in range(8, 16))),
    from_reg="x0", to_reg="x1", args_on_stack=False, sp_alignment=16, control_mask=0xFFFFFFFF,
    loads_by_memory=False, kept=())


# ---- The object file -----------------------------------------------------------------------------


class Arm64Image(Image):
    """No switch needs the linker here, so none of its relocations is understood."""

    def __init__(self, processor: Processor, elf: ELFFile):
        decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        super().__init__(processor, elf, decoder)

    def machine(self, regions: list[Region], exit_at: z3.BitVecRef | int) -> Machine:
        return Arm64Machine(self, regions, exit_at)

    def decode(self, offset: int) -> capstone.CsInsn:
        if offset % INSTRUCTION_SZ:
            raise NotProved("an instruction that is not aligned")
        return super().decode(offset)


# ---- The machine ---------------------------------------------------------------------------------


def operands(insn: capstone.CsInsn, *forms: str) -> tuple[str | None, ...]:
    match = re.fullmatch(", ".join(forms), insn.op_str)
    if match is None:
        raise NotProved(f"no meaning is known for {insn.mnemonic} {insn.op_str}")
    return match.groups()


class Arm64Machine(Machine):
    """What its instructions mean."""

    # -- Operands

    def get(self, state: State, name: str) -> z3.BitVecRef:
        if name.startswith("#"):
            return z3.BitVecVal(int(name[1:], 0), 64)
        return low(state.regs["x" + name[1:]], 32) if name[0] == "w" else state.regs[name]

    def put(self, state: State, name: str, value: z3.BitVecRef) -> None:
        """A write of the lower half of a register clears the other."""
        if name[0] == "w":
            name, value = "x" + name[1:], z3.ZeroExt(32, value)
        state.regs[name] = z3.simplify(value)

    def address(self, state: State, base: str, offset: str | None) -> z3.BitVecRef:
        return z3.simplify(state.regs[base] + int(offset or "0", 0))

    # -- Moves

    def do_mov(self, state: State, insn: capstone.CsInsn) -> None:
        to, source = operands(insn, X, X)
        self.put(state, to, self.get(state, source))

    def do_adr(self, state: State, insn: capstone.CsInsn) -> None:
        to, offset = operands(insn, X, NUMBER)
        self.put(state, to, self.image.base + int(offset, 0))

    def do_str(self, state: State, insn: capstone.CsInsn) -> None:
        source, *place = operands(insn, DATA, MEMORY)
        self.store(state, self.address(state, *place), self.get(state, source))

    def do_ldr(self, state: State, insn: capstone.CsInsn) -> None:
        to, *place = operands(insn, DATA, MEMORY)
        sz = 4 if to[0] == "w" else 8
        self.put(state, to, self.load(state, self.address(state, *place), sz))

    def do_ldrsw(self, state: State, insn: capstone.CsInsn) -> None:
        to, *place = operands(insn, X, MEMORY)
        value = self.load(state, self.address(state, *place), 4)
        self.put(state, to, z3.SignExt(32, value))

    def do_stp(self, state: State, insn: capstone.CsInsn) -> None:
        first, second, *place = operands(insn, DATA, DATA, MEMORY)
        address, value = self.address(state, *place), self.get(state, first)
        self.store(state, address, value)
        self.store(state, address + value.size() // 8, self.get(state, second))

    def do_ldp(self, state: State, insn: capstone.CsInsn) -> None:
        first, second, *place = operands(insn, DATA, DATA, MEMORY)
        address, sz = self.address(state, *place), 4 if first[0] == "w" else 8
        values = self.load(state, address, sz), self.load(state, address + sz, sz)
        self.put(state, first, values[0])
        self.put(state, second, values[1])

    # -- Arithmetic

    def do_add(self, state: State, insn: capstone.CsInsn) -> None:
        to, a, b = operands(insn, X, X, X_OR_NUMBER)
        self.put(state, to, self.get(state, a) + self.get(state, b))

    def do_sub(self, state: State, insn: capstone.CsInsn) -> None:
        to, a, b = operands(insn, X, X, X_OR_NUMBER)
        self.put(state, to, self.get(state, a) - self.get(state, b))

    def do_cmp(self, state: State, insn: capstone.CsInsn) -> None:
        a, b = operands(insn, X_OR_W, X_OR_W)
        state.result = z3.simplify(self.get(state, a) - self.get(state, b))

    # -- Control words and flags

    def do_mrs(self, state: State, insn: capstone.CsInsn) -> None:
        to, source = operands(insn, X, SYSTEM)
        self.put(state, to, z3.ZeroExt(32, state.regs[source]))

    def do_msr(self, state: State, insn: capstone.CsInsn) -> None:
        to, source = operands(insn, SYSTEM, X)
        value = self.get(state, source)
        if not z3.is_true(z3.simplify(z3.Extract(63, 32, value) == 0)):
            raise NotProved(f"C2.2: may load reserved bits of {to}")
        state.regs[to] = low(value, 32)
        state.has_loaded |= to == "fpcr"

    # -- Control flow

    def do_b_eq(self, state: State, insn: capstone.CsInsn) -> list[State]:
        (target,) = operands(insn, NUMBER)
        return self.branch(state, int(target, 0), True)

    def do_br(self, state: State, insn: capstone.CsInsn) -> None:
        (target,) = operands(insn, X)
        if target not in ("x16", "x17"):
            raise NotProved(f"X6: no landing pad for calls lets {target} jump to it")
        self.go(state, self.get(state, target))

    def do_ret(self, state: State, insn: capstone.CsInsn) -> None:
        operands(insn)
        self.go(state, self.get(state, "x30"))

    def do_hint(self, state: State, insn: capstone.CsInsn) -> None:
        """Signs the return address, authenticates it, or is a landing pad."""
        (number,) = operands(insn, NUMBER)
        link, sp = state.regs["x30"], state.regs["sp"]
        if int(number, 0) == PACIASP:
            self.put(state, "x30", SIGNED(link, sp))
        elif int(number, 0) == AUTIASP:
            if not z3.is_app(link) or link.decl() != SIGNED or not link.arg(1).eq(sp):
                raise NotProved("C2.1: authenticates a return address that is not signed with SP")
            self.put(state, "x30", link.arg(0))
        elif int(number, 0) not in (BTI_C, BTI_J):
            raise NotProved(f"no meaning is known for hint {number}")
