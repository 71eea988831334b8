# SPDX-License-Identifier: Apache-2.0
"""
A symbolic machine: executes the bytes of an object file on states in which everything may be
unknown. This is what processors have in common; a machine_*.py for each has the rest, above all the
meaning of its instructions.

Capstone decodes, z3's bit vectors are the values. Only instructions with a do_...() have a
meaning; any other, and every encoding, operand, address or relocation that is not understood,
raises NotProved, so that nothing is ever skipped or guessed. Addresses of thread-local variables
are known by name, and no instruction with a meaning changes the thread pointer. Vector registers
may hold anything after a call, and are left out, but for the part of them that is callee-saved.

Memory is a set of regions, each known by the unknown address it starts at, which the caller
declares to be disjoint. An address belongs to a region if it is that address plus a constant; an
access through any other is refused. A stack is worth what a signal handler leaves of it: after each
instruction everything below SP becomes unknown.

Relies on capstone, z3 and elftools.
"""
from __future__ import annotations

import copy
import itertools
import struct
from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass, field, replace

import capstone
import z3
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import Relocation, RelocationSection
from elftools.elf.sections import Symbol

MAX_INSTRUCTIONS = 200  # on one path
MAX_INSTRUCTION_SZ = 15  # bytes
STACK_USE = 160  # bytes below its first SP that a switch may use


class NotProved(Exception):
    """Something is false, or not understood; either way there is no proof."""


# ---- Processors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Processor(ABC):
    """All that differs between processors; a switch has `from` and `to` in these registers."""

    name: str
    bits: int
    registers: dict[str, int]  # all that a state has, those of control words included -> bits
    sp: str
    bp: str
    link: str | None  # has the return address on entry of a function; None if the stack has it
    callee_saved: tuple[str, ...]
    from_reg: str
    to_reg: str
    args_on_stack: bool
    sp_alignment: int  # at every instruction, in bytes
    link_number: int  # the return address, in call-frame information
    result: str  # has what a function returns
    red_zone: int  # bytes below SP that signal handlers leave alone
    function_pads: frozenset[bytes]  # what a call through a pointer or the PLT may arrive at
    jump_pads: frozenset[bytes]  # what a switch may
    control_mask: int  # of the 32 bits of control words in reg[]
    loads_by_memory: bool  # control words: those in reg[] of `to` are then written
    kept: tuple[tuple[str, str, str], ...]  # constraint, what it says, register: never to change

    @property
    def word(self) -> int:
        return self.bits // 8

    @property
    def call_sz(self) -> int:
        """The bytes that a call pushes."""
        return 0 if self.link else self.word

    @abstractmethod
    def control(self, state: State) -> z3.BitVecRef:
        """Control words as reg[] has them."""

    @abstractmethod
    def observed(self, state: State) -> list[z3.BitVecRef]:
        """All of control words and flags that a program can observe."""

    @abstractmethod
    def flag_claims(self, call: State, away: State) -> list[tuple[str, str, z3.BoolRef]]:
        """The promises of aco.h about flags: constraint, what it says, formula."""


# ---- Values --------------------------------------------------------------------------------------

_names = itertools.count()


def unknown(what: str, bits: int) -> z3.BitVecRef:
    return z3.BitVec(f"{what}.{next(_names)}", bits)


def thread_local(name: str, bits: int) -> z3.BitVecRef:
    """The address of a variable, by its symbol."""
    return z3.BitVec("tls." + name, bits)


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
    return bool(answer == z3.unsat)


# ---- The object file -----------------------------------------------------------------------------


def is_function(symbol: Symbol) -> bool:
    kind, visibility = symbol["st_info"]["type"], symbol["st_other"]["visibility"]
    return bool(kind == "STT_FUNC" and visibility == "STV_DEFAULT")


def tracks_branches(elf: ELFFile) -> bool:
    """Whether the file claims that indirect branches in it arrive at landing pads: bit 0 of the
    word of a property of the processor, the type of which begins with 0xc00000."""
    section = elf.get_section_by_name(".note.gnu.property")
    if section is None:
        return False
    kind, size, features = struct.unpack_from("<III", section.data(), 16)
    return kind in (0xC0000000, 0xC0000002) and size == 4 and bool(features & 1)


