# SPDX-License-Identifier: Apache-2.0
"""Measures aco beside its peers: builds them, runs each workload of each peer in fresh processes on
one core, in turn, and keeps the results under the name of the machine; then makes tables and charts
of the results of all machines.

Where code lies in memory can double a time. So a program is built in several paddings, which are
bytes before its code: round by round, another one runs.

A measurement is a record, one line of JSON in MACHINE.jsonl, so that a run can be resumed and
single peers measured again. The results of a run are in MACHINE.csv beside it. A complete run
replaces bench/results/MACHINE.csv; to publish a run of another machine, that file is all that
has to be copied."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import report
from build import OUTPUT, build_all, install, missing_packages, program_of
from machine import describe_machine, name_machine, processor
from model import Key, Record, Results, from_records, write_csv
from plan import GROUPS, ROOT, Group, Peer, Workload, find_peers

TOOLS = ("valgrind", "time", "util-linux")  # Debian packages
ABSENT = 77  # exit status: the peer has no such workload
NO_SUCH = "no such workload"
CALLGRIND_BASE_N = 1000
CHECK_COUNT = 100  # coroutines at most with --check


class Mode:
    """How much is measured."""

    def __init__(self, name: str, paddings: tuple[int, ...], rounds: int, target_s: float,
                 pair_s: float, limit_s: float, process_s: float) -> None:
        self.name = name
        self.paddings = paddings  # bytes
        self.rounds = rounds
        self.target_s = target_s  # of one measurement
        self.pair_s = pair_s  # of all measurements of one workload of one peer: then no more rounds
        self.limit_s = limit_s  # of the whole run, with building: then no more measurements
        self.process_s = process_s  # of a process: then it is killed


# Multiples of 16, as functions are aligned to, and one of each kind in a cache line of 64.
FULL = Mode("full", (0, 80, 160, 240, 320, 400, 480, 560), 8, 0.2, 6, 4800, 120)
QUICK = Mode("quick", (0,), 2, 0.03, 2, 165, 15)
CHECK = Mode("check", (0,), 0, 0, 0, 600, 20)

LEAST_S = 60  # of measuring, however long building took


# ==== One process =================================================================================


def run_program(command: list[str], limit_s: float) -> Record:
    """Runs a program pinned to the last core; returns how it ended and its metrics. time(1) takes
    its peak of memory, so that the memory of this process does not count."""
    usage = OUTPUT / "usage"
    cores = os.sched_getaffinity(0)
    core = max(cores)
    timed = ["taskset", "-c", str(core), "/usr/bin/time", "-q", "-f", "%M", "-o", str(usage)]
    start = time.monotonic()
    process = subprocess.Popen(timed + command, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True, cwd=ROOT,
                               env={**os.environ, "CPUS": f"{min(cores)} {core}",
                                    "RUST_BACKTRACE": "0"})  # words come last
    try:
        said, words = process.communicate(timeout=limit_s)
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"status": "failed", "words": f"takes more than {limit_s:.0f} s",
                "wall_s": limit_s}
    wall_s = time.monotonic() - start
    if process.returncode != 0:
        status = "absent" if process.returncode == ABSENT else "failed"
        otherwise = NO_SUCH if status == "absent" else f"exit status {process.returncode}"
        # Not the reason: lines of valgrind, and Rust's hint about backtraces.
        noise = ("==", "note:")
        reasons = [line for line in words.strip().splitlines() if not line.startswith(noise)]
        return {"status": status, "words": (reasons or [otherwise])[-1], "wall_s": wall_s}
    metrics = {}
    for line in said.splitlines():
        name, value = line.split()
        metrics[name] = float(value)
    metrics["peak_mib"] = int(usage.read_text()) / 1024
    return {"status": "ok", "metrics": metrics, "wall_s": wall_s, "words": words}


def count_instructions(command: list[str], n: int, limit_s: float) -> Record:
    """The instructions of one operation: callgrind's count for `n` more of them, divided by `n`."""
    counts = []
    wall_s = 0.0
    for ct in (CALLGRIND_BASE_N, CALLGRIND_BASE_N + n):
        result = run_program(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                              *command, str(ct)], limit_s)
        wall_s += result["wall_s"]
        if result["status"] != "ok":
            return {**result, "wall_s": wall_s}
        counts.append(int(re.findall(r"Collected : (\d+)", result["words"])[0]))
    return {"status": "ok", "metrics": {"instructions": (counts[1] - counts[0]) / n},
            "wall_s": wall_s, "words": ""}


def available_gib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return 0


# ==== All of them =================================================================================


