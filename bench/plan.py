# SPDX-License-Identifier: Apache-2.0
"""Peers, as their files describe themselves, workloads, and the groups that these form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"


# ==== Peers =======================================================================================


@dataclass(frozen=True)
class Peer:
    title: str
    source: Path  # a file, or a folder
    kind: str
    needs: tuple[str, ...]  # Debian packages
    registry: str  # "" or where else it comes from
    build: str
    prefix: str = ""  # of its name in those of files: that of its group

    @property
    def slug(self) -> str:
        name = f"{self.prefix} {self.title}".lower().replace("++", "pp")
        return re.sub(r"[^a-z0-9]+", "_", name).strip("_")


KEY = re.compile(r"^\W*(peer|kind|needs|registry|build):\s*(.*?)\s*(\\?)$")
COMMENT = re.compile(r"^\s*(\*|#|//|--|;)?")
HEADER_LINES = 80  # the keys stand in the first comment, so not further down


def header_fields(path: Path) -> list[tuple[str, str]]:
    """The keys of a file's first comment; a value that ends in a backslash goes on below."""
    fields: list[tuple[str, str]] = []
    goes_on = False
    for line in path.read_text(errors="replace").splitlines()[:HEADER_LINES]:
        match = KEY.match(line)
        if goes_on:
            key, value = fields[-1]
            rest = COMMENT.sub("", line).strip()
            goes_on = rest.endswith("\\")
            fields[-1] = (key, value + " " + rest.rstrip("\\").strip())
        elif match:
            fields.append((match[1], match[2]))
            goes_on = match[3] != ""
    return fields


def peers_of(source: Path, described_in: Path, prefix: str) -> list[Peer]:
    """A key holds for all rows below it, until it is given again; `build` completes a row."""
    peers = []
    keys = {"peer": "", "kind": "", "needs": "", "registry": ""}
    for key, value in header_fields(described_in):
        if key != "build":
            keys[key] = value
            continue
        needs = tuple(re.split(r"[,\s]+", keys["needs"])) if keys["needs"] else ()
        peers.append(Peer(keys["peer"], source, keys["kind"], needs, keys["registry"], value,
                          prefix))
    return peers


def find_peers(group: Group) -> list[Peer]:
    peers = []
    for source in sorted(group.peers.iterdir()):
        files = [source]
        if source.is_dir():
            files = sorted(path for path in source.rglob("*") if path.is_file())
        for path in files:
            found = peers_of(source, path, group.prefix) if path.suffix != ".md" else []
            peers += found
            if found:
                break
    slugs = [peer.slug for peer in peers]
    assert len(set(slugs)) == len(slugs), "two peers have the same title"
    return peers


# ==== Workloads ===================================================================================


@dataclass(frozen=True)
class Workload:
    """`arguments` has {count} coroutines where there are several, and {n} where the amount of work
    goes: as much as takes some time, found by a probe with `probe_n`, or `fixed_n` for each peer
    that can do it."""

    name: str
    arguments: str
    probe_n: int
    count: int = 1
    metric: str = "ns"  # tells how long one operation takes
    fixed_n: int = 0
    quick_n: int = 0  # in place of fixed_n
    peers: str = ""  # pattern of the titles of the peers that it is for
    is_quick: bool = True  # part of --quick
    gib: float = 0  # memory that has to be available
    is_counted: bool = False  # instructions are counted, not time measured
    has_all_rounds: bool = False  # each peer has as many, however long they take
    runner: str = ""  # title of the peer whose program starts the others'


# Patterns of peers. A build that differs from another one in one respect only is measured where
# that counts.
SWITCHING = r"^(?!plain|.*(tcmalloc|jemalloc|mimalloc|aco_cancel)$)"
GENERAL = r"^(?!plain|.*(tcmalloc|jemalloc|mimalloc|aco_cancel|-m32)$|.*acosw)"
TABLE = GENERAL.replace("|aco_cancel", "")
PURE = r"^aco standalone|^Boost jump|^glibc ucontext$"
POOL = r"^aco pool(?!, kill)"
TRANSFER = r"^aco (?!.*(malloc|cancel)$)"
COPYING = r"^aco share stack|^plain copying|^bare pass"
COPYING_PAIR = r"^aco share stack$|^plain copying"
FAR = r"^aco share stack(?!, own)|^LuaJIT$"
SUSPENDED = r"^aco share stack$"
GROWING = (r"^aco share stack$|^aco pool(, own control words)?$|^C\+\+20$|^corosensei, pool$|"
           r"^Boost\.Context fiber, pool(, no control words)?$")
