# SPDX-License-Identifier: Apache-2.0
"""
A symbolic x86, of 64 and of 32 bits. Segments are for thread-local variables alone.

Relies on machine.py, for what processors have in common, and on capstone, z3 and elftools.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import capstone
import z3
from capstone import x86 as x86_const
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import Relocation
from elftools.elf.sections import Symbol

from machine import (Image, Machine, NotProved, Processor, Region, State, is_true, low,
                     thread_local, unknown)

OPERAND_SIZE = 0x66
ALIGN_16 = {-16, 0xFFFFFFF0}
LEGACY_PREFIXES = {0xF0, 0xF2, 0xF3, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, OPERAND_SIZE, 0x67}
ENDBR64, ENDBR32 = frozenset({b"\xf3\x0f\x1e\xfa"}), frozenset({b"\xf3\x0f\x1e\xfb"})
SIZED = {"mov", "xor", "and", "or", "test", "add", "sub", "not", "shr"}  # may be of 16 bits
MXCSR_CONTROL = 0xFFC0
MXCSR_FLAGS = 0x3F
X87_FLAGS = 0x3F  # in the status word; the masks of the control word have the same places
X87_SUMMARY = 0x8080  # ES and B, which follow from flags and masks
GOT = z3.BitVec("GOT", 32)  # of i386, where ebx points to at a call through the PLT


# ---- The two processors --------------------------------------------------------------------------


def register_views(bits: int) -> dict[str, tuple[str, int, int]]:
    """Name of a register or of a part of one -> (whole register, lowest bit, bits)."""
    letter = "r" if bits == 64 else "e"
    views: dict[str, tuple[str, int, int]] = {}
    for stem in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp"):
        whole = letter + stem
        views |= {whole: (whole, 0, bits), "e" + stem: (whole, 0, 32), stem: (whole, 0, 16)}
        if stem[1] == "x":
            views |= {stem[0] + "l": (whole, 0, 8), stem[0] + "h": (whole, 8, 8)}
        elif bits == 64:
            views[stem + "l"] = (whole, 0, 8)
    if bits == 64:
        for n in range(8, 16):
            whole = f"r{n}"
            views |= {whole: (whole, 0, 64), whole + "d": (whole, 0, 32),
                      whole + "w": (whole, 0, 16), whole + "b": (whole, 0, 8)}
    return views


VIEWS = {bits: register_views(bits) for bits in (64, 32)}
# MXCSR; control word, status word and tags (which of its registers are in use) of the x87; the
# direction flag.
SPECIAL = {"mxcsr": 32, "x87_control": 16, "x87_status": 16, "x87_tags": 16, "direction": 1}


def all_registers(bits: int) -> dict[str, int]:
    return dict.fromkeys((whole for whole, _, _ in VIEWS[bits].values()), bits) | SPECIAL


class X86(Processor):
    """Control words are MXCSR's low half, and above it that of the x87."""

    def control(self, state: State) -> z3.BitVecRef:
        return z3.Concat(state.regs["x87_control"], low(state.regs["mxcsr"], 16))

    def observed(self, state: State) -> list[z3.BitVecRef]:
        return [state.regs["mxcsr"], state.regs["x87_control"],
                state.regs["x87_status"] & ~X87_SUMMARY]

    def flag_claims(self, call: State, away: State) -> list[tuple[str, str, z3.BoolRef]]:
        before, after = call.regs, away.regs
        change = before["x87_status"] ^ after["x87_status"]
        armed = before["x87_status"] & ~after["x87_control"] & X87_FLAGS
        traps = after["x87_status"] & ~after["x87_control"] & X87_FLAGS
        trapped = before["x87_status"] & ~before["x87_control"]
        return [("X2", "the flags of MXCSR are as they were",
                 (before["mxcsr"] ^ after["mxcsr"]) & MXCSR_FLAGS == 0),
                ("X3", "the x87 flags are as they were, unless one would trap now",
                 z3.Or(change & X87_FLAGS == 0, armed != 0)),
                ("X3", "no x87 flag traps that did not before", traps & ~trapped == 0)]