class Pair:
    """One workload of one peer."""

    def __init__(self, workload: Workload, peer: Peer, why_not: str) -> None:
        self.workload = workload
        self.peer = peer
        self.n = 0  # not known yet
        self.count = workload.count
        self.round_s = 0.0  # expected of its next round
        self.spent_s = 0.0
        self.is_open = not why_not

    def arguments(self) -> list[str]:
        return self.workload.arguments.format(n=self.n, count=self.count).split()

    def key(self, round_number: int) -> Key:
        return (self.peer.slug, self.workload.name, round_number)


class Run:
    def __init__(self, mode: Mode, records: dict[Key, Record], store: Path,
                 left_s: float) -> None:
        self.mode = mode
        self.records = records  # by key
        self.store = store
        self.end = time.monotonic() + left_s
        self.shown = 0.0

    def keep(self, pair: Pair, round_number: int, result: Record) -> None:
        record = {"peer": pair.peer.slug, "workload": pair.workload.name, "round": round_number,
                  "n": pair.n, "arguments": " ".join(pair.arguments()), **result}
        self.records[pair.key(round_number)] = record
        with self.store.open("a") as lines:
            lines.write(json.dumps(record) + "\n")

    def is_late(self, needed_s: float = 0) -> bool:
        return time.monotonic() + needed_s > self.end

    def measure(self, pair: Pair, round_number: int) -> Record:
        """A record that is there already is not measured again."""
        known = self.records.get(pair.key(round_number))
        if known:
            pair.n = known["n"]
            return known
        workload = pair.workload
        paddings = self.mode.paddings
        padding = paddings[round_number % len(paddings)]
        command = [str(program_of(pair.peer, padding))]
        if workload.runner:
            runner = Peer(workload.runner, pair.peer.source, "", (), "", "", pair.peer.prefix)
            command.insert(0, str(program_of(runner, 0)))
        if workload.is_counted:
            command += pair.arguments()[:-1]
            result = count_instructions(command, pair.n, self.mode.process_s)
        else:
            result = run_program(command + pair.arguments(), self.mode.process_s)
        self.keep(pair, round_number, result)
        return result

    def show(self, what: str, left_s: float) -> None:
        now = time.monotonic()
        is_terminal = sys.stderr.isatty()
        if now - self.shown > (0.2 if is_terminal else 20):
            self.shown = now
            line = f"{int(left_s) // 60}:{int(left_s) % 60:02d} left, {what}"
            print(f"\r{line:<90.90}" if is_terminal else line,
                  end="" if is_terminal else "\n", file=sys.stderr, flush=True)

    # ---- Probes: whether there is such a workload, and how much of it is enough ----

    def probe(self, pair: Pair) -> None:
        workload = pair.workload
        pair.n = workload.probe_n
        result = self.measure(pair, 0)
        if result["status"] != "ok":
            pair.is_open = False
            return
        if workload.is_counted:
            pair.n = workload.fixed_n
            pair.round_s = result["wall_s"]
            return
        value = result["metrics"][workload.metric]
        if workload.fixed_n:
            quick_n = workload.quick_n if self.mode is QUICK else 0
            pair.n = quick_n or workload.fixed_n
            pair.round_s = result["wall_s"] * max(1.0, pair.n / workload.probe_n / 10)
            if workload.metric == "ms":
                pair.round_s = value / 1e3 * pair.n / workload.probe_n
        else:
            one_s = max(value, 0.1) / 1e9 * workload.count
            pair.n = max(1, int(self.mode.target_s / one_s))
            pair.round_s = result["wall_s"] + pair.n * one_s

    def probe_all(self, pairs: list[Pair]) -> None:
        for i, pair in enumerate(pairs):
            if pair.is_open and not self.is_late():
                self.show(f"probing {i + 1} of {len(pairs)}: {pair.peer.title}, "
                          f"{pair.workload.name}", self.end - time.monotonic())
                self.probe(pair)
        if self.mode is QUICK:
            for pair in pairs:
                if pair.is_open and pair.round_s > self.mode.pair_s:
                    pair.is_open = False
                    self.keep(pair, 1, {"status": "skipped", "words": "too long for --quick",
                                        "wall_s": 0})

    # ---- Rounds ----

    def left_s(self, pairs: list[Pair], round_number: int, index: int) -> float:
        rounds_left = self.mode.rounds - round_number
        left = 0.0
        for i, pair in enumerate(pairs):
            if pair.is_open:
                rounds = rounds_left + (1 if i >= index else 0)
                most = max(0.0, self.mode.pair_s - pair.spent_s) + pair.round_s
                left += rounds * pair.round_s if pair.workload.has_all_rounds else \
                    min(rounds * pair.round_s, most)
        return min(left, self.end - time.monotonic())

    def rounds(self, pairs: list[Pair]) -> None:
        for round_number in range(1, self.mode.rounds + 1):
            for i, pair in enumerate(pairs):
                if not pair.is_open or self.is_late(pair.round_s):
                    continue
                self.show(f"round {round_number} of {self.mode.rounds}: {pair.peer.title}, "
                          f"{pair.workload.name}", self.left_s(pairs, round_number, i))
                if self.mode is not QUICK and pair.workload.gib > available_gib():
                    words = f"needs {pair.workload.gib:.0f} GiB of memory that is not in use"
                    result: Record = {"status": "skipped", "words": words, "wall_s": 0}
                    self.keep(pair, round_number, result)
                else:
                    result = self.measure(pair, round_number)
                pair.round_s = result["wall_s"]
                pair.spent_s += result["wall_s"]
                is_enough = pair.spent_s > self.mode.pair_s and not pair.workload.has_all_rounds
                if result["status"] != "ok" or is_enough or pair.workload.is_counted:
                    pair.is_open = False

    def tell_left_out(self, pairs: list[Pair]) -> None:
        """Records pairs that no time was left for: as skipped by a quick run, as failed by a check.
        A whole run without them is not published."""
        if self.mode is FULL:
            return
        round_number, status = (1, "skipped") if self.mode is QUICK else (0, "failed")
        for pair in pairs:
            if pair.is_open and pair.key(round_number) not in self.records:
                self.keep(pair, round_number,
                          {"status": status, "words": "no time was left", "wall_s": 0})


