# SPDX-License-Identifier: Apache-2.0
"""
Writes the manual pages from the headers: `pages.py DIRECTORY MAP... HEADER... [PROGRAM]` makes the
directory anew, with man1/, man3/ and man7/ in it. The maps, such as libaco.map, list the functions
that have pages; the first header is aco.h. The text of the pages stands nowhere else, so they say
what the headers say, and that of a program what it says by --help. Relies on the shape of these:

- The first comment is about the header as a whole and begins with a title, up to a colon. It makes
  a page of section 7, with all comments that belong to no function.
- A contract is a comment in column 1 with a function, macro or type named aco... below it; it is
  about all that is declared up to the next blank line. It makes a page of section 3. Its first
  sentence, up to a colon or semicolon, is what apropos(1) shows, so it is short or has a comma.
- Functions without a contract are under the first comment of their section.
- Comments are prose, with `code` in it, and headings: single lines without a full stop. Indented by
  two are lists: lines with a dash, or with a term, two blanks and its text. Indented by four or
  more is what is shown as it stands.
- Sections are opened by a bar. Those of INTERNAL are not for users, nor is anything below the bar
  that begins with "Internals", nor what is named aco_i_...
"""

import datetime
import itertools
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

INTERNAL = {"System headers", "Inline", "Private"}
LONGEST_SUMMARY = 110  # characters
NO_FUNCTION = "typedef|struct|enum|static|#"  # how declarations begin that are of no function
EXAMPLE = "test_aco_synopsis.c"
BUILD = "cc ... $(pkg-config --cflags --libs {})"


class Note(NamedTuple):
    """A comment, and the code below it up to a blank line."""

    section: str
    line: int
    text: list[str]
    code: list[str]


class Header(NamedTuple):
    path: str
    date: str
    version: str
    intro: list[str]
    notes: list[Note]
    tags: dict[str, str]  # the typedef names of structs

    @property
    def file(self) -> str:
        return os.path.basename(self.path)

    @property
    def name(self) -> str:
        return self.file.removesuffix(".h")


class Contract(NamedTuple):
    names: list[str]  # types are last
    summary: str
    note: Note

    def declares(self, name: str) -> bool:
        return any(re.search(rf"\b{name}\b", text) for text in declarations(self.note.code))

    def returns(self, name: str) -> bool:
        return any(re.match(rf"{name}\b", text) for text in declarations(self.note.code))


# ---- Reading -------------------------------------------------------------------------------------


def comment_text(lines: list[str]) -> list[str]:
    """The lines of a comment without its frame."""
    text = "\n".join(lines).removeprefix("/*").rstrip().removesuffix("*/")
    text = re.sub(r"^ \* ?|^   ", "", text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.strip().split("\n")]


def read_notes(lines: list[str]) -> Iterator[Note]:
    """The comments that begin in column 1, in order, and functions that have none."""
    section, first, at, known = "", [""], 0, 0
    while at < len(lines):
        start = at
        at += 1
        if not lines[start].startswith("/*"):
            code = list(itertools.takewhile(bool, lines[start:])) if start >= known else []
            known = max(known, start + len(code))
            if section and names_of(code, NO_FUNCTION):
                yield Note(section, start + 1, first, code)
            continue
        while "*/" not in lines[at - 1]:
            at += 1
        bar = re.match(r"/\* ==== (.*?) =+ \*/", lines[start])
        if bar:
            section, first = bar[1], []
            if section.startswith("Internals"):
                return
            continue
        text, code = comment_text(lines[start:at]), list(itertools.takewhile(bool, lines[at:]))
        first, known = first or text, at + len(code)
        yield Note(section, start + 1, text, code)


def date_of(path: str) -> str:
    changed = int(os.environ.get("SOURCE_DATE_EPOCH", os.path.getmtime(path)))
    return datetime.datetime.fromtimestamp(changed, datetime.timezone.utc).strftime("%Y-%m-%d")


