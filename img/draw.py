#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of this folder: each is a function below, in terms of canvas.py.

  img/draw.py           writes NAME.svg
  img/draw.py --check   checks whether the files are what would be drawn
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from canvas import Canvas
from timeline import trace

FOLDER = Path(__file__).resolve().parent
MAX_SZ = 100_000  # bytes of a file
W = 960           # pixels; of all but the logo

# ==== Parts of several pictures ===================================================================


def stack(c: Canvas, x: float, y: float, w: float, frames: list[tuple[str, str, float]],
          free: float, title: str) -> float:
    """A stack that grows down from y: kinds, names and heights of its frames, then what is free.
    Returns where SP is."""
    c.text(x + w / 2, y - 10, title, 13, "middle", beside=True)
    sp = y + sum(height for _, _, height in frames)
    c.box(x, sp, w, free, "plain", ["free"], 12, radius=0, dashed=True)
    for kind, text, height in frames:
        c.box(x, y, w, height, kind, text.split("\n"), 13, mono=True, radius=0)
        y += height
    return sp


def words(c: Canvas, x: float, y: float, w: float, kind: str, title: str,
          values: list[tuple[str, str]]) -> None:
    """A reg[], with the values of its words."""
    c.text(x + w / 2, y - 9, title, 13, "middle", mono=True)
    for i, (name, value) in enumerate(values):
        c.box(x, y + 28 * i, w * 0.4, 28, kind, [name], 12, mono=True, radius=0)
        c.box(x + w * 0.4, y + 28 * i, w * 0.6, 28, "plain", [value], 12, mono=True, radius=0)


def claims(c: Canvas, x: float, y: float, w: float, title: str,
           rows: list[tuple[str, list[str]]]) -> None:
    """Draws the claims that hold on arrival: numbers as in docs/proof.md, and words."""
    height = sum(18 * len(texts) + 10 for _, texts in rows) + 42
    c.box(x, y, w, height, "plain")
    c.text(x + 14, y + 25, title, 14, bold=True)
    y += 50
    for number, texts in rows:
        c.text(x + 14, y, number, 12, mono=True, beside=True)
        c.lines(x + 60, y, texts, 13)
        y += 18 * len(texts) + 10


def four_things(c: Canvas, kept: bool) -> None:
    """Registers, code, other data and stack of a thread; with `kept`, only what a switch keeps."""
    still = "plain" if kept else "other"
    c.box(40, 96, 250, 262, "main", radius=10)
    c.text(165, 122, "registers", 16, "middle", bold=True)
    for i, (name, use) in enumerate([("rip", "where in the code"), ("rsp", "where in the stack"),
                                     ("rbp", "the frame"), ("fpu", "control words"),
                                     ("rbx …", "values at work")]):
        dashed = kept and i == 4
        c.box(56, 138 + 42 * i, 64, 34, "plain", [name], 13, mono=True, radius=3, dashed=dashed)
        c.text(130, 160 + 42 * i, use, 13, beside=dashed)
    c.box(400, 96, 220, 116, still, radius=10, dashed=kept)
    c.text(510, 122, "code", 16, "middle", bold=True)
    c.lines(428, 150, ["for (;;) {", "    work(data);", "}"], 13, mono=True)
    c.box(400, 242, 220, 116, still, radius=10, dashed=kept)
    c.text(510, 268, "other data", 16, "middle", bold=True)
    c.lines(510, 300, ["heap, globals", "files, sockets"], 13, "middle")
    stack(c, 730, 112, 190, [("co", "main()", 56), ("co", "parse()", 66), ("co", "work()", 50)], 74,
          "stack")


# ==== The thread model ============================================================================


def thread_model_0() -> Canvas:
    """Four things."""
    c = Canvas(W, 400, "Thread model, step 0: four things")
    c.heading("What a thread is in the middle of", "four things: values in registers, code, data, "
              "and a stack; registers point to the others")
    four_things(c, kept=False)
    c.arrow([(290, 154), (396, 154)])
    c.arrow([(290, 322), (340, 322), (340, 300), (396, 300)])
    c.arrow([(290, 196), (350, 196), (350, 226), (672, 226), (672, 284), (726, 284)])
    return c


