# SPDX-License-Identifier: Apache-2.0
"""Checks for test_report.sh that charts show the values of the results they were drawn from, and
have colours in the light and in the dark, and no two series that look the same.

  check_charts.py RESULTS IMAGES    folders of CSVs and of SVGs"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

from charts import CHARTED, tick_text
from model import COUNT, FAR, SWITCH, Column, Results, number, read_all, titles_of
from plan import COUNTS

SVG = "{http://www.w3.org/2000/svg}"
TOLERANCE = 1.0  # pixels


class Mark:
    """A mark, or a bar. Its title is "PEER, SERIES: VALUE"."""

    def __init__(self, element: ElementTree.Element, title: str) -> None:
        self.title = title
        box = {key: float(element.get(key, "0")) for key in ("x", "width", "cx", "cy")}
        self.start = box["x"]
        self.x, self.y = box["x"] + box["width"], 0.0
        if element.tag == f"{SVG}circle":
            self.x, self.y = box["cx"], box["cy"]
            self.start = self.x
        elif element.tag == f"{SVG}path":
            self.x, self.y = self.middle(element.get("d", ""))
            self.start = self.x

    @staticmethod
    def middle(path: str) -> tuple[float, float]:
        """The middle of the shape's box. The path has relative steps only."""
        xs, ys = [], []
        x = y = 0.0
        for step, a, b in re.findall(r"([Mlhv])(-?[\d.]+) ?(-?[\d.]+)?", path):
            x += float(a) if step != "v" else 0
            y += float(a) if step == "v" else float(b or 0)
            xs.append(x)
            ys.append(y)
        return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def read_chart(path: Path, machines: list[Results]) -> dict[str, list[Mark]]:
    """The marks of each machine's panel."""
    root = ElementTree.fromstring(path.read_text())
    starts = {text.text: float(text.get("x", "0")) for text in root.iter(f"{SVG}text")}
    marks = [Mark(element, title.text or "") for element in root.iter()
             if (title := element.find(f"{SVG}title")) is not None and element is not root]
    marks = [mark for mark in marks if ": " in mark.title]  # without those of the legend
    found: dict[str, list[Mark]] = {}
    ends = [starts[results.name] for results in machines[1:]] + [math.inf]
    for results, end in zip(machines, ends):
        found[results.name] = [mark for mark in marks if
                               starts[results.name] <= mark.start + TOLERANCE < end]
    assert sum(map(len, found.values())) == len(marks), f"{path.name}: a mark lies in no panel"
    return found


def check_values(path: Path, machines: list[Results], columns: list[Column], names: list[str],
                 is_log: bool, is_upright: bool) -> None:
    """Each value has one mark; all machines have one scale, in which each mark is at its place."""
    found = read_chart(path, machines)
    points: list[tuple[float, float]] = []  # value and place
    for results in machines:
        by_title = {mark.title: mark for mark in found[results.name]}
        shift = 0.0
        if not is_upright and results is not machines[0]:
            shift = panel_start(path, results) - panel_start(path, machines[0])
        wanted = {}
        for title in titles_of([results], CHARTED):
            for column, name in zip(columns, names):
                value = results.median(title, column.workload, column.metric)
                if value is not None:
                    wanted[f"{title}, {name}: {number(value)}"] = value
        assert set(wanted) == set(by_title), \
            f"{path.name}, {results.name}: {set(wanted) ^ set(by_title)}"
        assert len(by_title) == len(found[results.name]), f"{path.name}: a value has two marks"
        points += [(value, by_title[title].y if is_upright else by_title[title].x - shift)
                   for title, value in wanted.items()]
    assert len(points) > 1, f"{path.name} is empty"
    (low, a), (high, b) = min(points), max(points)
    for value, at in points:
        part = math.log(value / low) / math.log(high / low) if is_log \
            else (value - low) / (high - low)
        assert abs(a + part * (b - a) - at) < TOLERANCE, f"{path.name}: {value} is at {at}"
    if not is_log:
        first = found[machines[0].name][0].start
        assert abs((b - first) / high - (a - first) / low) < 0.01, f"{path.name}: no bar from 0"


