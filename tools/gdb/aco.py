# SPDX-License-Identifier: Apache-2.0
"""
Coroutines of aco in gdb: `info aco`, `aco bt`, `aco frame`; see README.md. Load it with
`gdb -x aco.py` or `source aco.py`. Relies on gdb 13 or later with Python, and on debug information
about aco_t. Works alike on a live process and on a core file, since it writes to neither:

- The registers of a suspended coroutine come from an unwinder that, as long as there is a view,
  lets the thread's innermost real frame have been called from where the coroutine is suspended.
- The frames of one that is saved out come from an object file made for the purpose, whose only
  section is read-only and lies where the frames lay; the script makes gdb trust such sections.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import struct
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import gdb
import gdb.unwinder

RETADDR, SP, BP = 0, 1, 2  # ACO_REG_IDX_* of aco.h
HINT = "Only what is found without a list; a build with -DACO_CONFIG_LIST shows all coroutines."


class Processor(NamedTuple):
    """Facts about a processor that gdb does not provide."""

    pc: str
    sp: str
    bp: str
    word: int  # bytes
    elf_machine: int


PROCESSORS = {
    "i386:x86-64": Processor("rip", "rsp", "rbp", 8, 62),
    "i386": Processor("eip", "esp", "ebp", 4, 3),
    "aarch64": Processor("pc", "sp", "x29", 8, 183),
    "riscv:rv64": Processor("pc", "sp", "fp", 8, 243),
}


def fail(words: str) -> NoReturn:
    """Ends the command with one line."""
    raise gdb.GdbError("aco: " + words)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def processor() -> Processor:
    name = gdb.newest_frame().architecture().name()
    if name not in PROCESSORS:
        fail(f"processor {name} is not known to this script: add it to PROCESSORS")
    return PROCESSORS[name]


def set_flag(name: str, is_on: bool) -> None:
    gdb.execute(f"set {name} {'on' if is_on else 'off'}", to_string=True)


def function_at(address: int) -> str:
    """The name of the function at an address; the address itself if it has none."""
    text = gdb.execute(f"info symbol {address:#x}", to_string=True)
    match = re.match(r"(.*?)(?: \+ \d+)? in section ", text)
    return match[1] if match else f"{address:#x}"


@contextlib.contextmanager
def selection_kept() -> Iterator[None]:
    """Afterwards the same thread and frame are selected as before."""
    thread, frame = gdb.selected_thread(), gdb.selected_frame()
    try:
        yield
    finally:
        thread.switch()
        if frame.is_valid():
            frame.select()


# ==== Views ======================================================================================


class View:
    """Lets the thread's innermost real frame be followed by the frames of a coroutine."""

    def __init__(self, co: Coroutine) -> None:
        self.thread = co.thread
        self.registers = co.registers()
        self.end = co.stack.protector if co.stack else None  # None for a main coroutine
        frame = gdb.newest_frame()
        while frame.type() == gdb.INLINE_FRAME:
            frame = frame.older()
        self.level = frame.level()  # of the frame that the unwinder claims

    def is_of_selected_thread(self) -> bool:
        thread = gdb.selected_thread()
        return thread is not None and thread.ptid == self.thread.ptid


class FrameId(NamedTuple):
    sp: gdb.Value
    pc: gdb.Value


class CoroutineUnwinder(gdb.unwinder.Unwinder):
    """Follows the view, if there is one; otherwise stays out of the way."""

    def __init__(self) -> None:
        super().__init__("aco")
        self.view: View | None = None
        self.past_main = False  # the user's setting, which a view changes

    def __call__(self, pending: gdb.PendingFrame) -> gdb.UnwindInfo | None:
        view = self.view
        if view is None or pending.level() != view.level or not view.is_of_selected_thread():
            return None
        cpu = PROCESSORS[pending.architecture().name()]
        values = {
            name: gdb.Value(number).cast(pending.read_register(name).type)
            for name, number in view.registers.items()
        }
        # Below all frames of the coroutine, as gdb wants a callee to be.
        info = pending.create_unwind_info(FrameId(values[cpu.sp], values[cpu.pc]))
        for name, value in values.items():
            info.add_saved_register(name, value)
        return info

    def show(self, view: View | None) -> None:
        if self.view is None:
            self.past_main = gdb.parameter("backtrace past-main")
        self.view = view
        frame_filter.enabled = view is not None
        # The thread may stand in main(), which gdb does not unwind unless told to.
        is_coroutine = view is not None and view.end is not None
        set_flag("backtrace past-main", self.past_main or is_coroutine)
        gdb.invalidate_cached_frames()


