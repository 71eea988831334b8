# SPDX-License-Identifier: Apache-2.0
"""The results of each machine, and which of them stand side by side in tables and charts. A
machine's results are a CSV whose first lines, `# KEY: VALUE`, describe the machine. Its last column
has the figure of each round, so that medians, ranges and ratios are made of those."""

from __future__ import annotations

import csv
import hashlib
import math
import random
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plan import COUNTS, ECHO_PEERS, LIVE_SIZES, ROOT, SHARE_SIZES, TASK_COUNTS, Peer

PUBLISHED = ROOT / "bench" / "published.csv"
HEAD = ["workload", "arguments", "peer", "kind", "metric", "status", "rounds"]

NOTE = "changed to"  # and a digest, is the key of why figures stand for those sources, too
BUILD = "build"  # and the title of a peer, is the key of how it was built

RESAMPLES = 4000  # of a bootstrap

Record = dict[str, Any]  # one measurement, as a run keeps it
Key = tuple[str, str, int]  # of a record: peer, workload, round
Figure = tuple[str, str, str]  # peer, workload, metric


# ==== Results =====================================================================================


@dataclass
class Value:
    rounds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def middle_half(self) -> tuple[float, float]:
        """The least and the greatest, without a quarter of the rounds at either end."""
        ordered = sorted(self.rounds)
        quarter = len(ordered) // 4
        return ordered[quarter], ordered[-1 - quarter]

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median, by bootstrap."""
        chosen = random.Random(1)
        medians = sorted(statistics.median(chosen.choices(self.rounds, k=len(self.rounds)))
                         for _ in range(RESAMPLES))
        return medians[RESAMPLES // 40], medians[-1 - RESAMPLES // 40]


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

    def ratio(self, above: Figure, below: Figure) -> Value | None:
        """The ratios within each round that has both figures."""
        upper, lower = self.get(*above), self.get(*below)
        if upper is None or lower is None or not all(lower.rounds):
            return None
        return Value([a / b for a, b in zip(upper.rounds, lower.rounds)])

    def is_current(self) -> bool:
        """Tells whether this aco was measured, or a note says why the figures stand."""
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


def sources() -> str:
    """A digest of the core and its pool, without comments and space, which change no figure."""
    digest = hashlib.sha256()
    for path in (*(ROOT / name for name in ("aco.h", "aco.c", "acosw.S")),
                 *sorted(ROOT.glob("extra/stack_pool/*.[ch]"))):
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
        digest.update(" ".join(code.split()).encode() + b"\0")
    return digest.hexdigest()[:16]


def published() -> list[dict[str, str]]:
    """Figures that others published."""
    lines = [line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def number(value: float) -> str:
    """Three digits, or all before the point; a half is rounded up."""
    if value < 100:
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return f"{math.floor(value + 0.5):,}"


def two_digits(value: float) -> str:
    """A ratio, for which more digits would be too certain; near 1, it has hundredths."""
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

# ==== Columns and rows of the other groups ========================================================

ECHO = [Column(f"{count:,}", f"echo_{count}", "server_ns") for count in ECHO_PEERS]
TURNS = [Column(f"{count:,}", f"turns_{count}", "ns") for count in TASK_COUNTS]
SLEEPERS = [Column(f"{count:,}", f"sleepers_{count}", "ns") for count in TASK_COUNTS]
TASKS = [
    Column("let the others run, ns", "yield", "ns"),
    Column("spawn, run and end, ns", "spawn", "ns"),
    Column("message, rendezvous, ns", "rendezvous", "ns"),
    Column("message, channel of 100, ns", "buffered", "ns"),
    Column("lock and unlock, ns", "mutex", "ns"),
    Column("lock handed to the next waiter, ns", "handover", "ns"),
    Column("1,000,000 parked tasks, bytes each", "parked_1000000", "bytes"),
    Column("of these, the first time: spawn and park, ns", "parked_1000000", "first_create_ns"),
    Column("again, with warm stacks: spawn and park, ns", "parked_1000000", "create_ns"),
    Column("wake and end, ns", "parked_1000000", "ns"),
    Column("1,000,000 sleeping tasks: spawn, sleep, wake, end, ns", "sleepers_1000000", "ns"),
    Column("the same, woken in random order, ns", "sleepers_1000000", "random_ns"),
    Column("sleep of 1 ms, late by µs", "lateness", "us"),
    Column("100 tasks wait for sockets, wake-ups a second", "idle", "wakes"),
    Column("`aco_run()` of an empty task in a new process, µs", "cold", "us"),
]
LIBRARIES = [
    Column(head, workload, metric)
    for words, workload in (("1,000 `nanosleep()` of 0.1 s", "nanosleep"),
                            ("9,000 hiredis `BLPOP 0.1`", "blpop"),
                            ("100 libpq `pg_sleep(0.1)`", "pg"),
                            ("100 libmariadb `sleep(0.1)`", "mariadb"),
                            ("1,000 libcurl, a server that takes 0.1 s", "http"),
                            ("100 of these over TLS", "https"))
    for head, metric in ((f"{words}, ms", "ms"), ("their processor time, ms", "cpu_ms"))]
CALLS = [
    Column("`read()` of a byte of a pipe, outside of tasks, ns", "pipe", "ns"),
    Column("`pthread_mutex_lock()` and `pthread_mutex_unlock()`, ns", "mutex", "ns"),
]
GENERATORS = [
    Column("a value of a generator, ns", "flat", "ns"),
    Column("a value, tree walk of depth 20, ns", "tree", "ns"),
    Column("`aco::spawn` of a lambda and `join()`, ns", "spawn_join", "ns"),
    Column("`co_await` of a task that has ended, ns", "co_await", "ns"),
]
THREADS = [
    Column("create and join a thread, from `main()`, ns", "create_from_main", "ns"),
    Column("the same, from a thread, ns", "create_from_thread", "ns"),
    Column("hand over a mutex and a condition, ns", "hand_over", "ns"),
    Column("10,000 threads that sleep 0.1 s, ms", "sleepers_10000", "ms"),
    Column("100,000 of these, ms", "sleepers_100000", "ms"),
    Column("start and end of `true`, ns", "start", "ns"),
]
