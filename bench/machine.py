# SPDX-License-Identifier: Apache-2.0
"""The machine on which a run was made, and the versions of what was measured."""

from __future__ import annotations

import os
import re
import subprocess
import time

from build import PROGRAMS, installed_version, program_of
from model import BUILD, sources
from plan import ROOT, Peer


# ==== The machine =================================================================================


def first_line(*command: str) -> str:
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except FileNotFoundError:
        return ""
    return (said.stdout.splitlines() or [""])[0].strip()


def processor() -> dict[str, str]:
    """The values that lscpu prints, by its names."""
    said = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    found = [line.partition(":") for line in said.splitlines()]
    return {"Model name": "unknown", **{key.strip(): value.strip() for key, _, value in found}}


def generation(target: str) -> str:
    """A processor's generation, as gcc calls it."""
    found = re.search(r"^\s*-m(?:arch|cpu)=\s*(?!native|x86-64|armv)([\w-]+)", target, re.MULTILINE)
    return found[1] if found else ""


def name_machine(model: str, target: str) -> str:
    """A short name of a processor: of its model, and of its generation, since the model that a
    virtual machine shows says little."""
    model = re.sub(r"\((R|TM)\)|\b(CPU|Processor|\d+-Core)\b|@.*", " ", model)
    words = f"{model} {generation(target).replace('znver', 'zen')}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def gcc_target() -> str:
    """The processor that gcc would compile for here."""
    native = "-mcpu=native" if os.uname().machine == "aarch64" else "-march=native"
    return subprocess.run([os.environ.get("CC", "gcc"), native, "-Q", "--help=target"],
                          capture_output=True, text=True, check=False).stdout


COMPILER = re.compile(rb"(?<=\xff Go buildinf:.{19})go[\d.]+|rustc version [ -~]+|"
                      rb"[ -~]*clang version [ -~]+", re.DOTALL)


def versions(peers: list[Peer]) -> list[str]:
    """The versions of packages, of sources from registries, and of compilers, as they stand in
    programs, also in those that some builds keep beside their own."""
    packages = sorted({package for peer in peers for package in peer.needs})
    known = [f"{package} {version}" for package in packages
             if (version := installed_version(package))]
    registries = sorted({peer.registry for peer in peers if peer.registry})
    programs = [program_of(peer, 0) for peer in peers] + [*PROGRAMS.glob("*/*")]
    compilers = {name.decode() for program in programs if program.is_file()
                 for name in COMPILER.findall(program.read_bytes())}
    return [*known, *registries, *sorted(compilers)]


def padded(peers: list[Peer], paddings: tuple[int, ...]) -> str:
    """How many paddings there are, and the peers whose programs are the same in all."""
    def is_same(peer: Peer) -> bool:
        programs = [program_of(peer, padding) for padding in paddings]
        return all(program.exists() for program in programs) and \
            len({program.read_bytes() for program in programs}) == 1

    same = [peer.title for peer in peers if len(paddings) > 1 and is_same(peer)]
    return f"{len(paddings)}" + (f", except of {'; '.join(same)}" if same else "")


def describe_machine(peers: list[Peer], paddings: tuple[int, ...]) -> dict[str, str]:
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cpu = processor()
    kind = [f"{name.removeprefix('CPU ').lower()} {cpu[name]}"
            for name in ("CPU family", "Model", "Stepping") if name in cpu]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{cpu['Model name']} ({', '.join([generation(gcc_target()), *kind])}), "
                   f"{os.cpu_count()} cores, {gib:.0f} GiB, "
                   f"Linux {os.uname().release}, {first_line('getconf', 'GNU_LIBC_VERSION')}",
        "compiler": first_line(os.environ.get("CC", "gcc"), "--version") + ", -O2",
        "packages": "; ".join(versions(peers)),
        "paddings": padded(peers, paddings),
        "commit": first_line("git", "describe", "--always", "--dirty"),
        "sources": sources(),
        **{f"{BUILD} {peer.title}": peer.build for peer in peers},
    }