class CoroutineFilter:
    """Leaves the thread's own frames, and the end of the stack, out of the backtrace of a view."""

    name = "aco"
    priority = 1000
    enabled = False

    def filter(self, frames: Iterator[Any]) -> Iterator[Any]:
        view = unwinder.view
        if view is None or not view.is_of_selected_thread():
            return frames
        return itertools.takewhile(
            lambda frame: frame.inferior_frame().pc() != view.end,
            itertools.islice(frames, view.level + 1, None),
        )


unwinder = CoroutineUnwinder()
frame_filter = CoroutineFilter()


def elf_file(address: int, contents: bytes, cpu: Processor) -> bytes:
    """An ELF file whose only section of use is read-only and has these contents at this address."""
    names = b"\0.frames\0.shstrtab\0"
    header_format = "<16sHHI" + ("QQQ" if cpu.word == 8 else "III") + "IHHHHHH"
    section_format = "<IIQQQQIIQQ" if cpu.word == 8 else "<10I"
    header_sz = struct.calcsize(header_format)
    names_at = header_sz + len(contents)
    sections_at = names_at + len(names)
    ident = b"\x7fELF" + bytes([cpu.word // 4, 1, 1])  # class, little-endian, version
    # Type 2 is an executable, which is not relocated; section 2 of 3 has the names.
    header = struct.pack(header_format, ident, 2, cpu.elf_machine, 1, 0, 0, sections_at, 0,
                         header_sz, 0, 0, struct.calcsize(section_format), 3, 2)
    sections = (
        (0,) * 10,
        # name, PROGBITS, ALLOC and not WRITE, address, offset, size, link, info, alignment, 0
        (names.index(b".frames"), 1, 2, address, header_sz, len(contents), 0, 0, 1, 0),
        (names.index(b".shstrtab"), 3, 0, 0, names_at, len(names), 0, 0, 1, 0),
    )
    return header + contents + names + b"".join(
        struct.pack(section_format, *section) for section in sections)


@contextlib.contextmanager
def overlaid(address: int, contents: bytes) -> Iterator[None]:
    """Meanwhile gdb reads these contents at this address, whatever is there."""
    trusts = gdb.parameter("trust-readonly-sections")
    with tempfile.NamedTemporaryFile(suffix=".elf") as file:
        file.write(elf_file(address, contents, processor()))
        file.flush()
        gdb.execute(f'add-symbol-file "{file.name}"', to_string=True)
        try:
            set_flag("trust-readonly-sections", True)
            yield
        finally:
            set_flag("trust-readonly-sections", trusts)
            gdb.execute(f"remove-symbol-file -a {address:#x}", to_string=True)


@contextlib.contextmanager
def viewed(co: Coroutine) -> Iterator[View]:
    """Meanwhile the thread of `co`, a suspended one, is selected and its frames are those of it."""
    saved = co.saved_frames()
    with contextlib.ExitStack() as stack:
        co.thread.switch()
        if saved:
            stack.enter_context(overlaid(co.reg[SP], saved))
        view = View(co)
        stack.callback(unwinder.show, None)
        unwinder.show(view)
        yield view


@contextlib.contextmanager
def no_view() -> Iterator[None]:
    """Meanwhile the view that `aco frame` chose is set aside; thread and frame are kept as well."""
    if gdb.selected_thread() is None:
        fail("no process and no core file: start one, or attach, or load one")
    with selection_kept():
        view = unwinder.view
        unwinder.show(None)
        try:
            yield
        finally:
            unwinder.show(view)


# ==== Coroutines =================================================================================


class ShareStack:
    """A share stack, by the names of aco_share_stack_t."""

    def __init__(self, pointer: gdb.Value) -> None:
        value = pointer.dereference()
        value.fetch_lazy()
        self.ptr, self.sz = int(value["ptr"]), int(value["sz"])
        self.align_retptr, self.in_place = int(value["align_retptr"]), int(value["in_place"])
        self.is_destroyed, self.protector = int(value["is_destroyed"]), 0
        if not self.is_destroyed:
            words = gdb.Value(self.align_retptr).cast(gdb.lookup_type("unsigned long").pointer())
            self.protector = int(words.dereference())


class Coroutine:
    """An aco_t of a thread, read once. Raises gdb.MemoryError if it can't be."""

    def __init__(self, address: int, thread: Thread) -> None:
        self.address, self.owner_thread, self.thread = address, thread, thread.thread
        self.value = gdb.Value(address).cast(gdb.lookup_type("aco_t").pointer()).dereference()
        self.value.fetch_lazy()
        self.reg = [int(self.value["reg"][i]) for i in (RETADDR, SP, BP)]
        self.main_co, self.entry = int(self.value["main_co"]), int(self.value["fp"])
        self.save_stack = self.value["save_stack"]
        self.valid_sz = int(self.save_stack["valid_sz"])
        self.stack = ShareStack(self.value["share_stack"]) if self.main_co else None
        self.number = 0
        self.state = self.find_state()
        self.trouble = self.find_trouble()

    def find_state(self) -> str:
        if self.stack is None:
            return "main"
        if self.address == self.owner_thread.running:
            return "running"
        if int(self.value["is_end"]):
            return "end"
        if self.reg[SP] == self.stack.align_retptr:
            return "init"
        return "yielded" if self.stack.in_place == self.address else "saved"

    def find_trouble(self) -> str:
        """Which invariant of aco.c does not hold, if one does not."""
        if self.stack is None or self.state not in ("yielded", "saved"):
            return ""
        if self.stack.is_destroyed:
            return "its share stack was destroyed"
        in_reg = self.stack.align_retptr - self.reg[SP]
        if not 0 < in_reg <= self.stack.align_retptr - self.stack.ptr:
            return "reg[SP] is not within the share stack"
        valid_sz = 0 if self.state == "yielded" else in_reg
        if self.valid_sz != valid_sz:
            return f"save_stack.valid_sz is {self.valid_sz}, and should be {valid_sz}"
        if self.valid_sz > int(self.save_stack["sz"]):
            return "save_stack.valid_sz is larger than save_stack.sz"
        return ""

    def is_running(self) -> bool:
        """Whether its frames are those of the thread."""
        return self.state == "running" or (self.state == "main" and self.owner_thread.is_in_main)

    def is_suspended(self) -> bool:
        """Whether it has frames that are not those of the thread."""
        if self.state == "main":
            return self.address == self.owner_thread.suspended_main
        return self.state in ("yielded", "saved") and not self.trouble

    def saved_frames(self) -> bytes:
        if self.state != "saved":
            return b""
        memory = gdb.selected_inferior().read_memory(int(self.save_stack["ptr"]), self.valid_sz)
        return bytes(memory)

    def registers(self) -> dict[str, int]:
        """The registers with which its innermost frame can be unwound."""
        cpu, (pc, sp, bp) = processor(), self.reg
        if function_at(pc) == "acosw":
            # gdb looks up the byte before a return address, which is before acosw's tail.
            pc += 1
        return {cpu.pc: pc, cpu.sp: sp, cpu.bp: bp}

    def live_bytes(self) -> str:
        if self.stack is None or self.state in ("init", "end"):
            return "-"
        sp = self.owner_thread.sp if self.state == "running" else self.reg[SP]
        in_stack = self.stack.ptr <= sp <= self.stack.align_retptr
        return str(self.stack.align_retptr - sp) if in_stack else "-"

    def entry_name(self) -> str:
        return function_at(self.entry) if self.entry else "-"

    def where(self) -> str:
        """Where it is: the innermost function that is not the library's, with file and line."""
        if self.trouble:
            return "broken: " + self.trouble
        if self.is_running():
            self.thread.switch()
            return place_of(gdb.newest_frame())
        if not self.is_suspended():
            return "-"
        with viewed(self) as view:
            frame = gdb.newest_frame()
            while frame is not None and frame.level() <= view.level:
                frame = frame.older()
            while frame is not None and is_of_library(frame):
                frame = frame.older()
            return place_of(frame)

    def title(self) -> str:
        number = f"aco {self.number}" if self.number else "aco"
        return (f"{number}, {self.address:#x}: thread {self.thread.num}, {self.state}, "
                f"entry {self.entry_name()}")


def is_of_library(frame: gdb.Frame) -> bool:
    symtab = frame.find_sal().symtab
    return re.match(r"aco(_|sw$)", frame.name() or "") is not None or \
        (symtab is not None and
         re.search(r"\b(runtime(/\w+)?|hooks)/\w+\.[ch]$", symtab.filename) is not None)


def place_of(frame: gdb.Frame | None) -> str:
    if frame is None:
        return "?"
    sal = frame.find_sal()
    name = frame.name() or f"{frame.pc():#x}"
    return f"{name} at {os.path.basename(sal.symtab.filename)}:{sal.line}" if sal.symtab else name


# ==== Threads and what they list =================================================================


def name_in_program(name: str) -> str | None:
    """The name that gdb has for a variable of the library, whose ELF symbol may have the
    configuration in its name: gdb then prefers that to the name in C. None if there is no such
    variable."""
    names = gdb.execute(f"complete print {name}", to_string=True)
    match = re.search(rf"^print ({name}(?:_\w+)?)$", names, re.MULTILINE)
    return match[1] if match else None


def thread_local(name: str) -> int:
    """The value of a thread-local pointer of the selected thread."""
    symbol = gdb.lookup_global_symbol(name)
    if symbol is not None:
        return int(symbol.value(gdb.newest_frame()))
    return int(gdb.parse_and_eval(f"*(unsigned long *)&{name}"))


class Thread:
    """A thread, what runs on it, and the addresses of the coroutines that it lists."""

    def __init__(self, thread: gdb.InferiorThread, running: str, newest: str | None) -> None:
        """The names are those of aco_gtls_co and aco_i_gtls_list; None if it is not there."""
        self.thread = thread
        self.notes: list[str] = []
        self.coroutines: dict[int, Coroutine] = {}  # oldest first
        self.sp, self.running, self.suspended_main, self.is_in_main = 0, 0, 0, True
        listed: list[int] = []
        try:
            thread.switch()
            self.sp = int(gdb.newest_frame().read_register(processor().sp))
            self.running = thread_local(running)
            listed = list(self.walk(thread_local(newest))) if newest else []
        except gdb.error as error:
            # A thread that never used a library that was loaded at run time has no such variables.
            if "not yet allocated storage" not in str(error):
                self.note(f"its thread-local variables can't be read: {one_line(error)}")
        self.find_main()
        for address in reversed(listed):
            self.add(address)
        self.add(self.running)
        for co in list(self.coroutines.values()):
            if co.stack is not None:
                self.add(co.stack.in_place)

    def note(self, words: str) -> None:
        self.notes.append(f"thread {self.thread.num}: {words}")

    def find_main(self) -> None:
        """Whether it is on its own stack, and if not, whose frames are suspended there."""
        try:
            if self.running:
                self.suspended_main = Coroutine(self.running, self).main_co
                self.is_in_main = self.suspended_main == 0
        except gdb.MemoryError as error:
            self.note(f"aco_gtls_co can't be followed: {one_line(error)}")
            self.running = 0

    def walk(self, newest: int) -> Iterator[int]:
        """The addresses of the list, newest first, as far as its links agree."""
        co_type = gdb.lookup_type("aco_t").pointer()
        address, before = newest, 0
        while address:
            co = gdb.Value(address).cast(co_type)
            try:
                agrees, following = int(co["list_prev"]) == before, int(co["list_next"])
            except gdb.MemoryError as error:
                self.note(f"the list of coroutines breaks off at {address:#x}: {one_line(error)}")
                return
            if not agrees:
                self.note(f"the list of coroutines is broken: list_prev of {address:#x} is not "
                          "the one before it")
                return
            yield address
            address, before = following, address

    def add(self, address: int) -> None:
        """Adds a coroutine, after its main coroutine, unless they are there already."""
        if address == 0 or address in self.coroutines:
            return
        try:
            co = Coroutine(address, self)
        except gdb.MemoryError as error:
            self.note(f"coroutine {address:#x} can't be read: {one_line(error)}")
            return
        self.add(co.main_co)
        self.coroutines[address] = co


class Listing:
    """All coroutines of all threads of the inferior, numbered from 1. A short one has no more than
    what is found without the lists."""

    def __init__(self, *, is_short: bool = False) -> None:
        try:
            gdb.lookup_type("aco_t")
        except gdb.error:
            fail("no debug information about aco_t: compile aco.c or the program with -g")
        running, newest = name_in_program("aco_gtls_co"), name_in_program("aco_i_gtls_list")
        if running is None:
            fail("no variable aco_gtls_co: the program has no libaco in it, or no symbols")
        self.has_list = newest is not None
        newest = None if is_short else newest
        threads = sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num)
        self.threads = [Thread(thread, running, newest) for thread in threads if thread.is_valid()]
        self.coroutines = [co for thread in self.threads for co in thread.coroutines.values()]
        for number, co in enumerate(self.coroutines, 1):
            co.number = number

    def print_notes(self) -> None:
        for thread in self.threads:
            for note in thread.notes:
                print("aco: " + note)

    def find(self, words: str) -> Coroutine:
        """The coroutine with this number or at this address, which may be an expression."""
        key = int(gdb.parse_and_eval(words))
        for co in self.coroutines:
            if key in (co.number, co.address):
                return co
        try:
            return self.unlisted(key)
        except gdb.MemoryError:
            fail(f"there is no coroutine {words}: `info aco` lists {len(self.coroutines)}, and no "
                 "memory has that address")

    def unlisted(self, address: int) -> Coroutine:
        """One that is known by its address alone; its thread is the one of its main coroutine."""
        selected = gdb.selected_thread()
        main_co = Coroutine(address, self.threads[0]).main_co
        for thread in self.threads:
            if main_co in thread.coroutines:
                return Coroutine(address, thread)
        return Coroutine(address, next(t for t in self.threads if t.thread.ptid == selected.ptid))


# ==== Commands ===================================================================================


def print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] + [0]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def row_of(co: Coroutine) -> tuple[str, ...]:
    stack = f"{co.stack.ptr:#x}+{co.stack.sz}" if co.stack else "-"
    try:
        where = co.where()
    except gdb.error as error:
        where = "? " + one_line(error)
    return (str(co.number), str(co.thread.num), f"{co.address:#x}", co.state, co.entry_name(),
            stack, co.live_bytes(), where)


