# SPDX-License-Identifier: Apache-2.0
"""
A symbolic x86: executes the bytes of an object file on states in which everything may be unknown.

Capstone decodes, z3's bit vectors are the values. Only instructions with a do_...() below have a
meaning; any other, and every encoding, prefix, address or relocation that is not understood, raises
NotProved, so that nothing is ever skipped or guessed. None of those with a meaning touches a
segment or the thread pointer; vector registers are nobody's after a call, and are left out.

Memory is a set of regions, each known by the unknown address it starts at, which the caller
declares to be disjoint. An address belongs to a region if it is that address plus a constant; an
access through any other is refused. A stack is worth what a signal handler leaves of it: after each
instruction everything below SP becomes unknown.

Relies on capstone, z3 and elftools.
"""
from __future__ import annotations

import itertools
from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path

import capstone
import z3
from capstone import x86 as x86_const
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import Relocation, RelocationSection
from elftools.elf.sections import Symbol

MAX_INSTRUCTIONS = 200  # on one path
MAX_INSTRUCTION_SZ = 15  # bytes
STACK_USE = 128  # bytes below its first SP that a switch may use

OPERAND_SIZE = 0x66
LEGACY_PREFIXES = {0xF0, 0xF2, 0xF3, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, OPERAND_SIZE, 0x67}
LANDING_PADS = {b"\xf3\x0f\x1e\xfa", b"\xf3\x0f\x1e\xfb"}
X87_FLAGS = 0x3F  # in the status word; the masks of the control word have the same places
X87_SUMMARY = 0x8080  # ES and B, which follow from flags and masks


class NotProved(Exception):
    """Something is false, or not understood; either way there is no proof."""


# ---- Processors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arch:
    """What differs between the two processors; a switch has `from` and `to` in these registers."""

    name: str
    bits: int
    mode: int
    sp: str
    bp: str
    callee_saved: tuple[str, ...]
    from_reg: str
    to_reg: str
    args_on_stack: bool

    @property
    def word(self) -> int:
        return self.bits // 8


X86_64 = Arch("x86-64", 64, capstone.CS_MODE_64, "rsp", "rbp",
              ("rbx", "rbp", "r12", "r13", "r14", "r15"), "rdi", "rsi", False)
I386 = Arch("i386", 32, capstone.CS_MODE_32, "esp", "ebp",
            ("ebx", "esi", "edi", "ebp"), "eax", "ecx", True)
ARCHES = {("EM_X86_64", 64): X86_64, ("EM_386", 32): I386}


def register_views(arch: Arch) -> dict[str, tuple[str, int, int]]:
    """Name of a register or of a part of one -> (whole register, lowest bit, bits)."""
    letter = "r" if arch.bits == 64 else "e"
    views = {}
    for stem in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp"):
        whole = letter + stem
        views |= {whole: (whole, 0, arch.bits), "e" + stem: (whole, 0, 32), stem: (whole, 0, 16)}
        if stem[1] == "x":
            views |= {stem[0] + "l": (whole, 0, 8), stem[0] + "h": (whole, 8, 8)}
        elif arch.bits == 64:
            views[stem + "l"] = (whole, 0, 8)
    if arch.bits == 64:
        for n in range(8, 16):
            whole = f"r{n}"
            views |= {whole: (whole, 0, 64), whole + "d": (whole, 0, 32),
                      whole + "w": (whole, 0, 16), whole + "b": (whole, 0, 8)}
    return views


# ---- Values --------------------------------------------------------------------------------------

_names = itertools.count()


def unknown(what: str, bits: int) -> z3.BitVecRef:
    return z3.BitVec(f"{what}.{next(_names)}", bits)


def low(value: z3.BitVecRef, bits: int) -> z3.BitVecRef:
    return value if value.size() == bits else z3.Extract(bits - 1, 0, value)


def is_true(formula: z3.BoolRef, known: list[z3.BoolRef]) -> bool:
    """Whether the formula follows from what is known."""
    formula = z3.simplify(formula)
    if z3.is_true(formula):
        return True
    solver = z3.SimpleSolver()
    solver.add(*known, z3.Not(formula))
    answer = solver.check()
    if answer == z3.unknown:
        raise NotProved(f"the solver gave up: {solver.reason_unknown()}")
    return answer == z3.unsat


# ---- The object file -----------------------------------------------------------------------------


