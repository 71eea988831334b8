# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown, one below the other for each machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from model import (BUILD, CALLS, COUNT, ECHO, FAR, GENERATORS, LIBRARIES, LIFE, LIVE, MANY, PURE,
                   SHARE, SHARE_BYTES, SKYNET, SLEEPERS, SUSPENDED, SWITCH, TABLE, TASKS, THREADS,
                   TRANSFER, TURNS, Column, Results, Value, is_aco, label, number, published,
                   two_digits)
from plan import CONNECTIONS, LIMIT, Group

# Where and when the figures in published.csv were measured.
SOURCES = {
    "2018": "E5-2630 v2 @ 2.60 GHz, gcc 8.1 -O2, mapped stacks with guard pages, 2018",
    "2018 libaco": "AWS c5d.large, tcmalloc, 2018; 8 B and 120 B with 2,000,000 coroutines, 1000 B "
                   "with 1,000,000",
    "2021": "Xeon Gold 6133 @ 2.50 GHz, 2021",
}

# The peers of short tables.
MAIN_PEERS = (r"^aco (pool|share stack)(, own control words)?$|^C\+\+20(, clang)?(, pool)?$|"
              r"^Boost\.(Context fiber|Coroutine2), pool|"
              r"^(corosensei|minicoro, pool|Go .*one thread|LuaJIT|glibc ucontext|POSIX threads)")
HEADLINE = [
    SWITCH[0], SWITCH[2], LIFE[0],
    replace(MANY[4], head="switch 30,000 × 64 KB, ns"),
    replace(SKYNET[0], head="Skynet nested, ms"),
]


# One build of aco competes with other peers in a whole table, both with shared control words.
POOL, COPYING = "aco pool", "aco share stack"
LOCAL = "aco-run, 1 KiB of thread-local variables"


@dataclass(frozen=True)
class Table:
    name: str  # in documents, and in published.csv
    title: str
    columns: list[Column]
    ours: str = POOL  # the build of aco that competes
    has_main: bool = False  # there is a short one, too, of the main peers


TABLES = [
    Table("switch", "Resume and yield", SWITCH, has_main=True),
    Table("table", "A thousand coroutines", TABLE, has_main=True),
    Table("life", "Create, run and destroy", LIFE, has_main=True),
    Table("many", "Many coroutines", MANY, has_main=True),
    Table("count", "Resume and yield in turn, by the number of coroutines", COUNT),
    Table("live", "Resume and yield on one share stack, by live bytes", LIVE, COPYING),
    Table("skynet", "Skynet", SKYNET, has_main=True),
    Table("share", "Share stacks: time", SHARE, COPYING),
    Table("share bytes", "Share stacks: memory", SHARE_BYTES, COPYING),
    Table("far", "Ten million coroutines", FAR, COPYING),
    Table("suspended", "A hundred million coroutines", SUSPENDED, COPYING),
    Table("pure", "The switch alone", PURE),
    Table("transfer", "Straight from one coroutine to another", TRANSFER),
]
# The columns whose ratios are listed, for each build that competes.
RATED = {
    POOL: SWITCH + LIFE + TABLE + MANY[1:] + SKYNET,
    COPYING: SHARE + LIVE,
}