def read_header(path: str, version: str) -> Header:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    intro, *notes = read_notes(text.split("\n"))
    tags = dict(re.findall(r"^typedef struct (\w+) (\w+);", text, re.MULTILINE))
    notes = [note for note in notes if note.section not in INTERNAL]
    return Header(path, date_of(path), version, intro.text, notes, tags)


def read_version(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        header = file.read()
    version = r"^#define ACO_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)"
    return ".".join(re.findall(version, header, re.MULTILINE))


def declarations(code: list[str]) -> Iterator[str]:
    """The parts of code that a user has to know: types in full, prototypes, heads of macros."""
    at = 0
    while at < len(code):
        start = at
        at += 1
        if code[start].startswith("#"):
            while code[at - 1].endswith("\\"):
                at += 1
            macro = re.match(r"#define aco\w*\([^)]*\)", code[start])
            if macro:
                yield macro[0]
            continue
        end = r"\}" if re.match(r"(typedef|struct|enum)\b.*\{$", code[start]) else r".*;"
        while at < len(code) and not re.match(end, code[at - 1]):
            at += 1
        yield re.sub(r"\s+ACO_(CONFIGURED|NOT_FOLLOWED)\(.*\)", "", "\n".join(code[start:at]))


def names_of(code: list[str], skip: str = "typedef|struct|enum") -> list[str]:
    """The functions and macros that code declares, but in declarations that begin with `skip`."""
    found = [re.match(rf"(?!{skip})[^(]*?\b(aco\w*)\(", text) for text in declarations(code)]
    return [match[1] for match in found if match]


def types_of(code: list[str], tags: dict[str, str]) -> list[str]:
    """The types that code defines."""
    kinds = r"struct (\w+) \{|typedef (?:struct \w+ (\w+);|.*?(?:\(\*|^\} )(\w+))"
    found = [re.match(kinds, text, re.MULTILINE | re.DOTALL) for text in declarations(code)]
    return [tags[match[1]] if match[1] else match[2] or match[3] for match in found if match]


def is_internal(name: str) -> bool:
    return name.startswith("aco_i_")


def check_lists(paths: list[str], notes: list[Note]) -> None:
    """Ends the program unless the functions that have contracts are those that the maps list."""
    listed = set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            names = re.findall(r"^ +(aco\w*);", file.read(), re.MULTILINE)
            listed |= set(itertools.filterfalse(is_internal, names))
    declared = {name for note in notes for name in names_of(note.code, NO_FUNCTION)}
    maps = ", ".join(paths)
    for name in sorted(listed ^ declared):
        print(f"{maps}: {name} is listed, but has no contract in a header" if name in listed else
              f"{maps}: {name} has a contract in a header, but is not listed", file=sys.stderr)
    if listed != declared:
        sys.exit(1)


def first_sentence(text: str) -> str:
    """Up to a colon, if there is one, or to a comma if it is too long otherwise. As a NAME section
    has it: no capital, no full stop."""
    sentence = re.split(r"[.:;](?:\s|$)", text.replace("`", ""), maxsplit=1)[0]
    while len(sentence) > LONGEST_SUMMARY and "," in sentence:
        sentence = sentence.rpartition(",")[0]
    return re.sub(r"^[A-Z](?=[a-z]* )", lambda capital: capital[0].lower(), sentence)


def find_contracts(header: Header) -> Iterator[Contract]:
    for note in header.notes:
        names = names_of(note.code) + types_of(note.code, header.tags)
        names = list(itertools.filterfalse(is_internal, names))
        summary = first_sentence(" ".join(note.text))
        if not names:
            continue
        if len(summary) > LONGEST_SUMMARY:
            sys.exit(f"{header.path}:{note.line}: the first sentence of a contract is what the "
                     f"page shows in one line: at most {LONGEST_SUMMARY} characters are allowed")
        yield Contract(names, summary, note)


# ---- Text ----------------------------------------------------------------------------------------


def escape(text: str) -> str:
    return text.replace("\\", "\\e").replace("^", "\\(ha").replace("~", "\\(ti")


def as_it_stands(lines: list[str]) -> str:
    text = escape(textwrap.dedent("\n".join(lines)))
    for mark, name in ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ('"', "\\(dq"):
        text = text.replace(mark, name)
    return ".nf\n" + re.sub(r"^\.", r"\\&.", text, flags=re.MULTILINE) + "\n.fi"


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False)


