# SPDX-License-Identifier: Apache-2.0
"""
Tasks of aco's runtime in gdb: `info aco tasks`, `aco where`, `aco apply all bt`; see README.md.
aco.py loads it.

A process may have 100,000 tasks, and gdb takes milliseconds to unwind one of them. The tasks are
therefore read in bulk, and gdb unwinds only one of those whose stacks look alike: stacks of the
same size, which have the same addresses of code, return addresses among them, at the same offsets.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import gdb
from aco import (
    Command,
    Coroutine,
    Listing,
    backtrace,
    fail,
    function_at,
    is_of_library,
    no_view,
    one_line,
    place_of,
    print_table,
    processor,
    viewed,
)

BLOCK_SZ = 1 << 16
PAGE_BITS = 12
MOST_STACK = 4096  # bytes of a stack, from its innermost frame on, that are compared
MOST_FRAMES = 200
MOST_RESUMED = 16  # coroutines that a task has resumed, each the next one
MOST_PLACES = 1000  # beyond these, gdb unwinds no more
CT_IDS = 4  # ids of further tasks that a group shows

Key = tuple[Any, ...]


# ==== Memory =====================================================================================


class Memory:
    """Memory of the process. A small read takes the whole block around it, for later ones."""

    def __init__(self) -> None:
        self.inferior = gdb.selected_inferior()
        self.blocks: dict[int, bytes] = {}

    def exactly(self, address: int, sz: int) -> bytes:
        return bytes(self.inferior.read_memory(address, sz))

    def read(self, address: int, sz: int) -> bytes:
        start = address & -BLOCK_SZ
        if start not in self.blocks:
            try:
                self.blocks[start] = self.exactly(start, BLOCK_SZ)
            except gdb.MemoryError:
                self.blocks[start] = b""
        part = self.blocks[start][address - start:address - start + sz]
        return part if len(part) == sz else self.exactly(address, sz)


class Layout:
    """The offsets of a struct's members, to read them from its bytes."""

    def __init__(self, name: str) -> None:
        self.type = gdb.lookup_type(name)
        self.sz = self.type.sizeof
        self.members: dict[str, tuple[int, int]] = {}
        self.add(self.type, 0, "")

    def add(self, of: gdb.Type, base: int, prefix: str) -> None:
        for field in of.strip_typedefs().fields():
            at, kind = base + field.bitpos // 8, field.type.strip_typedefs()
            if field.name:
                self.members[prefix + field.name] = (at, kind.sizeof)
            if kind.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
                self.add(kind, at, f"{prefix}{field.name}." if field.name else prefix)

    def get(self, contents: bytes, member: str, base: int = 0) -> int:
        at, sz = self.members[member]
        return int.from_bytes(contents[base + at:base + at + sz], "little")


def names_of(enumeration: str) -> dict[int, str]:
    """The meanings of an enumeration's values: "new" for TASK_NEW, "input" for FOR_INPUT."""
    fields = gdb.lookup_type(enumeration).strip_typedefs().fields()
    return {field.enumval: field.name.partition("_")[2].lower().replace("_", " ")
            for field in fields}


def text_pages() -> set[int]:
    """The pages that have code."""
    pages: set[int] = set()
    files = gdb.execute("info files", to_string=True)
    for low, high in re.findall(r"(0x\w+) - (0x\w+) is \.text\b", files):
        pages.update(range(int(low, 16) >> PAGE_BITS, (int(high, 16) >> PAGE_BITS) + 1))
    return pages


# ==== Tasks ======================================================================================


class Task(NamedTuple):
    id: int
    state: str
    reason: str  # what it waits for; "" if it does not
    fd: int
    name: int
    fn: int
    co: int
    suspended: int
    loop: int

    def waits_for(self) -> str:
        return f"{self.reason} of {self.fd}" if self.reason in ("input", "output") else self.reason


class Place(NamedTuple):
    where: str
    key: Key  # equal for tasks in the same place


