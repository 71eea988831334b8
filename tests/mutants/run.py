#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the project on purpose, one small change at a time, and lists those that the tests miss.

universalmutator makes the mutants of a part: a line each time. A sample, drawn evenly by function,
is compiled in all at once (see schemata.py), and the environment turns on one at a time, so that a
part and its tests are built once. The tests that fit a file are listed in the table `fitting`; they
run until one fails twice in a row, once not being enough on a busy machine; a test that takes far
too long has failed, too. A mutant that does not compile, or that compiles to the same
instructions, is not counted.

A mutant that passes all tests is a survivor, and shows a promise without a test, unless unpromised
lists it with the reason why it breaks no promise. The score is the share of killed mutants among
those that count; the exit status is 1 if it is below 98 %.

Relies on gcc, on what the tests need, and on python3-venv. output/mutants has the results: log
there lists the outcome of each mutant, and --again tries the survivors of the run before anew.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import io
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from schemata import Mutant, Source, faulty, shape

TOOL = "universalmutator==1.14.1"
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ.get("OUTPUT") or ROOT / "output").resolve() / "mutants"
TREE = WORK / "tree"  # with all mutants
ALONE = WORK / "alone"  # with one of them at most
HERE = pathlib.Path(__file__).parent
GOAL = 98.0  # percent

COMPILE = ["-std=gnu99", "-pthread", "-Werror=implicit-function-declaration",
           "-Werror=implicit-int", "-Werror=int-conversion", "-Werror=incompatible-pointer-types"]
# Without the trap, g++ takes the way to the end of a function without its "return" for dead.
COMPILE_CXX = ["-pthread", "-w", "-DWITH_ASIO", "-Icpp/tests", "-fsanitize=return",
               "-fsanitize-undefined-trap-on-error"]
CXX = {"cpp": "-std=c++20", "compat": "-std=c++11"}  # co_yield is a name in the latter
PLAIN = ["-O1", "-g"]
STRESS = ["-O2", "-DACO_CONFIG_STRESS", "-DACO_CONFIG_SHARE_FPU_MXCSR_ENV"]

Listed = set[tuple[str, str, str, str]]  # file, function, old line, new one


class Row(NamedTuple):
    """A line of the table `fitting`."""
    files: list[str]
    library: str
    tests: dict[str, str]  # each with the library that it uses


class Test(NamedTuple):
    """A program or script, with the options that it and its library are built with."""
    source: str  # with :PART, for a script
    library: str
    options: tuple[str, ...]


def variants_of(library: str) -> list[list[str]]:
    """The options of the builds in which the tests of a library's part run."""
    return [PLAIN, STRESS] if library == "aco" else [PLAIN]


def paths(*patterns: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for p in patterns for path in ROOT.glob(p))


def rows_of(part: str) -> list[Row]:
    rows: list[Row] = []
    seen: set[str] = set()
    for line in (HERE / "fitting").read_text().splitlines():
        columns = [column.strip() for column in line.split("|")]
        if line.startswith("#") or columns[0] != part:
            continue
        files = [file for file in paths(*columns[1].split()) if file not in seen]
        seen.update(files)
        tests: dict[str, str] = {}
        for word in columns[3].split():
            pattern, _, library = word.partition("@")
            for test in [pattern] if ":" in pattern else paths(pattern):
                tests.setdefault(test, library or columns[2])
        rows.append(Row(files, columns[2], tests))
    if not rows:
        sys.exit(f"tests/mutants/fitting has no part {part}")
    return rows


# ---- Mutants -------------------------------------------------------------------------------------


def enter_tool() -> None:
    """Goes on in an environment that has the tool, which is made at the first run."""
    environment = WORK / "venv"
    done = environment / TOOL
    if not done.exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "--quiet", "--no-deps",
                        "--disable-pip-version-check", TOOL], check=True)
        done.touch()
    if pathlib.Path(sys.prefix) != environment:
        python = environment / "bin/python"
        os.execv(python, [str(python), *sys.argv])


def normal(text: str) -> str:
    return " ".join(text.split())


