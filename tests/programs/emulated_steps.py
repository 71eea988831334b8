# SPDX-License-Identifier: Apache-2.0
"""
Run by gdb on emulated_steps.c under qemu, whose stub steps: looks at the processor before each
instruction from begins() to ends(), as single_step.c does on x86. The numbers are those of the
constraints in docs/proof.md. Each time SP is aligned and lies in the stack of main or of the
coroutine, and the bytes below are overwritten, as a signal handler might (C3, C4). Inside of a
switch the backtrace is that of the side that leaves, up to the jump, and ends with main or with the
entry function. The side that arrives finds SP, the frame pointer and the register of `to` as aco.h
says, and its own control words (C2.2); a caller of acosw(), its SP, too, and its callee-saved
registers, which are filled with values of their own at the call (C2.0, C2.1); and an entry
function, the protector as its return address, frame pointer 0, and SP aligned. C1 asks for nothing
here. Ends gdb with status 0 only if nothing is wrong. Relies on debugging information.
"""
from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field

import gdb

MAIN, COROUTINE = "main", "coroutine"
BELOW_SZ = 256  # bytes below SP that are overwritten
MAIN_ROOM = 1 << 16  # bytes that main may use below SP at the start
ENTRY_ALIGN = 8  # bytes, of SP where a function is entered, at least
MAIN_ABOVE = 1024  # bytes above it that are its own
SWITCHES = 4  # two resumes, a yield, an exit
INSIDE = 8  # instructions before its jump that belong to an inline switch, at least
SWITCHERS = "resumes", "inner", "outer", "entry"  # functions that may contain one
CONTINUED = "resumes", "inner"  # those in which a side is suspended and continued
# Possible backtraces, innermost function first: those of the library and of libc, then ours.
# The switch may show the function around it twice.
OTHERS = r"((?!(begins|ends|resumes|main|inner|outer|entry)\b)\w+ )*"
TRACES = {
    MAIN: re.compile(OTHERS + r"(begins |ends |resumes (resumes )?)?main\b.*"),
    COROUTINE: re.compile(OTHERS + r"((inner (inner )?)?outer |entry )?entry( aco_\w+)?"),
}


@dataclass(frozen=True)
class Processor:
    """Names of registers; which a function must keep besides SP and BP; the control words."""

    bp: str
    link: str
    to: str
    jump: str  # the instruction that ends a switch
    kept: tuple[str, ...]
    floats: tuple[str, ...]
    float_field: str  # of such a register, as gdb has it
    control: str
    control_mask: int
    other_control: int
    sp_align: int  # bytes, at every instruction
    has_traces: bool