class Group:
    """Tasks in the same state and place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.tasks: list[Task] = []

    def order(self) -> tuple[bool, int, int]:
        return (self.tasks[0].state != "running", -len(self.tasks), self.tasks[0].id)

    def others(self) -> str:
        return some_of([task.id for task in self.tasks[1:]])


def unwind(co: Coroutine, *, skips: bool = True) -> Place:
    """The place of a suspended coroutine. The library waits in several places, so its own innermost
    frames may be skipped."""
    pcs: list[int] = []
    where = "?"
    with viewed(co) as view:
        frame: gdb.Frame | None = gdb.newest_frame()
        while frame is not None and frame.level() <= view.level:
            frame = frame.older()
        while frame is not None and len(pcs) < MOST_FRAMES and frame.pc() != view.end:
            if pcs or not (skips and is_of_library(frame)):
                where = where if pcs else place_of(frame)
                pcs.append(frame.pc())
            frame = frame.older()
    return Place(where, tuple(pcs))


def some_of(numbers: list[int]) -> str:
    """The first of the numbers."""
    return ", ".join([str(number) for number in numbers[:CT_IDS]] +
                     ["..."] * (len(numbers) > CT_IDS))


def like_it(others: list[int]) -> str:
    return f", and {len(others)} like it: {some_of(others)}" if others else ""


class Tasks:
    """The tasks of all runtimes of the process that have not ended, in groups."""

    def __init__(self) -> None:
        try:
            self.runtime_type = gdb.lookup_type("struct runtime_s")
        except gdb.error:
            fail("no runtime, or no debug information about it: compile runtime/*/*.c with -g")
        self.listing = Listing(is_short=True)
        self.memory, self.pages = Memory(), text_pages()
        self.co_layout, self.share_layout = Layout("aco_t"), Layout("aco_share_stack_t")
        self.word = {4: "I", 8: "Q"}[processor().word]
        self.ct_places = 0
        self.loops: dict[int, int] = {}  # the numbers of their threads
        self.tasks = sorted(self.find(), key=lambda task: task.id)

    def chunks(self) -> Iterator[int]:
        """The newest chunk of tasks of each runtime in the list of sched/runtimes.c."""
        for found in [symbol.value() for symbol in gdb.lookup_static_symbols("all")]:
            if found.type.code != gdb.TYPE_CODE_STRUCT or not found.type.has_key("first") or \
                    found["first"].type != self.runtime_type.pointer():
                continue
            runtime = found["first"]
            while int(runtime):
                yield int(runtime["chunks"])
                runtime = runtime["next"]

    def find(self) -> Iterator[Task]:
        chunk, task = Layout("struct chunk_s"), Layout("aco_task_t")
        first, sz = chunk.members["tasks"]
        states, reasons = names_of("state_t"), names_of("reason_t")
        for newest in self.chunks():
            seen: set[int] = set()
            address = newest
            while address and address not in seen:
                seen.add(address)
                contents = self.memory.exactly(address, chunk.sz)
                for base in range(first, first + sz, task.sz):
                    get = functools.partial(task.get, contents, base=base)
                    state = states.get(get("state"), "free")
                    if state not in ("free", "spare", "ended"):
                        reason = reasons.get(get("reason"), "?") if state == "waiting" else ""
                        yield Task(get("id"), state, reason, get("fd"), get("name"), get("fn"),
                                   get("co"), get("suspended"), get("loop"))
                address = chunk.get(contents, "next")

    # ---- Places ----

    @functools.cached_property
    def groups(self) -> list[Group]:
        places: dict[Key, Place] = {}
        groups: dict[Key, Group] = {}
        for task in self.tasks:
            looks = (task.state, self.looks(task))
            if looks not in places:
                places[looks] = self.find_place(task)
            place = places[looks]
            key = (task.state, task.reason, place.key)
            groups.setdefault(key, Group(place)).tasks.append(task)
        return sorted(groups.values(), key=Group.order)

    def looks(self, task: Task) -> Key:
        """A key for the stack of a task, equal for stacks that look alike."""
        if task.state == "running" or task.co == 0:
            return (task.id if task.co else task.fn,)
        parts: list[Key] = []
        co = task.suspended
        while co and len(parts) < MOST_RESUMED:
            try:
                contents = self.memory.read(co, self.co_layout.sz)
                parts.append(self.looks_of_stack(contents))
            except gdb.MemoryError:
                return (co,)
            co = self.co_layout.get(contents, "main_co") if co != task.co else 0
        return tuple(parts)

    def looks_of_stack(self, contents: bytes) -> Key:
        get = functools.partial(self.co_layout.get, contents)
        at, _ = self.co_layout.members["reg"]
        pc, sp = struct.unpack_from("<2" + self.word, contents, at)  # as they are in reg[]
        share = self.memory.read(get("share_stack"), self.share_layout.sz)
        used = self.share_layout.get(share, "align_retptr") - sp
        if not 0 < used <= self.share_layout.get(share, "sz"):
            return (pc, used)
        start = sp if get("is_owner") else get("save_stack.ptr")
        ct = min(used, MOST_STACK) // struct.calcsize(self.word)
        words = struct.unpack(f"<{ct}{self.word}",
                              self.memory.exactly(start, ct * struct.calcsize(self.word)))
        pages = self.pages
        return (pc, used,
                *((i, word) for i, word in enumerate(words) if word >> PAGE_BITS in pages))

    def find_place(self, task: Task) -> Place:
        if task.co == 0:
            return Place("-", (task.fn,))
        self.ct_places += 1
        if self.ct_places > MOST_PLACES:
            return Place("? too many places", ())
        try:
            co = self.coroutine(task)
            return unwind(co) if co.is_suspended() else Place(co.where(), (task.id,))
        except gdb.error as error:
            return Place("? " + one_line(error), (task.id,))

    def coroutine(self, task: Task) -> Coroutine:
        """The coroutine in which a task goes on, or runs."""
        if task.state == "running":
            thread = self.thread_of(task)
            for known in self.listing.threads:
                if known.thread.num == thread and known.running:
                    return self.listing.unlisted(known.running)
        co = self.listing.unlisted(task.suspended)
        if co.main_co == 0:
            raise gdb.MemoryError("its coroutine is not in the core file")
        return co

    @functools.cached_property
    def threads(self) -> dict[int, int]:
        """gdb's numbers of threads, by the kernel's."""
        return {thread.thread.ptid[1]: thread.thread.num for thread in self.listing.threads}

    def thread_of(self, task: Task) -> int:
        """gdb's number of a task's thread; 0: it has none yet, or that is unknown."""
        if not (task.loop and task.co):
            return 0
        if task.loop not in self.loops:
            loop = gdb.Value(task.loop).cast(gdb.lookup_type("loop_t").pointer())
            self.loops[task.loop] = self.threads.get(int(loop["tid"]), 0)
        return self.loops[task.loop]

    # ---- Text ----

    def name_of(self, task: Task) -> str:
        try:
            if not task.name:
                return function_at(task.fn)
            name = gdb.Value(task.name).cast(gdb.lookup_type("char").pointer()) \
                .string(errors="backslashreplace")
            return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)
        except gdb.error as error:
            return "? " + one_line(error)

    def row(self, task: Task, place: Place) -> tuple[str, ...]:
        return (str(task.id), str(self.thread_of(task) or "-"), task.state, self.name_of(task),
                task.waits_for() or "-", f"{task.suspended:#x}" if task.co else "-", place.where)

    def title(self, task: Task) -> str:
        text = f"task {task.id}, {self.name_of(task)}: {task.state}"
        return text + (f" for {task.waits_for()}" if task.reason else "")

    def backtrace(self, task: Task, arguments: str) -> str:
        """Backtraces of the coroutine that goes on, or runs, then of those that have resumed it, up
        to the task's."""
        if not task.co:
            return "no frames\n"
        texts: list[str] = []
        try:
            co = self.coroutine(task)
            texts.append(backtrace(co, arguments))
            while co.address != task.co and co.main_co and len(texts) < MOST_RESUMED:
                co = self.listing.unlisted(co.main_co)
                texts.append("resumed by\n" + backtrace(co, arguments))
        except gdb.error as error:
            texts.append(one_line(error) + "\n")
        return "".join(texts)


