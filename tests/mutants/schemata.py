# SPDX-License-Identifier: Apache-2.0
"""Puts many mutants of a source into one file: each function gets a copy of its body for each of
its mutants, and the environment says which of them runs. A copy is in the body of its function, not
beside it, so that everything that a function may have works: templates, variable arguments, the
address that it returns to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# The number of the mutant that runs, 0 for none. Each file defines it, as each may be the only one.
CHOICE = """\
#if !defined(ACO_MUTANT_NAME) && !defined(__ASSEMBLER__)
#define ACO_MUTANT_NAME "ACO_MUTANT="
#ifdef __cplusplus
extern "C" {
#endif
extern char **environ;
__attribute__((weak)) int aco_mutant;
__attribute__((weak, constructor(101))) void aco_choose_mutant(void);
__attribute__((weak, constructor(101))) void aco_choose_mutant(void)
{
    for (char **entry = environ; environ && *entry; entry++) {
        const char *name = ACO_MUTANT_NAME, *text = *entry;
        while (*name && *name == *text)
            name++, text++;
        for (aco_mutant = *name ? aco_mutant : 0; !*name && *text; text++)
            aco_mutant = 10 * aco_mutant + *text - '0';
    }
}
#ifdef __cplusplus
}
#endif
#endif
"""

TOKEN = re.compile(r"""^[ \t]*\#(?:\\\n|[^\n])*|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'"""
                   r"""|[{};]""", re.MULTILINE)
SCOPE = re.compile(r'\b(namespace|class|struct|union|extern)\b')
FUNCTION = re.compile(r"\)\s*(?:const|noexcept(?:\s*\(.*\))?|override|final|mutable|&&?|[A-Z_]+"
                      r"|->.*|requires .*|:\s.*)*$", re.DOTALL)


class Body(NamedTuple):
    """The text between the braces of a function: from one offset in the text to another."""
    name: str
    start: int
    end: int


class Mutant(NamedTuple):
    file: str
    function: str
    line: int
    old: str
    new: str
    text: str  # of the new line


def without_comments(text: str) -> str:
    """Strings and the numbers of lines stay."""
    def replace(match: re.Match[str]) -> str:
        return match[0] if match[0][0] in "\"'" else "\n" * match[0].count("\n")
    return re.sub(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'""", replace,
                  text, flags=re.DOTALL)


def name_of(head: str) -> str:
    """The function's name, of a head without attributes; `HOOK(int, close, ...` is close()."""
    found = re.search(r"(~?\w+)\(\s*([^,()]*,\s*(\w+)\s*,)?", head)
    if found is None:
        return ""
    return found[3] if found[1].isupper() and found[3] else found[1]


def bodies_of(text: str) -> list[Body]:
    """The functions of a text without comments, in its order, but for those that compilers run."""
    bodies: list[Body] = []
    scopes: list[bool] = []  # of each open brace: whether functions may be declared in it
    head_start, start, name = 0, -1, ""
    for match in TOKEN.finditer(text):
        token, may_declare = match[0], all(scopes)
        if token[0] in "\"'":
            continue
        if token == "{":
            head = re.sub(r"__attribute__\(\(.*?\)\)", "", text[head_start:match.start()]).strip()
            is_part = re.search(r"\)\s*:", head) and re.match(r"[\w>]", text[match.start() - 1])
            is_function = FUNCTION.search(head) and not is_part and "=" not in head[-2:]
            if may_declare and is_function and not re.search(r"\bconst(expr|eval)\b", head):
                start, name = match.end(), name_of(head)
                scopes.append(False)
            else:
                scopes.append(bool(may_declare and SCOPE.search(head) and not head.endswith(")")))
            if scopes[-1]:
                head_start = match.end()
            continue
        if token == "}":
            scopes.pop()
            if all(scopes) and start >= 0:
                bodies.append(Body(name, start, match.start()))
                start = -1
            elif not all(scopes) or text[match.end():].lstrip()[:1] in ("{", ","):
                continue
        if all(scopes):
            head_start = match.end()
    return bodies


def shape(line: str) -> str:
    """Braces in their order, and how many parentheses stay open, in which copies are alike."""
    code = re.sub(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", "", line)
    return re.sub(r"[^{}]", "", code) + str(code.count("(") - code.count(")"))


class Source:
    """A file whose functions have mutants."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, without_comments(text)
        self.bodies = bodies_of(self.text)
        self.lines = self.text.splitlines(keepends=True)
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(self.offsets[-1] + len(line))

    def line_of(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def body_at(self, line: int) -> Body | None:
        """The function that has this line, or part of it, in its body."""
        first, last = self.offsets[line - 1], self.offsets[line]
        return next((b for b in self.bodies if b.start < last and first < b.end), None)

    def copy_of(self, body: Body, line: int, new: str) -> str | None:
        """The body with another line; None if the line has more in it than that."""
        first, last = self.offsets[line - 1], self.offsets[line]
        before = self.text[first:body.start] if first < body.start else ""
        after = self.text[body.end:last] if body.end < last else ""
        if shape(new) != shape(self.lines[line - 1]) or not new.startswith(before) \
                or not new.endswith(after):
            return None
        new = new[len(before):len(new) - len(after)]
        return self.text[body.start:max(body.start, first)] + new \
            + self.text[min(body.end, last):body.end]

    def with_mutants(self, mutants: Mapping[int, Mutant]) -> str:
        """The file with mutants, each under its number; its errors are at "mutant-NUMBER"."""
        parts, at = [CHOICE, f'#line 1 "{self.path}"\n'], 0
        for body in self.bodies:
            mine = {n: m for n, m in mutants.items() if self.body_at(m.line) == body}
            if mine:
                parts += [self.text[at:body.start], "\n", *self.choices(body, mine)]
                at = body.end
        return "".join([*parts, self.text[at:]])

    def choices(self, body: Body, mutants: Mapping[int, Mutant]) -> Iterable[str]:
        original = self.text[body.start:body.end]
        names = set(re.findall(r"^\s*(\w+):\s*$", original, re.MULTILINE)) - {"default"}
        labels = "".join(f"__label__ {name}; " for name in sorted(names))
        line = self.line_of(body.start)
        for number, mutant in mutants.items():
            copy = self.copy_of(body, mutant.line, mutant.text)
            yield f'if (aco_mutant == {number}) {{ {labels}\n#line {line} "mutant-{number}"\n' \
                  f'{copy}\n}} else '
        yield f'{{ {labels}\n#line {line} "{self.path}"\n{original}\n}}\n' \
              f'#line {self.line_of(body.end)} "{self.path}"\n'


def faulty(errors: str, numbers: Sequence[int]) -> set[int]:
    """The mutants that a compiler complains about."""
    lines = [line for line in errors.splitlines() if "error:" in line]
    for text in ("\n".join(lines), errors):
        named = {int(number) for number in re.findall(r"mutant-(\d+)", text)} & set(numbers)
        if named:
            return named
    return set()
