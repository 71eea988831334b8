# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown, one below the other for each machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from model import (BUILD, COUNT, FAR, LIFE, LIVE, MANY, PURE, SHARE, SHARE_BYTES, SKYNET, SUSPENDED,
                   SWITCH, TABLE, TRANSFER, Column, Results, Value, is_aco, label, number,
                   published, two_digits)

# Of the figures in published.csv: where and when they were measured.
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


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# ==== Of one machine ==============================================================================


def rivals(results: Results, column: Column, ours: str) -> list[str]:
    """The stackful peers, and one build of aco, the first one first."""
    return [title for title in results.titles(column.workload, column.metric)
            if results.is_stackful(title) and (title == ours or not is_aco(title))]


def firsts(results: Results, column: Column, ours: str) -> list[str]:
    """The first rival, and those that tie with it: the middle halves of their rounds overlap."""
    halves = [(title, value.middle_half()) for title in rivals(results, column, ours)
              if (value := results.get(title, column.workload, column.metric))]
    return [title for title, (low, _) in halves if low <= halves[0][1][1]]


def with_range(value: Value, bold: str) -> str:
    low, high = number(min(value.rounds)), number(max(value.rounds))
    return f"{bold}{number(value.median)}{bold}" + (f" ({low}–{high})" if low != high else "")


def table(results: Results, columns: list[Column], ours: str = POOL, of: str = "") -> str:
    """A row for each peer with a matching title and any result, sorted by the first column."""
    bold = [firsts(results, column, ours) if column.is_rated else [] for column in columns]
    titles = [title for title in results.kinds if re.search(of, title) and
              any(results.get(title, column.workload, column.metric) for column in columns)]
    last = float("inf")

    def key(title: str) -> tuple[float, ...]:
        values = [results.median(title, column.workload, column.metric) for column in columns]
        return tuple(last if value is None else value for value in values)

    rows = []
    for title in sorted(titles, key=key):
        row = [label(title)]
        for column, first in zip(columns, bold):
            value = results.get(title, column.workload, column.metric)
            row.append(with_range(value, "**" if title in first else "") if value else "–")
        rows.append(row)
    return markdown(["peer"] + [column.head for column in columns], rows) if rows else ""


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
            first = results.get(others[0], workload, metric)
            ratio = results.ratio(workload, metric, ours, others[0])
            if first and ratio:
                rows.append([f"{workload} {metric}", label(ours), with_range(value, ""), others[0],
                             with_range(first, ""), two_digits(ratio)])
    head = ["row", "aco", "", "first other stackful peer", "", "ratio"]
    return markdown(head, rows) if rows else ""


def missing(results: Results) -> str:
    """What there is no figure for, and why. A workload that a peer does not have is not listed."""
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


# ==== Of all machines =============================================================================


def each(machines: list[Results], made: Callable[[Results], str]) -> str:
    """What is made of each machine's results, under the name of the machine."""
    texts = [(results.name, made(results)) for results in machines]
    return "\n\n".join(f"**{name}**\n\n{text}" for name, text in texts if text)


LEGEND = (
    f"Medians of the rounds; in brackets their range. Programs in C, C++ and Rust lie at another "
    f"place in memory in each round. **Bold** is the first of the stackful peers, and each other "
    f"one if the middle halves of their rounds overlap. One build of aco takes part in this: "
    f"*{label(POOL)}*, or *{label(COPYING)}* where frames are copied.")


def machine_text(machines: list[Results]) -> str:
    lines = [f"- **{results.name}**: {results.machine['machine']}; {results.machine['compiler']}; "
             f"measured on {results.machine['date']}, at commit {results.machine['commit']}."
             + results.notes()
             for results in machines]
    return "\n".join([*lines, "", LEGEND])


def published_text() -> str:
    """A table for each source of figures that others published."""
    rows = published()
    titles = {table.name: table.title for table in TABLES}
    texts = []
    for name, source in dict.fromkeys((row["table"], row["source"]) for row in rows):
        chosen = [row for row in rows if (row["table"], row["source"]) == (name, source)]
        heads = list(dict.fromkeys(row["column"] for row in chosen))
        values = {(row["peer"], row["column"]): number(float(row["value"])) for row in chosen}
        lines = [[peer] + [values.get((peer, head), "–") for head in heads]
                 for peer in dict.fromkeys(row["peer"] for row in chosen)]
        texts.append(f"{titles[name]}, on {SOURCES[source]}:\n\n"
                     + markdown(["peer", *heads], lines))
    return "\n\n".join(texts)


def blocks(machines: list[Results]) -> dict[str, str]:
    """Everything that a document can have, by name."""
    made = {
        "machine": machine_text(machines),
        "headline": each(machines, partial(table, columns=HEADLINE, of=MAIN_PEERS)),
    }
    for spec in TABLES:
        whole = partial(table, columns=spec.columns, ours=spec.ours)
        made[spec.name] = each(machines, whole)
        if spec.has_main:
            made[f"{spec.name}, main peers"] = each(machines, partial(whole, of=MAIN_PEERS))
    made["ratings"] = each(machines, ratings)
    made["missing"] = each(machines, missing)
    made["packages"] = each(machines, versions)
    made["builds"] = each(machines, builds)
    made["published"] = published_text()
    return made


def page(machines: list[Results]) -> str:
    """A document of its own with all tables in full."""
    made = blocks(machines)
    titles = [(table.title, table.name) for table in TABLES] + [
        ("Where aco is first", "ratings"), ("What is not measured", "missing"),
        ("Versions", "packages"), ("How main peers were built", "builds"),
        ("Published by others, not measured here", "published")]
    sections = [f"## {title}\n\n{made[name]}\n" for title, name in titles if made[name]]
    return "\n".join(["# All figures\n", made["machine"] + "\n", *sections])
