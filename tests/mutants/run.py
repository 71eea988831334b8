#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the library on purpose, one small change at a time, and lists those that the C tests miss.

universalmutator makes the mutants of aco.c, of the functions in aco.h and of the optional parts, or
with --runtime of the code by which tasks wait. A sample, drawn evenly by function, is compiled with
-O2 and linked to the native C tests, which run until one fails twice in a row, once not being
enough on a busy machine; a test that takes far too long has failed, too. A mutant that does not
compile, or whose object files are those of the original, is replaced by another one.

A mutant that passes all tests is a survivor, and shows a promise without a test, unless unpromised
lists it with the reason why it breaks no promise. The score is the share of killed mutants among
those that count; the exit status is 1 if it is below 98 %.

Relies on gcc or clang on x86-64, libcmocka-dev and python3-venv. output/mutants has the results:
log there lists the outcome of each mutant.
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
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

TOOL = "universalmutator==1.14.1"
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "output" / "mutants"
UNPROMISED = pathlib.Path(__file__).with_name("unpromised")
GOAL = 98.0  # percent

# Only tests are judged: a warning, say of a function without a call, rejects no mutant. What
# C forbids does.
COMPILE = [*os.environ.get("CC", "gcc").split(), "-std=gnu99", "-O2", "-I.", "-Iruntime",
           "-Iruntime/sched/tests", "-Iextra/stack_pool", "-pthread",
           "-Werror=implicit-function-declaration", "-Werror=implicit-int",
           "-Werror=int-conversion", "-Werror=incompatible-pointer-types"]
LIBRARIES = ["-lcmocka", "-lpthread", "-lm", "-ldl"]
# A variant may compile or run what another leaves out.
VARIANTS: dict[str, list[str]] = {
    "plain": [],
    "stress": ["-DACO_CONFIG_STRESS", "-DACO_CONFIG_SHARE_FPU_MXCSR_ENV"],
}

Listed = set[tuple[str, str, str, str]]  # file, function, old line, new one
Unit = tuple[str, tuple[str, ...]]  # a source, and options that tell its objects apart


class Mutant(NamedTuple):
    file: str
    function: str
    line: int
    old: str
    new: str
    text: str  # of the whole file


class Test(NamedTuple):
    source: str
    sources: list[str]
    options: list[str]
    link_options: list[str]


class Subject(NamedTuple):
    """The sources that are broken, and those of their tests."""
    broken: list[str]
    library: list[str]
    tests: list[str]


def paths(*patterns: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for p in patterns for path in ROOT.glob(p))


def sources_of(library: str) -> list[str]:
    """Those that tools/libraries lists."""
    for line in (ROOT / "tools/libraries").read_text().splitlines():
        name, *columns = (column.strip() for column in line.split("|"))
        if name == library:
            return paths(*columns[1].split())
    sys.exit(f"tools/libraries has no {library}")


CORE = Subject(paths("aco.[ch]", "extra/*/aco_*.[ch]"), [*sources_of("aco"), "tests/harness.c"],
               paths("tests/test_*.c", "extra/*/tests/test_*.c"))
RUNTIME = Subject([*paths("runtime/sched/*.c"), *paths("runtime/sync/*.c"),
                   *(f"runtime/{name}.c" for name in ("io/connect", "io/io", "start/embed",
                                                      "start/run"))],
                  sources_of("aco") + sources_of("aco_runtime"),
                  paths("runtime/sched/tests/random_tasks.c",
                        "runtime/io/tests/random_descriptors.c", "runtime/*/tests/test_*.c"))


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


def without_comments(text: str) -> str:
    """The tool leaves out lines with comments. Strings and the numbers of lines stay."""
    def replace(match: re.Match[str]) -> str:
        return match[0] if match[0][0] in "\"'" else "\n" * match[0].count("\n")
    return re.sub(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", replace, text,
                  flags=re.DOTALL)


