#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Proves from the bytes of acosw.o that a switch keeps what the ABI says it must; docs/proof.md has
the argument, the running model and the names of the constraints. For each object, every pair of
switches in it is proved to make a round trip: acosw(), and the code between two labels
inline_NAME_begin and inline_NAME_end, if there are any; the size of a symbol offset_of_base says
where these may save one more word. The code that an entry function returns to is proved, too, as is
aco_i_ferry() if it is there, and landing pads if the object claims to have them. With --mutants,
every byte of acosw.S that the proof has executed is changed, and the changed object must be
rejected.

usage: prove.py [--mutants | --all-mutants] [--inline-keeps=REGISTER] [--source=FILE] OBJECT...

Exit status: 0 proved, 1 not, 2 wrong arguments. Relies on machine*.py beside it and on the
ACO_REG_IDX_... of aco.h.
"""
from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

try:
    import z3
    from elftools.elf.elffile import ELFFile

    import clobbers
    from machine import (STACK_USE, Image, Machine, NotProved, Region, State, content,
                         forget_below, is_true, lay, low, thread_local, unknown)
    from machine_arm64 import ARM64, Arm64Image
    from machine_x86 import I386, X86_64, X86Image
except ImportError as error:
    sys.exit(f"prove.py: {error}: apt-get install python3-z3 python3-capstone python3-pyelftools")

HEADER = Path(__file__).resolve().parents[2] / "aco.h"
CONTROL_SZ = 4  # bytes
BASE_SZ = 4  # bytes
DW_CFA_UNDEFINED = 7
PROTECTOR_STACK = 32  # bytes that it may use
PROCESSORS = {("EM_X86_64", 64): (X86_64, X86Image), ("EM_386", 32): (I386, X86Image),
              ("EM_AARCH64", 64): (ARM64, Arm64Image)}


def read_image(path: Path) -> Image:
    with path.open("rb") as file:
        elf = ELFFile(file)
        machine = elf["e_machine"], elf.elfclass
        if machine not in PROCESSORS or not elf.little_endian:
            raise NotProved("neither x86-64 nor i386 nor arm64")
        processor, image = PROCESSORS[machine]
        return image(processor, elf)


def words_of_reg() -> dict[str, int]:
    """reg[] as aco.h has it: RETADDR, SP, BP and FPU -> index."""
    return {name: int(index) for name, index in
            re.findall(r"^#define ACO_REG_IDX_(\w+) (\d+)\b", HEADER.read_text(), re.MULTILINE)}


# ---- Switches ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A way to switch: a function that is called and returns, or inline code from begin to end."""

    name: str
    begin: int
    end: int | None = None
    keeps: tuple[str, ...] = ()  # registers, besides SP
    keeps_near: tuple[str, ...] = ()  # registers if they are less than 2 GiB from SP


def unnamed(image: Image, source: Path | None) -> tuple[str, ...]:
    """Registers that compilers keep values in and that the statement of the inline switch does not
    name, so that it must keep them, by the names that states have for them."""
    if source is None:
        return ()
    macros, statements = clobbers.read(source.read_text())
    names = set().union(*(clobbers.needed(macros) - set(named) for named in statements))
    aliases = {f"v{n}": f"d{n}" for n in range(32)} if image.processor is ARM64 else {}
    names = {aliases.get(name, name) for name in names}
    if unknown_names := sorted(names - image.processor.registers.keys()):
        raise NotProved(f"C2.0: no clobbers, and nothing keeps {' '.join(unknown_names)}")
    return tuple(sorted(names))


def sites_of(image: Image, options: argparse.Namespace) -> list[Site]:
    inline_keeps = image.processor.bp, *unnamed(image, options.source)
    sites = [Site("acosw", image.symbols["acosw"], keeps=image.processor.callee_saved)]
    for symbol, begin in sorted(image.symbols.items()):
        if match := re.fullmatch(r"(inline_\w+)_begin", symbol):
            end = image.symbols[match[1] + "_end"]
            sites.append(Site(match[1], begin, end, inline_keeps, tuple(options.inline_keeps)))
    return sites


# ---- Claims --------------------------------------------------------------------------------------