COMMON: dict[str, Any] = {
    "link": None, "sp_alignment": 1, "control_mask": 0xFFFF0000 | MXCSR_CONTROL,
    "loads_by_memory": True,
    "kept": (("C1.3", "the x87 register stack is as it was", "x87_tags"),
             ("C1.4", "the direction flag is as it was", "direction"))}
X86_64 = X86(name="x86-64", bits=64, registers=all_registers(64), sp="rsp", bp="rbp",
             callee_saved=("rbx", "rbp", "r12", "r13", "r14", "r15"), from_reg="rdi",
             to_reg="rsi", result="rax", args_on_stack=False, link_number=16, red_zone=128,
             function_pads=ENDBR64, jump_pads=ENDBR64, **COMMON)
I386 = X86(name="i386", bits=32, registers=all_registers(32), sp="esp", bp="ebp",
           callee_saved=("ebx", "esi", "edi", "ebp"), from_reg="eax", to_reg="ecx",
           result="eax", args_on_stack=True, link_number=8, red_zone=0, function_pads=ENDBR32,
           jump_pads=ENDBR32, **COMMON)


# ---- The object file -----------------------------------------------------------------------------


class X86Image(Image):
    """Its relocations, and what precedes an instruction."""

    RELATIVE = PC32, PLT32 = 2, 4  # of R_X86_64_... and of R_386_...
    I386_ABSOLUTE, I386_GOTPC = 1, 10
    # R_386_32; R_X86_64_32 and R_X86_64_32S: below 2 GiB
    ABSOLUTE: ClassVar = {32: {I386_ABSOLUTE}, 64: {10, 11}}
    THREAD_LOCAL: ClassVar = {32: 17, 64: 23}  # R_386_TLS_LE, R_X86_64_TPOFF32

    def __init__(self, processor: Processor, elf: ELFFile) -> None:
        self.thread_locals: dict[int, z3.BitVecRef] = {}  # offset of a field -> address
        self.plt_calls: set[int] = set()  # offsets of fields, on i386
        mode = capstone.CS_MODE_64 if processor.bits == 64 else capstone.CS_MODE_32
        super().__init__(processor, elf, capstone.Cs(capstone.CS_ARCH_X86, mode))

    def machine(self, regions: list[Region], exit_at: z3.BitVecRef | int) -> Machine:
        return X86Machine(self, regions, exit_at)

    def _relocate(self, section: int, relocation: Relocation, symbol: Symbol) -> None:
        """Binds what refers to this code; what does not must not be executed."""
        at, kind = section + relocation["r_offset"], relocation["r_info_type"]
        addend = (relocation["r_addend"] if relocation.is_RELA() else
                  int.from_bytes(self.text[at:at + 4], "little", signed=True))
        is_here, is_i386 = symbol["st_shndx"] in self.sections, self.processor.bits == 32
        if is_i386 and kind == self.PLT32:
            self.plt_calls.add(at)
        if is_here and kind in self.RELATIVE:
            distance = self._offset(symbol) + addend - at
            self.text[at:at + 4] = (distance & 0xFFFFFFFF).to_bytes(4, "little")
        elif kind in self.RELATIVE and addend == -4:
            self.text[at:at + 4] = bytes(4)
            self.calls[at] = symbol.name
        elif kind in self.ABSOLUTE[self.processor.bits]:
            base = unknown(symbol.name, self.processor.bits)
            self.fields[at] = (self.base + self._offset(symbol) if is_here else base) + (
                addend if relocation.is_RELA() else 0)
        elif kind == self.THREAD_LOCAL[self.processor.bits] and addend == 0:
            self.thread_locals[at] = thread_local(symbol.name, self.processor.bits)
        elif is_i386 and kind == self.I386_GOTPC:
            self.fields[at] = GOT - (self.base + at)
        else:
            super()._relocate(section, relocation, symbol)

    def decode(self, offset: int) -> capstone.CsInsn:
        insn = super().decode(offset)
        for at in self.fields.keys() & set(range(offset - 3, offset + insn.size)):
            if not at - offset or at - offset not in (insn.disp_offset, insn.imm_offset):
                raise NotProved("a relocation that is no operand")
        for at in self.calls.keys() & set(range(offset - 3, offset + insn.size)):
            if insn.mnemonic != "call" or at != offset + insn.imm_offset:
                raise NotProved("a relocation that is no call")
        self._check_prefixes(insn)
        return insn

    @staticmethod
    def _check_prefixes(insn: capstone.CsInsn) -> None:
        """A prefix may change what an instruction does, so none is taken to be void."""
        if bytes(insn.bytes) in ENDBR64 | ENDBR32:
            return
        prefixes = list(itertools.takewhile(LEGACY_PREFIXES.__contains__, insn.bytes))
        is_sized = (prefixes == [OPERAND_SIZE] and insn.mnemonic in SIZED
                    and insn.operands[0].size == 2)
        first, second = (*insn.bytes[len(prefixes):], 0)[:2]
        is_segment = (prefixes and prefixes[0] in (0x64, 0x65) and not prefixes[1:]
                      and insn.mnemonic == "mov")
        is_void_rex = insn.rex and (first != insn.rex or second in LEGACY_PREFIXES)
        if (prefixes and not is_sized and not is_segment) or is_void_rex:
            raise NotProved(f"the prefixes of {insn.mnemonic} {insn.op_str}")


