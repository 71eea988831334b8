# SPDX-License-Identifier: Apache-2.0
"""
A symbolic arm64. An instruction is what capstone writes of it: operands of another form than those
below, as with a shift, an extension or a changed base register, are not understood. Vector
registers have only their lower halves, some of which are callee-saved.

Relies on machine.py, for what processors have in common, and on capstone, z3 and elftools.
"""
from __future__ import annotations

import re

import capstone
import z3
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import Relocation
from elftools.elf.sections import Symbol

from machine import Image, Machine, NotProved, Processor, Region, State, low, thread_local

INSTRUCTION_SZ = 4  # bytes

# Operands: registers of 64 bits, of either size, and those that are loaded and stored; numbers;
# registers of control words and flags; memory, which is a base and an offset.
X = r"(x\d+|sp)"
X_OR_W = r"(x\d+|w\d+)"
DATA = r"(x\d+|w\d+|d\d+|xzr|wzr)"
NUMBER = r"#(-?\w+)"
X_OR_NUMBER = r"(x\d+|#-?\w+)"
X_OR_ZERO = r"(x\d+|sp|xzr)"
BEFORE = rf"\[{X}, {NUMBER}\]!"  # memory, whose base is changed before, or after
AFTER = rf"\[{X}\], {NUMBER}"
SYSTEM = r"(fpcr|fpsr|tpidr_el0)"
ALIGN_16 = {-16, 0xFFFFFFFFFFFFFFF0}
MEMORY = rf"\[{X}(?:, {NUMBER})?\]"

# Return addresses may be signed together with SP, by an unknown function; a processor may lack
# that, and then it is the identity.
WORD = z3.BitVecSort(64)
SIGNED = z3.Function("signed", WORD, WORD, WORD)
# The page of an address; the offset that is in the next instruction completes it.
PAGE = z3.Function("page", WORD, WORD)
THREAD_POINTER = z3.BitVec("thread_pointer", 64)
PACIASP, PACIBSP, AUTIASP, BTI_C, BTI_J, BTI_JC = 25, 27, 29, 34, 36, 38  # by number, hints
# Relocations: of calls; of pages of functions and data, and offsets in them; of the same from the
# thread pointer.
R_CALL26, R_PAGE, R_PAGE_OFFSET, R_TLS_HIGH, R_TLS_LOW = 283, 275, 277, 549, 551


# ---- The processor -------------------------------------------------------------------------------


def hints(*numbers: int) -> frozenset[bytes]:
    return frozenset((0xD503201F | number << 5).to_bytes(4, "little") for number in numbers)


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
    from_reg="x0", to_reg="x1", result="x0", args_on_stack=False, sp_alignment=16,
    link_number=30, red_zone=0,
    function_pads=hints(PACIASP, PACIBSP, BTI_C, BTI_JC),
    jump_pads=hints(PACIASP, PACIBSP, BTI_C, BTI_J, BTI_JC), control_mask=0xFFFFFFFF,
    loads_by_memory=False, kept=())


# ---- The object file -----------------------------------------------------------------------------


class Arm64Image(Image):
    """No switch needs the linker here, so of its relocations only calls are understood, and with
    them what a function needs that makes a ferry."""

    def __init__(self, processor: Processor, elf: ELFFile) -> None:
        self.addresses: dict[int, tuple[int, z3.BitVecRef]] = {}  # offset -> relocation, whose
        decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        super().__init__(processor, elf, decoder)

    def machine(self, regions: list[Region], exit_at: z3.BitVecRef | int) -> Machine:
        return Arm64Machine(self, regions, exit_at)

    def _relocate(self, section: int, relocation: Relocation, symbol: Symbol) -> None:
        at, kind = section + relocation["r_offset"], relocation["r_info_type"]
        is_here = symbol["st_shndx"] in self.sections
        if kind == R_CALL26 and relocation["r_addend"] == 0:
            self.calls[at] = symbol.name
        elif kind in (R_TLS_HIGH, R_TLS_LOW) and relocation["r_addend"] == 0:
            self.addresses[at] = kind, thread_local(symbol.name, 64)
        elif kind in (R_PAGE, R_PAGE_OFFSET):
            start = self.base + self._offset(symbol) if is_here else z3.BitVec(symbol.name, 64)
            self.addresses[at] = kind, z3.simplify(start + relocation["r_addend"])
        else:
            super()._relocate(section, relocation, symbol)

    def decode(self, offset: int) -> capstone.CsInsn:
        if offset % INSTRUCTION_SZ:
            raise NotProved("an instruction that is not aligned")
        return super().decode(offset)


