# SPDX-License-Identifier: Apache-2.0
"""Makes of the records of a run a CSV, tables in Markdown, and what documents quote of them. A
document has a table between two comments, <!-- bench NAME --> and <!-- /bench -->, and a ratio
between <!-- ratio WORKLOAD METRIC: PEER / PEER --> and <!-- /ratio -->: a whole run writes both
anew, so that no figure drifts from what was measured."""

import csv
import re
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path

from plan import COUNTS, LIVE_SIZES, ROOT, SHARE_SIZES, WORKLOADS, Peer, Workload

RESULTS = ROOT / "bench" / "results"
IMAGES = ROOT / "img" / "bench"
DOCUMENTS = (ROOT / "README.md", ROOT / "README_zh.md", ROOT / "docs" / "performance.md")
PUBLISHED = ROOT / "bench" / "published.csv"

SOURCES = {
    "2018": "E5-2630 v2 @ 2.60 GHz, gcc 8.1 -O2, mapped stacks with guard pages, 2018",
    "2018 libaco": "AWS c5d.large, tcmalloc, 2018; 8 B and 120 B with 2,000,000 coroutines, 1000 B "
                   "with 1,000,000",
    "2021": "Xeon Gold 6133 @ 2.50 GHz, 2021",
}


@dataclass
class Cell:
    """What a workload of a peer came to."""

    status: str
    words: str = ""
    arguments: str = ""
    rounds: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)  # of each metric

    def is_just_absent(self) -> bool:
        return self.status == "absent" and self.words.startswith("no such workload")

    def median(self, metric: str) -> float:
        return statistics.median(self.values[metric])

    def minimum(self, metric: str) -> float:
        return min(self.values[metric])


class Results:
    """All cells, by the peer's title and the workload's name."""

    def __init__(self, machine: dict, records: dict, peers: list[Peer]) -> None:
        self.machine = machine
        self.peers = {peer.title: peer for peer in peers}
        self.cells: dict[tuple[str, str], Cell] = {}
        self.unbuilt: dict[str, str] = {}
        titles = {peer.slug: peer.title for peer in peers}
        for (slug, workload, round_number), record in sorted(records.items(), key=str):
            title = titles.get(slug)
            if title is None:
                continue
            if workload == "build":
                self.unbuilt[title] = record["words"]
                continue
            self.add(title, workload, round_number, record)

    def add(self, title: str, workload: str, round_number: int, record: dict) -> None:
        """A probe counts only until there is something better, and a failure for good."""
        cell = self.cells.setdefault((title, workload), Cell("none"))
        if record["status"] != "ok":
            cell.status, cell.words = record["status"], record["words"]
            return
        if cell.status == "none" or (cell.status == "ok" and cell.rounds == 0):
            cell.status, cell.values = "ok", {}
        if cell.status == "ok":
            cell.rounds = round_number
            cell.arguments = record["arguments"]
            for metric, value in record["metrics"].items():
                cell.values.setdefault(metric, []).append(value)

    def get(self, title: str, workload: str, metric: str) -> Cell | None:
        cell = self.cells.get((title, workload))
        return cell if cell and cell.status == "ok" and metric in cell.values else None

    def median(self, title: str, workload: str, metric: str) -> float | None:
        cell = self.get(title, workload, metric)
        return cell.median(metric) if cell else None

    def is_stackful(self, title: str) -> bool:
        return "stackful" in self.peers[title].kind

    def titles(self, workload: str, metric: str) -> list[str]:
        """Of the peers that have it, the first one first."""
        found = [title for title in self.peers if self.get(title, workload, metric)]
        return sorted(found, key=lambda title: self.median(title, workload, metric) or 0)


# ==== Text ========================================================================================


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def published(table: str) -> list[dict]:
    lines = [line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines) if row["table"] == table]


def machine_text(results: Results) -> str:
    machine = results.machine
    return (f"Measured on {machine['date']} on {machine['machine']}; {machine['compiler']}. "
            f"Medians, in brackets minima; **bold** is the first of the stackful ones.")


def chinese_machine_text(results: Results) -> str:
    machine = results.machine
    return (f"{machine['date']} 测于 {machine['machine'].replace(' cores', ' 核')}；"
            f"{machine['compiler']}。数值为中位数，括号内为最小值；**粗体**为有栈协程中的第一名。")


@dataclass
class Column:
    head: str
    workload: str
    metric: str
    is_rated: bool = True  # less is better


def first_stackful(results: Results, column: Column) -> str:
    for title in results.titles(column.workload, column.metric):
        if results.is_stackful(title):
            return title
    return ""