NONE = "–"  # in place of a figure


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Without the rows that have no figure, and empty if none has."""
    rows = [row for row in rows if set(row[1:]) != {NONE}]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if rows else ""


# ==== Figures =====================================================================================


def with_range(value: Value | None, written: Callable[[float], str] = number,
               bold: str = "") -> str:
    """The median, and in brackets the range of the rounds."""
    if value is None:
        return NONE
    low, high = written(min(value.rounds)), written(max(value.rounds))
    return f"{bold}{written(value.median)}{bold}" + (f" ({low}–{high})" if low != high else "")


def with_interval(value: Value | None, written: Callable[[float], str] = "{:.2f}".format,
                  is_ratio: bool = True) -> str:
    """The median, and in brackets its 95 % interval; a ratio is bold if that does not have 1."""
    if value is None:
        return NONE
    low, high = value.interval()
    bold = "**" if is_ratio and not low <= 1 <= high else ""
    return f"{bold}{written(value.median)}{bold}" + \
        (f" ({written(low)}–{written(high)})" if low != high else "")


def median(value: Value | None, written: Callable[[float], str] = number) -> str:
    return written(value.median) if value else NONE


# ==== Tables of one machine =======================================================================


def rivals(results: Results, column: Column, ours: str) -> list[str]:
    """The stackful peers, and one build of aco, the first one first."""
    return [title for title in results.titles(column.workload, column.metric)
            if results.is_stackful(title) and (title == ours or not is_aco(title))]


def firsts(results: Results, column: Column, ours: str) -> list[str]:
    """The first rival, and those that tie with it: the middle halves of their rounds overlap."""
    halves = [(title, value.middle_half()) for title in rivals(results, column, ours)
              if (value := results.get(title, column.workload, column.metric))]
    return [title for title, (low, _) in halves if low <= halves[0][1][1]]


def table(results: Results, columns: list[Column], ours: str = POOL, of: str = "") -> str:
    """A row for each peer with a matching title, sorted by the first column."""
    bold = [firsts(results, column, ours) if column.is_rated else [] for column in columns]
    titles = [title for title in results.kinds if re.search(of, title)]
    last = float("inf")

    def key(title: str) -> tuple[float, ...]:
        values = [results.median(title, column.workload, column.metric) for column in columns]
        return tuple(last if value is None else value for value in values)

    rows = [[label(title), *(with_range(results.get(title, column.workload, column.metric),
                                        bold="**" if title in first else "")
                             for column, first in zip(columns, bold))]
            for title in sorted(titles, key=key)]
    return markdown(["peer", *(column.head for column in columns)], rows)


def ratings(results: Results) -> str:
    """For each rated column, aco beside the first other stackful peer."""
    rows = []
    for ours, columns in RATED.items():
        for column in columns:
            workload, metric = column.workload, column.metric
            value = results.get(ours, workload, metric)
            others = [title for title in rivals(results, column, ours) if title != ours]
            if value is None or not others or not column.is_rated:
                continue
            ratio = results.ratio((ours, workload, metric), (others[0], workload, metric))
            if ratio:
                rows.append([f"{workload} {metric}", label(ours), with_range(value), others[0],
                             with_range(results.get(others[0], workload, metric)),
                             two_digits(ratio.median)])
    return markdown(["row", "aco", "", "first other stackful peer", "", "ratio"], rows)


def turned(results: Results, columns: list[Column], titles: list[str], above: str, below: str,
           written: Callable[[float], str] = two_digits) -> str:
    """A row for each column and a column for each peer, and beside them a ratio of two peers."""
    rows = []
    for column in columns:
        workload, metric = column.workload, column.metric
        ratio = results.ratio((above, workload, metric), (below, workload, metric))
        rows.append([column.head,
                     *(with_range(results.get(title, workload, metric)) for title in titles),
                     median(ratio, written)])
    return markdown(["", *map(label, titles), f"{above} ÷ {below}"], rows)


def by_number(results: Results, what: str, kinds: list[tuple[str, str, str, list[Column]]]) -> str:
    """A row for each number of connections or tasks. A kind is the head of its column, a peer, a
    metric, and the workloads by that number."""
    rows = [[columns[0].head, *(median(results.get(title, column.workload, metric))
                                for (_, title, metric, _), column in zip(kinds, columns))]
            for columns in zip(*(columns for *_, columns in kinds))]
    return markdown([what, *(head for head, *_ in kinds)], rows)


def echo(results: Results, name: str = "echo",
         memory: tuple[tuple[str, str], ...] = (("bytes of a connection", "bytes"),)) -> str:
    """Processor time of each server beside that of the limit, the least first."""
    thousand, most = f"{name}_1000", f"{name}_{CONNECTIONS[-1]}"
    rows = [[label(title),
             *(with_interval(results.ratio((title, f"{name}_{ct}", "server_ns"),
                                           (LIMIT, f"{name}_{ct}", "server_ns")))
               for ct in CONNECTIONS),
             with_interval(results.get(title, thousand, "server_ns"), number, False),
             *(median(results.get(title, most, metric)) for _, metric in memory)]
            for title in results.titles(thousand, "server_ns")]
    return markdown(["server", *(f"{ct:,} connections" for ct in CONNECTIONS), "ns at 1,000",
                     *(head for head, _ in memory)], rows)


def threads(results: Results) -> str:
    """Requests per second on one processor and on two."""
    rows = []
    for title in results.titles("echo_two", "ns"):
        one, two = (results.get(title, f"echo_{name}", "ns") for name in ("one", "two"))
        factor = results.ratio((title, "echo_one", "ns"), (title, "echo_two", "ns"))
        rows.append([label(title),
                     *(with_interval(Value([1e9 / ns for ns in value.rounds]), number, False)
                       if value else NONE for value in (one, two)),
                     with_interval(factor)])
    return markdown(["server", "one processor, requests a second", "two processors", "factor"],
                    rows)


def scale(results: Results) -> str:
    """The cost of a connection, by how many there are."""
    return by_number(results, "connections", [
        (f"{title}, {words}", title, metric, ECHO)
        for metric, words in (("server_ns", "ns a request"), ("bytes", "bytes"))
        for title in sorted(results.titles(ECHO[-1].workload, "server_ns"))])


def counts(results: Results) -> str:
    """The cost of a turn and of a sleep of a task, by how many tasks there are."""
    return by_number(results, "tasks", [
        (f"{title}, {words}, ns", title, "ns", columns)
        for columns, words in ((TURNS, "turn"), (SLEEPERS, "sleep"))
        for title in sorted(results.titles(columns[-1].workload, "ns"))])


def missing(results: Results) -> str:
    """Why there is no figure. A workload that a peer does not have is not listed."""
    lines = [f"- {title}: not built: {words}" for title, words in results.unbuilt.items()]
    for (title, workload), cell in results.cells.items():
        if cell.status in ("failed", "skipped") or \
                (cell.status == "absent" and not cell.is_just_absent()):
            lines.append(f"- {title}, {workload}: {cell.words}")
    return "\n".join(lines) or "Nothing."


def versions(results: Results) -> str:
    paddings = results.machine.get("paddings")
    return results.machine["packages"] + "." + (f"\n\nPaddings: {paddings}." if paddings else "")


def builds(results: Results) -> str:
    """How the peers of short tables were built."""
    found = [(title, command) for title in sorted(results.kinds) if re.search(MAIN_PEERS, title)
             if (command := results.machine.get(f"{BUILD} {title}"))]
    lines = [f"{label(title)}:\n    {command}" for title, command in found]
    return "\n".join(["```text", *lines, "```"]) if found else ""


# ==== Blocks of all machines ======================================================================


@dataclass(frozen=True)
class Block:
    """A part of documents, and of the page with all figures if it has a title."""

    name: str
    title: str
    made: Callable[[list[Results]], str]


def each(name: str, title: str, made: Callable[[Results], str]) -> Block:
    """A block with a text for each machine, under the machine's name."""
    def all_of(machines: list[Results]) -> str:
        texts = [(results.name, made(results)) for results in machines]
        return "\n\n".join(f"**{name}**\n\n{text}" for name, text in texts if text)

    return Block(name, title, all_of)


