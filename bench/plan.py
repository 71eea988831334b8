# SPDX-License-Identifier: Apache-2.0
"""What is measured: the peers, as the files in peers/ describe themselves, and the workloads."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench" / "peers"


# ==== Peers =======================================================================================


@dataclass(frozen=True)
class Peer:
    title: str
    source: Path  # a file, or a folder
    kind: str
    needs: tuple[str, ...]  # Debian packages
    registry: str  # "" or where else it comes from
    build: str
    group: str = ""  # before its title in names of files

    @property
    def slug(self) -> str:
        name = f"{self.group} {self.title}".lower().replace("++", "pp")
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


def peers_of(source: Path, described_in: Path, group: str) -> list[Peer]:
    """A key holds for all rows below it, until it is given again; `build` completes a row."""
    peers = []
    keys = {"peer": "", "kind": "", "needs": "", "registry": ""}
    for key, value in header_fields(described_in):
        if key != "build":
            keys[key] = value
            continue
        needs = tuple(re.split(r"[,\s]+", keys["needs"])) if keys["needs"] else ()
        peers.append(Peer(keys["peer"], source, keys["kind"], needs, keys["registry"], value,
                          group))
    return peers


def find_peers(folder: Path = PEERS, group: str = "") -> list[Peer]:
    peers = []
    for source in sorted(folder.iterdir()):
        files = [source]
        if source.is_dir():
            files = sorted(path for path in source.rglob("*") if path.is_file())
        for path in files:
            found = peers_of(source, path, group) if path.suffix != ".md" else []
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
    metric: str = "ns"  # that tells how long one operation takes
    fixed_n: int = 0
    quick_n: int = 0  # in place of fixed_n
    peers: str = ""  # pattern of the titles of the peers that it is for
    is_quick: bool = True  # part of --quick
    gib: float = 0  # of memory that has to be available
    is_counted: bool = False  # instructions are counted, not time measured
    runner: str = ""  # title of the peer whose program starts the others'


# Patterns of peers. What differs from another build in one respect only is measured where it does.
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


WORKLOADS = [
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