# ==== Commands ===================================================================================


class InfoAcoTasks(Command):
    """List the tasks of the runtime that have not ended.
Usage: info aco tasks [all]
One line for those that wait for the same in the same place: their number; the id of the first one;
its thread, or - before its start; its state; its name, or else its entry function; what it waits
for; the address of its coroutine, for aco bt and aco frame; where it is; ids of others. With all,
one line for each."""

    def __init__(self) -> None:
        super().__init__("info aco tasks", gdb.COMMAND_STATUS)

    def run(self, words: str) -> None:
        if words not in ("", "all"):
            fail(f"info aco tasks has no {words}: info aco tasks, or info aco tasks all")
        titles = ("Id", "Thread", "State", "Name", "Waits for", "Coroutine", "Where")
        with no_view():
            tasks = Tasks()
            if not tasks.groups:
                print("No tasks.")
            elif words:
                rows = {task.id: tasks.row(task, group.place)
                        for group in tasks.groups for task in group.tasks}
                print_table([titles, *(rows[number] for number in sorted(rows))])
            else:
                print_table([("Tasks", *titles, "Others"), *(
                    (str(len(group.tasks)), *tasks.row(group.tasks[0], group.place),
                     group.others()) for group in tasks.groups)])
            tasks.listing.print_notes()