def functions_of(lines: Iterable[str]) -> list[str | None]:
    """For each line, the name of the function that it is in, or None: bodies start in column 1, or
    are in one line with the head."""
    names: list[str | None] = []
    name, head = None, ""
    for line in lines:
        text = line.rstrip()
        is_short = name is None and re.search(r"\) \{.*\}$", text)
        head += text.partition("{")[0]
        if text == "{" or is_short:
            found = re.search(r"(\w+)\(", re.sub(r"__attribute__\(\(.*?\)\)", "", head))
            name = found[1] if found else None
        names.append(name)
        if text.startswith("}") or is_short:
            name = None
        if re.match(r"#|$", text) or text.endswith((";", "}")):
            head = ""
    return names


def normal(text: str) -> str:
    return " ".join(text.split())


def mutants_of(file: str) -> Iterator[Mutant]:
    from universalmutator import mutator
    lines = without_comments((ROOT / file).read_text()).splitlines(keepends=True)
    names = functions_of(lines)
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(lines, ["universal.rules", "c_like.rules", "c.rules"],
                                      ignorePatterns=["^ *#", "^[ {}]*$"], ignoreStringOnly=True)
    for number, new, *_ in made:
        name = names[number - 1]
        if name is not None:
            one_line = new.replace("\n", " ").rstrip() + "\n"  # assertions have numbers of lines
            text = "".join([*lines[:number - 1], one_line, *lines[number:]])
            yield Mutant(file, name, number, normal(lines[number - 1]), normal(new), text)


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
    for entry in re.split(r"\n\s*\n", UNPROMISED.read_text()):
        lines = [line.strip() for line in entry.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        file, function = lines[0].split(": ")
        old = [normal(line[2:]) for line in lines[1:] if line.startswith("- ")]
        new = [normal(line[2:]) for line in lines[1:] if line.startswith("+ ")]
        if len(old) != 1 or not new or 1 + len(old) + len(new) == len(lines):
            sys.exit(f"{UNPROMISED}: not an old line, new ones and a reason: {entry}")
        if file in broken and (file, function, old[0]) not in known:
            print(f"{UNPROMISED}: there is no such line any more: {lines[0]}: {old[0]}")
        listed |= {(file, function, old[0], line) for line in new}
    return listed


def is_unpromised(mutant: Mutant, listed: Listed) -> bool:
    key = mutant.file, mutant.function, mutant.old
    return (*key, mutant.new) in listed or (*key, "*") in listed


# ---- Building and running ------------------------------------------------------------------------


def find_tests(sources_of_tests: Iterable[str]) -> list[Test]:
    tests = []
    for source in sources_of_tests:
        text = (ROOT / source).read_text()
        directives = re.findall(r"^// build(?: x86)?: (.*)", text, re.MULTILINE)
        arguments = " ".join(directives).split()
        sources = [arg for arg in arguments if arg.endswith(".c")]
        link_options = [arg for arg in arguments if arg.startswith("-Wl,") or arg == "-rdynamic"]
        options = [arg for arg in arguments if arg not in sources + link_options]
        tests.append(Test(source, [source, *sources], options, link_options))
    return tests


def compile_source(tree: pathlib.Path, source: str, options: list[str],
                   target: pathlib.Path) -> bool:
    """Whether it compiles. Paths are relative: object files are the same wherever a tree lies."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*COMPILE, *options, "-MMD", "-c", source, "-o", str(target)]
    made = subprocess.run(command, cwd=tree, stderr=subprocess.DEVNULL, check=False)
    return made.returncode == 0


class Invalid(Exception):
    """The mutant does not compile or link."""


class Build:
    """The object files of the original, in one variant, and how much of a processor's time each
    test takes with them."""

    def __init__(self, variant: str, library: list[str]) -> None:
        self.variant, self.library = variant, library
        self.objects: dict[Unit, pathlib.Path] = {}
        self.needs: dict[Unit, set[str]] = {}
        self.seconds: dict[str, float] = {}

    def units(self, test: Test) -> list[Unit]:
        """What `test` is linked of."""
        return [(source, ()) for source in self.library] + [
            (source, tuple(test.options)) for source in test.sources]

    def options(self, unit: Unit) -> list[str]:
        return VARIANTS[self.variant] + list(unit[1])

    def object(self, directory: pathlib.Path, unit: Unit) -> pathlib.Path:
        name = "".join(unit[1]) + unit[0]
        return directory / self.variant / (re.sub(r"[^\w.]", "_", name) + ".o")

    def add(self, unit: Unit) -> None:
        target = self.objects[unit] = self.object(WORK / "original", unit)
        if not compile_source(ROOT, unit[0], self.options(unit), target):
            raise SystemExit(f"{unit[0]} of the original does not compile")
        self.needs[unit] = set(target.with_suffix(".d").read_text().split())

    def measure(self, test: Test) -> None:
        program = WORK / "original" / self.variant / test.source.replace("/", ".")
        link(ROOT, test, [self.objects[unit] for unit in self.units(test)], program)
        process = start(ROOT, program)
        _, process.returncode, usage = os.wait4(process.pid, 0)
        if process.returncode != 0:
            raise SystemExit(f"{test.source} fails with the original")
        self.seconds[test.source] = usage.ru_utime + usage.ru_stime


def link(tree: pathlib.Path, test: Test, objects: Sequence[pathlib.Path],
         program: pathlib.Path) -> None:
    command = [*COMPILE, *test.options, *test.link_options, *map(str, objects), "-o", str(program),
               *LIBRARIES]
    made = subprocess.run(command, cwd=tree, stderr=subprocess.DEVNULL, check=False)
    if made.returncode != 0:
        raise Invalid


def start(tree: pathlib.Path, program: pathlib.Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([program], cwd=tree, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def passes(tree: pathlib.Path, program: pathlib.Path, seconds: float) -> bool:
    """Whether the program succeeds. With the original it takes that much of a processor's time."""
    process = start(tree, program)
    cpu_limit = int(2 + 10 * seconds)
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_limit, cpu_limit))
    try:
        return process.wait(20 + 40 * seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


class Trial:
    """One mutant, in a tree of sources in which it is written, and one variant."""

    def __init__(self, build: Build, tree: pathlib.Path, mutant: Mutant) -> None:
        self.build, self.tree, self.mutant = build, tree, mutant
        self.made: dict[Unit, pathlib.Path] = {}

    def object_of(self, unit: Unit) -> pathlib.Path:
        """The object of a unit: that of the original where nothing has changed."""
        if self.mutant.file not in self.build.needs[unit]:
            return self.build.objects[unit]
        if unit not in self.made:
            target = self.build.object(self.tree / "objects", unit)
            if not compile_source(self.tree, unit[0], self.build.options(unit), target):
                raise Invalid
            original = self.build.objects[unit]
            is_same = target.read_bytes() == original.read_bytes()
            self.made[unit] = original if is_same else target
        return self.made[unit]

    def run(self, test: Test) -> bool | None:
        """Whether `test` passes; None if it is the same program as with the original."""
        units = self.build.units(test)
        objects = [self.object_of(unit) for unit in units]
        if objects == [self.build.objects[unit] for unit in units]:
            return None
        program, seconds = self.tree / "program", self.build.seconds[test.source]
        link(self.tree, test, objects, program)
        return passes(self.tree, program, seconds) or passes(self.tree, program, seconds)


# ---- The run -------------------------------------------------------------------------------------


class Run:
    def __init__(self, subject: Subject, order: Iterator[Mutant], count: int,
                 listed: Listed) -> None:
        self.order, self.count, self.listed = order, count, listed
        self.lock = threading.Lock()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.killers: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.tests = find_tests(subject.tests)
        self.builds = [Build(variant, subject.library) for variant in VARIANTS]
        self.log = (WORK / "log").open("w")

    def prepare(self, jobs: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for build in self.builds:
                units = {unit for test in self.tests for unit in build.units(test)}
                list(pool.map(build.add, units))
                list(pool.map(build.measure, self.tests))

    def tests_for(self, build: Build, mutant: Mutant) -> list[Test]:
        """Tests that have killed mutants of the function, then those beside it, then quick ones."""
        folder = os.path.dirname(mutant.file)
        return sorted(self.tests, key=lambda test: (
            -self.killers[mutant.file, mutant.function, test.source],
            os.path.dirname(test.source) != (folder or "tests"), build.seconds[test.source]))

    def judge(self, tree: pathlib.Path, mutant: Mutant) -> tuple[str, str]:
        """`killed`, `survivor`, `the same` or `invalid`, and the test that killed it."""
        outcome = "the same"
        try:
            for build in self.builds:
                trial = Trial(build, tree, mutant)
                for test in self.tests_for(build, mutant):
                    has_passed = trial.run(test)
                    if has_passed is False:
                        self.killers[mutant.file, mutant.function, test.source] += 1
                        return "killed", f"{test.source}, {build.variant}"
                    if has_passed:
                        outcome = "survivor"
        except Invalid:
            outcome = "invalid"
        return outcome, ""

    def work(self, tree: pathlib.Path) -> None:
        shutil.rmtree(tree, ignore_errors=True)
        for source in paths("*.[chS]", "tests/*.[ch]", "extra/*/*.[ch]", "extra/*/tests/*.[ch]",
                            "runtime/*.h", "runtime/*/*.[ch]", "runtime/*/tests/*.[ch]"):
            (tree / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, tree / source)
        while True:
            with self.lock:
                mutant = None if self.valid() >= self.count else next(self.order, None)
            if mutant is None:
                return
            (tree / mutant.file).write_text(mutant.text)
            outcome, killer = self.judge(tree, mutant)
            shutil.copy(ROOT / mutant.file, tree / mutant.file)
            if outcome == "survivor" and is_unpromised(mutant, self.listed):
                outcome = "unpromised"
            self.report(mutant, outcome, killer)

    def valid(self) -> int:
        return sum(self.outcomes[o] for o in ("killed", "survivor", "unpromised"))

    def report(self, mutant: Mutant, outcome: str, killer: str) -> None:
        change = f"{mutant.file}:{mutant.line}\n{mutant.file}: {mutant.function}\n" \
                 f"- {mutant.old}\n+ {mutant.new}\n"
        with self.lock:
            self.outcomes[outcome] += 1
            self.log.write(f"{outcome} {killer}\n{change}\n")
            self.log.flush()
            if outcome == "survivor":
                print(change, flush=True)

    def summarize(self) -> float:
        killed, survivors = self.outcomes["killed"], self.outcomes["survivor"]
        score = 100.0 * killed / max(1, killed + survivors)
        print(", ".join(f"{n} {outcome}" for outcome, n in self.outcomes.most_common()))
        print(f"score of promised behaviour: {score:.1f} %")
        return score


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--count", type=int, default=400,
                        help="how many mutants to judge (400)")
    parser.add_argument("-s", "--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count(),
                        help="how many at a time (the number of processors)")
    parser.add_argument("--runtime", action="store_true",
                        help="break what tasks wait by, instead of the library")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only of functions whose FILE:FUNCTION has TEXT in it")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    enter_tool()
    os.chdir(ROOT)
    subject = RUNTIME if arguments.runtime else CORE
    mutants = [mutant for file in subject.broken for mutant in mutants_of(file)]
    listed = read_unpromised(mutants)
    chosen = [m for m in mutants if arguments.only in f"{m.file}:{m.function}"]
    if not chosen:
        sys.exit(f"no function has {arguments.only} in FILE:FUNCTION")
    run = Run(subject, draw(chosen, arguments.seed), arguments.count, listed)
    run.prepare(arguments.jobs)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(run.work, [WORK / f"tree.{i}" for i in range(arguments.jobs)]))
    sys.exit(0 if run.summarize() >= GOAL else 1)


if __name__ == "__main__":
    main()