LEGEND = (
    f"Medians of the rounds; in brackets their range. Programs in C, C++ and Rust lie at another "
    f"place in memory in each round. **Bold** is the first of the stackful peers, and each other "
    f"one if the middle halves of their rounds overlap. One build of aco takes part in this: "
    f"*{label(POOL)}*, or *{label(COPYING)}* where frames are copied.")


def machine_text(machines: list[Results]) -> str:
    return "\n".join(
        f"- **{results.name}**: {results.machine['machine']}; {results.machine['compiler']}; "
        f"measured on {results.machine['date']}, at commit {results.machine['commit']}."
        + results.notes() for results in machines)


def published_text(_: list[Results]) -> str:
    """A table for each source of figures that others published."""
    rows = published()
    titles = {table.name: table.title for table in TABLES}
    texts = []
    for name, source in dict.fromkeys((row["table"], row["source"]) for row in rows):
        chosen = [row for row in rows if (row["table"], row["source"]) == (name, source)]
        heads = list(dict.fromkeys(row["column"] for row in chosen))
        values = {(row["peer"], row["column"]): number(float(row["value"])) for row in chosen}
        lines = [[peer] + [values.get((peer, head), NONE) for head in heads]
                 for peer in dict.fromkeys(row["peer"] for row in chosen)]
        texts.append(f"{titles[name]}, on {SOURCES[source]}:\n\n"
                     + markdown(["peer", *heads], lines))
    return "\n\n".join(texts)