def table(results: Results, columns: list[Column], name: str = "",
          of: str = "") -> str:
    """A row for each peer `of` that kind that has anything in it, sorted by the first column; then,
    in columns of their own, what was published under that name."""
    firsts = [first_stackful(results, column) if column.is_rated else "" for column in columns]
    others = published(name)
    heads = []
    for row in others:
        head = (row["column"], row["source"])
        if head not in heads:
            heads.append(head)
    quoted = {(row["peer"], row["column"], row["source"]): float(row["value"]) for row in others}
    titles = [title for title in results.peers if re.search(of, title) and
              any(results.get(title, column.workload, column.metric) for column in columns)]
    last = float("inf")

    def key(title: str) -> tuple:
        values = [results.median(title, column.workload, column.metric) for column in columns]
        return tuple(last if value is None else value for value in values)

    titles.sort(key=key)
    titles += [peer for peer in dict.fromkeys(row["peer"] for row in others) if peer not in titles]
    rows = []
    for title in titles:
        row = [title]
        for column, first in zip(columns, firsts):
            cell = results.get(title, column.workload, column.metric)
            if cell is None:
                row.append("–")
                continue
            median = number(cell.median(column.metric))
            minimum = number(cell.minimum(column.metric))
            bold = "**" if title == first else ""
            row.append(f"{bold}{median}{bold}" + (f" ({minimum})" if minimum != median else ""))
        row += [number(quoted[(title, *head)]) if (title, *head) in quoted else "–"
                for head in heads]
        rows.append(row)
    marks = {source: mark for source, mark in zip(dict.fromkeys(s for _, s in heads), "¹²³")}
    head = ["peer"] + [column.head for column in columns]
    head += [f"{text}, published{marks[source]}" for text, source in heads]
    text = markdown(head, rows)
    notes = [f"{mark} published, not measured here: {SOURCES[source]}."
             for source, mark in marks.items()]
    return text + ("\n\n" + " ".join(notes) if notes else "")


# ==== Tables ======================================================================================

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
# The peers of README.md.
HEADLINE = (r"^aco (pool|share stack)$|^aco pool, own|^C\+\+20$|^Boost.*(fiber|Coroutine2), pool|"
            r"^(corosensei|Go channels, one thread|LuaJIT|glibc ucontext|POSIX threads)")
RATED = SWITCH + TABLE + MANY[1:] + SKYNET + SHARE
# The table that both READMEs have, and its heads in Chinese. Names of peers stay as they are.
HEADLINE_COLUMNS = [
    SWITCH[0], SWITCH[2], LIFE[0],
    replace(MANY[4], head="switch 30,000 × 64 KB, ns"),
    replace(SKYNET[0], head="Skynet nested, ms"),
]
CHINESE_HEADS = {
    "peer": "对比项",
    "resume + yield, ns": "resume + yield，ns",
    "four calls deep": "四层调用深处",
    "create, run, destroy, ns": "创建、运行、销毁，ns",
    "switch 30,000 × 64 KB, ns": "轮流切换 30,000 × 64 KB，ns",
    "Skynet nested, ms": "Skynet（嵌套），ms",
}


def is_aco(title: str) -> bool:
    return title.startswith("aco ")


def ratings(results: Results) -> str:
    """For each column of the workloads that are compared, the first build of aco and the first
    stackful peer."""
    rows = []
    for column in RATED:
        titles = [title for title in results.titles(column.workload, column.metric)
                  if results.is_stackful(title) and not title.endswith("aco_cancel")]
        ours = next((title for title in titles if is_aco(title)), None)
        other = next((title for title in titles if not is_aco(title)), None)
        if not column.is_rated or ours is None or other is None:
            continue
        our_value = results.median(ours, column.workload, column.metric) or 0
        value = results.median(other, column.workload, column.metric) or 0
        rows.append([f"{column.workload} {column.metric}", ours, number(our_value), other,
                     number(value), f"{our_value / value:.2f}"])
    return markdown(["row", "first of aco", "", "first other stackful peer", "", "ratio"], rows)


def missing(results: Results) -> str:
    """What there is no figure for, and why, less what a peer just does not have."""
    lines = [f"- {title}: not built: {words}" for title, words in results.unbuilt.items()]
    for (title, workload), cell in results.cells.items():
        if cell.status in ("failed", "skipped") or \
                (cell.status == "absent" and not cell.is_just_absent()):
            lines.append(f"- {title}, {workload}: {cell.words}")
    return "\n".join(lines) or "Nothing."