class Image:
    """The code of an object file: its sections of instructions, laid out one after the other from
    an unknown address, their symbols, and values that the linker will put into them."""

    RELATIVE = 2, 4  # R_X86_64_PC32, R_X86_64_PLT32; R_386_PC32, R_386_PLT32
    I386_ABSOLUTE, I386_GOTPC = 1, 10

    def __init__(self, path: Path):
        with path.open("rb") as file:
            elf = ELFFile(file)
            machine = elf["e_machine"], elf.elfclass
            if machine not in ARCHES:
                raise NotProved("neither x86-64 nor i386")
            self.arch = ARCHES[machine]
            self.base = z3.BitVec("text", self.arch.bits)
            self.text = bytearray()
            self.sections: dict[int, int] = {}  # index of a section -> offset
            self.symbols: dict[str, int] = {}  # functions and labels -> offset
            self.sizes: dict[str, int] = {}  # of all symbols, in bytes
            self.fields: dict[int, z3.BitVecRef] = {}  # offset -> value of a relocated field
            self.unresolved: set[int] = set()
            self._read(elf)
        self.decoder = capstone.Cs(capstone.CS_ARCH_X86, self.arch.mode)
        self.decoder.detail = True
        self.views = register_views(self.arch)

    def _read(self, elf: ELFFile) -> None:
        for index, section in enumerate(elf.iter_sections()):
            if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
                self.sections[index] = len(self.text)
                self.text += section.data()
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            self.sizes[symbol.name] = symbol["st_size"]
            if symbol["st_shndx"] in self.sections and symbol.name:
                self.symbols[symbol.name] = self._offset(symbol)
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_info"] in self.sections:
                symbols = elf.get_section(section["sh_link"])
                for relocation in section.iter_relocations():
                    symbol = symbols.get_symbol(relocation["r_info_sym"])
                    self._relocate(self.sections[section["sh_info"]], relocation, symbol)

    def _offset(self, symbol: Symbol) -> int:
        return self.sections[symbol["st_shndx"]] + symbol["st_value"]

    def _relocate(self, section: int, relocation: Relocation, symbol: Symbol) -> None:
        """Binds what refers to this code; what does not must not be executed."""
        at, kind = section + relocation["r_offset"], relocation["r_info_type"]
        addend = (relocation["r_addend"] if relocation.is_RELA() else
                  int.from_bytes(self.text[at:at + 4], "little", signed=True))
        is_here = symbol["st_shndx"] in self.sections
        if is_here and kind in self.RELATIVE:
            distance = self._offset(symbol) + addend - at
            self.text[at:at + 4] = (distance & 0xFFFFFFFF).to_bytes(4, "little")
        elif is_here and self.arch is I386 and kind == self.I386_ABSOLUTE:
            self.fields[at] = self.base + self._offset(symbol) + addend
        elif self.arch is I386 and kind == self.I386_GOTPC:
            self.fields[at] = unknown("GOT", 32)
        else:
            self.unresolved.update(range(at, at + 4))

    def mutated(self, offset: int, flip: int) -> Image:
        """The same with some bits of one byte inverted."""
        other = object.__new__(Image)
        other.__dict__.update(self.__dict__)
        other.text = bytearray(self.text)
        other.text[offset] ^= flip
        return other

    def where(self, offset: int) -> str:
        name, start = max(((name, at) for name, at in self.symbols.items() if at <= offset),
                          key=lambda item: item[1], default=(".text", 0))
        return f"{name}+{offset - start:#x}"

    def decode(self, offset: int) -> capstone.CsInsn:
        code = bytes(self.text[offset:offset + MAX_INSTRUCTION_SZ])
        insn = next(self.decoder.disasm(code, offset, 1), None)
        if insn is None:
            raise NotProved("no instruction")
        if self.unresolved & set(range(offset, offset + insn.size)):
            raise NotProved("refers to what is in another section or file")
        for at in self.fields.keys() & set(range(offset - 3, offset + insn.size)):
            if not at - offset or at - offset not in (insn.disp_offset, insn.imm_offset):
                raise NotProved("a relocation that is no operand")
        self._check_prefixes(insn)
        return insn

    @staticmethod
    def _check_prefixes(insn: capstone.CsInsn) -> None:
        """A prefix may change what an instruction does, so none is taken to be void."""
        if bytes(insn.bytes) in LANDING_PADS:
            return
        prefixes = list(itertools.takewhile(LEGACY_PREFIXES.__contains__, insn.bytes))
        is_sized = (prefixes == [OPERAND_SIZE] and insn.mnemonic in Machine.SIZED
                    and insn.operands[0].size == 2)
        first, second = (*insn.bytes[len(prefixes):], 0)[:2]
        is_void_rex = insn.rex and (first != insn.rex or second in LEGACY_PREFIXES)
        if prefixes and not is_sized or is_void_rex:
            raise NotProved(f"the prefixes of {insn.mnemonic} {insn.op_str}")


