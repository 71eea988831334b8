# SPDX-License-Identifier: Apache-2.0
"""The results of each machine, and which of them stand side by side: what tables and charts are
made of. A machine's results are a CSV whose first lines, `# KEY: VALUE`, describe the machine. Its
last column has the figure of each round, so that medians, ranges and ratios are made of those."""

from __future__ import annotations

import csv
import hashlib
import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plan import COUNTS, LIVE_SIZES, ROOT, SHARE_SIZES, Peer

PUBLISHED = ROOT / "bench" / "published.csv"
HEAD = ["workload", "arguments", "peer", "kind", "metric", "status", "rounds"]

NOTE = "changed to"  # and a digest, is the key of why figures stand for those sources, too
BUILD = "build"  # and the title of a peer, is the key of how it was built

# What a run keeps of one measurement, and what tells it from others: peer, workload, round.
Record = dict[str, Any]
Key = tuple[str, str, int]


# ==== Results =====================================================================================


@dataclass
class Value:
    rounds: list[float]  # what was measured, round by round

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def middle_half(self) -> tuple[float, float]:
        """The least and the greatest, without a quarter of the rounds at either end."""
        ordered = sorted(self.rounds)
        quarter = len(ordered) // 4
        return ordered[quarter], ordered[-1 - quarter]


@dataclass
class Cell:
    """The result of one workload of one peer."""

    status: str  # ok, failed, absent or skipped
    words: str = ""  # why it is not ok
    arguments: str = ""
    is_probe: bool = False  # there is no round yet
    values: dict[str, Value] = field(default_factory=dict)  # by metric

    def is_just_absent(self) -> bool:
        return self.status == "absent" and self.words.startswith("no such workload")


@dataclass
class Results:
    """The results of one machine. Peers are named by their titles."""

    name: str
    machine: dict[str, str]  # date, machine, compiler, packages, commit, sources, builds, notes
    kinds: dict[str, str] = field(default_factory=dict)  # by peer
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)  # by peer and workload
    unbuilt: dict[str, str] = field(default_factory=dict)  # why, by peer

    def get(self, title: str, workload: str, metric: str) -> Value | None:
        cell = self.cells.get((title, workload))
        return cell.values.get(metric) if cell and cell.status == "ok" else None

    def median(self, title: str, workload: str, metric: str) -> float | None:
        value = self.get(title, workload, metric)
        return value.median if value else None

    def ratio(self, workload: str, metric: str, above: str, below: str) -> float | None:
        """The median of the ratios within each round that both peers took part in."""
        upper, lower = self.get(above, workload, metric), self.get(below, workload, metric)
        if upper is None or lower is None or not all(lower.rounds):
            return None
        return statistics.median(a / b for a, b in zip(upper.rounds, lower.rounds))

    def is_current(self) -> bool:
        """Whether aco is what was measured, or a note says why the figures stand."""
        now = sources()
        return self.machine.get("sources") == now or f"{NOTE} {now}" in self.machine

    def notes(self) -> str:
        """A sentence that tells why the figures stand for sources of now, if they need one."""
        found = [words for key, words in self.machine.items() if key.startswith(NOTE)]
        return f" Changed since: {'; '.join(found)}." if found else ""

    def is_stackful(self, title: str) -> bool:
        return "stackful" in self.kinds[title]

    def titles(self, workload: str, metric: str) -> list[str]:
        """The peers that have a result, the smallest first."""
        found = [title for title in self.kinds if self.get(title, workload, metric)]
        return sorted(found, key=lambda title: self.median(title, workload, metric) or 0)


def cell_of(records: list[Record]) -> Cell:
    """A failure counts more than any value, and a probe counts only if there is nothing else."""
    failures = [record for record in records if record["status"] != "ok"]
    if failures:
        return Cell(failures[-1]["status"], failures[-1]["words"])
    measured = [record for record in records if record["round"] > 0]
    used = measured or records
    values: dict[str, Value] = {}
    for record in used:
        for metric, value in record["metrics"].items():
            values.setdefault(metric, Value([])).rounds.append(value)
    return Cell("ok", "", used[-1]["arguments"], not measured, values)


def from_records(name: str, machine: dict[str, str], records: dict[Key, Record],
                 peers: list[Peer]) -> Results:
    titles = {peer.slug: peer.title for peer in peers}
    results = Results(name, machine, {peer.title: peer.kind for peer in peers})
    gathered: dict[tuple[str, str], list[Record]] = {}
    for (slug, workload, _), record in sorted(records.items()):
        if slug not in titles:
            continue
        if workload == "build":
            results.unbuilt[titles[slug]] = record["words"]
        else:
            gathered.setdefault((titles[slug], workload), []).append(record)
    results.cells = {key: cell_of(found) for key, found in gathered.items()}
    return results


