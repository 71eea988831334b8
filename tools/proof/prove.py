#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Proves from the bytes of acosw.o that a switch keeps what the ABI says it must; docs/proof.md has
the argument, the running model and the names of the constraints. For each object, every pair of
switches in it is proved to make a round trip: acosw(), and what lies between two labels
inline_NAME_begin and inline_NAME_end, if there are any; the size of a symbol offset_of_base tells
where these may save one more word. With --mutants, every byte of acosw() that
the proof has executed is changed, and the changed object must be rejected.

usage: prove.py [--mutants | --all-mutants] [--inline-keeps=REGISTER] OBJECT...

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

    from machine import (STACK_USE, Image, Machine, NotProved, Region, State, content,
                         forget_below, is_true, lay, low, unknown)
    from machine_arm64 import ARM64, Arm64Image
    from machine_x86 import I386, X86_64, X86Image
except ImportError as error:
    sys.exit(f"prove.py: {error}: apt-get install python3-z3 python3-capstone python3-pyelftools")

HEADER = Path(__file__).resolve().parents[2] / "aco.h"
CONTROL_SZ = 4  # bytes
BASE_SZ = 4  # bytes
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
            re.findall(r"^#define ACO_REG_IDX_(\w+) (\d+)\b", HEADER.read_text(), re.M)}


# ---- Who switches --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A way to switch: a function that is called and returns, or inline code from begin to end."""

    name: str
    begin: int
    end: int | None = None
    keeps: tuple[str, ...] = ()  # registers, besides SP
    keeps_near: tuple[str, ...] = ()  # registers if they are less than 2 GiB from SP


def sites_of(image: Image, inline_keeps: list[str]) -> list[Site]:
    sites = [Site("acosw", image.symbols["acosw"], keeps=image.processor.callee_saved)]
    for symbol, begin in sorted(image.symbols.items()):
        if match := re.fullmatch(r"(inline_\w+)_begin", symbol):
            end = image.symbols[match[1] + "_end"]
            sites.append(Site(match[1], begin, end, (image.processor.bp,), tuple(inline_keeps)))
    return sites


# ---- Claims --------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What has been proved: paths, claims by constraint, and what it took."""

    claims: Counter = field(default_factory=Counter)
    paths: int = 0
    executed: dict[int, int] = field(default_factory=dict)  # offset of an instruction -> its bytes
    stack_use: int = 0  # bytes

    def claim(self, constraint: str, what: str, formula: z3.BoolRef, known: list) -> None:
        if not is_true(formula, known):
            raise NotProved(f"{constraint}: {what}: false")
        self.claims[constraint] += 1


class Proof:
    """The claims about one image."""

    def __init__(self, image: Image, inline_keeps: list[str]):
        self.image, self.processor, self.inline_keeps = image, image.processor, inline_keeps
        self.index = words_of_reg()
        configuration = {name for name in image.sizes if name.startswith("aco_acosw_")}
        self.shares_control = configuration == {"aco_acosw_shareFPUenv"}
        if not self.shares_control and configuration != {"aco_acosw_standaloneFPUenv"}:
            raise NotProved("no symbol tells whether the control words are shared")
        self.sites = sites_of(image, inline_keeps)
        self.tally = Tally()

    def run_all(self) -> Tally:
        self.save_control_words()
        for site in self.sites:
            self.round_trips(site)
        return self.tally

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
        self.tally.claims["C3"] += machine.stack_checks
        self.tally.executed |= machine.executed
        self.tally.stack_use = max(self.tally.stack_use, machine.stack_use)
        return states

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
        return self.run(self.image.machine(regions, self.symbol("to.RETADDR")), call)

    def start_coming_back(self, second: Site, away: State) -> State:
        """Of what was, only reg[] of `from` and its stack are known, and the path taken."""
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
        return self.run(machine, later)

    # -- Claims

    def control(self, state: State) -> z3.BitVecRef:
        """Control words as reg[] has them."""
        return self.processor.control(state)

    def equal_control(self, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BoolRef:
        return (a ^ b) & self.processor.control_mask == 0

    def claim_control(self, what: str, state: State, wanted: z3.BitVecRef, known: list) -> None:
        self.tally.claim("C2.2", what, self.equal_control(self.control(state), wanted), known)

    def claim_kept(self, before: State, after: State) -> None:
        """What the ABI wants in a certain state at each call, as it is at this one."""
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
        """What aco.h and acosw.S promise beyond the ABI."""
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
        """Back behind the call, or behind the inline code: as at the call. What all coroutines
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


# ---- Mutants -------------------------------------------------------------------------------------


def mutations(executed: dict[int, int], is_all: bool) -> Iterator[tuple[int, int, int]]:
    """Instruction, byte and inverted bit: two bits of each byte, others each time, or all."""
    offsets = [(start, start + n) for start, sz in sorted(executed.items()) for n in range(sz)]
    for n, (start, offset) in enumerate(offsets):
        for bit in range(8) if is_all else [n % 8, (n + 3) % 8]:
            yield start, offset, 1 << bit


def observed(image: Image, state: State) -> list[z3.BitVecRef]:
    """What is not scratch in the state at an arrival, memory aside."""
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
    image, results = proof.image, Counter()
    for start, offset, flip in mutations(proof.tally.executed, is_all):
        mutant = Proof(image.mutated(offset, flip), proof.inline_keeps)
        try:
            mutant.run_all()
        except NotProved as error:
            constraint = re.search(r"\b[CMX](\d(\.\d)?)?(?=:)", str(error))
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
        proof = Proof(image := read_image(path), options.inline_keeps)
        tally = proof.run_all()
    except NotProved as error:
        print(f"{path.name}: NOT PROVED: {error}")
        return False
    claims = " ".join(f"{name}:{n}" for name, n in sorted(tally.claims.items()))
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
    parser.add_argument("objects", nargs="+", type=Path, metavar="OBJECT")
    options = parser.parse_args()
    results = [prove_object(path, options) for path in options.objects]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