def mutants_of(source: Source) -> Iterator[Mutant]:
    from universalmutator import mutator
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(
            source.lines, ["universal.rules", "c_like.rules", "c.rules"],
            ignorePatterns=["^ *#", "^[ {}]*$", "^ *[a-z]+:$"], ignoreStringOnly=True)
    for number, new, *_ in made:
        body, old = source.body_at(number), source.lines[number - 1]
        one_line = new.replace("\n", " ").rstrip() + "\n"  # assertions have numbers of lines
        if body and shape(one_line) == shape(old) and source.copy_of(body, number, one_line):
            yield Mutant(source.path, body.name, number, normal(old), normal(new), one_line)


def draw(mutants: Iterable[Mutant], seed: int) -> Iterator[Mutant]:
    """All mutants in the order of trial: one of each function, then a second one, and so on."""
    by_function = collections.defaultdict(list)
    for mutant in mutants:
        by_function[mutant.file, mutant.function].append(mutant)
    chance = random.Random(seed)
    piles = [by_function[key] for key in sorted(by_function)]
    for pile in piles:
        chance.shuffle(pile)
    while piles:
        chance.shuffle(piles)
        for pile in piles:
            yield pile.pop()
        piles = [pile for pile in piles if pile]


def read_unpromised(mutants: Iterable[Mutant]) -> Listed:
    """Entries of `FILE: FUNCTION`, `- OLD`, one `+ NEW` or more, and the reason, with a blank line
    between entries; `+ *` stands for every mutant of the line."""
    known = {(m.file, m.function, m.old) for m in mutants}
    broken = {m.file for m in mutants}
    listed: Listed = set()
    for entry in re.split(r"\n\s*\n", (HERE / "unpromised").read_text()):
        lines = [line.strip() for line in entry.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        file, function = lines[0].split(": ")
        old = [normal(line[2:]) for line in lines[1:] if line.startswith("- ")]
        new = [normal(line[2:]) for line in lines[1:] if line.startswith("+ ")]
        if len(old) != 1 or not new or 1 + len(old) + len(new) == len(lines):
            sys.exit(f"unpromised: not an old line, new ones and a reason: {entry}")
        if file in broken and (file, function, old[0]) not in known:
            print(f"unpromised: there is no such line any more: {lines[0]}: {old[0]}")
        listed |= {(file, function, old[0], line) for line in new}
    return listed


def read_survivors() -> Listed:
    """Those of the run before."""
    log = (WORK / "log").read_text()
    return {(found[1], found[2], found[3], found[4]) for found in re.finditer(
        r"^\d+ survivor \n.*\n(.*): (.*)\n- (.*)\n\+ (.*)$", log, re.MULTILINE)}


def is_unpromised(mutant: Mutant, listed: Listed) -> bool:
    key = mutant.file, mutant.function, mutant.old
    return (*key, mutant.new) in listed or (*key, "*") in listed


# ---- Building ------------------------------------------------------------------------------------


def copy_project(tree: pathlib.Path) -> None:
    """Without the warnings that the harness asks for: copies of functions break a few."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, ignore=lambda folder, _: (
        [".git", "output"] if folder == str(ROOT) else []))
    (tree / "tools/warnings").write_text("-w\n")


def in_harness(tree: pathlib.Path, commands: str) -> subprocess.CompletedProcess[str]:
    """Runs them after `. tests/harness.sh`, in that tree."""
    return subprocess.run(["bash", "-c", f". tests/harness.sh\n{commands}"], cwd=tree, check=False,
                          env={**os.environ, "OUTPUT": "output"}, capture_output=True, text=True)


def use_library(library: str, options: Iterable[str]) -> str:
    return f"use_library {library} gcc {shlex.join(options)}\n"


def headers_of(library: str) -> list[str]:
    made = in_harness(ROOT, use_library(library, PLAIN) + 'printf "%s\\n" "${INCLUDE[@]}"')
    if made.returncode != 0:
        sys.exit(made.stderr)
    return [line for line in made.stdout.splitlines() if line.startswith("-")]


class Units:
    """The sources that a part's files get into, compiled one by one."""

    def __init__(self, row: Row) -> None:
        self.include, self.variants = headers_of(row.library), variants_of(row.library)
        self.candidates = [file for file in row.files if not file.endswith((".h", ".hpp"))]
        if any(file.endswith(".hpp") for file in row.files):
            self.candidates += [t for t in row.tests if t.endswith(".cc")]
        self.headers: dict[str, set[str]] = {}
        self.originals: dict[str, str] = {}

    def command(self, unit: str, options: Iterable[str]) -> list[str]:
        cxx = unit.endswith(".cc")
        standard = CXX.get(unit.partition("/")[0], "")
        compile_it = ["g++", standard, *COMPILE_CXX] if cxx else ["gcc", *COMPILE]
        return [*compile_it, *PLAIN[:1], *self.include, *options, unit]

    def of(self, file: str) -> list[str]:
        if not file.endswith((".h", ".hpp")):
            return [file]
        for unit in self.candidates:
            if unit not in self.headers:
                made = subprocess.run(self.command(unit, ["-MM"]), cwd=ROOT, check=True,
                                      capture_output=True, text=True)
                self.headers[unit] = set(re.findall(r"[\w./]+", made.stdout))
        return [unit for unit in self.candidates if file in self.headers[unit]]

    def errors(self, unit: str) -> str:
        """Those of the unit in the tree; nothing if it compiles."""
        for options in self.variants:  # code that is in stress builds alone has mutants, too
            made = subprocess.run(self.command(unit, [*options, "-O0", "-fsyntax-only"]), cwd=TREE,
                                  check=False, capture_output=True, text=True)
            if made.returncode:
                return made.stderr or "error"
        return ""

    def code(self, unit: str) -> str:
        """The unit's assembly, with one mutant or none in its sources; nothing if that fails."""
        made = subprocess.run(self.command(unit, ["-S", "-o", "-"]), cwd=ALONE, check=False,
                              capture_output=True, text=True)
        return made.stdout if made.returncode == 0 else ""

    def outcome(self, unit: str, file: pathlib.Path, text: str) -> str:
        """That of a survivor, by what the unit compiles to with this text in a file of it."""
        if unit not in self.originals:
            self.originals[unit] = self.code(unit)
        original = file.read_text()
        file.write_text(text)
        try:
            code = self.code(unit)
        finally:
            file.write_text(original)
        return "invalid" if not code else \
            "the same" if code == self.originals[unit] else "survivor"


class Sample:
    """The mutants that are built in, under their numbers, those that don't compile left out."""

    def __init__(self, rows: list[Row], order: Iterator[Mutant], count: int,
                 sources: dict[str, Source]) -> None:
        self.sources, self.order, self.count = sources, order, count
        self.row_of = {file: row for row in rows for file in row.files}
        units = {id(row): Units(row) for row in rows}
        self.units = {file: units[id(row)] for file, row in self.row_of.items()}
        self.mutants: dict[int, Mutant] = {}
        self.ct_invalid, self.next_number = 0, 1

    def add(self) -> set[str]:
        """Twice as many as are missing, as about half don't compile; the files that change."""
        changed = set()
        for _ in range(2 * (self.count - len(self.mutants))):
            mutant = next(self.order, None)
            if mutant is not None:
                self.mutants[self.next_number] = mutant
                self.next_number += 1
                changed.add(mutant.file)
        return changed

    def write(self, files: Iterable[str]) -> None:
        for file in files:
            mine = {n: m for n, m in self.mutants.items() if m.file == file}
            (TREE / file).write_text(self.sources[file].with_mutants(mine))

    def bad_in(self, unit: tuple[Units, str]) -> set[int]:
        """The mutants by which the unit does not compile."""
        errors = unit[0].errors(unit[1])
        bad = faulty(errors, list(self.mutants)) if errors else set()
        if errors and not bad:
            sys.exit(f"{unit[1]} does not compile, for no mutant:\n{errors[:3000]}")
        return bad

    def make(self, jobs: int) -> None:
        while changed := self.add():
            self.write(changed)
            while changed:
                units = {(self.units[file], unit) for file in changed
                         for unit in self.units[file].of(file)}
                with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                    bad = set().union(*pool.map(self.bad_in, units))
                changed = {self.mutants.pop(number).file for number in bad}
                self.ct_invalid += len(bad)
                self.write(changed)
        self.mutants = dict(sorted(self.mutants.items())[:self.count])
        self.write({file for file, source in self.sources.items() if source.bodies})

    def outcome(self, mutant: Mutant) -> str:
        """That of a survivor: whether it compiles by itself, and makes a difference to a compiler.
        Compiling all at once stops before the passes that refuse some mutants."""
        lines, units = self.sources[mutant.file].lines, self.units[mutant.file]
        text = "".join([*lines[:mutant.line - 1], mutant.text, *lines[mutant.line:]])
        outcomes = {units.outcome(unit, ALONE / mutant.file, text)
                    for unit in units.of(mutant.file)}
        return next((o for o in ("invalid", "survivor") if o in outcomes), "the same")


# ---- Running -------------------------------------------------------------------------------------


def arguments_of(name: str) -> list[list[str]]:
    """The arguments of a test program for where it is slow, once for each run."""
    lines = [line.split("|") for line in (ROOT / "tests/arguments").read_text().splitlines()]
    return [line[2].split() for line in lines if line[0].strip() == name] or [[]]


class Program:
    """A test that is built, its commands, and the seconds that it takes of a processor's time."""

    def __init__(self, test: Test) -> None:
        self.test = test
        self.path, _, part = test.source.partition(":")
        name = pathlib.Path(self.path).stem
        tag = "_".join([self.path.replace("/", "."), *test.options])
        self.program = TREE / "output" / "programs" / tag / name
        self.commands = [["bash", self.path, part]] if part else \
            [[str(self.program), *arguments] for arguments in arguments_of(name)]
        self.seconds = 0.0

    def build(self) -> bool:
        if self.path.endswith(".sh"):
            return True
        options, name = shlex.join(self.test.options), pathlib.Path(self.path).stem
        if self.path.endswith(".cc"):
            compile_it = shlex.join([CXX[self.path.split("/")[0]], *COMPILE_CXX])
            more = re.findall(r"^// build: (.*)", (ROOT / self.path).read_text(), re.MULTILINE)
            make = f'g++ {options} {compile_it} "${{INCLUDE[@]}}" -Icompat {self.path} ' \
                   f'"${{OBJECTS[@]}}" {" ".join(more)} -ldl -o "$TMP/{name}"\n'
        else:
            shared = "tests/harness.c" if self.test.library == "aco" else ""
            make = f"use_program {self.path} gcc {options} {shared}\n"
        self.program.parent.mkdir(parents=True, exist_ok=True)
        made = in_harness(TREE, use_library(self.test.library, self.test.options) + make
                          + f'cp -r "$TMP/." {shlex.quote(str(self.program.parent))}')
        if made.returncode != 0:
            print(f"{self.path} is left out, as it does not build: {made.stderr[-300:]}")
        return made.returncode == 0

    def status(self, number: int) -> int:
        """0 if it succeeds with that mutant, 0 being none; -SIGKILL if it takes far too long."""
        limit = 20 + 10 * self.seconds
        for command in self.commands:
            process = subprocess.Popen(
                command, cwd=TREE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "OUTPUT": "output", "ACO_MUTANT": str(number)})
            cpu = int(2 + 10 * self.seconds) if number else 600
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu, cpu))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit if number else 600)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.wait() != 0:
                return process.returncode
        return 0

    def fails(self, number: int) -> bool:
        status = self.status(number)
        return status == -signal.SIGKILL or (status != 0 and self.status(number) != 0)

    def measure(self) -> bool:
        before = time.monotonic()
        if self.status(0) != 0:
            print(f"{self.test.source} is left out, as it fails with the original")
            return False
        self.seconds = time.monotonic() - before
        return True