class Image(ABC):
    """The code of an object file: its sections of instructions, laid out one after the other from
    an unknown address, their symbols, and values that the linker will put into them."""

    def __init__(self, processor: Processor, elf: ELFFile, decoder: capstone.Cs) -> None:
        self.processor, self.decoder = processor, decoder
        self.decoder.detail = True
        self.base = z3.BitVec("text", processor.bits)
        self.text = bytearray()
        self.sections: dict[int, int] = {}  # index of a section -> offset
        self.symbols: dict[str, int] = {}  # functions and labels -> offset
        self.exported: set[str] = set()  # functions that other files may call
        self.sizes: dict[str, int] = {}  # of all symbols, in bytes
        self.fields: dict[int, z3.BitVecRef] = {}  # offset -> what is added to a relocated field
        self.calls: dict[int, str] = {}  # offset of a relocated field -> function of another file
        self.unresolved: set[int] = set()
        self.tracks_branches = tracks_branches(elf)
        self.frames: list[tuple[range, bytes]] = []  # code, and the rules for unwinders there
        self._read(elf)

    @abstractmethod
    def machine(self, regions: list[Region], exit_at: z3.BitVecRef | int) -> Machine:
        """A machine that runs it; the exit is an address or an offset in .text."""

    def _read(self, elf: ELFFile) -> None:
        for index, section in enumerate(elf.iter_sections()):
            if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
                self.sections[index] = len(self.text)
                self.text += section.data()
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            self.sizes[symbol.name] = symbol["st_size"]
            if symbol["st_shndx"] in self.sections and symbol.name[:1] not in ("", "$"):
                self.symbols[symbol.name] = self._offset(symbol)
                if symbol["st_info"]["bind"] != "STB_LOCAL" and is_function(symbol):
                    self.exported.add(symbol.name)
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_info"] in self.sections:
                symbols = elf.get_section(section["sh_link"])
                for relocation in section.iter_relocations():
                    symbol = symbols.get_symbol(relocation["r_info_sym"])
                    self._relocate(self.sections[section["sh_info"]], relocation, symbol)
            elif isinstance(section, RelocationSection) and section.name.endswith(".eh_frame"):
                self._read_frames(elf, section)

    def _read_frames(self, elf: ELFFile, relocations: RelocationSection) -> None:
        """Entries are length, distance to the one with what several have in common, or 0 in that,
        start of the code, which the linker puts in, its length, and no more data, then rules."""
        data = elf.get_section(relocations["sh_info"]).data()
        symbols = elf.get_section(relocations["sh_link"])
        for relocation in relocations.iter_relocations():
            at, symbol = relocation["r_offset"], symbols.get_symbol(relocation["r_info_sym"])
            if symbol["st_shndx"] not in self.sections:
                continue
            size, _, addend, length, more = struct.unpack_from("<IIiIB", data, at - 8)
            start = self._offset(symbol) + (relocation["r_addend"] if relocation.is_RELA() else
                                            addend)
            if more == 0:
                rules = data[at + 9:at - 4 + size]
                self.frames.append((range(start, start + length), rules))

    def _offset(self, symbol: Symbol) -> int:
        return self.sections[symbol["st_shndx"]] + int(symbol["st_value"])

    def _relocate(self, section: int, relocation: Relocation, _symbol: Symbol) -> None:
        """Code that refers to something else must not be executed."""
        at = section + relocation["r_offset"]
        self.unresolved.update(range(at, at + 4))

    def address(self, name: str) -> z3.BitVecRef:
        """The address of a function, here or in another file."""
        if name in self.symbols:
            return z3.simplify(self.base + self.symbols[name])
        return z3.BitVec(name, self.processor.bits)

    def mutated(self, offset: int, flip: int) -> Image:
        """The same with some bits of one byte inverted."""
        other = copy.copy(self)
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
        return insn


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

    pc: int  # offset in .text
    regs: dict[str, z3.BitVecRef]  # control words and flags included
    memory: dict[tuple[str, int], Byte]  # by region and offset
    path: list[z3.BoolRef] = field(default_factory=list)
    result: z3.BitVecRef | None = None  # that the zero flag compares with 0; None if not known
    has_loaded: bool = False  # control words
    has_ended: bool = False
    is_given_up: bool = False

    def fork(self) -> State:
        return replace(self, regs=dict(self.regs), memory=dict(self.memory), path=list(self.path))


# ---- The machine ---------------------------------------------------------------------------------