@dataclass
class Tally:
    """Counts what has been proved: paths, claims by constraint, and instructions executed."""

    claims: Counter[str] = field(default_factory=Counter)
    paths: int = 0
    executed: dict[int, int] = field(default_factory=dict)  # offset of an instruction -> its bytes
    stack_use: int = 0  # bytes

    def claim(self, constraint: str, what: str, formula: z3.BoolRef,
              known: list[z3.BoolRef]) -> None:
        if not is_true(formula, known):
            raise NotProved(f"{constraint}: {what}: false")
        self.claims[constraint] += 1


class Proof:
    """The claims about one image."""

    def __init__(self, image: Image, options: argparse.Namespace) -> None:
        self.image, self.processor, self.options = image, image.processor, options
        self.index = words_of_reg()
        configuration = {name for name in image.sizes if name.startswith("aco_acosw_")}
        self.shares_control = configuration == {"aco_acosw_shareFPUenv"}
        if not self.shares_control and configuration != {"aco_acosw_standaloneFPUenv"}:
            raise NotProved("no symbol tells whether the control words are shared")
        self.sites = sites_of(image, options)
        self.executed_by: dict[str, set[int]] = {}  # part of the proof -> offsets of instructions
        self.tally = Tally()

    def run_all(self, offset: int | None = None) -> Tally:
        """All claims, or those about code that executes what is at an offset."""
        self.claim_landing_pads()
        for part in (self.save_control_words, self.protect, self.all_round_trips, self.make_ferry):
            if offset is None or offset in self.executed_by[part.__name__]:
                executed, self.tally.executed = self.tally.executed, {}
                part()
                self.executed_by[part.__name__] = set(self.tally.executed)
                self.tally.executed |= executed
        return self.tally

    def all_round_trips(self) -> None:
        for site in self.sites:
            self.round_trips(site)

    # -- Start

    def symbol(self, name: str) -> z3.BitVecRef:
        return z3.BitVec(name, self.processor.bits)

    def start(self, begin: int, stack: str, args: dict[str, z3.BitVecRef] | None) -> State:
        """Everything unknown; with `args`, as on entry of a function whose caller wants to go on at
        a certain address."""
        cpu = self.processor
        registers = {name: unknown(name, bits) for name, bits in cpu.registers.items()}
        state = State(begin, registers, memory={})
        state.regs[cpu.sp] = self.symbol(stack)
        if args is None:
            return state
        if cpu.link:
            state.regs[cpu.link] = self.symbol(stack + ".caller")
        else:
            lay(state, stack, 0, self.symbol(stack + ".caller"))
        for n, (register, value) in enumerate(args.items(), start=1):
            if cpu.args_on_stack:
                lay(state, stack, n * cpu.word, value)
            else:
                state.regs[register] = value
        return state

    def start_switch(self, site: Site, stack: str, co_from: str, co_to: str) -> State:
        cpu = self.processor
        args = {cpu.from_reg: self.symbol(co_from), cpu.to_reg: self.symbol(co_to)}
        if site.end is None:
            return self.start(site.begin, stack, args)
        state = self.start(site.begin, stack, None)
        state.regs |= args
        return state

    def run(self, machine: Machine, start: State) -> list[State]:
        states = machine.run(start)
        self.tally.paths += len(states)
        self.tally.claims.update(C3=machine.stack_checks, X9=machine.steady_checks)
        self.tally.executed |= machine.executed
        self.tally.stack_use = max(self.tally.stack_use, machine.stack_use)
        return states

    def run_switch(self, machine: Machine, start: State, to_sp: z3.BitVecRef) -> list[State]:
        """Inline, SP is as at the start, or that of the coroutine gone to."""
        machine.steady = [range(site.begin, site.end) for site in self.sites if site.end]
        machine.steady_at = [start.regs[self.processor.sp], to_sp]
        return self.run(machine, start)

    # -- Memory

    def stack(self, name: str) -> Region:
        """A stack from the SP at a call: one word and arguments, and room below."""
        top = 3 if self.processor.args_on_stack else 1
        return Region(name, self.symbol(name), range(-STACK_USE, top * self.processor.word),
                      range(-STACK_USE, 0), True)

    def record(self, name: str, is_from: bool) -> Region:
        """The aco_t of a coroutine: its reg[] and, if an inline switch uses it, `base`. That of
        `from` may be written, that of `to` only where control words are that take this way."""
        control_at = self.index["FPU"] * self.processor.word
        control = set() if self.shares_control else {control_at + n for n in range(CONTROL_SZ)}
        detour = control if self.processor.loads_by_memory else set()
        words = control | set(range(control_at))
        if base_at := self.image.sizes.get("offset_of_base"):
            words |= {base_at + n for n in range(BASE_SZ)}
        return Region(name, self.symbol(name), words, words if is_from else detour)

    def suspended(self, state: State, co: str) -> None:
        """Anything in reg[]; its SP is where its own stack begins."""
        for name, index in self.index.items():
            at = index * self.processor.word
            if name != "FPU":
                lay(state, co, at, self.symbol(f"{co}.{name}"))
            elif not self.shares_control:
                lay(state, co, at, z3.BitVec(f"{co}.{name}", 8 * CONTROL_SZ))

    # -- The round trip

    def round_trips(self, first: Site) -> None:
        """first(from, to), then anything, then any switch from `other` to `from`."""
        call = self.start_leaving(first)
        for away in self.leave(call):
            self.claim_arrival(call, away)
            self.claim_extras(first, call, away)
            for second in self.sites:
                later = self.start_coming_back(second, away)
                for back in self.come_back(first, later):
                    self.claim_return(first, call, later, back)

    def start_leaving(self, site: Site) -> State:
        call = self.start_switch(site, "stack", "from", "to")
        self.suspended(call, "to")
        lay(call, "to_stack", 0, self.symbol("top"))
        return call

    def leave(self, call: State) -> list[State]:
        to_stack = Region("to_stack", self.symbol("to.SP"), range(self.processor.word), (), True)
        regions = [self.record("from", True), self.record("to", False), self.stack("stack"),
                   to_stack]
        machine = self.image.machine(regions, self.symbol("to.RETADDR"))
        return self.run_switch(machine, call, self.symbol("to.SP"))

    def start_coming_back(self, second: Site, away: State) -> State:
        """Only reg[] of `from`, its stack and the path taken are known from before."""
        later = self.start_switch(second, "other_stack", "other", "from")
        later.path = list(away.path)
        later.memory |= {place: byte for place, byte in away.memory.items()
                         if place[0] in ("from", "stack")}
        return later

    def come_back(self, first: Site, later: State) -> list[State]:
        regions = [self.record("other", True), self.record("from", False), self.stack("stack"),
                   self.stack("other_stack")]
        exit_at = self.symbol("stack.caller") if first.end is None else first.end
        machine = self.image.machine(regions, exit_at)
        word = self.processor.word
        saved_sp = content(later, "from", self.index["SP"] * word, word)
        forget_below(later, "stack", machine.locate(saved_sp)[1])
        return self.run_switch(machine, later, saved_sp)

    # -- Claims

    def control(self, state: State) -> z3.BitVecRef:
        """Control words as reg[] has them."""
        return self.processor.control(state)

    def equal_control(self, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BoolRef:
        return (a ^ b) & self.processor.control_mask == 0

    def claim_control(self, what: str, state: State, wanted: z3.BitVecRef,
                      known: list[z3.BoolRef]) -> None:
        self.tally.claim("C2.2", what, self.equal_control(self.control(state), wanted), known)

    def claim_kept(self, before: State, after: State) -> None:
        """The state that the ABI prescribes at each call is as it is at this one."""
        for constraint, what, name in self.processor.kept:
            self.tally.claim(constraint, what, after.regs[name] == before.regs[name], after.path)

    def claim_arrival(self, call: State, away: State) -> None:
        """At the address jumped to: as `to` was suspended."""
        claim, cpu, known = self.tally.claim, self.processor, away.path
        claim("C2.1", "SP is that of `to`", away.regs[cpu.sp] == self.symbol("to.SP"), known)
        claim("C2.0", "the frame pointer is that of `to`",
              away.regs[cpu.bp] == self.symbol("to.BP"), known)
        wanted = self.control(call) if self.shares_control else z3.BitVec("to.FPU", 32)
        self.claim_control("the control words are those of `to`", away, wanted, known)
        self.claim_kept(call, away)
        word = cpu.word
        resumed_at = content(away, "from", self.index["RETADDR"] * word, word)
        self.claim_pad("`from`", z3.simplify(resumed_at - self.image.base), cpu.jump_pads)
        self.claim_init(call, away)

    def claim_init(self, call: State, away: State) -> None:
        """If `to` has never run: as on entry of its entry function."""
        claim, cpu = self.tally.claim, self.processor
        control, protector = z3.BitVec("control", 32), self.symbol("protector")
        known = [*away.path, self.symbol("top") == protector, self.symbol("to.BP") == 0,
                 z3.URem(self.symbol("to.SP") + cpu.call_sz, 16) == 0]
        if self.shares_control:
            known.append(self.equal_control(self.control(call), control))
        else:
            known.append(z3.BitVec("to.FPU", 32) == control)
        claim("C2.1", "init: SP before a call would be a multiple of 16",
              z3.URem(away.regs[cpu.sp] + cpu.call_sz, 16) == 0, known)
        link = away.regs[cpu.link] if cpu.link else content(away, "to_stack", 0, cpu.word)
        claim("C2.1", "init: the protector is the return address", link == protector, known)
        claim("C2.0", "init: the frame pointer is 0", away.regs[cpu.bp] == 0, known)
        self.claim_control("init: the control words are those given", away, control, known)

    def claim_extras(self, site: Site, call: State, away: State) -> None:
        """The promises of aco.h and acosw.S beyond the ABI."""
        claim, known = self.tally.claim, away.path
        claim("X1", "the register that had `to` still does",
              away.regs[self.processor.to_reg] == self.symbol("to"), known)
        for constraint, what, formula in self.processor.flag_claims(call, away):
            claim(constraint, what, formula, known)
        if away.has_loaded:
            differ = z3.Not(self.equal_control(self.control(call), z3.BitVec("to.FPU", 32)))
            claim("X4", "control words are loaded only if they differ", differ, known)
        if site.end is None:
            claim("X5", "the register that had `from` still does",
                  away.regs[self.processor.from_reg] == self.symbol("from"), known)

    def claim_return(self, site: Site, call: State, later: State, back: State) -> None:
        """Back behind the call, or behind the inline code: as at the call. State that coroutines
        share is as at the later call, which came here."""
        claim, cpu, known = self.tally.claim, self.processor, back.path
        for name in site.keeps:
            claim("C2.0", f"{name} is as at the call", back.regs[name] == call.regs[name], known)
        for name in site.keeps_near:
            distance = call.regs[name] - call.regs[cpu.sp]
            near = z3.SignExt(cpu.bits - 32, low(distance, 32)) == distance
            claim("C2.0", f"{name} is as at the call", back.regs[name] == call.regs[name],
                  [*known, near])
        popped = cpu.call_sz if site.end is None else 0
        claim("C2.1", "SP is as before the call",
              back.regs[cpu.sp] == call.regs[cpu.sp] + popped, known)
        owner = later if self.shares_control else call
        self.claim_control("the control words are as at the call", back, self.control(owner), known)
        self.claim_kept(later, back)
        if site.end is not None:
            claim("X1", "the register of `to` holds the one arrived at",
                  back.regs[cpu.to_reg] == self.symbol("from"), known)

    # -- How control words get into an init-state coroutine

    def save_control_words(self) -> None:
        """aco_save_fpucw_mxcsr(p)"""
        cpu, claim = self.processor, self.tally.claim
        call = self.start(self.image.symbols["aco_save_fpucw_mxcsr"], "stack",
                          {cpu.from_reg: self.symbol("p")})
        target = Region("p", self.symbol("p"), range(CONTROL_SZ), range(CONTROL_SZ))
        machine = self.image.machine([self.stack("stack"), target], self.symbol("stack.caller"))
        for back in self.run(machine, call):
            stored = content(back, "p", 0, CONTROL_SZ)
            claim("C2.2", "the control words are stored", stored == self.control(call), back.path)
            function = Site("aco_save_fpucw_mxcsr", call.pc, keeps=cpu.callee_saved)
            self.claim_return(function, call, call, back)


    # -- Landing pads

    def claim_pad(self, what: str, offset: z3.BitVecRef, pads: frozenset[bytes]) -> None:
        """A jump or call arrives there that needs a landing pad, where branches are tracked."""
        if not self.image.tracks_branches:
            return
        if not z3.is_bv_value(offset):
            raise NotProved(f"X7: {what} goes on at {offset}")
        at = offset.as_long()
        if not any(self.image.text.startswith(pad, at) for pad in pads):
            raise NotProved(f"X7: {what} has no landing pad: false")
        self.tally.claims["X7"] += 1

    def claim_landing_pads(self) -> None:
        """Functions that other files can call may be called through a pointer or the PLT."""
        for name in sorted(self.image.exported):
            offset = z3.BitVecVal(self.image.symbols[name], self.processor.bits)
            self.claim_pad(name, offset, self.processor.function_pads)

    # -- Where an entry function returns to

    def protect(self) -> None:
        """aco_funcp_protector_asm, with SP as a return leaves it, up to the call."""
        cpu, claim, name = self.processor, self.tally.claim, "aco_funcp_protector_asm"
        protector = self.image.base + self.image.symbols[name]
        call = self.start(self.image.symbols[name], "stack", None)
        lay(call, "stack", -cpu.call_sz, protector)
        own = range(-PROTECTOR_STACK, 0)
        region = Region("stack", self.symbol("stack"), range(-PROTECTOR_STACK, cpu.word), own, True)
        known = [z3.URem(self.symbol("stack"), 16) == 0]
        machine = self.image.machine([region], self.image.address("aco_funcp_protector"))
        machine.red_zone = cpu.red_zone
        for end in self.run(machine, call):
            known = [*known, *end.path]
            claim("C2.0", "the frame pointer is as at the return",
                  end.regs[cpu.bp] == call.regs[cpu.bp], known)
            claim("C2.1", "SP before the call is a multiple of 16",
                  z3.URem(end.regs[cpu.sp] + cpu.call_sz, 16) == 0, known)
            self.claim_control("the control words are as at the return", end, self.control(call),
                               known)
            self.claim_kept(call, end)
            claim("I4", "the protector is still at align_retptr",
                  content(end, "stack", -cpu.call_sz, cpu.word) == protector, known)
        self.claim_end_of_backtraces(self.image.symbols[name])

    def claim_end_of_backtraces(self, protector: int) -> None:
        """Unwinders look up the address before a return address. A function with a name of its own
        is there, and it and the protector are known to have no caller."""
        last = protector + self.image.sizes["aco_funcp_protector_asm"] - 1
        rules = {rules.rstrip(b"\0") for code, rules in self.image.frames
                 if protector - 1 in code and last in code}
        end = self.image.symbols["aco_coroutine_end"]
        if not end < protector == end + self.image.sizes["aco_coroutine_end"]:
            raise NotProved("X8: aco_coroutine_end is what is before the protector: false")
        if rules != {bytes([DW_CFA_UNDEFINED, self.processor.link_number])}:
            raise NotProved("X8: to unwinders the protector has no caller: false")
        self.tally.claims["X8"] += 1


    # -- The ferry

    def make_ferry(self) -> None:
        """aco_i_ferry(co), as the compiler emits it: what it returns is as one in init, with the
        parent's control words, and lies below the frames of the parent."""
        if "aco_i_ferry" not in self.image.symbols:
            return
        cpu = self.processor
        call = self.start(self.image.symbols["aco_i_ferry"], "stack",
                          {cpu.from_reg: self.symbol("co")})
        sizes, word = self.image.sizes, cpu.word
        (running,) = (name for name in sizes if re.match(r"aco_gtls_co_\w+", name))
        lay(call, running, 0, self.symbol("self"))
        lay(call, "self", sizes["offset_of_main_co"], self.symbol("parent"))
        lay(call, "co", sizes["offset_of_main_co"], self.symbol("co.main_co"))
        self.suspended(call, "parent")
        regions = [self.stack("stack"), self.ferry_region(), self.thread_local(running, True),
                   self.thread_local("ferried", False), self.words_of("parent"),
                   *(self.fields_of(name) for name in ("self", "co"))]
        machine = self.image.machine(regions, self.symbol("stack.caller"))
        machine.aligned = self.symbol("ferry")
        machine.never_return = [self.image.address(name) for name in ("aco_i_misuse", "aco_i_fail")]
        for back in self.run(machine, call):
            function = Site("aco_i_ferry", call.pc, keeps=cpu.callee_saved)
            self.claim_return(function, call, call, back)
            self.claim_ferry(back)
            for name, wanted in ((running, "parent"), ("ferried", "co")):
                self.tally.claim("F", f"{wanted} is told to run_ferry",
                                 content(back, name, 0, word) == self.symbol(wanted), back.path)

    def thread_local(self, name: str, is_readable: bool) -> Region:
        whole = range(self.processor.word)
        base = thread_local(name, self.processor.bits)
        return Region(name, base, whole if is_readable else (), whole)

    def fields_of(self, name: str) -> Region:
        """The fields of a coroutine that say what its parent is and whether it has ended."""
        at, is_end = (self.image.sizes["offset_of_" + field] for field in ("main_co", "is_end"))
        return Region(name, self.symbol(name), {is_end, *range(at, at + self.processor.word)}, ())

    def words(self) -> range:
        """The bytes of reg[], in whole words."""
        return range((self.index["FPU"] + (not self.shares_control)) * self.processor.word)

    def words_of(self, name: str) -> Region:
        """Its reg[], to be read."""
        return Region(name, self.symbol(name), self.words(), ())

    def ferry_region(self) -> Region:
        """Its reg[], and below it what is a return address."""
        below = -self.image.sizes["size_of_return_address"]
        return Region("ferry", self.symbol("ferry"), (), range(below, self.words().stop))

    def claim_ferry(self, back: State) -> None:
        """The ferry is as init demands, but has no return address; and it is in its place."""
        cpu, known, sizes = self.processor, back.path, self.image.sizes
        ferry, sp = self.symbol("ferry"), self.symbol("parent.SP")
        words = {name: content(back, "ferry", index * cpu.word, cpu.word)
                 for name, index in self.index.items() if name != "FPU"}
        below = words["SP"] - ferry
        room = sizes["size_of_aco_t"] + cpu.red_zone
        claims = [
            ("is returned", back.regs[cpu.result] == ferry),
            ("starts in run_ferry", words["RETADDR"] == self.image.address("run_ferry")),
            ("has no frame pointer", words["BP"] == 0),
            ("has its return address right below it", below == -sizes["size_of_return_address"]),
            ("has no return address", content(back, "ferry", -sizes["size_of_return_address"],
                                              cpu.word) == 0),
            ("has an SP as in init", z3.URem(words["SP"] + cpu.call_sz, 16) == 0),
            ("is below the frames of the parent", z3.And(z3.UGE(sp - ferry, room),
                                                         z3.ULT(sp - ferry, room + 1024))),
        ]
        if not self.shares_control:
            control = content(back, "ferry", self.index["FPU"] * cpu.word, CONTROL_SZ)
            claims.append(("has the control words of the parent",
                           control == z3.BitVec("parent.FPU", 8 * CONTROL_SZ)))
        for what, formula in claims:
            self.tally.claim("F", f"the ferry {what}", formula, known)


# ---- Mutants -------------------------------------------------------------------------------------


def mutations(executed: dict[int, int], is_all: bool) -> Iterator[tuple[int, int, int]]:
    """Instruction, byte and inverted bit: two bits of each byte, others each time, or all."""
    offsets = [(start, start + n) for start, sz in sorted(executed.items()) for n in range(sz)]
    for n, (start, offset) in enumerate(offsets):
        for bit in range(8) if is_all else [n % 8, (n + 3) % 8]:
            yield start, offset, 1 << bit


def observed(image: Image, state: State) -> list[z3.BitVecRef]:
    """All that is not scratch in the state at an arrival, but for memory."""
    cpu = image.processor
    names = filter(None, (cpu.sp, cpu.bp, cpu.link, cpu.from_reg, cpu.to_reg))
    return [*(state.regs[name] for name in names), *cpu.observed(state),
            z3.BitVecVal(state.has_loaded, 1)]


def have_same_effect(original: Proof, mutant: Proof) -> bool:
    """Whether no coroutine could tell the two apart: on each pair of paths that one start can take,
    nothing differs at the arrival but scratch."""
    for site in original.sites:
        call = original.start_leaving(site)
        for a, b in itertools.product(original.leave(call), mutant.leave(call)):
            if a.memory.keys() != b.memory.keys():
                return False
            pairs = [*zip(observed(original.image, a), observed(original.image, b)),
                     *((content(a, *place, 1), content(b, *place, 1)) for place in a.memory)]
            if not is_true(z3.And([x == y for x, y in pairs]), a.path + b.path):
                return False
    return True


def explain(proof: Proof, mutant: Proof, start: int) -> str | None:
    """Why a mutant is proved as well; None if that is a hole in the claims."""
    old, new = (p.image.decode(start) for p in (proof, mutant))
    if (old.size, old.mnemonic, old.op_str) == (new.size, new.mnemonic, new.op_str):
        return "another encoding"
    if have_same_effect(proof, mutant):
        return "the same effect"
    return None


def try_mutants(proof: Proof, is_all: bool) -> bool:
    """Whether each is rejected or shown to be no change."""
    image = proof.image
    results: Counter[str] = Counter()
    for start, offset, flip in mutations(proof.tally.executed, is_all):
        mutant = Proof(image.mutated(offset, flip), proof.options)
        mutant.executed_by = proof.executed_by.copy()
        try:
            mutant.run_all(start)
        except NotProved as error:
            constraint = re.search(r"\b[CIMX](\d(\.\d)?)?(?=:)", str(error))
            results[f"rejected by {constraint[0]}" if constraint else "not understood"] += 1
            continue
        why = explain(proof, mutant, start)
        results[why or "UNEXPLAINED"] += 1
        if why != "another encoding":
            old, new = (p.image.decode(start) for p in (proof, mutant))
            print(f"  {why or 'UNEXPLAINED'}: {image.where(start)}: {old.mnemonic} {old.op_str}"
                  f" -> {new.mnemonic} {new.op_str}")
    counts = ", ".join(f"{n} {why}" for why, n in sorted(results.items()))
    print(f"  {results.total()} mutants: {counts}")
    return not results["UNEXPLAINED"]


# ---- Command line --------------------------------------------------------------------------------


def prove_object(path: Path, options: argparse.Namespace) -> bool:
    try:
        proof = Proof(image := read_image(path), options)
        tally = proof.run_all()
    except NotProved as error:
        print(f"{path.name}: NOT PROVED: {error}")
        return False
    claims = " ".join(f"{name}:{n}" for name, n in sorted(tally.claims.items()) if n)
    control = "shared" if proof.shares_control else "own"
    print(f"{path.name}: proved for {image.processor.name}, {control} control words: "
          f"{', '.join(site.name for site in proof.sites)}; {sum(tally.executed.values())} bytes, "
          f"{tally.paths} paths, claims {claims}; at most {tally.stack_use} bytes of stack")
    if options.mutants or options.all_mutants:
        return try_mutants(proof, options.all_mutants)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mutants", action="store_true", help="change two bits of each byte")
    parser.add_argument("--all-mutants", action="store_true", help="change each bit")
    parser.add_argument("--inline-keeps", action="append", default=[], metavar="REGISTER",
                        help="the inline code has to keep this register, too")
    parser.add_argument("--source", type=Path, metavar="FILE",
                        help="source of the inline code, preprocessed (-E -P -dD): it has to keep "
                        "each register that it does not name as clobbered")
    parser.add_argument("objects", nargs="+", type=Path, metavar="OBJECT")
    options = parser.parse_args()
    results = [prove_object(path, options) for path in options.objects]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
