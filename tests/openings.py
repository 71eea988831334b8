# SPDX-License-Identifier: Apache-2.0
"""
openings.py FILE...: prints the sentences of comments and documents that open with "Of", "Who",
"Whose", "Whom" or "What", and are no questions. Knows documents by `.md`, languages with comments
like those of C by their suffixes, and takes all others for ones with `#`.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

C_LIKE = {".S", ".bt", ".c", ".cc", ".go", ".h", ".hpp", ".map", ".rs"}
C_COMMENTS = re.compile(r"/\*(?:.|\n)*?\*/|(?:(?:^|(?<=\s))//.*\n?[ \t]*)+", re.MULTILINE)
OTHER_COMMENTS = re.compile(r'"""(?:.|\n)*?"""|(?:^[ \t]*#.*\n)+|[ \t]#[ \t].*', re.MULTILINE)
FENCED = re.compile(r"^```(?:.|\n)*?^```", re.MULTILINE)
# A paragraph, a heading, an item of a list, or a cell of a table.
BLOCKS = re.compile(r"[^|\n]+(?:\n(?![ \t]*(?:[-*+|#>]|\d+\.|\n))[^|\n]+)*")
MARKER = re.compile(
    r'^[ \t]*(?:/?\*+/?|//+|#+|"""|[-+>]|\d+\.)?[ \t]*(?:[-=]{2,} )?', re.MULTILINE
)
PARAGRAPH = re.compile(r"\S.*(?:\n.+)*")

OPENING = re.compile(r'(?:^|[.!?:][)*_"`]*\s+)((?:Of|Who|Whose|Whom|What)\s+[a-z])')
END = re.compile(r'[.!?](?=[)*_"`]*(?:\s|$))')


def texts(path: Path, content: str) -> Iterator[re.Match[str]]:
    """The comments of a source, or the blocks of a document."""
    if path.suffix == ".md":
        return BLOCKS.finditer(FENCED.sub(lambda block: "\n" * block[0].count("\n"), content))
    return (C_COMMENTS if path.suffix in C_LIKE else OTHER_COMMENTS).finditer(content)


def faults(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each sentence with such an opening."""
    content = path.read_text(encoding="utf-8")
    for text in texts(path, content):
        first = content.count("\n", 0, text.start()) + 1
        plain = MARKER.sub("", text[0])
        for paragraph in PARAGRAPH.finditer(plain):
            for opening in OPENING.finditer(paragraph[0]):
                end = END.search(paragraph[0], opening.start(1))
                sentence = paragraph[0][opening.start(1):end.end() if end else None]
                if not sentence.endswith("?"):
                    at = paragraph.start() + opening.start(1)
                    yield first + plain.count("\n", 0, at), " ".join(sentence.split())


for name in sys.argv[1:]:
    for line, fault in faults(Path(name)):
        print(f"{name}:{line}: {fault}")