def thread_model_1() -> Canvas:
    """Two of them suffice."""
    c = Canvas(W, 500, "Thread model, step 1: two of them suffice")
    c.heading("What must be kept to go on later", "code and other data stay where they are: "
              "that leaves the registers and the stack, and of both only a part")
    four_things(c, kept=True)
    for i, name in enumerate(["RETADDR", "SP", "BP", "FPU"]):
        c.box(40 + 90 * i, 420, 90, 34, "saved", [name], 13, mono=True, radius=0)
    c.arrow([(165, 358), (165, 416)], "saved")
    c.text(178, 392, "four words (three if control words are shared): reg[]", 13)
    c.text(40, 476, "All other registers: the compiler has saved what is live, on the stack.", 13,
           beside=True)
    c.bracket(714, 112, 284, "live", left=True)
    c.text(825, 392, "from SP up: what is in use", 13, "middle")
    return c


def thread_model_2() -> Canvas:
    """Standalone coroutines."""
    c = Canvas(W, 500, "Thread model, step 2: standalone coroutines")
    c.heading("Standalone: a stack for each", "a switch fills one reg[] and loads another; "
              "the stacks stay as they are")
    columns = [("main", "main coroutine", "the thread's own stack", "suspended: reg[]"),
               ("co", "co 1", "a share stack", "running: the processor"),
               ("other", "co 2", "another share stack", "suspended: reg[]")]
    for i, (kind, name, where, state) in enumerate(columns):
        x = 70 + 300 * i
        c.box(x, 96, 220, 64, kind, [name, state], 14)
        frames = [(kind, "frames", 44.0), (kind, "frames", 60.0 + 20 * (i % 2))]
        sp = stack(c, x + 30, 214, 160, frames, 60, where)
        c.arrow([(x + 8, 164), (x + 8, sp), (x + 27, sp)], kind)
        c.text(x + 2, sp - 4, "SP", 12, "end", mono=True)
    c.arrow([(294, 116), (366, 116)], "co")
    c.text(330, 106, "resume", 12, "middle")
    c.arrow([(366, 142), (294, 142)], "main")
    c.text(330, 158, "yield", 12, "middle")
    c.lines(70, 452, [
        "Nothing is ever copied. It costs one stack per coroutine: a few KiB that were touched,",
        "and addresses for the rest."], 13, beside=True)
    return c


def thread_model_3() -> Canvas:
    """Copying coroutines."""
    c = Canvas(W, 490, "Thread model, step 3: copying coroutines")
    c.heading("Copying: one stack for many", "the owner's frames lie on the share stack; "
              "of all others only the live bytes are kept, elsewhere")
    stack(c, 60, 128, 170, [("main", "frames", 50), ("main", "frames", 60)], 120,
          "the thread's own stack")
    c.text(145, 388, "main coroutine", 14, "middle")
    stack(c, 340, 128, 190, [("co", "frames of\nco 1", 110)], 120, "the share stack")
    c.text(435, 388, "co 1 is its owner", 14, "middle")
    c.text(710, 118, "save stacks", 13, "middle", beside=True)
    c.box(640, 128, 140, 70, "co", ["for co 1"], 13, dashed=True)
    for x, y, height, name in [(640, 222, 74, "co 2"), (640, 320, 50, "co 3"),
                               (796, 222, 92, "co 4")]:
        c.box(x, y, 140, height, "other", ["frames of", name], 13, mono=True, radius=0)
    c.arrow([(534, 152), (636, 152)], "co")
    c.text(585, 144, "1  out", 13, "middle")
    c.arrow([(636, 250), (585, 250), (585, 210), (534, 210)], "other")
    c.text(594, 226, "2  in", 13)
    c.lines(60, 430, [
        "When co 2 is resumed, the live frames of co 1 are copied out (1), and its own come in",
        "(2), to the addresses that they had. Resuming the owner again copies nothing. Each takes",
        "little more than its live frames, often some hundred bytes; so millions fit."],
        13, beside=True)
    return c


# ==== The proof ===================================================================================