def blocks_of(spec: Table) -> list[Block]:
    whole = partial(table, columns=spec.columns, ours=spec.ours)
    short = each(f"{spec.name}, main peers", "", partial(whole, of=MAIN_PEERS))
    return [each(spec.name, spec.title, whole), *([short] if spec.has_main else [])]


MACHINE = Block("machine", "", machine_text)
COMMON = [each("missing", "Not measured", missing),
          each("packages", "Versions", versions)]
BLOCKS = {
    "core": [
        Block("machine", "", lambda machines: f"{machine_text(machines)}\n\n{LEGEND}"),
        each("headline", "", partial(table, columns=HEADLINE, of=MAIN_PEERS)),
        *(block for spec in TABLES for block in blocks_of(spec)),
        each("ratings", "Where aco is first", ratings),
        *COMMON,
        each("builds", "How main peers were built", builds),
        Block("published", "Published by others, not measured here", published_text),
    ],
    "runtime": [
        MACHINE,
        each("echo", "Processor time of echo servers, beside that of plain epoll", echo),
        each("threads", "Two processors", threads),
        each("tasks", "Tasks", partial(
            turned, columns=TASKS, above="Go", below=POOL, written="{:.1f}".format,
            titles=[POOL, f"{POOL}, own control words", COPYING, "Go"])),
        each("scale", "Connections", scale),
        each("counts", "Tasks by their number", counts),
        *COMMON,
    ],
    "hooks": [
        MACHINE,
        each("libraries", "Libraries in tasks and in threads", partial(
            turned, columns=LIBRARIES, titles=["tasks", "threads"], above="tasks",
            below="threads")),
        each("calls", "Single calls", partial(
            turned, columns=CALLS, titles=["tasks", "threads"], above="tasks", below="threads")),
        *COMMON,
    ],
    "cpp": [
        MACHINE,
        each("generators", "Generators and tasks", partial(
            turned, columns=GENERATORS, titles=["aco.hpp", "C++20", "C++20, by loops"],
            above="aco.hpp", below="C++20")),
        *COMMON,
    ],
    "pthreads": [
        MACHINE,
        each("echo", "An echo server with a thread for each connection, beside plain epoll",
             partial(echo, name="threads", memory=(
                 ("bytes of a connection", "bytes"), ("of its page tables", "table_bytes"),
                 ("in the kernel, both ends", "kernel_bytes")))),
        each("calls", "Threads", partial(
            turned, columns=THREADS, titles=["threads", "aco-run", LOCAL], above="aco-run",
            below="threads")),
        *COMMON,
    ],
}


def texts(group: Group, machines: list[Results]) -> dict[str, str]:
    """The group's blocks by the names that documents call them."""
    return {f"{group.prefix} {block.name}".strip(): block.made(machines)
            for block in BLOCKS[group.name]}


def page(group: Group, machines: list[Results]) -> str:
    """A document of its own with all tables in full."""
    machine, *others = BLOCKS[group.name]
    sections = [f"## {block.title}\n\n{text}\n" for block in others
                if block.title and (text := block.made(machines))]
    return "\n".join([f"# {group.title}\n", machine.made(machines) + "\n", *sections])
