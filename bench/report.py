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
from pathlib import Path

import charts
import tables
from model import Results, number, read_all, two_digits
from plan import GROUPS, ROOT, Group

IMAGES = ROOT / "img" / "bench"
DOCUMENTS = (ROOT / "README.md", ROOT / "README_zh.md", *sorted((ROOT / "docs").glob("*.md")))

BLOCK = re.compile(r"(<!-- bench (.+?) -->\n).*?(<!-- /bench -->)", re.DOTALL)
RATIO = re.compile(r"<!-- ratio (\S+) (\S+): (.+?) / (.+?) -->.*?<!-- /ratio -->", re.DOTALL)
VALUE = re.compile(r"<!-- value (\S+) (\S+): (.+?) -->.*?<!-- /value -->", re.DOTALL)


def span(found: Iterable[float | None], written: Callable[[float], str]) -> str:
    """From the least to the greatest of the machines that have such a figure."""
    figures = sorted(figure for figure in found if figure is not None)
    return " to ".join(dict.fromkeys(map(written, (figures[0], figures[-1])))) \
        if figures else "unmeasured"


def ratio_text(machines: list[Results], workload: str, metric: str, above: str,
               below: str) -> str:
    ratios = (results.ratio((above, workload, metric), (below, workload, metric))
              for results in machines)
    return span((ratio.median if ratio else None for ratio in ratios), two_digits)


def value_text(machines: list[Results], workload: str, metric: str, title: str) -> str:
    return span((results.median(title, workload, metric) for results in machines), number)


def quote(found: dict[str, list[Results]], document: Path) -> str:
    """A document, with its tables and figures as measured. `found` has the machines by group."""
    machines = [results for group in GROUPS for results in found[group]]
    to = "～" if document.name.endswith("_zh.md") else " to "
    made: dict[str, str] = {}
    for group in GROUPS.values():
        made |= tables.texts(group, found[group.name])

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


def write_all(group: Group, folder: Path, images: Path) -> None:
    """Writes tables.md beside the results in a folder, and charts."""
    machines = read_all(folder)
    (folder / "tables.md").write_text(tables.page(group, machines))
    images.mkdir(parents=True, exist_ok=True)
    for name, svg in charts.draw(group, machines).items():
        (images / f"{name}.svg").write_text(svg)


def publish() -> None:
    """Writes the tables and charts of all groups, and quotes them in documents."""
    found = {group.name: read_all(group.results) for group in GROUPS.values()}
    for group in GROUPS.values():
        if found[group.name]:
            write_all(group, group.results, IMAGES)
    for document in DOCUMENTS:
        document.write_text(quote(found, document))
