# SPDX-License-Identifier: Apache-2.0
"""A canvas for the pictures of this folder: their one visual language, written as SVG.

Every picture lies on a panel of its own, light or dark as the reader's system asks, so that it is
legible on any page. Coordinates are pixels, y grows downwards. A canvas refuses text that leaves
its box or the panel, or lies on other text, by estimates of widths that are rather too large.
"""
from __future__ import annotations

from html import escape
from math import hypot

Point = tuple[float, float]

# Each kind of thing: stroke and fill, in the light and in the dark.
KINDS = {
    "plain": ("#8c959f", "#f6f8fa", "#6e7681", "#1c2129"),  # neither of what follows
    "main": ("#0969da", "#ddf0ff", "#58a6ff", "#12304f"),   # main coroutines
    "co": ("#1a7f37", "#dcf7e0", "#3fb950", "#123820"),     # coroutines, their frames
    "other": ("#8250df", "#f3e8ff", "#b78cff", "#32204f"),  # another coroutine, its frames
    "saved": ("#9a6700", "#fff3c4", "#d29922", "#3d2f0b"),  # save stacks, what the library keeps
    "guard": ("#cf222e", "#ffe3e1", "#ff7b72", "#4a1c1c"),  # what must not be touched
}
# Panel, its border, text, text beside.
PAPER = (("#ffffff", "#d0d7de", "#1f2328", "#57606a"), ("#0d1117", "#30363d", "#e6edf3", "#9da7b3"))

SANS = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"
MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"
LINE = 1.35    # height of a line, in sizes of its text
PADDING = 8    # pixels between a box and its text
HEAD = 9       # pixels; length of an arrowhead


def style() -> str:
    """The style sheet: a class for each kind, and for the paper."""
    def rules(dark: int) -> str:
        panel, border, ink, beside = PAPER[dark]
        lines = [f".panel{{fill:{panel};stroke:{border}}}.ink{{fill:{ink}}}",
                 f".beside,.head{{fill:{beside}}}.line{{stroke:{beside}}}"]
        for kind, colours in KINDS.items():
            stroke, fill = colours[2 * dark], colours[2 * dark + 1]
            lines.append(f".{kind}{{stroke:{stroke};fill:{fill}}}.line-{kind}{{stroke:{stroke}}}"
                         f".head-{kind}{{fill:{stroke}}}")
        return "".join(lines)
    return (f"text{{font-family:{SANS}}}.mono{{font-family:{MONO}}}.bold{{font-weight:bold}}"
            f"{rules(0)}"
            f"@media (prefers-color-scheme:dark){{{rules(1)}}}")


def text_width(text: str, size: float, mono: bool, bold: bool) -> float:
    """At most what the text takes in the fonts above."""
    if mono:
        return len(text) * size * 0.61
    ems = sum(0.40 if c in " .,:;!'|()[]ijlftrI-" else 0.95 if c in "mwMW" else
              0.72 if c.isupper() else 0.625 for c in text)
    return ems * size * (1.1 if bold else 1)


