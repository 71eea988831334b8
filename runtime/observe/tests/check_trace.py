# SPDX-License-Identifier: Apache-2.0
"""
Checks the trace of trace_sample.c: check_trace.py FILE. It is a list of events of the Trace Event
Format, which the sample must have caused, and whose times and arrows make sense.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from typing import Any

Event = dict[str, Any]


def check(holds: bool, words: str) -> None:
    if not holds:
        sys.exit("check_trace.py: " + words)


def check_slices(events: list[Event]) -> None:
    """Slices of a thread don't overlap, and name the tasks."""
    ends: dict[int, float] = defaultdict(float)
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: float(e["ts"])):
        check(event["ts"] >= ends[event["tid"]] - 0.002, f"overlap: {event}")
        ends[event["tid"]] = event["ts"] + event["dur"]
    names = {e["name"] for e in events if e["ph"] == "X"}
    wanted = {"first", "reads", 's\u00e9n"d?r', "looks outside"}
    wanted.add("receiver, whose name takes more than one event")
    check(wanted == names, f"names: {names}")
    then = {e["args"]["then"] for e in events if e.get("cat") == "task"}
    wanted = {"ends", "yields", "waits for a time", "waits for the end of a task",
              "waits for a sender"}
    check(wanted <= then, f"ends of slices: {then}")
    check(any(t.startswith("waits for input of descriptor ") for t in then), f"no input: {then}")


def check_waits(events: list[Event]) -> None:
    """Waits of a task begin and end in turn, each at the end of a slice of it."""
    ends: dict[int, list[float]] = defaultdict(list)
    for event in (e for e in events if e.get("cat") == "task"):
        ends[event["args"]["task"]].append(event["ts"] + event["dur"])
    open_waits: dict[int, Event] = {}
    for event in (e for e in events if e.get("cat") == "wait"):
        if event["ph"] == "b":
            check(event["id"] not in open_waits, f"begins twice: {event}")
            open_waits[event["id"]] = event
            check(any(abs(end - event["ts"]) < 0.01 for end in ends[event["id"]]), f"{event}")
        else:
            begin = open_waits.pop(event["id"])
            check(begin["name"] == event["name"] and begin["ts"] <= event["ts"], f"{event}")
    names = [e["name"] for e in events if e.get("cat") == "wait" and e["ph"] == "b"]
    check(names.count("waits for a time") >= 10, f"{names}")


def check_arrows(events: list[Event]) -> None:
    """Each run after a wait has an arrow, from a slice, and some lead to another thread."""
    slices = [e for e in events if e["ph"] == "X"]
    flows = sorted((e for e in events if e["ph"] in "sf"), key=lambda e: float(e["ts"]))
    starts: dict[int, Event] = {}
    ct_between_threads = 0
    for event in flows:
        if event["ph"] == "s":
            check(any(s["tid"] == event["tid"] and
                      s["ts"] - 0.002 <= event["ts"] <= s["ts"] + s["dur"] + 0.002
                      for s in slices), f"from no slice: {event}")
            starts[event["id"]] = event
        elif event["id"] in starts:
            ct_between_threads += starts.pop(event["id"])["tid"] != event["tid"]
        else:
            check(event["id"] == 1, f"an arrow from nowhere: {event}")
    check(ct_between_threads >= 10, f"only {ct_between_threads} arrows between threads")


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    events = json.loads(text if text.rstrip().endswith("]") else text + "]")
    check(len({e["tid"] for e in events}) == 2, "not two threads")
    check_slices(events)
    check_waits(events)
    check_arrows(events)


main()