def numbered(stem: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{stem}{n}" for n in range(first, last + 1))


PROCESSORS = {
    "aarch64": Processor("x29", "x30", "x1", r"br\s+x17",
                         numbered("x", 19, 28), numbered("d", 8, 15), ".f",
                         "fpcr", 0x07F79F00, 0x00800000, 16, True),
    "riscv": Processor("fp", "ra", "a1", r"jr\s+t2",
                       numbered("s", 1, 11), numbered("fs", 0, 11), ".double",
                       "frm", 7, 2, 16, True),
    "arm": Processor("r11", "lr", "r1", r"bx\s+(r12|ip)",
                     numbered("r", 4, 10), numbered("d", 8, 15), ".f64",
                     "fpscr", 0x07F79F00, 0x00800000, 4, False),
}


@dataclass
class Call:
    """A call of acosw(): what must be the same when it returns, and what registers really held."""

    to: int  # return address
    sp: int
    bp: int
    filled: dict[str, int]
    real: dict[str, int]


@dataclass
class Stepper:
    cpu: Processor
    is_shared: bool
    faults: list[str] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)  # control words of each side
    ct_instructions: int = 0
    ct_switches: int = 0
    ct_returns: int = 0

    def __post_init__(self) -> None:
        self.word = gdb.lookup_type("void").pointer().sizeof
        self.low = value("stepped->share_stack->ptr")
        self.top = value("stepped->share_stack->align_retptr")
        self.main_top = register("sp") + MAIN_ABOVE
        self.side = MAIN  # whose stack it is
        self.is_leaving = False  # until the jump
        self.inside = inside_of_switches(self.cpu)

    # -- Claims

    def demand(self, holds: bool, rule: str) -> None:
        if not holds:
            where = gdb.execute("x/i $pc", to_string=True).strip()
            self.faults.append(f"{rule}, at {where} with SP {register('sp'):#x}")

    def side_of_sp(self) -> str:
        sp = register("sp")
        self.demand(sp % self.cpu.sp_align == 0, "SP is not aligned")
        if self.low <= sp <= self.top:
            return COROUTINE
        self.demand(self.main_top - MAIN_ROOM < sp <= self.main_top, "SP is in neither stack")
        return MAIN

    def look(self) -> None:
        pc, side = register("pc"), self.side_of_sp()
        if side != self.side:
            self.ct_switches += 1
            self.side, self.is_leaving = side, True
            self.check_loaded()
        elif self.is_leaving and pc == self.reg(0) & ~1:
            self.is_leaving = False
            self.check_arrival(pc)
        self.check_return(pc)
        if pc in (address_of(name) for name in CONTINUED):
            self.words[side] = self.control()
        if pc == address_of("acosw"):
            self.calls[side] = self.fill_registers()
            self.words[side] = self.calls[side].filled[self.cpu.control]
        if self.cpu.has_traces and pc in self.inside:
            self.check_trace()
        overwrite(register("sp") - BELOW_SZ, BELOW_SZ)

    def reg(self, index: int) -> int:
        """A word of reg[] of the coroutine that `to` holds."""
        memory = gdb.selected_inferior().read_memory(register(self.cpu.to) + index * self.word,
                                                     self.word)
        return int.from_bytes(memory.tobytes(), "little")

    def check_loaded(self) -> None:
        """SP was just loaded: so is the frame pointer, and `to` is still there."""
        self.demand(register("sp") == self.reg(1), "SP is not that of `to`")
        self.demand(register(self.cpu.bp) == self.reg(2), "the frame pointer is not that of `to`")

    def check_arrival(self, pc: int) -> None:
        top = gdb.selected_inferior().read_memory(register("sp"), self.word).tobytes()
        self.demand(register(self.cpu.link) == int.from_bytes(top, "little"),
                    "the word at SP is not in the link register")
        if pc != address_of("entry"):
            self.demand(self.is_shared or self.control() == self.words[self.side],
                        "the control words are not those of the side that arrives")
        else:
            self.demand(self.top % ENTRY_ALIGN == 0, "SP at the entry is not aligned")
            self.demand(register("sp") == self.top, "SP at the entry is not that of an empty stack")
            self.demand(register(self.cpu.bp) == 0, "the frame pointer at the entry is not 0")
            protector = address_of("aco_funcp_protector_asm")
            self.demand(register(self.cpu.link) & ~1 == protector,
                        "the return address at the entry is not the protector")
            wanted = self.calls[MAIN].filled[self.cpu.control] if self.calls else 0
            self.demand(self.control() == (wanted if self.is_shared else 0),
                        "the control words at the entry are not the right ones")

    def check_return(self, pc: int) -> None:
        call = self.calls.get(self.side)
        if call is None or pc != call.to:
            return
        self.ct_returns += 1
        self.demand(register("sp") == call.sp, "SP is not that of the call")
        self.demand(register(self.cpu.bp) == call.bp, "the frame pointer is not what it was")
        for name, filled in call.filled.items():
            if name != self.cpu.control:
                self.demand(register(name) == filled, f"{name} is not what it was")
            elif not self.is_shared:
                self.demand(self.control() == filled, "the control words are not what they were")
            set_register(name, call.real[name])
        del self.calls[self.side]

    # -- Registers

    def control(self) -> int:
        return register(self.cpu.control) & self.cpu.control_mask

    def fill_registers(self) -> Call:
        names = (*self.cpu.kept, *self.cpu.floats, self.cpu.control)
        real = {name: register(name) for name in names}
        filled = {}
        for n, name in enumerate(names[:-1], start=1):
            filled[name] = (self.ct_instructions << 16 | n << 4 | 5) + (self.side == MAIN)
        filled[self.cpu.control] = 0 if self.side == MAIN else self.cpu.other_control
        for name, number in filled.items():
            set_register(name, number)
        return Call(register(self.cpu.link) & ~1, register("sp"), register(self.cpu.bp), filled,
                    real)

    # -- Backtraces

    def check_trace(self) -> None:
        names: list[str] = []
        frame = gdb.newest_frame()
        while frame is not None and len(names) < 20:
            if frame.type() != gdb.INLINE_FRAME:
                names.append(frame.name() or "??")
            frame = frame.older()
        trace, other = " ".join(names), MAIN if self.side == COROUTINE else COROUTINE
        expected = TRACES[other if self.is_leaving else self.side]
        self.demand(expected.fullmatch(trace) is not None, f"the backtrace is {trace}")


