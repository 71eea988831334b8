# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown, one below the other for each machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from model import (COUNT, FAR, LIFE, LIVE, MANY, PURE, SHARE, SHARE_BYTES, SKYNET, SUSPENDED,
                   SWITCH, TABLE, TRANSFER, Column, Results, is_aco, number, published)

# Of the figures in published.csv: where and when they were measured.
SOURCES = {
    "2018": "E5-2630 v2 @ 2.60 GHz, gcc 8.1 -O2, mapped stacks with guard pages, 2018",
    "2018 libaco": "AWS c5d.large, tcmalloc, 2018; 8 B and 120 B with 2,000,000 coroutines, 1000 B "
                   "with 1,000,000",
    "2021": "Xeon Gold 6133 @ 2.50 GHz, 2021",
}

# The peers of short tables.
MAIN_PEERS = (r"^aco (pool|share stack)$|^aco pool, own|^C\+\+20$|^Boost.*(fiber|Coroutine2), pool|"
              r"^(corosensei|Go channels, one thread|LuaJIT|glibc ucontext|POSIX threads)")
HEADLINE = [
    SWITCH[0], SWITCH[2], LIFE[0],
    replace(MANY[4], head="switch 30,000 × 64 KB, ns"),
    replace(SKYNET[0], head="Skynet nested, ms"),
]


@dataclass(frozen=True)
class Table:
    name: str  # in documents, and in published.csv
    title: str
    columns: list[Column]
    has_main: bool = False  # there is a short one, too, of the main peers


TABLES = [
    Table("switch", "Resume and yield", SWITCH, True),
    Table("table", "A thousand coroutines", TABLE, True),
    Table("life", "Create, run and destroy", LIFE, True),
    Table("many", "Many coroutines", MANY, True),
    Table("count", "Resume and yield in turn, by the number of coroutines", COUNT),
    Table("live", "Resume and yield on one share stack, by live bytes", LIVE),
    Table("skynet", "Skynet", SKYNET, True),
    Table("share", "Share stacks: time", SHARE),
    Table("share bytes", "Share stacks: memory", SHARE_BYTES),
    Table("far", "Ten million coroutines", FAR),
    Table("suspended", "A hundred million coroutines", SUSPENDED),
    Table("pure", "The switch alone", PURE),
    Table("transfer", "Straight from one coroutine to another", TRANSFER),
]
# The columns whose ratios are listed.
RATED = SWITCH + TABLE + MANY[1:] + [column for column in SKYNET if column.is_rated] + SHARE

CHINESE_HEADS = {
    "peer": "对比项",
    "resume + yield, ns": "resume + yield，ns",
    "four calls deep": "四层调用深处",
    "create, run, destroy, ns": "创建、运行、销毁，ns",
    "switch 30,000 × 64 KB, ns": "轮流切换 30,000 × 64 KB，ns",
    "Skynet nested, ms": "Skynet（嵌套），ms",
}


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# ==== Of one machine ==============================================================================


def first_stackful(results: Results, column: Column) -> str:
    for title in results.titles(column.workload, column.metric):
        if results.is_stackful(title):
            return title
    return ""


def table(results: Results, columns: list[Column], of: str = "") -> str:
    """A row for each peer with a matching title and any result, sorted by the first column."""
    firsts = [first_stackful(results, column) if column.is_rated else "" for column in columns]
    titles = [title for title in results.kinds if re.search(of, title) and
              any(results.get(title, column.workload, column.metric) for column in columns)]
    last = float("inf")

    def key(title: str) -> tuple[float, ...]:
        values = [results.median(title, column.workload, column.metric) for column in columns]
        return tuple(last if value is None else value for value in values)

    rows = []
    for title in sorted(titles, key=key):
        row = [title]
        for column, first in zip(columns, firsts):
            value = results.get(title, column.workload, column.metric)
            if value is None:
                row.append("–")
                continue
            median, minimum = number(value.median), number(value.minimum)
            bold = "**" if title == first else ""
            row.append(f"{bold}{median}{bold}" + (f" ({minimum})" if minimum != median else ""))
        rows.append(row)
    return markdown(["peer"] + [column.head for column in columns], rows) if rows else ""