class Machine:
    """Runs an image up to an exit, which is an address or an offset in .text."""

    def __init__(self, image: Image, regions: list[Region], exit_at: z3.BitVecRef | int) -> None:
        self.image, self.processor = image, image.processor
        self.regions = {region.base.decl().name(): region for region in regions}
        self.exit_at = exit_at
        self.executed: dict[int, int] = {}  # offset of an instruction -> its bytes
        self.stack_checks = 0
        self.steady_checks = 0
        self.stack_use = 0  # bytes
        self.red_zone = 0  # bytes below SP that are counted on
        self.steady: list[range] = []  # code in which SP is one of
        self.steady_at: list[z3.BitVecRef] = []
        self.never_return: list[z3.BitVecRef] = []  # functions at which a path is given up
        self.aligned: z3.BitVecRef | None = None  # what is rounded down to a multiple of 16

    def run(self, start: State) -> list[State]:
        """The ends of all paths from a state to the exit."""
        self._forget_below_sp(start)
        paths, ended = [start.fork()], []
        while paths:
            state = paths.pop()
            for _ in range(MAX_INSTRUCTIONS):
                if state.has_ended or state.is_given_up:
                    ended += [state] if state.has_ended else []
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
            action = getattr(self, "do_" + insn.mnemonic.replace(".", "_"), None)
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
        region, offset = self.locate(state.regs[self.processor.sp], "C3")
        if not region.is_stack or not (offset == 0 or offset in region.writable):
            raise NotProved(f"C3: SP points at {region.name}{offset:+d}, which is no stack in use")
        if offset % self.processor.sp_alignment:
            raise NotProved(f"C3: SP points at {region.name}{offset:+d}, which is not aligned")
        if any(state.pc in code for code in self.steady):
            if not any(self.locate(sp) == (region, offset) for sp in self.steady_at):
                raise NotProved(f"X9: SP points at {region.name}{offset:+d} in the inline switch")
            self.steady_checks += 1
        self.stack_checks += 1
        self.stack_use = max(self.stack_use, -offset)
        forget_below(state, region.name, offset - self.red_zone)

    # -- Memory

    def locate(self, address: z3.BitVecRef, constraint: str = "M") -> tuple[Region, int]:
        """The region of an address, and the offset in it; if there is none, that breaks a rule."""
        address = z3.simplify(address)
        base, offset = address, 0
        if (z3.is_app_of(address, z3.Z3_OP_BADD) and address.num_args() == 2
                and z3.is_bv_value(address.arg(0))):
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
        in_use, _ = self.locate(state.regs[self.processor.sp])
        if (not all(n in region.writable for n in range(offset, offset + sz))
                or (region.is_stack and region is not in_use)):
            raise NotProved(f"M: writes {sz} bytes at {region.name}{offset:+d}, not its own")
        lay(state, region.name, offset, value)

    # -- Control flow

    def go(self, state: State, target: z3.BitVecRef) -> None:
        """Goes to an address: an exit, or a place in the code."""
        target = z3.simplify(target)
        if any(target.eq(function) for function in self.never_return):
            state.is_given_up = True
            return
        if not isinstance(self.exit_at, int) and target.eq(self.exit_at):
            state.has_ended = True
            return
        offset = z3.simplify(target - self.image.base)
        if not z3.is_bv_value(offset):
            raise NotProved(f"goes to {target}")
        state.pc = offset.as_signed_long()

    def round_down(self, state: State, value: z3.BitVecRef) -> z3.BitVecRef:
        """Rounds to a multiple of 16. Memory may begin there, so it gets a name of its own."""
        if self.aligned is None:
            raise NotProved("rounds to a multiple of 16")
        state.path += [self.aligned & 15 == 0, z3.ULT(value - self.aligned, 16)]
        return self.aligned

    def branch(self, state: State, target: int, if_zero: bool) -> list[State]:
        """Both ways, each if it can be taken."""
        if state.result is None:
            raise NotProved("depends on an unknown flag")
        is_zero = state.result == 0
        taken = state.fork()
        taken.pc = target
        possible = []
        for way, holds in ((taken, is_zero == if_zero), (state, is_zero != if_zero)):
            if not is_true(z3.Not(holds), way.path):
                way.path.append(z3.simplify(holds))
                possible.append(way)
        return possible


# ---- The memory of a state -----------------------------------------------------------------------


def lay(state: State, region: str, offset: int, value: z3.BitVecRef) -> None:
    """Lays down a value whose place is known."""
    for n in range(value.size() // 8):
        state.memory[region, offset + n] = value, n


def content(state: State, region: str, offset: int, sz: int) -> z3.BitVecRef:
    """The value that was laid down there."""
    places = [(region, offset + n) for n in range(sz)]
    if not all(place in state.memory for place in places):
        raise NotProved(f"C2: not all of the {sz} bytes at {region}{offset:+d} are written")
    cells = [state.memory[place] for place in places]
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