class Command(gdb.Command):
    """A command whose failures are one line."""

    def invoke(self, words: str, _from_tty: bool) -> None:
        try:
            self.run(words.strip())
        except gdb.GdbError:
            raise
        except gdb.error as error:
            fail(one_line(error))

    def run(self, words: str) -> None:
        raise NotImplementedError


class InfoAco(Command):
    """List the coroutines of all threads.
One line each: its number, for other commands, and its thread; its address; its state; its entry
function; its share stack (address and bytes); the bytes of its frames; where it is."""

    def __init__(self) -> None:
        super().__init__("info aco", gdb.COMMAND_STATUS, prefix=True)

    def run(self, words: str) -> None:
        if words:
            fail(f"info aco has no {words}: info aco, or info aco tasks")
        with no_view():
            listing = Listing()
            if listing.coroutines:
                print_table([("No", "Thread", "Address", "State", "Entry", "Share stack", "Bytes",
                              "Where")] + [row_of(co) for co in listing.coroutines])
            else:
                print("No coroutines.")
            listing.print_notes()
            if not listing.has_list:
                print(HINT)


class Aco(gdb.Command):
    """Look at coroutines and tasks: aco bt, aco frame, aco where, aco apply all bt."""

    def __init__(self) -> None:
        super().__init__("aco", gdb.COMMAND_STACK, prefix=True)