def tables(results: Results) -> dict[str, str]:
    return {
        "machine": machine_text(results),
        "headline": table(results, HEADLINE_COLUMNS, of=HEADLINE),
        "switch": table(results, SWITCH, "switch"),
        "table": table(results, TABLE, "table"),
        "many": table(results, MANY, "many"),
        "skynet": table(results, SKYNET, "skynet"),
        "share": table(results, SHARE, "share"),
        "share bytes": table(results, SHARE_BYTES),
        "far": table(results, FAR, "far"),
        "suspended": table(results, SUSPENDED),
        "count": table(results, COUNT),
        "live": table(results, LIVE),
        "pure": table(results, PURE),
        "life": table(results, LIFE, "life"),
        "transfer": table(results, TRANSFER),
        "ratings": ratings(results),
        "missing": missing(results),
        "packages": results.machine["packages"] + ".",
    }


def chinese_tables(results: Results, made: dict[str, str]) -> dict[str, str]:
    head, rest = made["headline"].split("\n", 1)
    cells = [CHINESE_HEADS[cell] for cell in head.strip("| ").split(" | ")]
    return {"machine": chinese_machine_text(results),
            "headline": f"| {' | '.join(cells)} |\n{rest}"}


# ==== Files =======================================================================================


def write_csv(results: Results, path: Path) -> None:
    with path.open("w", newline="") as out:
        for key, value in results.machine.items():
            out.write(f"# {key}: {value}\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["workload", "arguments", "peer", "kind", "metric", "rounds", "median",
                         "minimum", "status"])
        for (title, name), cell in sorted(results.cells.items()):
            row = [name, cell.arguments, title, results.peers[title].kind]
            if cell.is_just_absent():
                continue
            if cell.status != "ok":
                writer.writerow([*row, "", 0, "", "", f"{cell.status}: {cell.words}"])
                continue
            for metric in cell.values:
                writer.writerow([*row, metric, len(cell.values[metric]),
                                 f"{cell.median(metric):.6g}", f"{cell.minimum(metric):.6g}",
                                 "ok"])
        for title, words in results.unbuilt.items():
            writer.writerow(["", "", title, results.peers[title].kind, "", 0, "", "",
                             f"unbuilt: {words}"])


RATIO = re.compile(r"<!-- ratio (\S+) (\S+): (.+?) / (.+?) -->.*?<!-- /ratio -->", re.DOTALL)


def quote(results: Results, document: Path, made: dict[str, str]) -> str:
    """A document, with its tables and ratios as measured."""
    text = document.read_text()
    if document.name.endswith("_zh.md"):
        made = chinese_tables(results, made)
    for name, body in made.items():
        begin, end = f"<!-- bench {name} -->\n", "<!-- /bench -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        text = re.sub(pattern, lambda _, b=body: f"{begin}{b}\n{end}", text, flags=re.DOTALL)

    def ratio(match: re.Match) -> str:
        above = results.median(match[3], match[1], match[2])
        below = results.median(match[4], match[1], match[2])
        value = "unmeasured" if above is None or below is None else number(above / below)
        of = f"{match[1]} {match[2]}: {match[3]} / {match[4]}"
        return f"<!-- ratio {of} -->{value}<!-- /ratio -->"

    return RATIO.sub(ratio, text)


def is_complete(results: Results) -> bool:
    """Whether every workload of every peer has come to something, and not to a probe alone."""

    def is_open(workload: Workload, title: str) -> bool:
        cell = results.cells.get((title, workload.name))
        return bool(re.search(workload.peers, title)) and title not in results.unbuilt and \
            (cell is None or (cell.status == "ok" and cell.rounds == 0))

    return not any(is_open(workload, title) for workload in WORKLOADS for title in results.peers)


def draw(results: Results, folder: Path) -> None:
    try:
        import charts
    except ImportError as error:
        print(f"no charts: {error} (bench/run.sh -i installs what is missing)")
        return
    charts.draw(results, folder)


def write(machine: dict, records: dict, peers: list[Peer], folder: Path, is_whole: bool) -> int:
    """Writes all that there is to write of a run; returns how many workloads failed."""
    results = Results(machine, records, peers)
    is_published = is_whole and is_complete(results)
    texts = RESULTS if is_published else folder
    texts.mkdir(parents=True, exist_ok=True)
    made = tables(results)
    write_csv(results, texts / "results.csv")
    (texts / "tables.md").write_text(
        "".join(f"## {name}\n\n{body}\n\n" for name, body in made.items()))
    draw(results, IMAGES if is_published else folder)
    for document in DOCUMENTS if is_published else ():
        document.write_text(quote(results, document, made))
    failed = [f"{title}, {name}: {cell.words}" for (title, name), cell in results.cells.items()
              if cell.status == "failed"]
    for line in failed:
        print(f"FAILED: {line}")
    print(f"{len(results.cells)} workloads of peers, {len(failed)} failed; written to "
          f"{texts.relative_to(ROOT)}/")
    return len(failed)