def proof_0() -> Canvas:
    """The running model of main and one coroutine."""
    c = Canvas(W, 400, "Proof, picture 0: main and one coroutine")
    c.heading("The running model: main and one coroutine", "one runs at a time; "
              "each switch suspends it, and the other one goes on")
    lanes = {"main": 150, "co": 270}
    c.text(28, 155, "main_co", 14, mono=True)
    c.text(28, 275, "co", 14, mono=True)
    runs = [("main", 120, 250), ("co", 250, 400), ("main", 400, 540), ("co", 540, 690),
            ("main", 690, 900)]
    for kind, x0, x1 in runs:
        c.box(x0, lanes[kind] - 15, x1 - x0, 30, kind, ["runs"], 13)
    c.line([(254, 150), (396, 150)], "main", dashed=True)
    c.line([(544, 150), (686, 150)], "main", dashed=True)
    c.line([(120, 270), (246, 270)], "co", dashed=True)
    c.line([(404, 270), (536, 270)], "co", dashed=True)
    for x, y, text in [(325, 140, "yielded"), (615, 140, "yielded"), (183, 260, "init"),
                       (470, 260, "yielded"), (760, 275, "end")]:
        c.text(x, y, text, 12, "middle", beside=True)
    for x, down, call, kind in [(250, 1, "aco_resume", "yielded → init"),
                                (400, 0, "aco_yield", "yielded → yielded"),
                                (540, 1, "aco_resume", "yielded → yielded"),
                                (690, 0, "aco_exit", "yielded → yielded")]:
        c.arrow([(x, 165), (x, 253)] if down else [(x, 255), (x, 167)], "main" if down else "co")
        c.text(x + 8, 206, call, 13, mono=True)
        c.text(x + 8, 224, kind, 12, beside=True)
    c.arrow([(120, 320), (900, 320)])
    c.text(900, 340, "time", 12, "end", beside=True)
    c.lines(28, 356, [
        "Every switch is of one of two kinds: yielded → init, once for each coroutine, and yielded "
        "→ yielded.", "(The one left is yielded; at aco_exit() nobody comes back to it.)"], 13)
    return c


def proof_1() -> Canvas:
    """The symmetric model."""
    c = Canvas(W, 430, "Proof, picture 1: the symmetric model")
    c.heading("The symmetric model: any coroutine to any other", "who resumes whom plays no part "
              "in the proof: acosw(from, to) is all that happens")
    c.box(90, 206, 150, 70, "main", ["A", "running"], 15)
    places = [(390, 100, "co", "B", "yielded"), (390, 206, "other", "C", "init"),
              (390, 312, "co", "D", "yielded")]
    for i, (x, y, kind, name, state) in enumerate(places):
        c.box(x, y, 150, 70, kind, [name, state], 15, dashed=state == "init")
        c.arrow([(244, 241 + 14 * (i - 1)), (315, 241 + 14 * (i - 1)), (315, y + 35),
                 (x - 4, y + 35)] if i != 1 else [(244, 241), (x - 4, 241)], kind)
    c.text(90, 190, "acosw(A, …)", 14, mono=True)
    c.box(600, 100, 320, 282, "plain")
    c.text(616, 126, "A switch changes two states", 14, bold=True)
    c.lines(616, 156, ["from:  running → yielded", "to:    init    → running",
                       "   or  yielded → running"], 13, mono=True)
    c.lines(616, 232, ["It may touch reg[] of both, the stack", "of from below its SP, and nothing",
                       "else (M in docs/proof.md)."], 13)
    c.lines(616, 306, ["So one that is suspended stays as it", "is until it is switched to: by",
                       "induction, every switch finds what", "the last one has left."], 13)
    return c


def steps(c: Canvas, x: float, y: float, more: list[str]) -> None:
    """Lists the steps of every switch, in order, and more."""
    c.text(x, y, "acosw(from, to)", 14, mono=True, bold=True)
    c.lines(x, y + 26, ["1  from keeps: reg[RETADDR, SP, BP, FPU]",
                        "2  control words of to, if they differ", "3  BP, then SP ← reg[] of to",
                        "4  jump to reg[RETADDR] of to", *more], 13)


def proof_2() -> Canvas:
    """yielded → init."""
    c = Canvas(W, 470, "Proof, picture 2: yielded to init")
    c.heading("yielded → init: an entry function starts",
              "the four words and one word of the stack look as if it had just been called")
    steps(c, 40, 112, [])
    words(c, 40, 262, 300, "co", "reg[] of to", [("RETADDR", "fp"), ("SP", "align_retptr"),
                                                 ("BP", "0"), ("FPU", "the thread's")])
    c.text(425, 116, "align_highptr", 12, "end", mono=True)
    c.arrow([(428, 112), (448, 112)])
    sp = stack(c, 452, 112, 170, [("saved", "protector", 40)], 210, "stack of to")
    c.arrow([(344, 304), (400, 304), (400, sp), (448, sp)], "co")
    c.text(410, sp + 22, "SP", 12, mono=True)
    c.lines(40, 404, [
        "RETADDR is jumped to: fp() runs.", "The protector is where it would return to:",
        "there the last word is spoken."], 13, beside=True)
    claims(c, 650, 92, 290, "What fp() finds", [
        ("C1.3", ["an empty x87 stack"]), ("C1.4", ["direction flag 0"]),
        ("C2.0", ["frame pointer 0: the end", "of the chain"]),
        ("C2.1", ["SP at a return address;", "SP + word: multiple of 16"]),
        ("C2.2", ["the control words that", "aco_thread_init() found"]),
        ("C3", ["at every instruction: SP in", "one of the two stacks, and",
                "nothing needed below it"]), ("C4", ["no red zone in use"])])
    return c


