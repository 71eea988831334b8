# SPDX-License-Identifier: Apache-2.0
"""Builds the programs of peers, and installs what they need."""

from __future__ import annotations

import concurrent.futures
import contextlib
import glob
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from plan import ROOT, Peer

OUTPUT = ROOT / "output" / "bench"
PROGRAMS = OUTPUT / "programs"
LINKER = ROOT / "bench" / "padding"  # the folder that compilers find it in
LIBRARIES = ROOT / "tools" / "libraries"


# ==== Needs =======================================================================================


def installed_version(package: str) -> str:
    """A Debian package's version, or "" if it is not installed. Without Debian all counts as
    installed."""
    if shutil.which("dpkg-query") is None:
        return "?"
    query = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package],
                           capture_output=True, text=True, check=False)
    status, _, version = query.stdout.partition(" ")
    return version if status == "installed" else ""


def missing_packages(needs: set[str]) -> list[str]:
    """A need is a Debian package, or PACKAGE/COMMAND where that command alone will do."""
    parts = [need.partition("/") for need in needs]
    return sorted({package for package, _, command in parts
                   if not installed_version(package) and not shutil.which(command)})


def install(packages: list[str]) -> None:
    root = [] if os.geteuid() == 0 else ["sudo"]
    # The lists of packages may come in part; what is there may do.
    subprocess.run([*root, "apt-get", "update", "-qq"], check=False)
    for package in packages:
        subprocess.run([*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends",
                        "--no-remove", "-o", "DPkg::Lock::Timeout=300", package], check=False)


# ==== Building ====================================================================================


def library_columns() -> list[tuple[str, list[str], list[str], list[str]]]:
    """From tools/libraries: names, what each is on top of, patterns of sources and of folders."""
    rows = [line.split("|") for line in LIBRARIES.read_text().splitlines()
            if not line.startswith("#")]
    return [(name.strip(), below.split(), sources.split(), headers.split())
            for name, below, sources, headers, _ in rows]


def library_variables() -> dict[str, str]:
    """Variables for builds: $INCLUDE finds the headers of all libraries; $ACO_RUNTIME, for example,
    has the sources of that library and of those below it. Users' programs are faster than the
    objects of make.sh, which go into shared libraries."""
    variables = {"INCLUDE": " ".join(f"-I{folder}" for *_, headers in library_columns()
                                     for pattern in headers
                                     for folder in sorted(glob.glob(pattern, root_dir=ROOT)))}
    sources = {name: " ".join(patterns) for name, _, patterns, _ in library_columns()}
    for name, below, *_ in library_columns():
        variables[name.upper()] = " ".join(sources.get(word, word) for word in (name, *below))
    return variables


def library_files() -> list[Path]:
    """The files of all libraries, headers included."""
    folders = {folder for *_, sources, headers in library_columns()
               for pattern in (*headers, *map(os.path.dirname, sources))
               for folder in glob.glob(pattern or ".", root_dir=ROOT)}
    return [path for folder in folders for path in (ROOT / folder).glob("*.[chS]*")]


def newest_change(peer: Peer) -> float:
    """The time of the last change of anything that the peer's programs are made of."""
    files = [peer.source]
    if peer.source.is_dir():
        files = [path for path in peer.source.rglob("*") if path.is_file()]
    elif peer.source.suffix in (".c", ".cc"):
        files += [*peer.source.parent.glob("*.[ch]*"), *library_files()]
    return max(path.stat().st_mtime for path in files)


def program_of(peer: Peer, padding: int) -> Path:
    return PROGRAMS / (f"{peer.slug}-{padding}" if padding else peer.slug)


def build(peer: Peer, paddings: tuple[int, ...]) -> str:
    """Makes the peer's programs if they are not there already; returns "" or why there are none.
    The linker makes those with padding on the way. Programs that it does not link, the peer's own
    build makes one by one, and may heed $PADDING."""
    programs = [program_of(peer, padding) for padding in paddings]
    command = PROGRAMS / (peer.slug + ".command")
    is_made = command.exists() and command.read_text() == peer.build
    if is_made and all(program.exists() and program.stat().st_mtime > newest_change(peer)
                       for program in programs):
        return ""
    missing = missing_packages(set(peer.needs))
    if missing:
        return f"needs {' '.join(missing)}: bench/run.sh -i installs it"
    command.unlink(missing_ok=True)
    for program in programs:
        program.unlink(missing_ok=True)
    to_link = " ".join(map(str, paddings[1:]))
    for program, padding in zip(programs, paddings):
        if program.exists():
            continue
        variables = {"OUT": str(program), "SRC": str(peer.source), "PADDING": str(padding),
                     "PADDINGS": "" if padding else to_link, "COMPILER_PATH": str(LINKER)}
        environment = {"CC": "gcc", "CXX": "g++", **os.environ, **library_variables(), **variables}
        made = subprocess.run(["bash", "-c", peer.build], cwd=ROOT, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              stdin=subprocess.DEVNULL)
        (PROGRAMS / (peer.slug + ".log")).write_text(made.stdout)
        if made.returncode != 0 or not program.exists():
            said = [line for line in made.stdout.splitlines() if "error" in line.lower()]
            source = f" from {peer.registry}" if peer.registry else ""
            return f"does not build{source}: {(said or ['no reason given'])[0].strip()}"
        program.chmod(0o755)
    command.write_text(peer.build)
    return ""


def build_all(peers: list[Peer], paddings: tuple[int, ...]) -> dict[str, str]:
    """Why each peer can't be measured, by slug; "" for those that can. Peers of one folder are
    built one after the other, since they share what they keep."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    print(f"building {len(peers)} programs ...", file=sys.stderr)
    locks = {peer.source: threading.Lock() for peer in peers if peer.source.is_dir()}

    def build_one(peer: Peer) -> str:
        with locks.get(peer.source, contextlib.nullcontext()):
            return build(peer, paddings)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = list(pool.map(build_one, peers))
    for peer, reason in zip(peers, reasons):
        if reason:
            print(f"{peer.title}: not measured: {reason}", file=sys.stderr)
    return {peer.slug: reason for peer, reason in zip(peers, reasons)}