def write_csv(results: Results, path: Path) -> None:
    with path.open("w", newline="") as out:
        for key, value in results.machine.items():
            out.write(f"# {key}: {value}\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(HEAD)
        for (title, workload), cell in sorted(results.cells.items()):
            row = [workload, cell.arguments, title, results.kinds[title]]
            if cell.is_just_absent():
                continue
            if cell.status != "ok":
                writer.writerow([*row, "", f"{cell.status}: {cell.words}", ""])
                continue
            for metric, found in cell.values.items():
                writer.writerow([*row, metric, "ok",
                                 " ".join(f"{value:.6g}" for value in found.rounds)])
        for title, words in results.unbuilt.items():
            writer.writerow(["", "", title, results.kinds[title], "", f"unbuilt: {words}", ""])


def read_csv(path: Path) -> Results:
    """The machine's name is that of the file."""
    text = path.read_text().splitlines()
    described = [line[2:].partition(": ") for line in text if line.startswith("# ")]
    results = Results(path.stem, {key: value for key, _, value in described})
    for row in csv.DictReader(line for line in text if not line.startswith("# ")):
        title = row["peer"]
        results.kinds[title] = row["kind"]
        status, _, words = row["status"].partition(": ")
        if status == "unbuilt":
            results.unbuilt[title] = words
            continue
        cell = results.cells.setdefault(
            (title, row["workload"]), Cell(status, words, row["arguments"]))
        if status == "ok":
            cell.values[row["metric"]] = Value([float(value) for value in row["rounds"].split()])
    return results


def read_all(folder: Path) -> list[Results]:
    """The results of all machines, by name."""
    return [read_csv(path) for path in sorted(folder.glob("*.csv"))]


def sources(more: str = "extra/stack_pool/*.[ch]") -> str:
    """A digest of what is measured of aco, without comments and space, which change no figure."""
    digest = hashlib.sha256()
    for path in (*(ROOT / name for name in ("aco.h", "aco.c", "acosw.S")),
                 *sorted(ROOT.glob(more))):
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
        digest.update(" ".join(code.split()).encode() + b"\0")
    return digest.hexdigest()[:16]


def published(table: str = "") -> list[dict[str, str]]:
    """Figures that others published, for one table or for all."""
    lines = [line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines) if table in ("", row["table"])]


def number(value: float) -> str:
    """Three digits, or all before the point; a half is rounded up."""
    if value < 100:
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return f"{math.floor(value + 0.5):,}"


def two_digits(value: float) -> str:
    """Of a ratio, for which more would be too certain; of one near 1, hundredths."""
    if value < 9.95:
        return f"{value:.2f}" if value < 1.195 else f"{value:.1f}"
    return f"{float(f'{value:.2g}'):,.0f}"


def is_aco(title: str) -> bool:
    return title.startswith("aco ")


def label(title: str) -> str:
    """A title in tables and charts, where each row of aco tells its control words."""
    if not is_aco(title):
        return title
    own = ", own control words"
    if title.endswith(own):
        return title.removesuffix(own) + ", own control words (default)"
    return title + ", shared control words"


def titles_of(machines: Iterable[Results], pattern: str = "") -> list[str]:
    """The peers of all machines whose titles match."""
    found = {title for results in machines for title in results.kinds if re.search(pattern, title)}
    return sorted(found)


# ==== Columns =====================================================================================


@dataclass(frozen=True)
class Column:
    head: str
    workload: str
    metric: str
    is_rated: bool = True  # less is better


SWITCH = [
    Column("resume + yield, ns", "switch", "ns"),
    Column("after an inexact division", "switch_inexact", "ns"),
    Column("four calls deep", "switch_deep", "ns"),
    Column("16 live values", "switch_live", "ns"),
]
TABLE = [Column(f"{name}, ns", "table", f"{metric}_ns")
         for name, metric in (("switch", "switch"), ("create", "create"), ("last switch", "last"),
                              ("destroy", "destroy"), ("kill", "kill"))]
MANY = [
    Column("switch 1 × 16 KB, ns", "switch", "ns"),
    Column("create 1000 × 2 MB", "many_2mb", "create_ns"),
    Column("switch 1000 × 2 MB", "many_2mb", "switch_ns"),
    Column("create 30,000 × 64 KB", "many_64kb", "create_ns"),
    Column("switch 30,000 × 64 KB", "many_64kb", "switch_ns"),
]
SKYNET = [
    Column("nested, ms", "skynet_nested", "ms"),
    Column("peak MiB", "skynet_nested", "peak_mib", False),
    Column("by scheduler, ms", "skynet_scheduler", "ms"),
    Column("peak MiB", "skynet_scheduler", "peak_mib", False),
]
SHARE = [Column(f"{live} B, ns", f"share_{live}", "ns") for live in SHARE_SIZES]
SHARE_BYTES = [Column(f"{live} B, bytes each", f"share_{live}", "bytes") for live in SHARE_SIZES]
FAR = [
    Column("8 B, ns", "share_10m_8", "ns"),
    Column("peak MiB", "share_10m_8", "peak_mib"),
    Column("120 B, ns", "share_10m_120", "ns"),
    Column("peak MiB", "share_10m_120", "peak_mib"),
]
SUSPENDED = [
    Column("create, ns", "suspended", "create_ns"),
    Column("first resume, ns", "suspended", "start_ns"),
    Column("resume, ns", "suspended", "ns"),
    Column("bytes each", "suspended", "bytes"),
    Column("peak MiB", "suspended", "peak_mib"),
]
COUNT = [Column(f"{count:,}", f"count_{count}", "switch_ns") for count in COUNTS]
LIVE = [Column(f"{live:,} B", f"live_{live}", "ns") for live in LIVE_SIZES]
PURE = [
    Column("instructions, there and back", "instructions", "instructions"),
    Column("ns", "pure", "ns"),
]
LIFE = [
    Column("create, run, destroy, ns", "life", "ns"),
    Column("of that get and put of the pool", "get_put", "ns", False),
]
TRANSFER = [
    Column("aco_yield_to, ns", "transfer", "direct_ns"),
    Column("yield + resume, ns", "transfer", "through_main_ns"),
]