class AcoBt(Command):
    """Print the backtrace of a coroutine, or of all.
Usage: aco bt N|ADDRESS|all [ARGUMENTS OF bt]
N is a number of `info aco`. An argument of bt is, for instance, full."""

    def __init__(self) -> None:
        super().__init__("aco bt", gdb.COMMAND_STACK)

    def run(self, words: str) -> None:
        which, _, arguments = words.partition(" ")
        if not which:
            fail("which one? aco bt N, aco bt ADDRESS or aco bt all; `info aco` lists numbers")
        with no_view():
            listing = Listing()
            chosen = listing.coroutines if which == "all" else [listing.find(which)]
            for co in chosen:
                print(co.title())
                try:
                    print(backtrace(co, arguments))
                except gdb.error as error:
                    print(one_line(error) + "\n")
            listing.print_notes()


def backtrace(co: Coroutine, arguments: str) -> str:
    """The backtrace of a coroutine in any state, counted from 0."""
    if co.trouble:
        return "broken: " + co.trouble + "\n"
    if co.is_running():
        co.thread.switch()
        return str(gdb.execute("bt " + arguments, to_string=True))
    if not co.is_suspended():
        return "no frames\n"
    with viewed(co) as view:
        text = gdb.execute("bt " + arguments, to_string=True)
    return re.sub(r"^#(\d+) *", lambda match: f"#{int(match[1]) - view.level - 1:<3}", text,
                  flags=re.MULTILINE)


