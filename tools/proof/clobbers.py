#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Checks the clobbers of the inline switch: its statement, as the preprocessor leaves it, must name
each register that the compiler may keep a value in, but those that the switch keeps: in the list of
clobbers, or as that of an operand which the statement reads and writes. A compiler takes a mere
input to be unchanged. The ABI of the processor says which registers these are: the tables here do
not come from aco.h. docs/proof.md, "Why the inline switch follows", has the argument.

Each name in aco.h is also taken out once, and each operand is taken for an input, which must be
seen in one of the ways to compile.

usage: clobbers.py HEADER USER <COMMANDS
  HEADER    aco.h
  USER      a C file that includes it and contains inline switches
  COMMANDS  one in a line: compilers, with options for a processor

Nothing is compiled, so headers of libc are not needed.

Exit status: 0 each list is complete and each name needed, 1 not.
"""
from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path


def numbered(stem: str, count: int, first: int = 0) -> set[str]:
    return {f"{stem}{n}" for n in range(first, first + count)}


X87 = {"st"} | {f"st({n})" for n in range(1, 8)}
AVX512_MASKS = numbered("k", 8)
# Macro of a processor -> macro that says what the options ask for -> registers that compilers then
# keep values in; stack and frame pointer, and what the ABI reserves, are left out.
ABI: dict[str, dict[str, set[str]]] = {
    "__x86_64__": {
        "": {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "cc"} | numbered("r", 8, 8) | X87,
        "__MMX__": numbered("mm", 8),
        "__SSE__": numbered("xmm", 16),
        "__AVX512F__": numbered("xmm", 16, 16) | AVX512_MASKS,
        "__APX_F__": numbered("r", 16, 16),
        "__EGPR__": numbered("r", 16, 16),
    },
    "__i386__": {
        "": {"eax", "ebx", "ecx", "edx", "esi", "edi", "cc"} | X87,
        "__MMX__": numbered("mm", 8),
        "__SSE__": numbered("xmm", 8),
        "__AVX512F__": AVX512_MASKS,
    },
    "__aarch64__": {
        "": numbered("x", 29) | {"x30", "cc"} | numbered("v", 32),
        "__ARM_FEATURE_SVE": numbered("p", 16),
    },
    "__riscv": {
        "": ({"ra"} | numbered("t", 7) | numbered("a", 8) | numbered("s", 11, 1)
             | numbered("ft", 12) | numbered("fa", 8) | numbered("fs", 12)),
        "__riscv_vector": numbered("v", 32),
    },
    "__arm__": {
        "": numbered("r", 13) - {"r7", "r11"} | {"lr", "cc"} | numbered("d", 32),
        "__thumb__": {"r11"},  # which points to frames in arm code, as r7 does in thumb code
    },
}
# The constraints of operands -> their registers; elsewhere the variables are bound to some.
CONSTRAINTS = {"__x86_64__": {"D": "rdi", "S": "rsi"}, "__i386__": {"a": "eax", "c": "ecx"}}
LEAVES = r"jmp[lq]? \*|\bbr x17|\bjr t2|\bbx r12"  # a switch, in the template of its statement
NAME = r'"(\w+(?:\(\d\))?)"'  # of a register, as a whole literal
OPERAND = r'"(\+\w)"(?=\((?:aco_i_)?(?:from|to)\))'  # the constraint of one


class Incomplete(Exception):
    """A list of clobbers that is not as it must be."""


def processor_of(macros: set[str]) -> str:
    return next(name for name in ABI if name in macros)


def needed(macros: set[str]) -> set[str]:
    """The names that the list must have: of registers that the switch does not keep."""
    processor = processor_of(macros)
    names = {"memory"}.union(*(names for macro, names in ABI[processor].items()
                               if not macro or macro in macros))
    if "_SOFT_FLOAT" in macros:  # gcc's word for no x87
        names -= X87
    if processor == "__arm__" and "__thumb__" not in macros:
        names |= {"r7"}
    return names


def split_statement(text: str) -> list[str]:
    """The text behind an opening parenthesis, up to the one that closes it, parted at colons."""
    parts, depth = [""], 0
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|.', text, re.DOTALL):
        depth += (token == "(") - (token == ")")
        if depth < 0:
            return parts
        if token == ":" and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    raise Incomplete("a statement without an end")


def registers_of(operands: str, processor: str, text: str) -> list[str]:
    """The registers of operands that are read and written; a mark behind a constraint is kept."""
    bound = dict(re.findall(r'(\w+) __asm__\("(\w+)"\)', text))
    registers = CONSTRAINTS.get(processor, {})
    return [registers.get(letter, bound.get(variable, "")) + mark
            for letter, mark, variable in re.findall(r'"\+(\w)([^"]*)"\s*\((\w+)\)', operands)]


def read(preprocessed: str) -> tuple[set[str], list[list[str]]]:
    """The macros, and the registers that each inline switch names, in the preprocessor's output
    with -dD."""
    macros = set(re.findall(r"^#define (\w+)", preprocessed, re.MULTILINE))
    text = re.sub(r"^#.*$", "", preprocessed, flags=re.MULTILINE)
    lists = []
    for match in re.finditer(r"__asm__ volatile\(", text):
        template, *rest = split_statement(text[match.end():])
        if re.search(LEAVES, template):
            lists.append(registers_of(rest[0], processor_of(macros), text)
                         + re.findall(r'"([^"]*)"', rest[2]))
    return macros, lists


# ---- Each name taken out -------------------------------------------------------------------------


def mark(header: str) -> tuple[str, list[str]]:
    """The header with each name of a register, where it stands as a literal, and each constraint
    of an operand followed by a number; and these by that. The variables of operands are bound to
    registers by __asm__("...")."""
    known = {"memory", "r7"}.union(*(names for parts in ABI.values() for names in parts.values()))
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if match[1] and name not in known:
            return match[0]
        names.append(name)
        return f'"{name}@{len(names) - 1}"'

    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return re.sub(rf"(?<!__asm__\(){NAME}|{OPERAND}", number, text), names


def preprocess(command: list[str], header: str, user: Path) -> tuple[set[str], list[list[str]]]:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "aco.h").write_text(header)
        for name in re.findall(r"^#include <(\w+\.h)>", header, re.MULTILINE):
            Path(directory, name).touch()
        done = subprocess.run([*command, "-I", directory, "-E", "-P", "-dD", str(user)],
                              capture_output=True, text=True, check=False)
    if done.returncode:
        raise Incomplete(f"{' '.join(command)}: {done.stderr}")
    return read(done.stdout)


def check(what: str, macros: set[str], lists: list[list[str]]) -> None:
    if not lists:
        raise Incomplete(f"{what}: no inline switch")
    for names in lists:
        if missing := sorted(needed(macros) - set(names)):
            raise Incomplete(f"{what}: not named as changed: {' '.join(missing)}")
        if unknown := sorted(set(names) - needed(macros)):
            raise Incomplete(f"{what}: named, and not known to the ABI: {' '.join(unknown)}")


def is_missed(number: int, macros: set[str], lists: list[list[str]]) -> bool:
    """Whether the list is incomplete without the name of that number."""
    without = [[name.split("@")[0] for name in names if not name.endswith(f"@{number}")]
               for names in lists]
    try:
        check("", macros, without)
    except Incomplete:
        return True
    return False


def check_all(header: str, user: Path, commands: list[list[str]]) -> str:
    marked, names = mark(header)
    missed: set[int] = set()
    for command in commands:
        macros, lists = preprocess(command, marked, user)
        plain = [[name.split("@")[0] for name in found] for found in lists]
        check(" ".join(command), macros, plain)
        numbers = {int(name.split("@")[1]) for found in lists for name in found}
        missed |= {number for number in numbers if is_missed(number, macros, lists)}
    if kept := [name for number, name in enumerate(names) if number not in missed]:
        raise Incomplete(f"taken out, these are not missed: {' '.join(kept)}")
    return f"{len(commands)} ways to compile, {len(names)} names, each missed if it is taken out"


def main() -> int:
    header, user = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
    try:
        print(check_all(header, user, [line.split() for line in sys.stdin if line.strip()]))
    except Incomplete as error:
        print(f"clobbers.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
