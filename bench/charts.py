# SPDX-License-Identifier: Apache-2.0
"""Draws the charts, as SVG. They have a ground of their own, light and opaque, so that they can be
read on a light page and on a dark one."""

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

from plan import COUNTS, LIVE_SIZES, SHARE_SIZES  # noqa: E402
from report import (COUNT, FAR, LIVE, MANY, PURE, SHARE, SKYNET, SWITCH,  # noqa: E402
                    TABLE, Column, Results, is_aco, number, published)

GROUND, INK, FAINT = "#fafaf7", "#22262b", "#d9d9d4"
OURS = "#c2410c"
# Told apart by those who don't see all colours, too: by hue, by lightness and by marker.
COLOURS = ["#1d4e89", "#c2410c", "#3f9c6b", "#8a5fb0", "#6b7280"]
MARKERS = ["o", "D", "s", "^", "v"]
WIDTH = 9.0  # inches
# In charts, one build of aco stands for those that differ in little.
CHARTED = r"^(?!.*(acosw|-m32|aco_cancel)|aco standalone, own)"

pyplot.rcParams.update({
    "figure.facecolor": GROUND, "axes.facecolor": GROUND, "savefig.facecolor": GROUND,
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.edgecolor": FAINT, "grid.color": FAINT, "font.size": 11, "axes.titlesize": 13,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "svg.hashsalt": "aco",
    "axes.spines.top": False, "axes.spines.right": False,
})


def save(figure: Figure, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.svg", bbox_inches="tight", pad_inches=0.2,
                   metadata={"Date": None})
    pyplot.close(figure)


def note_machine(figure: Figure, results: Results) -> None:
    """Below all else: y is in parts of the figure's height."""
    machine = results.machine
    cpu = machine["machine"].split(", Linux")[0]
    compiler = re.sub(r" \(.*?\)", "", machine["compiler"])
    figure.text(0.99, -0.4 / figure.get_figheight(), f"{cpu}; {compiler}; {machine['date']}",
                ha="right", va="top", fontsize=8.5, color="#6b7280")


def legend_below(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, 0.0),
                  ncol=len(names), frameon=False, fontsize=10.5, columnspacing=1.4,
                  handletextpad=0.4, borderaxespad=0)


