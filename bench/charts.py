# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG, light or dark as the reader's system asks. Machines stand side by side: each has a
panel with its name, and all panels have the same scale.

A chart is laid out from the top: heading, legend, names of machines, plot, scale, and a line about
each machine. Each has its own strip, so that nothing covers anything; the canvas refuses text that
lies on other text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from html import escape

from canvas import Canvas, text_width
from model import (COUNT, ECHO, FAR, LIVE, MANY, PURE, SHARE, SKYNET, SLEEPERS, SWITCH, TABLE,
                   TURNS, Column, Results, is_aco, label, number, titles_of)
from plan import COUNTS, ECHO_PEERS, LIVE_SIZES, SCALED, SHARE_SIZES, TASK_COUNTS, Group

# One row stands for those that hardly differ from it.
CHARTED = r"^(?!.*(acosw|-m32|aco_cancel|callcc|1\.81)|aco standalone, own)"

# Kinds of canvas.py for the first series, the second and so on. They differ in hue, lightness and
# shape, for readers who don't see all colours.
KINDS = ["main", "guard", "co", "other", "saved"]
SHAPES = ["circle", "diamond", "square", "triangle", "wedge"]
DASHES = ["", "7 4", "2 3"]  # of curves, once all kinds are taken

# Pixels.
WIDTH = 960        # at least
MARGIN = 28
PANEL_WIDTH = 250  # of a plot, at least
GAP = 28           # between plots
LINE = 20          # of a legend
ROW = 24           # of a peer's marks
BAR = 20           # of a bar, with the space to the next
PLOT_HEIGHT = 340  # of curves
BESIDE = 66        # of a value at the end of a row
MARK = 5           # half the size of a mark
TEXT, SMALL = 13, 11  # sizes of text

Points = list[tuple[float, float]]


@dataclass
class Series:
    """Values with a colour, a shape and a dash of which no other series of the chart has two."""

    name: str
    kind: str
    shape: str
    dash: str

    def mark(self, x: float, y: float, text: str) -> str:
        """Its mark, with the value as a title."""
        d = MARK
        shape = {
            "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{d}"',
            "diamond": f'<path d="M{x:.1f} {y - d - 1:.1f}l{d + 1} {d + 1}l-{d + 1} {d + 1}'
                       f'l-{d + 1} -{d + 1}z"',
            "square": f'<path d="M{x - d + 0.5:.1f} {y - d + 0.5:.1f}h{2 * d - 1}v{2 * d - 1}'
                      f'h-{2 * d - 1}z"',
            "triangle": f'<path d="M{x:.1f} {y - d + 0.5:.1f}l{d} {2 * d - 1}h-{2 * d}z"',
            "wedge": f'<path d="M{x:.1f} {y + d - 0.5:.1f}l{d} -{2 * d - 1}h-{2 * d}z"',
        }[self.shape]
        end = shape.split()[0][1:]
        return f'{shape} class="head-{self.kind}"><title>{escape(text)}</title></{end}>'


def series_of(names: list[str]) -> list[Series]:
    """Each time that the colours begin anew, shapes are shifted and dashes are others."""
    made = []
    for i, name in enumerate(names):
        turn, place = divmod(i, len(KINDS))
        made.append(Series(name, KINDS[place], SHAPES[(place + turn) % len(SHAPES)], DASHES[turn]))
    return made