GROWING_FAR = r"^aco share stack$|^C\+\+20$"

SHARE_SIZES = (8, 120, 1000, 4072, 7992)
FAR_SIZES = (8, 120)
COUNTS = tuple(10 ** k for k in range(8))
LIVE_SIZES = (8, 64, 256, 1024, 4096, 16384, 65536)


def growth(count: int) -> Workload:
    return Workload(f"count_{count}", "many {count} 16384 {n}", max(1, 1000 // count), count,
                    "switch_ns", peers=GROWING if count < 10_000_000 else GROWING_FAR,
                    is_quick=count <= 10_000, gib=10 if count >= 1_000_000 else 0)


CORE = [
    Workload("switch", "switch {n}", 10_000, peers=SWITCHING),
    Workload("switch_inexact", "switch_inexact {n}", 10_000, peers=SWITCHING),
    Workload("switch_deep", "switch_deep {n}", 10_000, peers=SWITCHING),
    Workload("switch_live", "switch_live {n}", 10_000, peers=SWITCHING),
    Workload("pure", "pure {n}", 10_000, peers=PURE),
    Workload("instructions", "pure {n}", 1000, fixed_n=10_000, peers=PURE, is_counted=True),
    Workload("life", "life {n}", 1000, peers=GENERAL),
    Workload("get_put", "get_put {n}", 10_000, peers=POOL),
    Workload("transfer", "transfer {n}", 10_000, metric="direct_ns", peers=TRANSFER),
    Workload("table", "table {count} {n} 131072", 1, 1000, "switch_ns", fixed_n=1000, quick_n=20,
             peers=TABLE),
    Workload("many_2mb", "many {count} 2097152 {n}", 1, 1000, "switch_ns", peers=GENERAL),
    Workload("many_64kb", "many {count} 65536 {n}", 1, 30_000, "switch_ns", peers=GENERAL),
    Workload("skynet_nested", "skynet nested {n}", 1000, metric="ms", fixed_n=1_000_000,
             peers=GENERAL),
    Workload("skynet_scheduler", "skynet scheduler {n}", 1000, metric="ms", fixed_n=1_000_000,
             peers=GENERAL),
    *(Workload(f"share_{live}", f"share {{count}} {live} {{n}}", 1, 100_000, peers=COPYING,
               is_quick=live in (8, 1000)) for live in SHARE_SIZES),
    *(Workload(f"share_10m_{live}", f"share {{n}} {live} 1", 1000, fixed_n=10_000_000, peers=FAR,
               is_quick=False, gib=6) for live in FAR_SIZES),
    *map(growth, COUNTS),
    *(Workload(f"live_{live}", f"share {{count}} {live} {{n}}", 1, 10_000, peers=COPYING_PAIR,
               is_quick=live in (8, 1024)) for live in LIVE_SIZES),
    Workload("suspended", "suspended {n}", 1000, fixed_n=100_000_000, quick_n=1_000_000,
             peers=SUSPENDED, gib=20),
]


# ==== Workloads of the runtime ====================================================================

LIMIT = "epoll"  # servers are compared with it
TASK_COUNTS = tuple(10 ** k for k in range(1, 7))
REQUESTS = 500_000

SERVERS = r"^(?!client$)"
MANY_SERVERS = r"^(?!client$|State Threads)"  # which has select() here, so 1,024 descriptors
SCALED = r"^(epoll|aco pool|aco share stack)$"
THREADED = r"^(epoll|aco pool|aco share stack|Go|tokio|may \(Rust\))$"
TASKS = r"^(aco pool|aco share stack|Go)"
OURS = r"^aco "
COUNTED = r"^(aco pool|aco share stack|Go)$"

CONNECTIONS = (100, 1000, 10_000)
# Peers by the number of connections. 19,900 and some more descriptors are less than 20,000.
ECHO_PEERS = {10: SCALED, 100: SERVERS, 1000: SERVERS, 10_000: MANY_SERVERS, 19_900: SCALED}


def echo(name: str, layout: str, connections: int, peers: str) -> Workload:
    return Workload(name, layout + " {count} {n}", 1000, connections, fixed_n=REQUESTS,
                    quick_n=10_000, peers=peers, is_quick=connections in (100, 1000),
                    has_all_rounds=True, runner="client")


def counted(name: str, arguments: str, count: int, n: int = 0) -> Workload:
    return Workload(f"{name}_{count}", arguments, max(1, 1000 // count), count, fixed_n=n,
                    peers=COUNTED, is_quick=count <= 10_000, gib=8 if count >= 1_000_000 else 0)


RUNTIME = [
    *(echo(f"echo_{ct}", "apart", ct, peers) for ct, peers in ECHO_PEERS.items()),
    echo("echo_one", "one", 1000, THREADED),
    echo("echo_two", "two", 1000, THREADED),
    *(Workload(name, name + " {n}", 10_000, peers=TASKS)
      for name in ("yield", "spawn", "rendezvous", "buffered", "mutex")),
    Workload("handover", "handover {n}", 10_000, peers=OURS),
    counted("parked", "parked {count}", TASK_COUNTS[-1], 1),
    *(counted("turns", "turns {count} {n}", count) for count in TASK_COUNTS),
    *(counted("sleepers", "sleepers {count}", count, 1) for count in TASK_COUNTS),
    Workload("lateness", "lateness {n}", 10, metric="us", fixed_n=200, peers=OURS),
    Workload("idle", "idle {n}", 1, metric="wakes", fixed_n=2, peers=OURS),
    Workload("cold", "cold {n}", 1, metric="us", fixed_n=1, peers=OURS),
]


# ==== Workloads of hooks, of C++, and of threads as tasks =========================================

TASKS_AND_THREADS = "^(tasks|threads)$"


def library(name: str, count: int) -> Workload:
    return Workload(name, name + " {n}", 10, metric="ms", fixed_n=count, peers=TASKS_AND_THREADS,
                    runner="server")


HOOKS = [
    library("nanosleep", 1000), library("blpop", 9000), library("pg", 100),
    library("mariadb", 100), library("http", 1000), library("https", 100),
    *(Workload(name, name + " {n}", 10_000, peers=TASKS_AND_THREADS) for name in ("pipe", "mutex")),
]

TREE_NODES = 2 ** 20 - 1

CPP = [
    Workload("flat", "flat {n}", 10_000),
    Workload("tree", "tree {n}", 1, TREE_NODES),
    Workload("spawn_join", "spawn_join {n}", 10_000),
    Workload("co_await", "co_await {n}", 10_000, fixed_n=100_000),
]

# The kernel has 32,768 threads at most.
ECHO_OF_THREADS = "^(epoll|threads|aco-run)$"

PTHREADS = [
    *(echo(f"threads_{ct}", "apart", ct, ECHO_OF_THREADS) for ct in CONNECTIONS),
    Workload("create_from_main", "create_from_main {n}", 1000, peers="^(threads|aco-run)$"),
    Workload("create_from_thread", "create_from_thread {n}", 1000, peers="^(threads|aco-run)$"),
    Workload("hand_over", "hand_over {n}", 1000, peers="^(threads|aco-run)"),
    *(Workload(f"sleepers_{ct}", "sleepers {count}", ct, ct, metric="ms", fixed_n=1, peers=peers)
      for ct, peers in ((10_000, "^(threads|aco-run)$"), (100_000, "^aco-run$"))),
    Workload("start", "start {n}", 10, fixed_n=100, peers="^(threads|aco-run)$"),
]


# ==== Groups ======================================================================================


@dataclass(frozen=True)
class Group:
    """Workloads that are measured and published together."""

    name: str
    title: str  # of the page that has all of its figures
    workloads: list[Workload]

    @property
    def prefix(self) -> str:
        """The group's folder, and what names of its programs and tables begin with."""
        return "" if self.name == "core" else self.name

    @property
    def peers(self) -> Path:
        return BENCH / (self.prefix or "peers")

    @property
    def results(self) -> Path:
        return BENCH / "results" / self.prefix


GROUPS = {group.name: group for group in (
    Group("core", "All figures", CORE),
    Group("runtime", "All figures of the runtime", RUNTIME),
    Group("hooks", "All figures of hooks", HOOKS),
    Group("cpp", "All figures of aco.hpp", CPP),
    Group("pthreads", "All figures of threads as tasks", PTHREADS),
)}