def check_ranges(path: Path, machines: list[Results], columns: list[Column],
                 names: list[str]) -> None:
    """Through each mark goes a line over the range of its rounds, in the scale of the marks."""
    found = read_chart(path, machines)
    lines = [(float(start), float(y), float(end)) for start, y, end in re.findall(
        r'class="line-\w+" fill="none" d="M([\d.]+) ([\d.]+)H([\d.]+)"', path.read_text())]
    for results in machines:
        marks = {mark.title: mark for mark in found[results.name]}
        cells = [(value, marks[f"{title}, {name}: {number(value.median)}"])
                 for title in titles_of([results], CHARTED) for column, name in zip(columns, names)
                 if (value := results.get(title, column.workload, column.metric))]
        (least, left), (most, right) = (
            choose(cells, key=lambda cell: cell[0].median) for choose in (min, max))
        pixels = (right.x - left.x) / math.log(most.median / least.median)
        for value, mark in cells:
            start, end = (mark.x + pixels * math.log(one / value.median)
                          for one in (min(value.rounds), max(value.rounds)))
            assert any(max(abs(a - start), abs(y - mark.y), abs(b - end)) < TOLERANCE
                       for a, y, b in lines), f"{path.name}: no range of {mark.title}"


def panel_start(path: Path, results: Results) -> float:
    root = ElementTree.fromstring(path.read_text())
    return next(float(text.get("x", "0")) for text in root.iter(f"{SVG}text")
                if text.text == results.name)


def check_modes(path: Path) -> None:
    """All colours come from the style sheet, which has them for both modes."""
    text = path.read_text()
    style = re.search(r"<style>(.*?)@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", text)
    assert style, f"{path.name} has no dark mode"
    used = set(re.findall(r'class="([\w-]+)', text))
    for mode in style.groups():
        lacking = used - set(re.findall(r"\.([\w-]+)(?=[,{])", mode))
        assert not lacking, f"{path.name}: no colour for {lacking}"
    light, dark = (set(re.findall(r"#\w{6}", mode)) for mode in style.groups())
    assert not light & dark, f"{path.name}: {light & dark} is for both modes"
    assert not re.search(r'(fill|stroke)="(?!none)', text), f"{path.name}: a colour for no mode"


def check_series(path: Path, ct_machines: int) -> None:
    """No two marks of the legend are alike, nor two curves of a panel; all marks are explained."""
    root = ElementTree.fromstring(path.read_text())
    looks: dict[tuple[str, str], list[str]] = {}
    for element in root.iter():
        title = element.find(f"{SVG}title")
        if title is None or element is root or element.tag == f"{SVG}rect":
            continue
        # Without the place, which is where a path begins.
        shape = element.tag + re.sub(r"^M[-\d. ]+", "", element.get("d", ""))
        looks.setdefault((element.get("class", ""), shape), []).append(title.text or "")
    for look, titles in looks.items():
        in_legend = [title for title in titles if ": " not in title]
        assert len(in_legend) == 1, f"{path.name}: {in_legend} look the same, {look}"
    curves = re.findall(r'class="line-(\w+)" d="M[^"]+" fill="none" stroke-width="2"'
                        r'(?: stroke-dasharray="([\d ]+)")?', path.read_text())
    for curve in set(curves):
        assert curves.count(curve) <= ct_machines, f"{path.name}: two curves look the same, {curve}"


def main(folder: Path, images: Path) -> None:
    machines = read_all(folder)
    names = ["flat", "after an inexact division", "four calls deep", "16 live values"]
    check_values(images / "switch.svg", machines, SWITCH, names, is_log=True, is_upright=False)
    check_ranges(images / "switch.svg", machines, SWITCH, names)
    check_values(images / "memory.svg", machines, [FAR[1], FAR[3]],
                 ["8 live bytes", "120 live bytes"], is_log=False, is_upright=False)
    check_values(images / "count.svg", machines, COUNT, [tick_text(count) for count in COUNTS],
                 is_log=True, is_upright=True)
    for path in sorted(images.glob("*.svg")):
        check_modes(path)
        check_series(path, len(machines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