def prose(text: str) -> str:
    """A paragraph. Code is in italics, functions are bold, and each sentence has its own lines."""
    text = re.sub(r"(?<![\w-])-(?=[\w>])|-(?=>)", r"\\-", escape(" ".join(text.split())))
    text = re.sub(r"`([^`]*)`", r"\\fI\1\\fP", text)
    text = re.sub(r"\b(aco\w*)(?=\()", r"\\%\\fB\1\\fP", text)
    lines = []
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        lines += wrapped(sentence)
    return "\n".join("\\&" + line if line[0] in ".'" else line for line in lines)


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def goes_on(line: str, first: str) -> bool:
    """Whether a line belongs to the block that `first` begins."""
    if not line:
        return False
    return indent_of(line) >= 4 if indent_of(first) else indent_of(line) == 0


def split_blocks(lines: list[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        if block and not goes_on(line, block[0]):
            yield block
            block = []
        if line:
            block.append(line)
    yield block


def blocks(lines: list[str]) -> Iterator[str]:
    """The text of a comment: headings, paragraphs, items of lists, and examples."""
    for block in split_blocks(lines):
        item = re.match(r"  (?:- +|(\S.*?)  +)(\S.*)$", block[0])
        if indent_of(block[0]) >= 4:
            yield ".IP\n" + as_it_stands(block)
        elif item:
            mark = ".TP\n.B " + escape(item[1]).replace("-", "\\-") if item[1] else ".IP \\(bu 2"
            yield mark + "\n" + prose(" ".join([item[2], *block[1:]]))
        elif len(block) == 1 and block[0][-1] not in ".:":
            yield ".SS " + block[0]
        else:
            yield ".PP\n" + prose(" ".join(block))


# ---- Pages ---------------------------------------------------------------------------------------


def section(title: str, *parts: str) -> str:
    """A section; the mark of a paragraph isn't needed where one opens it."""
    return f".SH {title.upper()}\n" + "\n".join(parts).removeprefix(".PP\n")


def head(header: Header, name: str, number: int, summary: str, others: list[str]) -> str:
    names = ", ".join("\\%" + each for each in [name, *others])
    return "\n".join([
        '.\\" SPDX-License-Identifier: Apache-2.0',
        f'.TH {name.upper()} {number} {header.date} "aco {header.version}" Coroutines',
        section("Name", "\n".join(wrapped(f"{names} \\- {escape(summary)}"))),
    ])


def see_also(names: set[str], number: int, overviews: set[str]) -> str:
    entries = [f".BR \\%{name} ({number})" for name in sorted(names)]
    entries += [f".BR \\%{name} (7)" for name in sorted(overviews)]
    return section("See also", " ,\n".join(entries).replace(" ,", ","))


def is_type(name: str) -> bool:
    return name.endswith("_t")


def relatives(contract: Contract, own: list[Contract], types: set[str]) -> set[str]:
    """What SEE ALSO names of a header whose contracts are `own`: for a type, the functions that
    return it, or else those that use it; for functions, those of the same section. And types."""
    name = contract.names[0]
    if is_type(name):
        family = [other for other in own if other.returns(name) and not is_type(other.names[0])]
        family = family or [other for other in own if other.declares(name)]
    else:
        family = [other for other in own if other.note.section == contract.note.section]
    names = {each for other in family for each in other.names}
    return names | set(filter(contract.declares, types))


def contract_page(header: Header, contract: Contract, own: list[Contract], known: set[str]) -> str:
    text = contract.note.text
    found = set(re.findall(r"\b(aco\w*)\(", "\n".join(text))) & known
    found |= relatives(contract, own, set(filter(is_type, known)))
    code = [f"#include <{header.file}>", ""]
    for declaration in declarations(contract.note.code):
        code += declaration.split("\n")
    return "\n".join([
        head(header, contract.names[0], 3, contract.summary, contract.names[1:]),
        section("Synopsis", as_it_stands(code)),
        section("Description", *blocks(text)),
        see_also(found - set(contract.names), 3, {"aco", header.name}),
    ])


def overview_sections(header: Header, contracts: list[Contract]) -> Iterator[str]:
    """Sections as in the header, of its comments and a line for each contract."""
    by_line = {contract.note.line: contract for contract in contracts}
    parts: dict[str, list[str]] = {}
    for note in header.notes:
        part = parts.setdefault(note.section or "Functions", [])
        contract = by_line.get(note.line)
        if contract:
            entries = "\n.TQ\n".join(f".BR \\%{name} (3)" for name in contract.names)
            part.append(f".TP\n{entries}\n{prose(contract.summary)}")
            continue
        part += blocks(note.text)
        if note.code and not types_of(note.code, header.tags):
            part.append(".IP\n" + as_it_stands(note.code))
    for name, part in parts.items():
        yield section(name, *part)


def overview_page(header: Header, headers: list[Header], contracts: list[Contract]) -> str:
    is_core = header is headers[0]
    subject, _, summary = " ".join(header.intro).partition(": ")
    summary = re.split("[,;]", first_sentence(summary))[0]
    others = headers[1:] if is_core else headers[:1]
    package = "aco-runtime" if os.path.dirname(header.path) == "runtime" else "aco"
    parts = [
        head(header, header.name, 7, summary if is_core else f"{subject.lower()}: {summary}", []),
        section("Synopsis", as_it_stands([f"#include <{header.file}>", "",
                                         BUILD.format(package)])),
        section("Description", *blocks(header.intro)),
        *overview_sections(header, contracts),
    ]
    if is_core:
        with open(EXAMPLE, encoding="utf-8") as file:
            code = file.read().split("*/\n", 1)[1].rstrip("\n")
        parts.append(section("Examples", as_it_stands(code.split("\n"))))
    parts.append(see_also(set(), 3, {other.name for other in others}))
    return "\n".join(parts)


def program_page(path: str, version: str) -> str:
    """The page of a program, from its --help: a line of usage, and a text as in comments."""
    said = subprocess.run([path, "--help"], check=True, capture_output=True, text=True).stdout
    usage, *text = said.strip().split("\n")
    header = Header(path, date_of(path), version, [], [], {})
    return "\n".join([
        head(header, header.file, 1, first_sentence(" ".join(text).strip()), []),
        section("Synopsis", as_it_stands([usage.removeprefix("usage: ")])),
        section("Description", *blocks(text[1:])),
        see_also(set(), 1, {"aco", "aco_runtime"}),
    ])


def main(directory: str, *files: str) -> None:
    maps = [path for path in files if path.endswith(".map")]
    programs = [path for path in files if "." not in os.path.basename(path)]
    paths = [path for path in files if path not in maps + programs]
    version = read_version(paths[0])
    headers = [read_header(path, version) for path in paths]
    check_lists(maps, [note for header in headers for note in header.notes])
    contracts = {header.name: list(find_contracts(header)) for header in headers}
    known = {name for some in contracts.values() for contract in some for name in contract.names}
    shutil.rmtree(directory, ignore_errors=True)
    for number in 1, 3, 7:
        os.makedirs(f"{directory}/man{number}")

    def write(name: str, number: int, text: str) -> None:
        with open(f"{directory}/man{number}/{name}.{number}", "w", encoding="utf-8") as file:
            file.write(text + "\n")

    for path in programs:
        write(os.path.basename(path), 1, program_page(path, version))
    for header in headers:
        write(header.name, 7, overview_page(header, headers, contracts[header.name]))
        for contract in contracts[header.name]:
            first, *others = contract.names
            write(first, 3, contract_page(header, contract, contracts[header.name], known))
            for name in others:
                os.symlink(f"{first}.3", f"{directory}/man3/{name}.3")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