def inside_of_switches(cpu: Processor) -> set[int]:
    """The addresses of the instructions of acosw(), and of those sure to be of an inline switch."""
    architecture = gdb.selected_inferior().architecture()
    acosw, end = address_of("acosw"), address_of("aco_save_fpucw_mxcsr")
    inside = {insn["addr"] for insn in architecture.disassemble(acosw, end - 1)}
    for name in SWITCHERS:
        start = address_of(name)
        insns = architecture.disassemble(start, gdb.block_for_pc(start).end - 1)
        for n, insn in enumerate(insns):
            if re.fullmatch(cpu.jump, insn["asm"].split("#")[0].strip()):
                inside |= {other["addr"] for other in insns[n - INSIDE:n + 1]}
    return inside


def address_of(function: str) -> int:
    """The address without the bit that marks thumb code."""
    return value(f"(unsigned long)&{function} & ~1ul")


def value(expression: str) -> int:
    return int(gdb.parse_and_eval(expression).cast(gdb.lookup_type("unsigned long")))


def register(name: str) -> int:
    """Registers of floating point hold whole numbers here."""
    if name in PROCESSOR.floats:
        return int(float(gdb.parse_and_eval(f"${name}{PROCESSOR.float_field}")))
    return value(f"${name}")


def set_register(name: str, number: int) -> None:
    suffix = PROCESSOR.float_field if name in PROCESSOR.floats else ""
    gdb.execute(f"set var ${name}{suffix} = {number}")


def overwrite(address: int, sz: int) -> None:
    gdb.selected_inferior().write_memory(address, b"\xd5" * sz)


def is_alive() -> bool:
    return bool(gdb.selected_inferior().pid)


def step_through() -> Stepper:
    gdb.execute("break begins")
    gdb.execute("continue")
    stepper = Stepper(PROCESSOR, IS_SHARED)
    end = address_of("ends")
    while is_alive() and register("pc") != end and len(stepper.faults) < 10:
        stepper.look()
        stepper.ct_instructions += 1
        gdb.execute("stepi", to_string=True)
    return stepper


def main() -> int:
    stepper = step_through()
    if not is_alive():
        stepper.faults.append("the program has died")
    elif stepper.ct_switches != SWITCHES:
        stepper.faults.append(f"{stepper.ct_switches} switches were seen")
    for fault in stepper.faults:
        print("FAULT:", fault)
    print(f"{stepper.ct_instructions} instructions, {stepper.ct_switches} switches, "
          f"{stepper.ct_returns} returns of acosw()")
    return 1 if stepper.faults else 0


try:
    name = gdb.selected_inferior().architecture().name()
    PROCESSOR = next(cpu for prefix, cpu in PROCESSORS.items() if name.startswith(prefix))
    IS_SHARED = "aco_acosw_shareFPUenv" in gdb.execute("info variables aco_acosw_", to_string=True)
    status = main()
except Exception:
    traceback.print_exc()
    status = 1
gdb.execute(f"quit {status}")