def plain_logarithms(axis) -> None:
    axis.set_major_locator(LogLocator(base=10, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def emphasize(axes: Axes) -> None:
    for label in axes.get_yticklabels():
        if is_aco(label.get_text()):
            label.set_color(OURS)
            label.set_fontweight("bold")


def rows_of(results: Results, columns: list[Column], of: str) -> list[str]:
    """The peers to draw, the first one first."""
    found = {title for column in columns
             for title in results.titles(column.workload, column.metric)
             if re.search(of, title)}

    def key(title: str) -> float:
        values = [results.median(title, column.workload, column.metric) for column in columns]
        known = [value for value in values if value is not None]
        return known[0] if values[0] is not None else 1e12 + known[0]

    return sorted(found, key=key)


def dots(results: Results, columns: list[Column], names: list[str], title: str, unit: str,
         beside: tuple[Column, ...] = ()) -> Figure | None:
    """A line for each peer, with a mark for each column, on a logarithmic scale; at its end the
    first value there is of `beside`."""
    titles = rows_of(results, columns, CHARTED)
    if not titles:
        return None
    figure, axes = pyplot.subplots(figsize=(WIDTH, 1.6 + 0.3 * len(titles)))
    for i, (column, name, colour, marker) in enumerate(zip(columns, names, COLOURS, MARKERS)):
        # Marks that would cover each other are a little apart.
        apart = (i - (len(columns) - 1) / 2) * 0.12
        points = [(results.median(peer, column.workload, column.metric), y + apart)
                  for y, peer in enumerate(titles)]
        points = [(x, y) for x, y in points if x]
        axes.plot([x for x, _ in points], [y for _, y in points], marker, label=name,
                  color=colour, markersize=7, markeredgecolor=GROUND, markeredgewidth=0.6)
    for y, peer in enumerate(titles):
        values = [results.median(peer, column.workload, column.metric) for column in beside]
        texts = [f"{number(value)} {column.head.split()[-1]}"
                 for value, column in zip(values, beside) if value is not None]
        axes.text(1.01, y, (texts or [""])[0], va="center", fontsize=9.5,
                  transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(titles)), titles)
    axes.set_ylim(len(titles) - 0.5, -0.5)
    axes.set_xscale("log")
    plain_logarithms(axes.xaxis)
    axes.grid(True, axis="both", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(title)
    axes.set_xlabel(unit)
    emphasize(axes)
    legend_below(figure, axes)
    return figure


def bars(results: Results, columns: list[Column], names: list[str], title: str, unit: str,
         of: str = CHARTED) -> Figure | None:
    """A bar for each column of each peer, with its value at its end, on a linear scale."""
    titles = rows_of(results, columns, of)
    if not titles:
        return None
    height = 0.8 / len(columns)
    figure, axes = pyplot.subplots(figsize=(WIDTH, 1.4 + 0.3 * len(columns) * len(titles)))
    for i, (column, name) in enumerate(zip(columns, names)):
        places = [y + (i - (len(columns) - 1) / 2) * height for y in range(len(titles))]
        values = [results.median(peer, column.workload, column.metric) or 0 for peer in titles]
        axes.barh(places, values, height * 0.9, color=COLOURS[i], label=name)
        for place, value in zip(places, values):
            axes.text(value, place, f" {number(value)}" if value else " –", va="center",
                      fontsize=9.5)
    axes.set_yticks(range(len(titles)), titles)
    axes.set_ylim(len(titles) - 0.4, -0.6)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.06)
    axes.grid(True, axis="x", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(title)
    axes.set_xlabel(unit)
    emphasize(axes)
    if len(names) > 1:
        legend_below(figure, axes)
    return figure


def lines(series: dict[str, list[tuple[float, float]]], title: str, across: str,
          unit: str) -> Figure | None:
    """A curve for each name, both scales logarithmic, with the name at its end."""
    if not any(series.values()):
        return None
    figure, axes = pyplot.subplots(figsize=(WIDTH, 5))
    shown = sorted((name for name in series if series[name]), key=lambda name: not is_aco(name))
    for i, name in enumerate(shown):
        points = sorted(series[name])
        is_quoted = "published" in name
        axes.plot([x for x, _ in points], [y for _, y in points], label=name,
                  marker=MARKERS[i % len(MARKERS)], color=COLOURS[(i + 1) % len(COLOURS)],
                  linestyle=":" if is_quoted else "-", linewidth=1.8, markersize=6)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_logarithms(axes.xaxis)
    plain_logarithms(axes.yaxis)
    axes.grid(True, which="major", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(unit)
    axes.legend(loc="upper left", frameon=False)
    return figure


def series_of(results: Results, columns: list[Column], across: tuple[int, ...]) -> dict:
    found: dict[str, list[tuple[float, float]]] = {}
    for x, column in zip(across, columns):
        for title in results.titles(column.workload, column.metric):
            if re.search(CHARTED, title):
                value = results.median(title, column.workload, column.metric)
                found.setdefault(title, []).append((x, value or 0))
    return found


def draw_share(results: Results) -> Figure | None:
    series = series_of(results, SHARE, SHARE_SIZES)
    series = {name: points for name, points in series.items()
              if name in ("aco share stack", "plain copying library")}
    if any(series.values()):
        for row in published("share"):
            x = float(row["column"].split()[0])
            series.setdefault(f"{row['peer']}, published", []).append((x, float(row["value"])))
    return lines(series, "100,000 coroutines on one stack", "live bytes, copied both ways",
                 "ns for a resume and its yield")


def draw(results: Results, folder: Path) -> None:
    made = {
        "switch": dots(results, SWITCH, ["flat", "after an inexact division", "four calls deep",
                                         "16 live values"],
                       "Resume and yield: one coroutine", "ns, logarithmic"),
        "life": dots(results, TABLE, ["switch", "create", "last switch", "destroy", "kill"],
                     "1000 coroutines with 128 KB stacks, mean of one operation",
                     "ns, logarithmic"),
        "many": dots(results, [MANY[0], MANY[2], MANY[4]],
                     ["1 × 16 KB", "1000 × 2 MB", "30,000 × 64 KB"],
                     "Resume and yield, all coroutines in turn", "ns, logarithmic"),
        "skynet": dots(results, [SKYNET[0], SKYNET[2]], ["nested", "by scheduler"],
                       "Skynet: 1,111,111 coroutines come and go", "ms, logarithmic; right: peak "
                       "of memory", (SKYNET[1], SKYNET[3])),
        "share": draw_share(results),
        "memory": bars(results, [FAR[1], FAR[3]], ["8 live bytes", "120 live bytes"],
                       "10,000,000 suspended coroutines on one stack: peak of memory",
                       "MiB"),
        "count": lines(series_of(results, COUNT, COUNTS),
                       "Resume and yield in turn, by how many there are", "coroutines",
                       "ns for a resume and its yield"),
        "live": lines(series_of(results, LIVE, LIVE_SIZES),
                      "10,000 coroutines on one stack, by what lives on it", "live bytes",
                      "ns for a resume and its yield"),
        "pure": bars(results, PURE[:1], [""], "The switch alone, there and back: instructions",
                     "instructions of the program; those of the kernel don't count", of=""),
    }
    for name, figure in made.items():
        if figure is not None:
            note_machine(figure, results)
            save(figure, folder, name)