# ---- Memory and states ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Region:
    """Memory, of which the bytes at some offsets from `base` may be read, and some written. That of
    a stack is an SP, below which lies what is writable; SP stays there."""

    name: str
    base: z3.BitVecRef
    readable: Container[int]
    writable: Container[int]
    is_stack: bool = False


Byte = tuple[z3.BitVecRef, int]  # the n-th byte of a value: whole, to be read back as it was


@dataclass
class State:
    """One path: where it is, and the condition under which it got there."""

    pc: int
    regs: dict[str, z3.BitVecRef]
    mxcsr: z3.BitVecRef
    x87_control: z3.BitVecRef
    x87_status: z3.BitVecRef
    x87_tags: z3.BitVecRef  # which registers of the x87 stack are in use
    direction: z3.BitVecRef  # the flag
    memory: dict[tuple[str, int], Byte]  # by region and offset
    path: list[z3.BoolRef] = field(default_factory=list)
    result: z3.BitVecRef | None = None  # what the zero flag tells of; None if it is not known
    has_loaded: bool = False  # the x87 control word, or MXCSR
    has_ended: bool = False

    def fork(self) -> State:
        return replace(self, regs=dict(self.regs), memory=dict(self.memory), path=list(self.path))


# ---- The machine ---------------------------------------------------------------------------------