class Run:
    def __init__(self, sample: Sample, listed: Listed, jobs: int) -> None:
        self.sample, self.listed, self.jobs = sample, listed, jobs
        self.lock = threading.Lock()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.killers: collections.Counter[tuple[str, str]] = collections.Counter()
        self.programs: dict[str, list[Program]] = {}
        self.log = (WORK / "log").open("w")

    def prepare(self) -> None:
        wanted: dict[Test, list[str]] = collections.defaultdict(list)
        for file in {mutant.file for mutant in self.sample.mutants.values()}:
            row = self.sample.row_of[file]
            for source, library in row.tests.items():
                for options in variants_of(library):
                    wanted[Test(source, library, tuple(options))].append(file)
        if any(":" in test.source for test in wanted):
            subprocess.run(["./make.sh"], cwd=TREE, check=False, stdout=subprocess.DEVNULL,
                           env={**os.environ, "OUTPUT": "output"})
        for library, words in {(test.library, test.options) for test in wanted}:
            made = in_harness(TREE, use_library(library, words))
            if made.returncode != 0:
                sys.exit(f"{library} does not build: {made.stderr}")
        programs = [Program(test) for test in wanted]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            is_built = list(pool.map(Program.build, programs))
        for program, is_good in zip(programs, is_built, strict=True):
            if is_good and program.measure():
                for file in wanted[program.test]:
                    self.programs.setdefault(file, []).append(program)
        for file in set().union(*wanted.values()).difference(self.programs):
            sys.exit(f"{file} has no test that builds and passes")

    def programs_for(self, mutant: Mutant) -> list[Program]:
        """Those that have killed mutants of the file, then those beside it, then quick ones."""
        folder = os.path.dirname(mutant.file)
        return sorted(self.programs.get(mutant.file, []), key=lambda program: (
            -self.killers[mutant.file, program.test.source],
            os.path.dirname(os.path.dirname(program.path)) != folder, program.seconds))

    def judge(self, number: int) -> None:
        mutant = self.sample.mutants[number]
        outcome, killer = "survivor", ""
        for program in self.programs_for(mutant):
            if program.fails(number):
                outcome, killer = "killed", program.test.source
                with self.lock:
                    self.killers[mutant.file, killer] += 1
                break
        if outcome == "survivor":
            if is_unpromised(mutant, self.listed):
                outcome = "unpromised"
            else:
                with self.lock:
                    outcome = self.sample.outcome(mutant)
        self.report(number, mutant, outcome, killer)

    def report(self, number: int, mutant: Mutant, outcome: str, killer: str) -> None:
        change = f"{mutant.file}:{mutant.line}\n{mutant.file}: {mutant.function}\n" \
                 f"- {mutant.old}\n+ {mutant.new}\n"
        with self.lock:
            self.outcomes[outcome] += 1
            self.log.write(f"{number} {outcome} {killer}\n{change}\n")
            self.log.flush()
            if outcome == "survivor":
                print(change, flush=True)

    def summarize(self) -> float:
        killed, survivors = self.outcomes["killed"], self.outcomes["survivor"]
        score = 100.0 * killed / max(1, killed + survivors)
        self.outcomes["invalid"] += self.sample.ct_invalid
        print(", ".join(f"{n} {outcome}" for outcome, n in self.outcomes.most_common()))
        print(f"score of promised behaviour: {score:.1f} %")
        return score


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--part", default="core",
                        help="core, extra, runtime, hooks, compat or cpp (core)")
    parser.add_argument("-n", "--count", type=int, default=200,
                        help="how many mutants to judge (200)")
    parser.add_argument("-s", "--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count(),
                        help="how many at a time (the number of processors)")
    parser.add_argument("--only", default="", metavar="PATTERN",
                        help="only of functions whose FILE:FUNCTION has a match in it")
    parser.add_argument("--again", action="store_true", help="only survivors of the run before")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    WORK.mkdir(parents=True, exist_ok=True)
    enter_tool()
    os.chdir(ROOT)
    rows = rows_of(arguments.part)
    sources = {file: Source(file, (ROOT / file).read_text()) for row in rows for file in row.files}
    mutants = [mutant for source in sources.values() for mutant in mutants_of(source)]
    listed = read_unpromised(mutants)
    chosen = [m for m in mutants if re.search(arguments.only, f"{m.file}:{m.function}")]
    if arguments.again:
        survivors = read_survivors()
        chosen = [m for m in chosen if (m.file, m.function, m.old, m.new) in survivors]
    if not chosen:
        sys.exit("no mutant is left: there are none of such functions, or no survivors")
    for tree in (TREE, ALONE):
        copy_project(tree)
    for file, source in sources.items():
        (ALONE / file).write_text(source.text)
    sample = Sample(rows, draw(chosen, arguments.seed), arguments.count, sources)
    sample.make(arguments.jobs)
    run = Run(sample, listed, arguments.jobs)
    run.prepare()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(run.judge, sample.mutants))
    sys.exit(0 if run.summarize() >= GOAL else 1)


if __name__ == "__main__":
    main()