class AcoFrame(Command):
    """Select the frames of a coroutine that is in place.
Usage: aco frame [N|ADDRESS]
frame, up, down, bt, info locals and so on are then about the coroutine; its innermost frame has
the level that is printed. Without an argument, and as soon as the program continues, the thread has
its own frames again."""

    def __init__(self) -> None:
        super().__init__("aco frame", gdb.COMMAND_STACK)

    def run(self, words: str) -> None:
        if not words:
            take_back()
            return
        with no_view():
            co = Listing().find(words)
        if co.state == "saved":
            fail(f"the frames of {words} are saved out, not in place: use `aco bt {words} full`")
        if not (co.is_running() or co.is_suspended()):
            fail(f"{words} has no frames" + (f": {co.trouble}" if co.trouble else ""))
        take_back()
        co.thread.switch()
        if co.is_running():
            gdb.execute("frame 0")
            return
        view = View(co)
        unwinder.show(view)
        gdb.execute(f"frame {view.level + 1}")


def take_back(_event: gdb.Event | None = None) -> None:
    if unwinder.view is not None:
        unwinder.show(None)


gdb.unwinder.register_unwinder(None, unwinder, replace=True)
gdb.frame_filters[frame_filter.name] = frame_filter
gdb.events.cont.connect(take_back)
gdb.events.exited.connect(take_back)
InfoAco()
Aco()
AcoBt()
AcoFrame()

# The commands about tasks import this file, which gdb has run as the main program.
sys.modules["aco"] = sys.modules[__name__]
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.modules.pop("aco_tasks", None)
importlib.import_module("aco_tasks")