class Canvas:
    """A picture under way: svg() is what was drawn."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []
        self.texts: list[tuple[float, float, float, float, str]] = []

    # ---- Text ------------------------------------------------------------------------------------

    def text(self, x: float, y: float, text: str, size: float = 14, anchor: str = "start",
             mono: bool = False, bold: bool = False, beside: bool = False,
             upright: bool = False) -> None:
        """A line of text, whose baseline is at y, or at x if it is turned upright."""
        width = text_width(text, size, mono, bold)
        start = {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        turn = ""
        if upright:
            self._claim(x - 0.76 * size, y + start - width, x + 0.24 * size, y + start, text)
            turn = f' transform="rotate(-90 {x:g} {y:g})"'
        else:
            self._claim(x - start, y - 0.76 * size, x - start + width, y + 0.24 * size, text)
        classes = ["beside" if beside else "ink"] + ["mono"] * mono + ["bold"] * bold
        self.parts.append(f'<text class="{" ".join(classes)}" x="{x:g}" y="{y:g}" '
                          f'font-size="{size:g}" text-anchor="{anchor}" xml:space="preserve"{turn}>'
                          f'{escape(text)}</text>')

    def lines(self, x: float, y: float, texts: list[str], size: float = 14, anchor: str = "start",
              mono: bool = False, beside: bool = False) -> None:
        """Lines of text below each other, the first one's baseline at y."""
        for i, text in enumerate(texts):
            self.text(x, y + i * size * LINE, text, size, anchor, mono, beside=beside)

    def heading(self, text: str, beside: str) -> None:
        """Writes at the top what the picture is about."""
        self.text(28, 42, text, 20, bold=True)
        self.text(28, 66, beside, 14, beside=True)

    def _claim(self, x0: float, y0: float, x1: float, y1: float, text: str) -> None:
        if x0 < 6 or y0 < 6 or x1 > self.width - 6 or y1 > self.height - 6:
            raise ValueError(f"{self.title}: text leaves the panel: {text}")
        for a0, b0, a1, b1, other in self.texts:
            if x0 < a1 and a0 < x1 and y0 < b1 and b0 < y1:
                raise ValueError(f"{self.title}: text on text: {text} / {other}")
        self.texts.append((x0, y0, x1, y1, text))

    # ---- Shapes ----------------------------------------------------------------------------------

    def box(self, x: float, y: float, w: float, h: float, kind: str, texts: list[str] | None = None,
            size: float = 14, mono: bool = False, bold: bool = False, radius: float = 6,
            dashed: bool = False) -> None:
        """A rectangle with lines of text in its middle."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" '
                          f'rx="{radius:g}" stroke-width="1.5"{dash}/>')
        texts = texts or []
        for text in texts:
            if text_width(text, size, mono, bold) > w - 2 * PADDING or \
                    len(texts) * size * LINE > h:
                raise ValueError(f"{self.title}: text leaves its box: {text}")
        top = y + h / 2 - (len(texts) - 1) * size * LINE / 2 + size * 0.35
        for i, text in enumerate(texts):
            self.text(x + w / 2, top + i * size * LINE, text, size, "middle", mono, bold)

    def arrow(self, points: list[Point], kind: str = "", dashed: bool = False) -> None:
        """A line through the points, with a head at the last one."""
        suffix = f"-{kind}" if kind else ""
        neck = self._head(points[-2], points[-1], suffix)
        self.line([*points[:-1], neck], kind, dashed)

    def line(self, points: list[Point], kind: str = "", dashed: bool = False) -> None:
        """A line through the points; its corners are round."""
        suffix = f"-{kind}" if kind else ""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        path = f"M{points[0][0]:g} {points[0][1]:g}"
        for before, corner, after in zip(points, points[1:], points[2:]):
            a, b = _towards(corner, before, 8), _towards(corner, after, 8)
            path += f"L{a[0]:g} {a[1]:g}Q{corner[0]:g} {corner[1]:g} {b[0]:g} {b[1]:g}"
        path += f"L{points[-1][0]:g} {points[-1][1]:g}"
        self.parts.append(f'<path class="line{suffix}" d="{path}" fill="none" '
                          f'stroke-width="2"{dash}/>')

    def _head(self, before: Point, tip: Point, suffix: str) -> Point:
        """Draws a head, and returns where the shaft ends."""
        neck = _towards(tip, before, HEAD)
        dx, dy = (tip[0] - neck[0]) * 0.5, (tip[1] - neck[1]) * 0.5
        self.parts.append(f'<path class="head{suffix}" d="M{tip[0]:g} {tip[1]:g}L{neck[0] - dy:g} '
                          f'{neck[1] + dx:g}L{neck[0] + dy:g} {neck[1] - dx:g}Z"/>')
        return neck

    def bracket(self, x: float, y0: float, y1: float, text: str, left: bool = False) -> None:
        """A bracket that opens to the left (or right, with `left`), with what it spans beside."""
        d = -1 if left else 1
        self.line([(x, y0), (x + 8 * d, y0), (x + 8 * d, y1), (x, y1)])
        self.text(x + (-14 if left else 24), (y0 + y1) / 2, text, 12, "middle", mono=True,
                  upright=True)

    def raw(self, part: str) -> None:
        """A part of the SVG as it is, for what is in one picture only."""
        self.parts.append(part)

    # ---- Result ----------------------------------------------------------------------------------

    def svg(self) -> str:
        """The picture. Light is the default: what knows no media query shows that."""
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img">\n'
                f"<title>{escape(self.title)}</title>\n<style>{style()}</style>\n"
                f'<rect class="panel" x="1" y="1" width="{self.width - 2}" '
                f'height="{self.height - 2}" rx="12" stroke-width="1.5"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def _towards(start: Point, end: Point, distance: float) -> Point:
    """The point at a distance from `start` on the way to `end`, at most half way."""
    length = hypot(end[0] - start[0], end[1] - start[1])
    part = min(distance / length, 0.5) if length else 0
    return (round(start[0] + (end[0] - start[0]) * part, 2),
            round(start[1] + (end[1] - start[1]) * part, 2))