# ==== Command line ================================================================================


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run.sh",
        description="Measures aco beside its peers, writes tables and draws charts of all machines "
                    "that were measured. In full, which takes up to an hour, the results "
                    "go into bench/results/MACHINE.csv, tables and charts into bench/results/, "
                    "img/bench/, the READMEs and docs/; otherwise all goes into output/bench/.",
        epilog="Results of another machine are published by copying its bench/results/MACHINE.csv "
               "here, and --draw.")
    parser.add_argument("-i", action="store_true", dest="install",
                        help="first install what is missing (with apt-get)")
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true",
                          help="fewer workloads and rounds: less than three minutes, "
                               "unless building takes two of them")
    how_much.add_argument("--check", action="store_true",
                          help="the least of each workload, to see that it works; fails if not")
    parser.add_argument("--group", choices=GROUPS, default="core",
                        help="measure coroutines (core), tasks and servers (runtime), libraries in "
                             "tasks (hooks), generators (cpp), or threads as tasks (pthreads); "
                             "results of other groups than the core are in bench/results/GROUP/")
    parser.add_argument("--only", metavar="PATTERN", default="",
                        help="measure only, and again, what matches as 'FILE: PEER: WORKLOAD'")
    parser.add_argument("--resume", action="store_true",
                        help="go on with a run that was stopped, or add peers to it")
    parser.add_argument("--machine", metavar="NAME", default="",
                        help="keep the results under this name of the machine (lower-case letters, "
                             "digits, hyphens); otherwise it is that of the processor")
    parser.add_argument("--draw", action="store_true",
                        help="measure nothing: write tables and draw charts of the results that "
                             "there are")
    parser.add_argument("--list", action="store_true", help="name all peers and workloads")
    return parser.parse_args()


def load(store: Path) -> tuple[dict[str, str], dict[Key, Record]]:
    """The machine and the records of a run so far."""
    machine: dict[str, str] = {}
    records: dict[Key, Record] = {}
    if store.exists():
        for line in store.read_text().splitlines():
            record = json.loads(line)
            if "machine" in record:
                machine = record
            else:
                records[(record["peer"], record["workload"], record["round"])] = record
    return machine, records


def save(store: Path, machine: dict[str, str], records: dict[Key, Record]) -> None:
    lines: list[Record] = [machine, *records.values()]
    store.write_text("".join(json.dumps(line) + "\n" for line in lines))


def choose(group: Group, mode: Mode, peers: list[Peer], only: str) -> list[tuple[Workload, Peer]]:
    """The workloads to measure, each with a peer."""
    choice = []
    for workload in group.workloads:
        for peer in peers:
            name = f"{peer.source.name}: {peer.title}: {workload.name}"
            if re.search(workload.peers, peer.title) and re.search(only, name) and \
                    (mode is not QUICK or workload.is_quick):
                choice.append((workload, peer))
    return choice