# ---- The machine ---------------------------------------------------------------------------------


def operands(insn: capstone.CsInsn, *forms: str) -> tuple[str, ...]:
    """The text that the groups of the forms match; an offset that is left out is 0."""
    match = re.fullmatch(", ".join(forms), insn.op_str)
    if match is None:
        raise NotProved(f"no meaning is known for {insn.mnemonic} {insn.op_str}")
    return match.groups("0")


class Arm64Machine(Machine):
    """The meaning of its instructions."""

    image: Arm64Image

    # -- Operands

    def get(self, state: State, name: str) -> z3.BitVecRef:
        if name.startswith("#"):
            return z3.BitVecVal(int(name[1:], 0), 64)
        if name in ("xzr", "wzr"):
            return z3.BitVecVal(0, 64 if name == "xzr" else 32)
        return low(state.regs["x" + name[1:]], 32) if name[0] == "w" else state.regs[name]

    def put(self, state: State, name: str, value: z3.BitVecRef) -> None:
        """A write of the lower half of a register clears the other."""
        if name[0] == "w":
            name, value = "x" + name[1:], z3.ZeroExt(32, value)
        state.regs[name] = z3.simplify(value)

    def address(self, state: State, base: str, offset: str) -> z3.BitVecRef:
        return z3.simplify(state.regs[base] + int(offset, 0))

    # -- Moves

    def do_mov(self, state: State, insn: capstone.CsInsn) -> None:
        to, source = operands(insn, X, X_OR_ZERO)
        self.put(state, to, self.get(state, source))

    def do_adrp(self, state: State, insn: capstone.CsInsn) -> None:
        to, _ = operands(insn, X, NUMBER)
        kind, address = self._relocated(insn)
        if kind != R_PAGE:
            raise NotProved("a relocation of another kind")
        self.put(state, to, PAGE(address))

    def _relocated(self, insn: capstone.CsInsn) -> tuple[int, z3.BitVecRef]:
        if insn.address not in self.image.addresses:
            raise NotProved(f"no meaning is known for {insn.mnemonic} {insn.op_str}")
        return self.image.addresses[insn.address]

    def do_adr(self, state: State, insn: capstone.CsInsn) -> None:
        to, offset = operands(insn, X, NUMBER)
        self.put(state, to, self.image.base + int(offset, 0))

    def place(self, state: State, insn: capstone.CsInsn, *data: str) -> tuple[list[str],
                                                                              z3.BitVecRef]:
        """Registers and the address of memory; its base is changed, if that is to be. A load to
        that base, or a store of it, is not understood then."""
        for memory in (BEFORE, AFTER):
            if match := re.fullmatch(", ".join((*data, memory)), insn.op_str):
                *names, base, offset = match.groups()
                if base in names:
                    break
                old = state.regs[base]
                self.put(state, base, self.address(state, base, offset))
                return names, state.regs[base] if memory == BEFORE else old
        *names, base, offset = operands(insn, *data, MEMORY)
        return names, self.address(state, base, offset)

    def do_str(self, state: State, insn: capstone.CsInsn) -> None:
        (source,), address = self.place(state, insn, DATA)
        self.store(state, address, self.get(state, source))

    def do_ldrb(self, state: State, insn: capstone.CsInsn) -> None:
        (to,), address = self.place(state, insn, r"(w\d+)")
        self.put(state, to, z3.ZeroExt(24, self.load(state, address, 1)))

    def do_ldr(self, state: State, insn: capstone.CsInsn) -> None:
        (to,), address = self.place(state, insn, DATA)
        sz = 4 if to[0] == "w" else 8
        self.put(state, to, self.load(state, address, sz))

    def do_ldrsw(self, state: State, insn: capstone.CsInsn) -> None:
        (to,), address = self.place(state, insn, X)
        value = self.load(state, address, 4)
        self.put(state, to, z3.SignExt(32, value))

    def do_stp(self, state: State, insn: capstone.CsInsn) -> None:
        (first, second), address = self.place(state, insn, DATA, DATA)
        value = self.get(state, first)
        self.store(state, address, value)
        self.store(state, address + value.size() // 8, self.get(state, second))

    def do_ldp(self, state: State, insn: capstone.CsInsn) -> None:
        (first, second), address = self.place(state, insn, DATA, DATA)
        sz = 4 if first[0] == "w" else 8
        values = self.load(state, address, sz), self.load(state, address + sz, sz)
        self.put(state, first, values[0])
        self.put(state, second, values[1])

    # -- Arithmetic

    def do_and(self, state: State, insn: capstone.CsInsn) -> None:
        to, a, number = operands(insn, X, X, NUMBER)
        if int(number, 0) not in ALIGN_16:
            raise NotProved(f"no meaning is known for and {insn.op_str}")
        self.put(state, to, self.round_down(state, self.get(state, a)))

    def _complete(self, state: State, insn: capstone.CsInsn) -> None:
        """An address, in two steps of which this is the second, or one of a variable the first."""
        kind, address = self._relocated(insn)
        if kind == R_TLS_HIGH:
            to, a = operands(insn, X, X, "#0", "lsl #12")
            known, value = THREAD_POINTER, PAGE(address)
        else:
            to, a = operands(insn, X, X, "#0")
            known, value = PAGE(address), address
        if not self.get(state, a).eq(known):
            raise NotProved("an address whose first half is another's")
        self.put(state, to, value)

    def do_add(self, state: State, insn: capstone.CsInsn) -> None:
        if insn.address in self.image.addresses:
            self._complete(state, insn)
            return
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
        self.put(state, to, THREAD_POINTER if source == "tpidr_el0" else
                 z3.ZeroExt(32, state.regs[source]))

    def do_msr(self, state: State, insn: capstone.CsInsn) -> None:
        to, source = operands(insn, SYSTEM, X)
        if to not in state.regs:
            raise NotProved(f"no meaning is known for msr {insn.op_str}")
        value = self.get(state, source)
        if not z3.is_true(z3.simplify(z3.Extract(63, 32, value) == 0)):
            raise NotProved(f"C2.2: may load reserved bits of {to}")
        state.regs[to] = low(value, 32)
        state.has_loaded |= to == "fpcr"

    # -- Control flow

    def do_b_eq(self, state: State, insn: capstone.CsInsn) -> list[State]:
        (target,) = operands(insn, NUMBER)
        return self.branch(state, int(target, 0), True)

    def do_b_ne(self, state: State, insn: capstone.CsInsn) -> list[State]:
        (target,) = operands(insn, NUMBER)
        return self.branch(state, int(target, 0), False)

    def _compare_and_branch(self, state: State, insn: capstone.CsInsn,
                            if_zero: bool) -> list[State]:
        register, target = operands(insn, X_OR_W, NUMBER)
        flags, state.result = state.result, self.get(state, register)
        ways = self.branch(state, int(target, 0), if_zero)
        for way in ways:
            way.result = flags
        return ways

    def do_cbz(self, state: State, insn: capstone.CsInsn) -> list[State]:
        return self._compare_and_branch(state, insn, True)

    def do_cbnz(self, state: State, insn: capstone.CsInsn) -> list[State]:
        return self._compare_and_branch(state, insn, False)

    def do_br(self, state: State, insn: capstone.CsInsn) -> None:
        (target,) = operands(insn, X)
        if target not in ("x16", "x17"):
            raise NotProved(f"X6: no landing pad for calls lets {target} jump to it")
        self.go(state, self.get(state, target))

    def do_bl(self, state: State, insn: capstone.CsInsn) -> None:
        name = self.image.calls.get(insn.address)
        if name is None or operands(insn, NUMBER) != (f"{insn.address:#x}",):
            raise NotProved("calls what the linker does not put in")
        self.put(state, "x30", self.image.base + state.pc)
        self.go(state, self.image.address(name))

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
