# SPDX-License-Identifier: Apache-2.0
"""Writes the results of all machines into files: tables, charts, and what documents quote.

A document has tables between <!-- bench NAME --> and <!-- /bench -->, and ratios between
<!-- ratio WORKLOAD METRIC: PEER / PEER --> and <!-- /ratio -->. Both are written anew, so that no
figure differs from what was measured. A ratio is the median of those within rounds; if it differs
between machines, it is a range."""

from __future__ import annotations

import re
from pathlib import Path

import charts
import tables
from model import Results, read_all, two_digits
from plan import ROOT

RESULTS = ROOT / "bench" / "results"
IMAGES = ROOT / "img" / "bench"
DOCUMENTS = (ROOT / "README.md", ROOT / "README_zh.md", *sorted((ROOT / "docs").glob("*.md")))

BLOCK = re.compile(r"(<!-- bench (.+?) -->\n).*?(<!-- /bench -->)", re.DOTALL)
RATIO = re.compile(r"<!-- ratio (\S+) (\S+): (.+?) / (.+?) -->.*?<!-- /ratio -->", re.DOTALL)


def ratio_text(machines: list[Results], workload: str, metric: str, above: str,
               below: str) -> str:
    found = [ratio for results in machines
             if (ratio := results.ratio(workload, metric, above, below)) is not None]
    if not found:
        return "unmeasured"
    low, high = two_digits(min(found)), two_digits(max(found))
    return low if low == high else f"{low} to {high}"


def quote(machines: list[Results], document: Path) -> str:
    """A document, with its tables and ratios as measured."""
    is_chinese = document.name.endswith("_zh.md")
    made = tables.chinese_blocks(machines) if is_chinese else tables.blocks(machines)

    def block(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise SystemExit(f"{document.name}: there is no table {match[2]}")
        return f"{match[1]}{made[match[2]]}\n{match[3]}"

    def ratio(match: re.Match[str]) -> str:
        of = f"{match[1]} {match[2]}: {match[3]} / {match[4]}"
        value = ratio_text(machines, match[1], match[2], match[3], match[4])
        return f"<!-- ratio {of} -->{value}<!-- /ratio -->"

    return RATIO.sub(ratio, BLOCK.sub(block, document.read_text()))


def write_all(folder: Path, images: Path, documents: tuple[Path, ...] = ()) -> None:
    """Of the results in a folder: tables.md beside them, charts, and what documents quote."""
    machines = read_all(folder)
    (folder / "tables.md").write_text(tables.page(machines))
    images.mkdir(parents=True, exist_ok=True)
    for name, svg in charts.draw(machines).items():
        (images / f"{name}.svg").write_text(svg)
    for document in documents:
        document.write_text(quote(machines, document))


def publish() -> None:
    write_all(RESULTS, IMAGES, DOCUMENTS)