# ---- The machine ---------------------------------------------------------------------------------


class X86Machine(Machine):
    """The meaning of its instructions."""

    image: X86Image

    # -- Operands

    def get_reg(self, state: State, name: str) -> z3.BitVecRef:
        whole, first, bits = VIEWS[self.processor.bits][name]
        value = state.regs[whole]
        return value if bits == value.size() else z3.Extract(first + bits - 1, first, value)

    def set_reg(self, state: State, name: str, value: z3.BitVecRef) -> None:
        whole, first, bits = VIEWS[self.processor.bits][name]
        if bits == 32 and self.processor.bits == 64:
            value = z3.ZeroExt(32, value)
        elif bits < self.processor.bits:
            old = state.regs[whole]
            parts = [z3.Extract(self.processor.bits - 1, first + bits, old), value]
            if first:
                parts.append(z3.Extract(first - 1, 0, old))
            value = z3.Concat(*parts)
        state.regs[whole] = z3.simplify(value)

    def _register_of(self, operand: x86_const.X86Op, insn: capstone.CsInsn) -> str:
        name = str(insn.reg_name(operand.reg))
        if name not in VIEWS[self.processor.bits]:
            raise NotProved(f"register {name}")
        return name

    def address(self, state: State, operand: x86_const.X86Op,
                insn: capstone.CsInsn) -> z3.BitVecRef:
        mem, bits = operand.mem, self.processor.bits
        field_at = insn.address + insn.disp_offset
        if mem.segment:
            of_threads = "fs" if bits == 64 else "gs"
            if (insn.reg_name(mem.segment) != of_threads or mem.base or mem.index
                    or field_at not in self.image.thread_locals):
                raise NotProved("a segment")
            return self.image.thread_locals[field_at]
        total = z3.BitVecVal(mem.disp, bits)
        if insn.disp_offset and field_at in self.image.fields:
            total = total + self.image.fields[field_at]
        for reg, scale in ((mem.base, 1), (mem.index, mem.scale)):
            name = insn.reg_name(reg) if reg else None
            if name == "rip":
                total = total + self.image.base + state.pc
            elif name:
                value = self.get_reg(state, name)
                if value.size() != bits:
                    raise NotProved("an address of another size")
                total = total + value * scale
        return z3.simplify(total)

    def get(self, state: State, insn: capstone.CsInsn, index: int) -> z3.BitVecRef:
        operand = insn.operands[index]
        if operand.type == x86_const.X86_OP_REG:
            return self.get_reg(state, self._register_of(operand, insn))
        if operand.type == x86_const.X86_OP_IMM:
            bits = insn.operands[0].size * 8
            value = z3.BitVecVal(operand.imm & ((1 << bits) - 1), bits)
            relocated = self.image.fields.get(insn.address + insn.imm_offset)
            if relocated is None or not insn.imm_offset:
                return value
            if bits < 32:
                raise NotProved("a relocation of another size")
            return value + low(relocated, bits)
        return self.load(state, self.address(state, operand, insn), operand.size)

    def put(self, state: State, insn: capstone.CsInsn, value: z3.BitVecRef) -> None:
        operand = insn.operands[0]
        if operand.type == x86_const.X86_OP_REG:
            self.set_reg(state, self._register_of(operand, insn), value)
        elif operand.type == x86_const.X86_OP_MEM:
            self.store(state, self.address(state, operand, insn), z3.simplify(value))
        else:
            raise NotProved("a result without a place")

    # -- Moves

    def do_mov(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, self.get(state, insn, 1))

    def do_movzx(self, state: State, insn: capstone.CsInsn) -> None:
        value = self.get(state, insn, 1)
        self.put(state, insn, z3.ZeroExt(insn.operands[0].size * 8 - value.size(), value))

    def do_movsxd(self, state: State, insn: capstone.CsInsn) -> None:
        value = self.get(state, insn, 1)
        self.put(state, insn, z3.SignExt(insn.operands[0].size * 8 - value.size(), value))

    def do_lea(self, state: State, insn: capstone.CsInsn) -> None:
        address = self.address(state, insn.operands[1], insn)
        self.put(state, insn, low(address, insn.operands[0].size * 8))

    def _push(self, state: State, value: z3.BitVecRef) -> None:
        if value.size() != self.processor.bits:
            raise NotProved("pushes less than a word")
        cpu, regs = self.processor, state.regs
        regs[cpu.sp] = z3.simplify(regs[cpu.sp] - cpu.word)
        self.store(state, regs[cpu.sp], value)

    def _pop(self, state: State) -> z3.BitVecRef:
        cpu, regs = self.processor, state.regs
        value = self.load(state, regs[cpu.sp], cpu.word)
        regs[cpu.sp] = z3.simplify(regs[cpu.sp] + cpu.word)
        return value

    def do_push(self, state: State, insn: capstone.CsInsn) -> None:
        self._push(state, self.get(state, insn, 0))

    def do_pop(self, state: State, insn: capstone.CsInsn) -> None:
        operand = insn.operands[0]
        if operand.type != x86_const.X86_OP_REG or operand.size != self.processor.word:
            raise NotProved("pops to other than a whole register")
        self.put(state, insn, self._pop(state))

    # -- Arithmetic

    def _arithmetic(self, state: State, insn: capstone.CsInsn,
                    operation: Callable[[z3.BitVecRef, z3.BitVecRef], z3.BitVecRef],
                    ) -> z3.BitVecRef:
        result = z3.simplify(operation(self.get(state, insn, 0), self.get(state, insn, 1)))
        state.result = result
        return result

    def do_xor(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, self._arithmetic(state, insn, lambda a, b: a ^ b))

    def do_and(self, state: State, insn: capstone.CsInsn) -> None:
        if insn.operands[1].type == x86_const.X86_OP_IMM and insn.operands[1].imm in ALIGN_16:
            self.put(state, insn, self.round_down(state, self.get(state, insn, 0)))
            state.result = None
            return
        self.put(state, insn, self._arithmetic(state, insn, lambda a, b: a & b))

    def do_cmp(self, state: State, insn: capstone.CsInsn) -> None:
        self._arithmetic(state, insn, lambda a, b: a - b)

    def do_or(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, self._arithmetic(state, insn, lambda a, b: a | b))

    def do_test(self, state: State, insn: capstone.CsInsn) -> None:
        self._arithmetic(state, insn, lambda a, b: a & b)

    def do_not(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, ~self.get(state, insn, 0))

    def do_add(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, self._arithmetic(state, insn, lambda a, b: a + b))

    def do_sub(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, self._arithmetic(state, insn, lambda a, b: a - b))

    def do_shr(self, state: State, insn: capstone.CsInsn) -> None:
        value, count = self.get(state, insn, 0), insn.operands[1]
        if count.type != x86_const.X86_OP_IMM or not 0 < count.imm < value.size():
            raise NotProved("a shift by other than a constant")
        state.result = z3.simplify(z3.LShR(value, count.imm))
        self.put(state, insn, state.result)

    # -- Control words

    def do_stmxcsr(self, state: State, insn: capstone.CsInsn) -> None:
        self.store(state, self.address(state, insn.operands[0], insn), state.regs["mxcsr"])

    def do_ldmxcsr(self, state: State, insn: capstone.CsInsn) -> None:
        value = self.load(state, self.address(state, insn.operands[0], insn), 4)
        if not is_true(value & ~0xFFFF == state.regs["mxcsr"] & ~0xFFFF, state.path):
            raise NotProved("C2.2: may load what faults: other than the reserved bits that were")
        state.regs["mxcsr"], state.has_loaded = value, True

    def do_fnstcw(self, state: State, insn: capstone.CsInsn) -> None:
        self.store(state, self.address(state, insn.operands[0], insn), state.regs["x87_control"])

    def do_fldcw(self, state: State, insn: capstone.CsInsn) -> None:
        regs = state.regs
        regs["x87_control"] = self.load(state, self.address(state, insn.operands[0], insn), 2)
        regs["x87_status"] = (regs["x87_status"] & ~X87_SUMMARY
                              | unknown("x87_summary", 16) & X87_SUMMARY)
        state.has_loaded = True

    def do_fnstsw(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, state.regs["x87_status"])

    def do_fnclex(self, state: State, _insn: capstone.CsInsn) -> None:
        state.regs["x87_status"] = state.regs["x87_status"] & 0x7F00

    # -- Deeds that a switch must not do, so that the claims about it can fail

    def do_fld1(self, state: State, _insn: capstone.CsInsn) -> None:
        state.regs["x87_tags"] = unknown("x87_tags", state.regs["x87_tags"].size())

    def do_std(self, state: State, _insn: capstone.CsInsn) -> None:
        state.regs["direction"] = z3.BitVecVal(1, 1)

    # -- Control flow

    def _target(self, state: State, insn: capstone.CsInsn) -> z3.BitVecRef:
        operand = insn.operands[0]
        if operand.type == x86_const.X86_OP_IMM:
            name = self.image.calls.get(insn.address + insn.imm_offset)
            if name is None:
                return self.image.base + operand.imm
            if operand.imm != insn.address + insn.size:
                raise NotProved("a field for the linker that is not 0")
            return z3.BitVec(name, self.processor.bits)
        if operand.size != self.processor.word:
            raise NotProved("an address of another size")
        return self.get(state, insn, 0)

    def do_jmp(self, state: State, insn: capstone.CsInsn) -> None:
        self.go(state, self._target(state, insn))

    def do_call(self, state: State, insn: capstone.CsInsn) -> None:
        target = self._target(state, insn)
        if insn.address + insn.imm_offset in self.image.plt_calls and not is_true(
                state.regs["ebx"] == GOT, state.path):
            raise NotProved("C5: calls through the PLT with another ebx")
        self._push(state, z3.simplify(self.image.base + state.pc))
        self.go(state, target)

    def do_ret(self, state: State, insn: capstone.CsInsn) -> None:
        if insn.operands:
            raise NotProved("pops more than the return address")
        self.go(state, self._pop(state))

    def do_je(self, state: State, insn: capstone.CsInsn) -> list[State]:
        return self.branch(state, insn.operands[0].imm, True)

    def do_jne(self, state: State, insn: capstone.CsInsn) -> list[State]:
        return self.branch(state, insn.operands[0].imm, False)

    def do_endbr64(self, _state: State, _insn: capstone.CsInsn) -> None:
        """Nothing but a place where an indirect jump may arrive."""

    do_endbr32 = do_endbr64