def ratings(results: Results) -> str:
    """For each rated column, the first build of aco beside the first other stackful peer."""
    rows = []
    for column in RATED:
        titles = [title for title in results.titles(column.workload, column.metric)
                  if results.is_stackful(title) and not title.endswith("aco_cancel")]
        ours = next((title for title in titles if is_aco(title)), None)
        other = next((title for title in titles if not is_aco(title)), None)
        if ours is None or other is None:
            continue
        our_value = results.median(ours, column.workload, column.metric) or 0
        value = results.median(other, column.workload, column.metric) or 0
        rows.append([f"{column.workload} {column.metric}", ours, number(our_value), other,
                     number(value), f"{our_value / value:.2f}"])
    head = ["row", "first of aco", "", "first other stackful peer", "", "ratio"]
    return markdown(head, rows) if rows else ""


def missing(results: Results) -> str:
    """What there is no figure for, and why. A workload that a peer does not have is not listed."""
    lines = [f"- {title}: not built: {words}" for title, words in results.unbuilt.items()]
    for (title, workload), cell in results.cells.items():
        if cell.status in ("failed", "skipped") or \
                (cell.status == "absent" and not cell.is_just_absent()):
            lines.append(f"- {title}, {workload}: {cell.words}")
    return "\n".join(lines) or "Nothing."


# ==== Of all machines =============================================================================


def each(machines: list[Results], made: Callable[[Results], str]) -> str:
    """What is made of each machine's results, under the name of the machine."""
    texts = [(results.name, made(results)) for results in machines]
    return "\n\n".join(f"**{name}**\n\n{text}" for name, text in texts if text)


def machine_text(machines: list[Results]) -> str:
    lines = [f"- **{results.name}**: {results.machine['machine']}; {results.machine['compiler']}; "
             f"measured on {results.machine['date']}, at commit {results.machine['commit']}."
             for results in machines]
    return "\n".join([*lines, "", "Medians, in brackets minima; **bold** is the first of the "
                                  "stackful peers."])


def chinese_machine_text(machines: list[Results]) -> str:
    lines = [f"- **{results.name}**：{results.machine['machine'].replace(' cores', ' 核')}；"
             f"{results.machine['compiler']}；{results.machine['date']} 测于提交 "
             f"{results.machine['commit']}。" for results in machines]
    return "\n".join([*lines, "", "数值为中位数，括号内为最小值；**粗体**为有栈协程中的第一名。"])


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
        made[spec.name] = each(machines, partial(table, columns=spec.columns))
        if spec.has_main:
            made[f"{spec.name}, main peers"] = each(
                machines, partial(table, columns=spec.columns, of=MAIN_PEERS))
    made["ratings"] = each(machines, ratings)
    made["missing"] = each(machines, missing)
    made["packages"] = each(machines, lambda results: results.machine["packages"] + ".")
    made["published"] = published_text()
    return made


def chinese_blocks(machines: list[Results]) -> dict[str, str]:
    """Those of README_zh.md. The names of peers stay as they are."""
    def translate(line: str) -> str:
        if not line.startswith("| peer |"):
            return line
        return f"| {' | '.join(CHINESE_HEADS[cell] for cell in line.strip('| ').split(' | '))} |"

    headline = blocks(machines)["headline"]
    return {"machine": chinese_machine_text(machines),
            "headline": "\n".join(map(translate, headline.split("\n")))}


def page(machines: list[Results]) -> str:
    """A document of its own with all tables in full."""
    made = blocks(machines)
    titles = [(table.title, table.name) for table in TABLES] + [
        ("Where aco is first", "ratings"), ("What is not measured", "missing"),
        ("Versions", "packages"), ("Published by others, not measured here", "published")]
    sections = [f"## {title}\n\n{made[name]}\n" for title, name in titles if made[name]]
    return "\n".join(["# All figures\n", made["machine"] + "\n", *sections])
