# SPDX-License-Identifier: Apache-2.0
"""The picture of trace.json, which trace.c recorded: the slices of each loop, the arrows from wakes
to runs, and below them the waits of some tasks."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from canvas import Canvas

Event = dict[str, Any]

LEFT, WIDTH, TOP = 130.0, 800.0, 118.0  # pixels: of the time line
SLICE, WAIT = 40.0, 20.0                # pixels: heights
ROW = 96.0                              # pixels between two loops
KINDS = {"client": "co", "writer": "other", "report": "guard", "first": "main"}
NARROW = 1.2                            # pixels at least of a slice
STEP = 100                              # us between two marks


class Timeline:
    """Events between two points in time, in us."""

    def __init__(self, canvas: Canvas, events: list[Event]) -> None:
        self.canvas = canvas
        self.slices = [e for e in events if e.get("cat") == "task"]
        work = [e for e in self.slices if e["name"] != "first"]
        self.start = min(e["ts"] for e in work if e["name"] == "client") - 20
        self.end = max(e["ts"] + e["dur"] for e in work) + 20
        self.events = sorted((e for e in events if e["ts"] > self.start), key=lambda e: e["ts"])
        loops = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
        self.rows = {tid: TOP + ROW * i
                     for i, tid in enumerate(sorted(loops, key=lambda tid: str(loops[tid])))}
        for tid, y in self.rows.items():
            canvas.text(LEFT - 14, y + 25, loops[tid], 13, "end", bold=True)

    def x(self, us: float) -> float:
        """Where a point in time is."""
        return float(round(LEFT + WIDTH * (us - self.start) / (self.end - self.start), 1))

    def draw_slice(self, event: Event) -> None:
        """A task that runs."""
        x, y = self.x(event["ts"]), self.rows[event["tid"]]
        width = max(self.x(event["ts"] + event["dur"]) - x, NARROW)
        name = event["name"] if width > 90 else ""
        self.canvas.box(x, y, width, SLICE, KINDS[event["name"]], [name] if name else [], 13,
                        radius=0)

    def draw_arrows(self) -> None:
        """Draws arrows from where a task was woken to where it runs."""
        wakes: dict[int, Event] = {}
        for event in self.events:
            if event["ph"] == "s":
                wakes[event["id"]] = event
            elif event["ph"] == "f" and event["id"] in wakes:
                wake = wakes.pop(event["id"])
                x0, x1 = self.x(wake["ts"]), self.x(event["ts"])
                y0, y1 = self.rows[wake["tid"]], self.rows[event["tid"]]
                if y0 != y1:
                    self.canvas.arrow([(x0, y0 + SLICE + 1), (x1, y1 - 2)])
                elif x1 - x0 > 12:
                    self.canvas.arrow([(x0, y0 - 2), (x0 + 2, y0 - 14), (x1 - 4, y0 - 14),
                                       (x1, y0 - 2)])

    def draw_waits(self, name: str, y: float) -> float:
        """The waits of each task of a name, below each other; returns where the next row is."""
        for task in sorted({e["args"]["task"] for e in self.slices if e["name"] == name}):
            self.canvas.text(LEFT - 14, y + 15, f"{name} {task}", 13, "end")
            began = 0.0
            for event in (e for e in self.events if e.get("cat") == "wait" and e["id"] == task):
                if event["ph"] == "b":
                    began = event["ts"]
                elif began:
                    x0, x1 = self.x(began), self.x(event["ts"])
                    text = event["name"].replace("waits ", "") if x1 - x0 > 90 else ""
                    self.canvas.box(x0, y, x1 - x0, WAIT, "saved", [text] if text else [], 12,
                                    radius=0)
            y += WAIT + 10
        return y

    def draw_marks(self, bottom: float) -> None:
        """The time."""
        for us in range(0, int(self.end - self.start), STEP):
            x = self.x(self.start + us)
            self.canvas.raw(f'<path class="line" d="M{x:g} {TOP - 22:g}V{bottom:g}" '
                            'stroke-width="0.5" stroke-dasharray="2 4"/>')
            self.canvas.text(x, bottom + 16, f"{us} \u00b5s", 12, "middle", beside=True)


def trace() -> Canvas:
    """Tasks of two loops: one that computes delays the others."""
    c = Canvas(960, 480, "A trace")
    c.heading("A trace", "slices are tasks that run, arrows lead from what woke a task to where it "
              "runs, waits are below")
    events = json.loads((Path(__file__).resolve().parent / "trace.json").read_text("utf-8"))
    line = Timeline(c, events)
    line.draw_marks(TOP + 2 * ROW + 3 * (WAIT + 10) + 4)
    for event in line.slices:
        if event["ts"] > line.start and event["name"] in KINDS:
            line.draw_slice(event)
    line.draw_arrows()
    line.draw_waits("client", TOP + 2 * ROW)
    longest = max(line.slices, key=lambda event: float(event["dur"]))
    c.lines(LEFT, 446, [
        "Green: clients, which sleep for 90 \u00b5s, work, and send a line. Violet: the task that "
        "writes the lines.",
        f"The report keeps loop 0 for {longest['dur']:.0f} \u00b5s, so clients go on late."], 13)
    return c