def proof_3() -> Canvas:
    """yielded → yielded."""
    c = Canvas(W, 500, "Proof, picture 3: yielded to yielded")
    c.heading("yielded → yielded: a call of acosw returns", "for its caller it was a plain call, "
              "which took long")
    steps(c, 40, 112, ["5  at the tail: pop what is callee-saved", "6  return"])
    words(c, 40, 304, 300, "co", "reg[] of to", [
        ("RETADDR", "tail of acosw"), ("SP", "after the pushes"), ("BP", "as at its call"),
        ("FPU", "its own")])
    sp = stack(c, 452, 112, 170, [("co", "frames", 70), ("co", "caller of acosw", 50),
                                  ("saved", "return address", 36),
                                  ("saved", "rbx r12 r13\nr14 r15", 52)], 100, "stack of to")
    c.arrow([(344, 346), (400, 346), (400, sp), (448, sp)], "co")
    c.text(410, sp - 8, "SP", 12, mono=True)
    c.lines(40, 458, [
        "An inline switch pushes nothing: RETADDR is in the midst of the function, and the",
        "compiler has saved what is live. Each continues the other: the words mean the same."],
        13, beside=True)
    claims(c, 650, 92, 290, "What the caller finds", [
        ("C1.3", ["an empty x87 stack"]), ("C1.4", ["direction flag 0"]),
        ("C2.0", ["callee-saved registers as", "at its call"]),
        ("C2.1", ["SP as before its call"]),
        ("C2.2", ["control words as at its", "call; if shared, the last"]),
        ("C3", ["at every instruction: SP in", "one of the two stacks, and",
                "nothing needed below it"]), ("C4", ["no red zone in use"])])
    return c


# ==== Life and memory =============================================================================


def life() -> Canvas:
    """The states of a coroutine."""
    c = Canvas(W, 500, "The life of a coroutine")
    c.heading("The life of a coroutine",
              "its states, and the calls that lead from one to the other")
    c.box(60, 210, 140, 70, "plain", ["init"], 16, bold=True)
    c.box(370, 210, 160, 70, "co", ["running"], 16, bold=True)
    c.box(740, 210, 160, 70, "other", ["end"], 16, bold=True)
    c.box(280, 366, 400, 92, "plain", radius=12, dashed=True)
    c.text(480, 390, "yielded", 15, "middle", bold=True)
    c.box(296, 402, 140, 44, "main", ["in place"], 14)
    c.box(524, 402, 140, 44, "saved", ["saved out"], 14)

    c.arrow([(130, 140), (130, 206)])
    c.text(142, 160, "aco_create", 13, mono=True)
    c.arrow([(204, 245), (366, 245)], "co")
    c.text(285, 216, "aco_resume,", 13, "middle", mono=True)
    c.text(285, 234, "aco_yield_to", 13, "middle", mono=True)
    c.arrow([(534, 245), (736, 245)], "other")
    c.text(635, 236, "aco_exit", 13, "middle", mono=True)
    c.arrow([(400, 284), (400, 362)])
    c.text(390, 318, "aco_yield,", 13, "end", mono=True)
    c.text(390, 336, "aco_yield_to", 13, "end", mono=True)
    c.arrow([(500, 362), (500, 284)], "co")
    c.text(512, 320, "aco_resume,", 13, mono=True)
    c.text(512, 338, "aco_yield_to", 13, mono=True)
    c.arrow([(440, 416), (520, 416)], "saved")
    c.arrow([(520, 434), (440, 434)], "main")
    c.text(480, 410, "evicted", 12, "middle", beside=True)
    c.text(480, 450, "restored", 12, "middle", beside=True)
    c.arrow([(276, 412), (100, 412), (100, 284)])
    c.text(112, 402, "aco_reset", 13, mono=True)
    c.arrow([(820, 206), (820, 110), (60, 110), (30, 110), (30, 245), (56, 245)])
    c.text(480, 101, "aco_reset", 13, "middle", mono=True)
    c.arrow([(684, 412), (764, 412), (764, 284)], "other")
    c.text(676, 342, "aco_cancel", 13, mono=True)
    c.text(676, 360, "also in init", 12, beside=True)
    c.arrow([(856, 284), (856, 370)])
    c.text(856, 392, "aco_destroy", 13, "middle", mono=True)
    c.text(856, 412, "from any but running", 12, "middle", beside=True)
    return c