class Machine:
    """Runs an image up to an exit, which is an address or an offset in .text."""

    SIZED = {"mov", "xor", "and", "or", "test", "add", "sub", "not", "shr"}  # may be of 16 bits

    def __init__(self, image: Image, regions: list[Region], exit_at: z3.BitVecRef | int):
        self.image, self.arch = image, image.arch
        self.regions = {region.base.decl().name(): region for region in regions}
        self.exit_at = exit_at
        self.executed: dict[int, int] = {}  # offset of an instruction -> its bytes
        self.stack_checks = 0
        self.stack_use = 0  # bytes

    def run(self, start: State) -> list[State]:
        """The ends of all paths from a state to the exit."""
        self._forget_below_sp(start)
        paths, ended = [start.fork()], []
        while paths:
            state = paths.pop()
            for _ in range(MAX_INSTRUCTIONS):
                if state.has_ended:
                    ended.append(state)
                    break
                state, *others = self._step(state)
                paths += others
            else:
                raise NotProved(f"no end after {MAX_INSTRUCTIONS} instructions")
        return ended

    def _step(self, state: State) -> list[State]:
        at = state.pc
        try:
            if not 0 <= at < len(self.image.text):
                raise NotProved("outside of the code")
            insn = self.image.decode(at)
            action = getattr(self, "do_" + insn.mnemonic, None)
            if action is None:
                raise NotProved(f"no meaning is known for {insn.mnemonic} {insn.op_str}")
            state.pc += insn.size
            self.executed[at] = insn.size
            states = action(state, insn)
            states = [state] if states is None else states
            for after in states:
                self._reach(after)
            return states
        except NotProved as error:
            raise NotProved(f"{self.image.where(at)}: {error}") from None

    def _reach(self, state: State) -> None:
        """Between two instructions: is this an exit, and what would a signal do here?"""
        if isinstance(self.exit_at, int):
            state.has_ended = state.pc == self.exit_at
        if not state.has_ended:
            self._forget_below_sp(state)

    def _forget_below_sp(self, state: State) -> None:
        region, offset = self.locate(state.regs[self.arch.sp], "C3")
        if not region.is_stack or not (offset == 0 or offset in region.writable):
            raise NotProved(f"C3: SP points at {region.name}{offset:+d}, which is no stack in use")
        self.stack_checks += 1
        self.stack_use = max(self.stack_use, -offset)
        forget_below(state, region.name, offset)

    # -- Memory

    def locate(self, address: z3.BitVecRef, constraint: str = "M") -> tuple[Region, int]:
        """The region of an address, and the offset in it; if there is none, that breaks a rule."""
        address = z3.simplify(address)
        base, offset = address, 0
        if z3.is_app_of(address, z3.Z3_OP_BADD) and address.num_args() == 2:
            if z3.is_bv_value(address.arg(0)):
                base, offset = address.arg(1), address.arg(0).as_signed_long()
        region = self.regions.get(base.decl().name()) if z3.is_const(base) else None
        if region is None:
            raise NotProved(f"{constraint}: no known memory at {address}")
        return region, offset

    def load(self, state: State, address: z3.BitVecRef, sz: int) -> z3.BitVecRef:
        region, offset = self.locate(address)
        if not all(n in region.readable for n in range(offset, offset + sz)):
            raise NotProved(f"M: reads {sz} bytes at {region.name}{offset:+d}")
        for n in range(offset, offset + sz):
            if (region.name, n) not in state.memory:
                lay(state, region.name, n, unknown(region.name, 8))
        return content(state, region.name, offset, sz)

    def store(self, state: State, address: z3.BitVecRef, value: z3.BitVecRef) -> None:
        region, offset = self.locate(address)
        sz = value.size() // 8
        in_use, _ = self.locate(state.regs[self.arch.sp])
        if (not all(n in region.writable for n in range(offset, offset + sz))
                or region.is_stack and region is not in_use):
            raise NotProved(f"M: writes {sz} bytes at {region.name}{offset:+d}, not its own")
        lay(state, region.name, offset, value)

    # -- Operands

    def get_reg(self, state: State, name: str) -> z3.BitVecRef:
        whole, first, bits = self.image.views[name]
        value = state.regs[whole]
        return value if bits == value.size() else z3.Extract(first + bits - 1, first, value)

    def set_reg(self, state: State, name: str, value: z3.BitVecRef) -> None:
        whole, first, bits = self.image.views[name]
        if bits == 32 and self.arch.bits == 64:
            value = z3.ZeroExt(32, value)
        elif bits < self.arch.bits:
            old = state.regs[whole]
            parts = [z3.Extract(self.arch.bits - 1, first + bits, old), value]
            if first:
                parts.append(z3.Extract(first - 1, 0, old))
            value = z3.Concat(*parts)
        state.regs[whole] = z3.simplify(value)

    def _register_of(self, operand: x86_const.X86Op, insn: capstone.CsInsn) -> str:
        name = insn.reg_name(operand.reg)
        if name not in self.image.views:
            raise NotProved(f"register {name}")
        return name

    def address(self, state: State, operand: x86_const.X86Op,
                insn: capstone.CsInsn) -> z3.BitVecRef:
        mem, bits = operand.mem, self.arch.bits
        if mem.segment:
            raise NotProved("a segment")
        field_at = insn.address + insn.disp_offset
        total = self.image.fields.get(field_at) if insn.disp_offset else None
        if total is None:
            total = z3.BitVecVal(mem.disp, bits)
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
            relocated = self.image.fields.get(insn.address + insn.imm_offset)
            if relocated is not None and insn.imm_offset:
                return relocated
            bits = insn.operands[0].size * 8
            return z3.BitVecVal(operand.imm & ((1 << bits) - 1), bits)
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
        if value.size() != self.arch.bits:
            raise NotProved("pushes less than a word")
        state.regs[self.arch.sp] = z3.simplify(state.regs[self.arch.sp] - self.arch.word)
        self.store(state, state.regs[self.arch.sp], value)

    def _pop(self, state: State) -> z3.BitVecRef:
        value = self.load(state, state.regs[self.arch.sp], self.arch.word)
        state.regs[self.arch.sp] = z3.simplify(state.regs[self.arch.sp] + self.arch.word)
        return value

    def do_push(self, state: State, insn: capstone.CsInsn) -> None:
        self._push(state, self.get(state, insn, 0))

    def do_pop(self, state: State, insn: capstone.CsInsn) -> None:
        operand = insn.operands[0]
        if operand.type != x86_const.X86_OP_REG or operand.size != self.arch.word:
            raise NotProved("pops to other than a whole register")
        self.put(state, insn, self._pop(state))

    # -- Arithmetic

    def _arithmetic(self, state: State, insn: capstone.CsInsn, operation) -> z3.BitVecRef:
        result = z3.simplify(operation(self.get(state, insn, 0), self.get(state, insn, 1)))
        state.result = result
        return result

    def do_xor(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, self._arithmetic(state, insn, lambda a, b: a ^ b))

    def do_and(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, self._arithmetic(state, insn, lambda a, b: a & b))

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
        self.store(state, self.address(state, insn.operands[0], insn), state.mxcsr)

    def do_ldmxcsr(self, state: State, insn: capstone.CsInsn) -> None:
        value = self.load(state, self.address(state, insn.operands[0], insn), 4)
        if not is_true(value & ~0xFFFF == state.mxcsr & ~0xFFFF, state.path):
            raise NotProved("C2.2: may load what faults: other than the reserved bits that were")
        state.mxcsr, state.has_loaded = value, True

    def do_fnstcw(self, state: State, insn: capstone.CsInsn) -> None:
        self.store(state, self.address(state, insn.operands[0], insn), state.x87_control)

    def do_fldcw(self, state: State, insn: capstone.CsInsn) -> None:
        state.x87_control = self.load(state, self.address(state, insn.operands[0], insn), 2)
        state.x87_status = (state.x87_status & ~X87_SUMMARY
                            | unknown("x87_summary", 16) & X87_SUMMARY)
        state.has_loaded = True

    def do_fnstsw(self, state: State, insn: capstone.CsInsn) -> None:
        self.put(state, insn, state.x87_status)

    def do_fnclex(self, state: State, _insn: capstone.CsInsn) -> None:
        state.x87_status = state.x87_status & 0x7F00

    # -- What a switch must not do, so that the claims about it can fail

    def do_fld1(self, state: State, _insn: capstone.CsInsn) -> None:
        state.x87_tags = unknown("x87_tags", state.x87_tags.size())

    def do_std(self, state: State, _insn: capstone.CsInsn) -> None:
        state.direction = z3.BitVecVal(1, 1)

    # -- Control flow

    def _go(self, state: State, target: z3.BitVecRef) -> None:
        """To an address: an exit, or a place in the code."""
        target = z3.simplify(target)
        if not isinstance(self.exit_at, int) and target.eq(self.exit_at):
            state.has_ended = True
            return
        offset = z3.simplify(target - self.image.base)
        if not z3.is_bv_value(offset):
            raise NotProved(f"goes to {target}")
        state.pc = offset.as_signed_long()

    def _target(self, state: State, insn: capstone.CsInsn) -> z3.BitVecRef:
        operand = insn.operands[0]
        if operand.type == x86_const.X86_OP_IMM:
            return self.image.base + operand.imm
        if operand.size != self.arch.word:
            raise NotProved("an address of another size")
        return self.get(state, insn, 0)

    def do_jmp(self, state: State, insn: capstone.CsInsn) -> None:
        self._go(state, self._target(state, insn))

    def do_call(self, state: State, insn: capstone.CsInsn) -> None:
        target = self._target(state, insn)
        self._push(state, z3.simplify(self.image.base + state.pc))
        self._go(state, target)

    def do_ret(self, state: State, insn: capstone.CsInsn) -> None:
        if insn.operands:
            raise NotProved("pops more than the return address")
        self._go(state, self._pop(state))

    def _branch(self, state: State, insn: capstone.CsInsn, if_zero: bool) -> list[State]:
        """Both ways, each if it can be taken."""
        if state.result is None:
            raise NotProved("depends on an unknown flag")
        is_zero = state.result == 0
        taken = state.fork()
        taken.pc = insn.operands[0].imm
        possible = []
        for way, holds in ((taken, is_zero == if_zero), (state, is_zero != if_zero)):
            if not is_true(z3.Not(holds), way.path):
                way.path.append(z3.simplify(holds))
                possible.append(way)
        return possible

    def do_je(self, state: State, insn: capstone.CsInsn) -> list[State]:
        return self._branch(state, insn, True)

    def do_jne(self, state: State, insn: capstone.CsInsn) -> list[State]:
        return self._branch(state, insn, False)

    def do_endbr64(self, _state: State, _insn: capstone.CsInsn) -> None:
        """Nothing but a place where an indirect jump may arrive."""

    do_endbr32 = do_endbr64


# ---- The memory of a state -----------------------------------------------------------------------


def lay(state: State, region: str, offset: int, value: z3.BitVecRef) -> None:
    """Lays down a value whose place is known."""
    for n in range(value.size() // 8):
        state.memory[region, offset + n] = value, n


def content(state: State, region: str, offset: int, sz: int) -> z3.BitVecRef:
    """What was laid down there."""
    cells = [state.memory.get((region, offset + n)) for n in range(sz)]
    if None in cells:
        raise NotProved(f"C2: not all of the {sz} bytes at {region}{offset:+d} are written")
    value, first = cells[0]
    if all(cell[0].eq(value) and cell[1] == first + n for n, cell in enumerate(cells)):
        whole = value.size() == 8 * sz
        return value if whole else z3.Extract(8 * (first + sz) - 1, 8 * first, value)
    parts = [z3.Extract(8 * n + 7, 8 * n, value) for value, n in cells]
    return z3.simplify(z3.Concat(*reversed(parts)))


def forget_below(state: State, region: str, offset: int) -> None:
    for name, at in list(state.memory):
        if name == region and at < offset:
            del state.memory[name, at]