def measure(options: argparse.Namespace, mode: Mode, peers: list[Peer], store: Path) -> None:
    group = GROUPS[options.group]
    choice = choose(group, mode, peers, options.only)
    chosen = [peer for peer in peers if any(peer is other or peer.title == workload.runner
                                            for workload, other in choice)]
    _, records = load(store) if options.only or options.resume else ({}, {})
    start = time.monotonic()
    reasons = build_all(chosen, mode.paddings)
    built = time.monotonic()
    pairs = [Pair(workload, peer, reasons[peer.slug]) for workload, peer in choice]
    if mode is CHECK:
        for pair in pairs:
            pair.count = min(pair.count, CHECK_COUNT)
    for peer in chosen:
        records.pop((peer.slug, "build", 0), None)
        if reasons[peer.slug]:
            records[(peer.slug, "build", 0)] = {
                "peer": peer.slug, "workload": "build", "round": 0, "n": 0, "status": "unbuilt",
                "words": reasons[peer.slug]}
    if not options.resume:
        again = {(pair.peer.slug, pair.workload.name) for pair in pairs}
        records = {key: record for key, record in records.items() if key[:2] not in again}
    save(store, describe_machine(peers, mode.paddings), records)
    run = Run(mode, records, store, max(mode.limit_s - (built - start), LEAST_S))
    try:
        run.probe_all(pairs)
        run.rounds(pairs)
        run.tell_left_out(pairs)
    except KeyboardInterrupt:
        print("\nstopped; --resume goes on", file=sys.stderr)
    print(f"\nbuilt for {(built - start) / 60:.1f} minutes, measured for "
          f"{(time.monotonic() - built) / 60:.1f}", file=sys.stderr)


def is_complete(group: Group, results: Results, peers: list[Peer]) -> bool:
    """Tells whether every workload of every peer has a result, other than that of a probe."""
    def is_open(workload: Workload, title: str) -> bool:
        cell = results.cells.get((title, workload.name))
        return bool(re.search(workload.peers, title)) and title not in results.unbuilt and \
            (cell is None or (cell.status == "ok" and cell.is_probe))

    return not any(is_open(workload, peer.title) for workload in group.workloads
                   for peer in peers)


def write(group: Group, mode: Mode, peers: list[Peer], store: Path) -> int:
    """Writes the results of a run, and publishes a whole one; returns how many workloads failed."""
    results = from_records(store.stem, *load(store), peers)
    write_csv(results, store.with_suffix(".csv"))
    if mode is FULL and is_complete(group, results, peers):
        group.results.mkdir(parents=True, exist_ok=True)
        write_csv(results, group.results / f"{results.name}.csv")
        report.publish()
    else:
        report.write_all(group, store.parent, store.parent)
    failed = [f"{title}, {name}: {cell.words}" for (title, name), cell in results.cells.items()
              if cell.status == "failed"]
    for line in failed:
        print(f"FAILED: {line}")
    print(f"{len(results.cells)} workloads of peers, {len(failed)} failed; written to "
          f"{store.with_suffix('.csv').relative_to(ROOT)}")
    return len(failed)


def draw(group: Group, mode: Mode) -> int:
    folder = group.results if mode is FULL else folder_of(group, mode)
    if not list(folder.glob("*.csv")):
        print(f"nothing has been measured yet: there is no {folder.relative_to(ROOT)}/*.csv",
              file=sys.stderr)
        return 2
    if mode is FULL:
        report.publish()
    else:
        report.write_all(group, folder, folder)
    return 0


def folder_of(group: Group, mode: Mode) -> Path:
    """The folder of results that are not published."""
    return OUTPUT / group.prefix / mode.name


def main() -> int:
    options = parse_arguments()
    group = GROUPS[options.group]
    peers = find_peers(group)
    if options.list:
        print("\n".join(f"{peer.source.name}: {peer.title}" for peer in peers))
        print("\n".join(f"  {workload.name}: {workload.arguments}" for workload in group.workloads))
        return 0
    mode = QUICK if options.quick else CHECK if options.check else FULL
    if options.draw:
        return draw(group, mode)
    if not re.fullmatch(r"[a-z0-9-]*", options.machine):
        print(f"bench/run.sh: the name of a machine has lower-case letters, digits and hyphens: "
              f"'{options.machine}'", file=sys.stderr)
        return 2
    if not choose(group, mode, peers, options.only):
        print(f"bench/run.sh: nothing matches --only '{options.only}': --list names peers and "
              "workloads", file=sys.stderr)
        return 2
    needed = set(TOOLS).union(*(peer.needs for peer in peers))
    missing = missing_packages(needed)
    if missing and options.install:
        install(missing)
    elif missing:
        print(f"missing, and left out what needs it: {' '.join(missing)} (-i installs it)",
              file=sys.stderr)
    machine = options.machine or name_machine(processor())
    store = folder_of(group, mode) / f"{machine}.jsonl"
    store.parent.mkdir(parents=True, exist_ok=True)
    measure(options, mode, peers, store)
    failed = write(group, mode, peers, store)
    return 1 if mode is CHECK and failed else 0


if __name__ == "__main__":
    sys.exit(main())