@dataclass
class Scale:
    """From values to pixels, which may run either way."""

    low: float
    high: float
    is_log: bool
    start: float = 0  # pixels
    end: float = 1

    def at(self, value: float) -> float:
        if self.is_log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def over(self, start: float, end: float) -> Scale:
        return Scale(self.low, self.high, self.is_log, start, end)

    def ticks(self) -> list[float]:
        if not self.is_log:
            step = 10.0 ** math.floor(math.log10(self.high))
            while self.high / step < 4:
                step /= 2
            return [i * step for i in range(int(self.high / step) + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        digits, tenths = tuple(range(1, 10)), tuple(i / 10 for i in range(10, 100))
        for factors in ((1,), (1, 3), (1, 2, 5), digits, tenths):
            found = [factor * 10.0 ** power for power in powers for factor in factors]
            found = [tick for tick in found if self.low <= tick <= self.high]
            if len(found) >= 3:
                break
        return found[::(len(found) - 1) // 9 + 1]


def log_scale(values: list[float]) -> Scale:
    """With some room on both sides."""
    room = (max(values) / min(values)) ** 0.04 * 1.1
    return Scale(min(values) / room, max(values) * room, True)


def tick_text(value: float) -> str:
    return f"{value:,.10g}"


# ==== Parts of a chart ============================================================================


@dataclass
class Chart:
    """A chart that has its frame: where the plots are."""

    canvas: Canvas
    tops: tuple[float, float]  # of plots: y of their tops and of their bottoms
    plots: list[tuple[float, float]]  # x of each machine's plot, from and to


def legend_lines(series: list[Series], width: float) -> list[list[Series]]:
    lines: list[list[Series]] = [[]]
    x = 0.0
    for one in series:
        needed = legend_width(one)
        if lines[-1] and x + needed > width:
            lines.append([])
            x = 0
        lines[-1].append(one)
        x += needed
    return lines if series else []


def legend_width(series: Series) -> float:
    return 18 + text_width(label(series.name), TEXT, False, False) + 20


def machine_note(results: Results) -> str:
    cpu = results.machine["machine"].split(", Linux")[0]
    compiler = re.sub(r" \(.*?\)", "", results.machine["compiler"])
    return f"{results.name}: {cpu}; {compiler}; {results.machine['date']}"


def frame(machines: list[Results], title: str, unit: str, series: list[Series], left: float,
          height: float, right: float = 0, below: str = "") -> Chart:
    """Everything around the plots. `left` is what labels need, `right` what values at the end of
    rows need, `below` the unit of the scale below."""
    notes = [machine_note(results) for results in machines]
    each = max(PANEL_WIDTH, *(text_width(results.name, TEXT, False, True) for results in machines))
    width = max(WIDTH, 2 * MARGIN + left + len(machines) * (each + right + GAP) - GAP,
                *(2 * MARGIN + text_width(note, SMALL, False, False) for note in notes))
    each = (width - 2 * MARGIN - left + GAP) / len(machines) - GAP - right
    legend = legend_lines(series, width - 2 * MARGIN)
    top = 66 + 30 + LINE * len(legend) + (10 if legend else 0) + 14
    bottom = top + height
    notes_top = bottom + 46 + (20 if below else 0)
    canvas = Canvas(math.ceil(width), math.ceil(notes_top + 16 * len(notes)), title)
    canvas.heading(title, unit)
    for i, line in enumerate(legend):
        x, y = float(MARGIN), 66 + 30 + LINE * i
        for one in line:
            canvas.raw(one.mark(x + 6, y - 4.5, one.name))
            canvas.text(x + 18, y, label(one.name), TEXT)
            x += legend_width(one)
    plots = []
    for i, results in enumerate(machines):
        x = MARGIN + left + i * (each + right + GAP)
        plots.append((x, x + each))
        canvas.text(x, top - 10, results.name, TEXT, bold=True)
        if below:
            canvas.text(x + each / 2, bottom + 36, below, SMALL, "middle", beside=True)
        canvas.text(MARGIN, notes_top + 16 * i, notes[i], SMALL, beside=True)
    return Chart(canvas, (top, bottom), plots)


def grid(chart: Chart, points: list[float], ends: tuple[float, float], is_upright: bool) -> None:
    """Thin lines at the points, from the one end to the other."""
    a, b = ends
    path = "".join(f"M{p:.1f} {a:.1f}V{b:.1f}" if is_upright else f"M{a:.1f} {p:.1f}H{b:.1f}"
                   for p in points)
    chart.canvas.raw(f'<path class="line-plain" d="{path}" fill="none" stroke-opacity="0.3"/>')


def across(chart: Chart, scale: Scale) -> None:
    """The scale below a plot, with its grid; numbers that would touch are left out."""
    top, bottom = chart.tops
    grid(chart, [scale.at(tick) for tick in scale.ticks()], (top, bottom), True)
    free, last = -math.inf, chart.canvas.width - MARGIN / 2
    for tick in scale.ticks():
        half = text_width(tick_text(tick), SMALL, False, False) / 2
        x = min(scale.at(tick), last - half)
        if x - half > free:
            chart.canvas.text(x, bottom + 17, tick_text(tick), SMALL, "middle", beside=True)
            free = x + half + 6


def label_rows(chart: Chart, titles: list[str], left: float, height: float) -> None:
    """The names of peers beside the plots. Rows of aco stand out if there are others."""
    top, _ = chart.tops
    for i, title in enumerate(titles):
        y = top + i * height
        if is_aco(title) and not all(map(is_aco, titles)):
            chart.canvas.raw(f'<rect class="main" x="{MARGIN - 12}" y="{y:.1f}" '
                             f'width="{chart.canvas.width - 2 * (MARGIN - 12)}" '
                             f'height="{height:.1f}" stroke-width="0" fill-opacity="0.6"/>')
        chart.canvas.text(MARGIN + left - 12, y + height / 2 + 4.5, label(title), TEXT, "end",
                          bold=is_aco(title))


def label_width(titles: list[str]) -> float:
    return max(text_width(label(title), TEXT, False, is_aco(title)) for title in titles) + 12


# ==== Charts ======================================================================================


def rows_of(machines: list[Results], columns: list[Column], of: str) -> list[str]:
    """The peers to draw: in the order of the first column on the first machine that has a value."""
    def key(title: str) -> tuple[int, float]:
        found = [results.median(title, column.workload, column.metric)
                 for column in columns for results in machines]
        index = next(i for i, value in enumerate(found) if value is not None)
        return index, found[index] or 0

    return sorted((title for title in titles_of(machines, of)
                   if any(results.get(title, column.workload, column.metric)
                          for results in machines for column in columns)), key=key)


def dots(machines: list[Results], columns: list[Column], names: list[str], title: str, unit: str,
         beside: tuple[Column, ...] = ()) -> str:
    """A row for each peer, with a mark for each column, on a logarithmic scale, and a line from the
    least to the greatest of its rounds; at the row's end the first value there is of `beside`."""
    titles = rows_of(machines, columns, CHARTED)
    values = [value for results in machines for peer in titles for column in columns
              if (found := results.get(peer, column.workload, column.metric))
              for value in found.rounds if value]
    if not values:
        return ""
    left = label_width(titles)
    series = series_of(names)
    chart = frame(machines, title, unit, series, left, ROW * len(titles), BESIDE if beside else 0)
    label_rows(chart, titles, left, ROW)
    top, _ = chart.tops
    for results, (start, end) in zip(machines, chart.plots):
        scale = log_scale(values).over(start, end)
        grid(chart, [top + (i + 0.5) * ROW for i in range(len(titles))], (start, end), False)
        across(chart, scale)
        if beside:
            head = beside[0].head
            chart.canvas.text(end + BESIDE, top - 10, head, SMALL, "end", beside=True)
        for y, peer in enumerate(titles):
            middle = top + (y + 0.5) * ROW
            for i, (column, one) in enumerate(zip(columns, series)):
                found = results.get(peer, column.workload, column.metric)
                if found and all(found.rounds):
                    # Marks that would cover each other are a little apart.
                    at = middle + (i - (len(columns) - 1) / 2) * 3
                    ends = scale.at(min(found.rounds)), scale.at(max(found.rounds))
                    chart.canvas.raw(f'<path class="line-{one.kind}" fill="none" '
                                     f'd="M{ends[0]:.1f} {at:.1f}H{ends[1]:.1f}"/>')
                    chart.canvas.raw(one.mark(scale.at(found.median), at,
                                              f"{peer}, {one.name}: {number(found.median)}"))
            at_end = [value for column in beside
                      if (value := results.median(peer, column.workload, column.metric))]
            if at_end:
                chart.canvas.text(end + BESIDE, middle + 4, number(at_end[0]), SMALL, "end")
    return chart.canvas.svg()


def bars(machines: list[Results], columns: list[Column], names: list[str], title: str, unit: str,
         of: str = CHARTED) -> str:
    """A bar for each column of each peer, with its value at its end, on a linear scale."""
    titles = rows_of(machines, columns, of)
    values = [value for results in machines for peer in titles for column in columns
              if (value := results.median(peer, column.workload, column.metric))]
    if not values:
        return ""
    left = label_width(titles)
    series = [replace(one, shape="square") for one in series_of(names)]
    height = BAR * len(columns) + 8
    chart = frame(machines, title, unit, series if len(series) > 1 else [], left,
                  height * len(titles), BESIDE)
    label_rows(chart, titles, left, height)
    top, _ = chart.tops
    for results, (start, end) in zip(machines, chart.plots):
        scale = Scale(0, max(values), False, start, end)
        across(chart, scale)
        for y, peer in enumerate(titles):
            for i, (column, one) in enumerate(zip(columns, series)):
                value = results.median(peer, column.workload, column.metric)
                at = top + y * height + 4 + i * BAR
                if value:
                    text = escape(f"{peer}, {one.name or unit}: {number(value)}")
                    chart.canvas.raw(
                        f'<rect class="head-{one.kind}" x="{start:.1f}" y="{at + 2:.1f}" '
                        f'width="{scale.at(value) - start:.1f}" height="{BAR - 4}">'
                        f'<title>{text}</title></rect>')
                chart.canvas.text((scale.at(value) if value else start) + 6, at + BAR / 2 + 4,
                                  number(value) if value else "–", SMALL)
    return chart.canvas.svg()


def points_of(results: Results, columns: list[Column], at: tuple[int, ...],
              of: str) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for x, column in zip(at, columns):
        for title in results.titles(column.workload, column.metric):
            value = results.median(title, column.workload, column.metric)
            if value and re.search(of, title):
                found.setdefault(title, []).append((x, value))
    return found


def curves(machines: list[Results], columns: list[Column], at: tuple[int, ...], title: str,
           unit: str, below: str, of: str = CHARTED) -> str:
    """A curve for each peer with a point for each column, both scales logarithmic."""
    found = [points_of(results, columns, at, of) for results in machines]
    # aco's first, then in the order of names.
    names = sorted({name for curves_of in found for name in curves_of},
                   key=lambda name: (not is_aco(name), name))
    if not names:
        return ""
    series = {one.name: one for one in series_of(names)}
    every = [point for curves_of in found for points in curves_of.values() for point in points]
    wide, high = log_scale([x for x, _ in every]), log_scale([y for _, y in every])
    left = max(text_width(tick_text(tick), SMALL, False, False) for tick in high.ticks()) + 10
    chart = frame(machines, title, unit, list(series.values()), left, PLOT_HEIGHT, 0, below)
    top, bottom = chart.tops
    high = high.over(bottom, top)
    for tick in high.ticks():
        chart.canvas.text(MARGIN + left - 8, high.at(tick) + 4, tick_text(tick), SMALL, "end",
                          beside=True)
    for curves_of, (start, end) in zip(found, chart.plots):
        scale = wide.over(start, end)
        across(chart, scale)
        grid(chart, [high.at(tick) for tick in high.ticks()], (start, end), False)
        for name, points in sorted(curves_of.items()):
            one = series[name]
            path = "L".join(f"{scale.at(x):.1f} {high.at(y):.1f}" for x, y in sorted(points))
            dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
            chart.canvas.raw(f'<path class="line-{one.kind}" d="M{path}" fill="none" '
                             f'stroke-width="2"{dash}/>')
            for x, y in points:
                chart.canvas.raw(one.mark(scale.at(x), high.at(y),
                                          f"{name}, {tick_text(x)}: {number(y)}"))
    return chart.canvas.svg()


def core_charts(machines: list[Results]) -> dict[str, str]:
    return {
        "switch": dots(machines, SWITCH, ["flat", "after an inexact division", "four calls deep",
                                          "16 live values"],
                       "Resume and yield: one coroutine", "ns, logarithmic; less is better"),
        "life": dots(machines, TABLE, ["switch", "create", "last switch", "destroy", "kill"],
                     "1000 coroutines with 128 KB stacks, mean of one operation",
                     "ns, logarithmic; less is better"),
        "many": dots(machines, [MANY[0], MANY[2], MANY[4]],
                     ["1 × 16 KB", "1000 × 2 MB", "30,000 × 64 KB"],
                     "Resume and yield, all coroutines in turn", "ns, logarithmic; less is better"),
        "skynet": dots(machines, [SKYNET[0], SKYNET[2]], ["nested", "by scheduler"],
                       "Skynet: 1,111,111 coroutines come and go",
                       "ms, logarithmic; less is better. On the right: peak of memory",
                       (SKYNET[1], SKYNET[3])),
        "share": curves(machines, SHARE, SHARE_SIZES, "100,000 coroutines on one stack",
                        "ns for a resume and its yield", "live bytes, copied both ways",
                        "^(aco share stack|plain copying library)$"),
        "memory": bars(machines, [FAR[1], FAR[3]], ["8 live bytes", "120 live bytes"],
                       "10,000,000 suspended coroutines on one stack", "peak of memory, MiB"),
        "count": curves(machines, COUNT, COUNTS,
                        "Resume and yield in turn, by the number of coroutines",
                        "ns for a resume and its yield", "coroutines"),
        "live": curves(machines, LIVE, LIVE_SIZES,
                       "10,000 coroutines on one stack, by what lives on it",
                       "ns for a resume and its yield", "live bytes"),
        "pure": bars(machines, PURE[:1], [""], "The switch alone, there and back",
                     "instructions of the program, without the kernel's", of=""),
    }


def runtime_charts(machines: list[Results]) -> dict[str, str]:
    return {
        "scale_connections": curves(machines, ECHO, tuple(ECHO_PEERS),
                                    "Echo of 64 bytes, by the number of connections",
                                    "processor time of the server for a request, ns",
                                    "connections", SCALED),
        "scale_turns": curves(machines, TURNS, TASK_COUNTS,
                              "Tasks that run in turn, by their number", "ns for a turn", "tasks"),
        "scale_sleepers": curves(machines, SLEEPERS, TASK_COUNTS,
                                 "Sleeping tasks, by their number",
                                 "ns for spawn, sleep, wake and end", "tasks"),
    }


CHARTS = {"core": core_charts, "runtime": runtime_charts}


def draw(group: Group, machines: list[Results]) -> dict[str, str]:
    """The group's charts that there are results for, by name."""
    made = CHARTS[group.name](machines) if group.name in CHARTS else {}
    return {name: svg for name, svg in made.items() if svg}
