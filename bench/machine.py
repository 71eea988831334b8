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


# Generations by vendor, family and model, the first and the last of which a row has. Compilers know
# them less well: gcc 12 takes a Zen 4 for a Zen 3.
GENERATIONS = (
    ("AuthenticAMD", 23, 0x00, 0x2f, "zen"), ("AuthenticAMD", 23, 0x30, 0xff, "zen2"),
    ("AuthenticAMD", 25, 0x00, 0x0f, "zen3"), ("AuthenticAMD", 25, 0x10, 0x1f, "zen4"),
    ("AuthenticAMD", 25, 0x20, 0x5f, "zen3"), ("AuthenticAMD", 25, 0x60, 0xff, "zen4"),
    ("AuthenticAMD", 26, 0x00, 0xff, "zen5"),
    ("GenuineIntel", 6, 0x55, 0x55, "skylake"), ("GenuineIntel", 6, 0x6a, 0x6c, "icelake"),
    ("GenuineIntel", 6, 0x8f, 0x8f, "sapphirerapids"),
    ("GenuineIntel", 6, 0xcf, 0xcf, "emeraldrapids"),
    ("GenuineIntel", 6, 0xad, 0xae, "graniterapids"),
)


def generation(cpu: dict[str, str]) -> str:
    """A processor's generation, or else its family and model; "" if it has none, as those of Arm,
    whose names say all."""
    if "CPU family" not in cpu or "Model" not in cpu:
        return ""
    family, model = int(cpu["CPU family"]), int(cpu["Model"])
    for vendor, of, first, last, name in GENERATIONS:
        if cpu.get("Vendor ID") == vendor and family == of and first <= model <= last:
            return name
    return f"family {family} model {model}"


def name_machine(cpu: dict[str, str]) -> str:
    """A short name of a processor: of what it is called, and of its generation, since the former
    says little in a virtual machine."""
    model = re.sub(r"\((R|TM)\)|\b(CPU|Processor|\d+-Core)\b|@.*", " ", cpu["Model name"])
    return re.sub(r"[^a-z0-9]+", "-", f"{model} {generation(cpu)}".lower()).strip("-")


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
        "machine": f"{cpu['Model name']} ({', '.join(filter(None, [generation(cpu), *kind]))}), "
                   f"{os.cpu_count()} cores, {gib:.0f} GiB, "
                   f"Linux {os.uname().release}, {first_line('getconf', 'GNU_LIBC_VERSION')}",
        "compiler": first_line(os.environ.get("CC", "gcc"), "--version") + ", -O2",
        "packages": "; ".join(versions(peers)) or "none",
        "paddings": padded(peers, paddings),
        "commit": first_line("git", "describe", "--always", "--dirty"),
        "sources": sources(),
        **{f"{BUILD} {peer.title}": peer.build for peer in peers},
    }