def memory() -> Canvas:
    """A share stack and its save stacks."""
    c = Canvas(W, 560, "The memory of a share stack and its save stacks")
    c.heading("A share stack and its save stacks",
              "co 1 is the owner; co 2 and co 3 were saved out; addresses grow upwards")
    x, w = 430, 200
    c.box(x, 276, w, 170, "plain", ["free"], 13, radius=0, dashed=True)
    c.box(x, 96, w, 26, "plain", ["not used"], 12, radius=0)
    c.box(x, 122, w, 34, "saved", ["protector"], 13, mono=True, radius=0)
    c.box(x, 156, w, 120, "co", ["live frames", "of co 1"], 14, radius=0)
    c.box(x, 446, w, 50, "guard", ["guard page"], 13, radius=0)
    for y, name in [(122, "align_highptr"), (156, "align_retptr"), (276, "reg[SP] of co 1"),
                    (446, "ptr"), (496, "real_ptr")]:
        c.text(x + w + 40, y + 4, name, 12, mono=True)
        c.arrow([(x + w + 34, y), (x + w + 5, y)])
    c.bracket(800, 156, 446, "align_limit")
    c.bracket(850, 122, 446, "align_validsz")
    for top, name, height, free in [(120, "co 1", 0, 60), (236, "co 2", 84, 26),
                                    (410, "co 3", 48, 22)]:
        c.text(70, top - 9, f"block of {name}", 12, beside=True)
        c.box(70, top + 26 + height, 190, free, "plain", [] if height else ["save stack"], 12,
              radius=0, dashed=True)
        c.box(70, top, 190, 26, "plain", ["aco_t"], 12, mono=True, radius=0)
        if height:
            c.box(70, top + 26, 190, height, "other", [f"live frames of {name}"], 12, radius=0)
    c.bracket(62, 262, 346, "valid_sz", left=True)
    c.arrow([(x - 4, 176), (264, 176)], "co")
    c.text(345, 168, "save", 13, "middle")
    c.arrow([(264, 304), (345, 304), (345, 226), (x - 4, 226)], "other")
    c.text(354, 246, "restore", 13)
    c.text(28, 538, "When co 2 is resumed: what lies from reg[SP] to align_retptr is saved, and "
           "the frames of co 2 come back to where they were.", 13, beside=True)
    return c


# ==== The runtime =================================================================================


def loop_of_thread(c: Canvas, x: float, number: int, sources: list[str]) -> None:
    """A thread that runs tasks, 330 pixels wide: its loop, its tasks by state, what wakes them."""
    c.box(x, 92, 330, 318, "plain", radius=10)
    c.text(x + 18, 120, f"thread {number}", 15, bold=True)
    c.box(x + 58, 136, 74, 48, "main", ["loop"], 14, bold=True)
    c.box(x + 226, 136, 74, 48, "co", ["task"], 14, bold=True)
    c.text(x + 263, 128, "runs", 12, "middle", beside=True)
    c.arrow([(x + 132, 160), (x + 222, 160)], "co")
    c.text(x + 178, 152, "next", 12, "middle")
    for i, (state, kind) in enumerate([("ready", "co"), ("wait", "other")]):
        for j in range(3):
            c.box(x + 58 + 84 * j, 218 + 80 * i, 74, 34, kind, ["task"], 13)
        c.text(x + 48, 240 + 80 * i, state, 12, "end", beside=True)
    c.arrow([(x + 95, 218), (x + 95, 188)], "co")
    c.arrow([(x + 179, 298), (x + 179, 256)], "other")
    c.text(x + 189, 281, "woken", 12)
    c.arrow([(x + 263, 184), (x + 263, 201), (x + 317, 201), (x + 317, 315), (x + 304, 315)],
            "other")
    for i, source in enumerate(sources):
        c.box(x + 58 + 84 * i, 366, 74, 30, "saved", [source], 13)
        c.arrow([(x + 95 + 84 * i, 366), (x + 95 + 84 * i, 336)], "saved")


