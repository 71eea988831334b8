# SPDX-License-Identifier: Apache-2.0
"""Writes the results of all machines into files: tables, charts, and what documents quote.

A document has tables between <!-- bench NAME --> and <!-- /bench -->, ratios between
<!-- ratio WORKLOAD METRIC: PEER / PEER --> and <!-- /ratio -->, and medians between
<!-- value WORKLOAD METRIC: PEER --> and <!-- /value -->. All are written anew, so that no figure
differs from what was measured. A ratio is the median of those within rounds; a figure that differs
between machines is a range."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import charts
import runtime_group
import tables
from model import Results, number, read_all, two_digits
from plan import PEERS, ROOT, WORKLOADS, Workload

RESULTS = ROOT / "bench" / "results"
IMAGES = ROOT / "img" / "bench"
DOCUMENTS = (ROOT / "README.md", ROOT / "README_zh.md", *sorted((ROOT / "docs").glob("*.md")))

BLOCK = re.compile(r"(<!-- bench (.+?) -->\n).*?(<!-- /bench -->)", re.DOTALL)
RATIO = re.compile(r"<!-- ratio (\S+) (\S+): (.+?) / (.+?) -->.*?<!-- /ratio -->", re.DOTALL)
VALUE = re.compile(r"<!-- value (\S+) (\S+): (.+?) -->.*?<!-- /value -->", re.DOTALL)


@dataclass(frozen=True)
class Group:
    """What is measured together, and published together."""

    name: str
    peers: Path
    workloads: list[Workload]
    results: Path
    sources: str  # pattern of those that are measured besides the core's
    page: Callable[[list[Results]], str]
    draw: Callable[[list[Results]], dict[str, str]]
    blocks: Callable[[list[Results]], dict[str, str]]


CORE = Group("core", PEERS, WORKLOADS, RESULTS, "extra/stack_pool/*.[ch]", tables.page, charts.draw,
             tables.blocks)
RUNTIME = Group("runtime", ROOT / "bench" / "runtime", runtime_group.WORKLOADS,
                RESULTS / "runtime", "runtime/*.[ch]", runtime_group.page, runtime_group.draw,
                runtime_group.blocks)
GROUPS = {group.name: group for group in (CORE, RUNTIME)}


def span(found: Iterable[float | None], written: Callable[[float], str]) -> str:
    """From the least to the greatest of the machines that have such a figure."""
    figures = sorted(figure for figure in found if figure is not None)
    return " to ".join(dict.fromkeys(map(written, (figures[0], figures[-1])))) \
        if figures else "unmeasured"


def ratio_text(machines: list[Results], workload: str, metric: str, above: str,
               below: str) -> str:
    return span((results.ratio(workload, metric, above, below) for results in machines), two_digits)


def value_text(machines: list[Results], workload: str, metric: str, title: str) -> str:
    return span((results.median(title, workload, metric) for results in machines), number)


def quote(found: dict[str, list[Results]], document: Path) -> str:
    """A document, with its tables and figures as measured. `found` has the machines by group."""
    machines = [results for group in GROUPS for results in found[group]]
    to = "～" if document.name.endswith("_zh.md") else " to "
    made: dict[str, str] = {}
    for group in GROUPS.values():
        made |= group.blocks(found[group.name])

    def block(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise SystemExit(f"{document.name}: there is no table {match[2]}")
        return f"{match[1]}{made[match[2]]}\n{match[3]}"

    def ratio(match: re.Match[str]) -> str:
        of = f"{match[1]} {match[2]}: {match[3]} / {match[4]}"
        text = ratio_text(machines, match[1], match[2], match[3], match[4])
        return f"<!-- ratio {of} -->{text.replace(' to ', to)}<!-- /ratio -->"

    def value(match: re.Match[str]) -> str:
        text = value_text(machines, match[1], match[2], match[3])
        of = f"{match[1]} {match[2]}: {match[3]}"
        return f"<!-- value {of} -->{text.replace(' to ', to)}<!-- /value -->"

    return VALUE.sub(value, RATIO.sub(ratio, BLOCK.sub(block, document.read_text())))


def write_all(folder: Path, images: Path, group: Group = CORE) -> None:
    """Of the results in a folder: tables.md beside them, and charts."""
    machines = read_all(folder)
    (folder / "tables.md").write_text(group.page(machines))
    images.mkdir(parents=True, exist_ok=True)
    for name, svg in group.draw(machines).items():
        (images / f"{name}.svg").write_text(svg)


def publish() -> None:
    """Writes what the results of all groups make, and what documents quote of them."""
    found = {group.name: read_all(group.results) for group in GROUPS.values()}
    for group in GROUPS.values():
        if found[group.name]:
            write_all(group.results, IMAGES, group)
    for document in DOCUMENTS:
        document.write_text(quote(found, document))