class AcoWhere(Command):
    """Print where a task is, with its backtrace.
Usage: aco where [ID|N|ADDRESS] [ARGUMENTS OF bt]
ID is a number of `info aco tasks`, or N one of `info aco` if there is no such task. The address
is that of a coroutine. Without one, it is what the selected thread runs."""

    def __init__(self) -> None:
        super().__init__("aco where", gdb.COMMAND_STACK)

    def run(self, words: str) -> None:
        which, _, arguments = words.partition(" ")
        with no_view():
            here = gdb.selected_thread().num
            tasks = Tasks() if has_runtime() else None
            task = self.find(which, tasks, here)
            if task is not None and tasks is not None:
                print(tasks.title(task))
                print(tasks.backtrace(task, arguments))
                return
            listing = Listing()
            co = listing.find(which) if which else self.running(listing, here)
            print(co.title())
            print(backtrace(co, arguments))

    def find(self, which: str, tasks: Tasks | None, here: int) -> Task | None:
        if tasks is None:
            return None
        if not which:
            return next((task for task in tasks.tasks
                         if task.state == "running" and tasks.thread_of(task) == here), None)
        key = int(gdb.parse_and_eval(which))
        return next((task for task in tasks.tasks if key in (task.id, task.co, task.suspended)),
                    None)

    def running(self, listing: Listing, here: int) -> Coroutine:
        running = [thread.running for thread in listing.threads
                   if thread.thread.num == here and thread.running]
        if not running:
            fail("which one? the thread runs none; `info aco` lists them")
        return listing.find(str(running[0]))


class AcoApply(Command):
    """Print the backtraces of all tasks, or, without a runtime, of all coroutines.
Usage: aco apply all bt [ARGUMENTS OF bt]
Tasks in the same place share one, with their number. An argument of bt is, for instance, full: the
locals are those of the first of them."""

    def __init__(self) -> None:
        super().__init__("aco apply", gdb.COMMAND_STACK)

    def run(self, words: str) -> None:
        match = re.fullmatch(r"all\s+bt\b\s*(.*)", words)
        if not match:
            fail("aco apply is for one command: aco apply all bt")
        with no_view():
            if has_runtime():
                self.of_tasks(Tasks(), match[1])
            else:
                self.of_coroutines(Listing(), match[1])

    def of_tasks(self, tasks: Tasks, arguments: str) -> None:
        for group in tasks.groups:
            print(tasks.title(group.tasks[0]) + like_it([task.id for task in group.tasks[1:]]))
            print(tasks.backtrace(group.tasks[0], arguments))
        if not tasks.groups:
            print("No tasks.")
        tasks.listing.print_notes()

    def of_coroutines(self, listing: Listing, arguments: str) -> None:
        groups: dict[Key, list[Coroutine]] = {}
        for co in listing.coroutines:
            key = unwind(co, skips=False).key if co.is_suspended() else (co.number,)
            groups.setdefault((co.state, key), []).append(co)
        for group in groups.values():
            print(group[0].title() + like_it([co.number for co in group[1:]]))
            print(backtrace(group[0], arguments))
        listing.print_notes()


def has_runtime() -> bool:
    try:
        return gdb.lookup_type("struct runtime_s") is not None
    except gdb.error:
        return False


InfoAcoTasks()
AcoWhere()
AcoApply()