def runtime() -> Canvas:
    """Tasks, loops and threads."""
    c = Canvas(W, 510, "Tasks, loops and threads of the runtime")
    c.heading("Tasks, loops and threads", "a task that waits leaves its thread to the next one; "
              "what it waits for, a deadline or a cancel wakes it")
    loop_of_thread(c, 28, 0, ["epoll", "timers", "inbox"])
    loop_of_thread(c, W - 358, 1, ["inbox", "timers", "epoll"])
    c.box(390, 226, 180, 100, "plain", ["channels, locks,", "joining, cancelling,", "aco_unpark()"],
          14)
    c.arrow([(440, 326), (440, 381), (332, 381)])
    c.arrow([(520, 326), (520, 381), (656, 381)])
    c.box(28, 446, W - 56, 44, "saved", ["helper threads, for aco_offload(), files and names"], 14)
    c.arrow([(291, 446), (291, 400)], "saved")
    c.arrow([(697, 446), (697, 400)], "saved")
    return c


def wait() -> Canvas:
    """A wait of a task, from the call that begins it to the call that returns."""
    c = Canvas(W, 400, "A wait of a task")
    c.heading("A wait", "one compare-and-swap decides what ends it, on whichever thread")
    c.box(40, 150, 170, 80, "co", ["running", "on its loop"], 15)
    c.box(330, 150, 220, 80, "plain", ["open", "its node is in a queue"], 15)
    c.box(720, 150, 200, 80, "other", ["claimed", "by one outcome"], 15)
    c.box(330, 310, 220, 60, "main", ["ready"], 15)
    c.arrow([(214, 172), (326, 172)], "co")
    c.text(270, 160, "must wait", 12, "middle")
    c.arrow([(326, 208), (214, 208)])
    c.text(270, 228, "closes it itself", 12, "middle", beside=True)
    c.arrow([(554, 190), (716, 190)], "other")
    c.text(635, 178, "compare-and-swap", 12, "middle")
    for i, source in enumerate(["event", "deadline", "cancel", "close"]):
        c.box(572 + 90 * i, 86, 82, 30, "saved", [source], 12)
    c.arrow([(635, 116), (635, 160)], "saved")
    c.text(650, 136, "each tries, one succeeds", 12, beside=True)
    c.arrow([(820, 234), (820, 340), (554, 340)], "other")
    c.text(690, 330, "wakes it", 12, "middle")
    c.text(690, 360, "other threads: by the inbox", 12, "middle", beside=True)
    c.arrow([(326, 340), (125, 340), (125, 234)], "co")
    c.text(225, 330, "its turn has come", 12, "middle")
    c.text(225, 360, "the call looks at the outcome", 12, "middle", beside=True)
    return c


# ==== The logo ====================================================================================


def logo() -> Canvas:
    """Three letters of rings, as coroutines: one of them has the processor."""
    c = Canvas(522, 224, "aco")
    ring = 'fill="none" stroke-width="26"'
    c.raw(f'<circle class="line-main" cx="120" cy="112" r="52" {ring}/>')
    c.raw(f'<path class="line-main" d="M172 47V177" {ring}/>')
    c.raw(f'<path class="line-co" d="M304.8 75.2A52 52 0 1 0 304.8 148.8" {ring}/>')
    c.raw(f'<circle class="line-other" cx="402" cy="112" r="52" {ring}/>')
    c.raw('<circle class="head-other" cx="402" cy="112" r="17"/>')
    return c


PICTURES: list[Callable[[], Canvas]] = [
    logo, thread_model_0, thread_model_1, thread_model_2, thread_model_3, proof_0, proof_1, proof_2,
    proof_3, runtime, wait, trace, life, memory]

# ==== Files =======================================================================================

def faults_of(path: Path, svg: str) -> list[str]:
    """Faults of the file of a picture."""
    faults = []
    if not path.exists() or path.read_text() != svg:
        faults.append(f"{path.name} is not what draw.py draws")
    elif path.stat().st_size > MAX_SZ:
        faults.append(f"{path.name} has more than {MAX_SZ} bytes")
    return faults


def main() -> int:
    """Draws, or checks."""
    checks = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not checks:
        print(__doc__, file=sys.stderr)
        return 2
    faults = []
    for picture in PICTURES:
        path, svg = FOLDER / f"{picture.__name__}.svg", picture().svg()
        if not checks:
            path.write_text(svg)
        faults += faults_of(path, svg)
    names = {picture.__name__ for picture in PICTURES}
    faults += [f"{file.name} is drawn by no function" for file in sorted(FOLDER.glob("*.svg"))
               if file.stem not in names]
    for fault in faults:
        print(f"{fault}: run img/draw.py", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
