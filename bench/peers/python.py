#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
#
# Skynet by asyncio, gevent and tornado, and the switch of gevent's greenlets: as `python.py
# LIBRARY WORKLOAD ARGS`, which imports that library alone. Relies on Debian's python3, whatever
# other one comes first on the path, and on Debian's packages for it.
#
# kind: interpreted, stackless
# needs: python3
# peer: Python asyncio
# build: printf '#!/bin/sh\nexec "%s" asyncio "$@"' "$SRC" > "$OUT"
# needs: python3-tornado
# peer: Python tornado
# build: printf '#!/bin/sh\nexec "%s" tornado "$@"' "$SRC" > "$OUT"
# kind: interpreted, stackful
# needs: python3-gevent
# peer: Python gevent
# build: printf '#!/bin/sh\nexec "%s" gevent "$@"' "$SRC" > "$OUT"

import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

CHILDREN = 10

# Runs skynet over so many leaves and returns its sum.
Skynet = Callable[[int], int]


def check(holds: bool, words: str) -> None:
    if not holds:
        sys.exit(f"peer: {words}")


def children(first: int, ct: int) -> Iterator[tuple[int, int]]:
    """The first leaf and the number of leaves of each child of a coroutine over `ct` leaves."""
    below = ct // CHILDREN
    return ((first + i * below, below) for i in range(CHILDREN))


# ---- asyncio: coroutines that await each other, or tasks of the loop ----------------------------


def with_asyncio(kind: str) -> Skynet:
    import asyncio

    async def nested(first: int, ct: int) -> int:
        if ct == 1:
            return first
        made = [nested(*child) for child in children(first, ct)]
        return sum([await child for child in made])

    async def scheduled(first: int, ct: int) -> int:
        if ct == 1:
            return first
        spawned = [asyncio.create_task(scheduled(*child)) for child in children(first, ct)]
        return sum([await child for child in spawned])

    body = nested if kind == "nested" else scheduled
    return lambda leaves: asyncio.run(body(0, leaves))


# ---- gevent: bare greenlets that switch to each other, or greenlets of its hub ------------------


def with_gevent(kind: str) -> Skynet:
    import gevent
    from greenlet import greenlet

    def nested(first: int, ct: int) -> int:
        if ct == 1:
            return first
        made = [(greenlet(nested), child) for child in children(first, ct)]
        return sum([child.switch(*leaves) for child, leaves in made])

    def scheduled(first: int, ct: int) -> int:
        if ct == 1:
            return first
        spawned = [gevent.spawn(scheduled, *child) for child in children(first, ct)]
        return sum([child.get() for child in spawned])

    if kind == "nested":
        return lambda leaves: greenlet(nested).switch(0, leaves)
    return lambda leaves: gevent.spawn(scheduled, 0, leaves).get()


def switch_greenlet(ct: int) -> None:
    """The first resume, which starts it, and the last, which ends it, are not measured."""
    from greenlet import getcurrent, greenlet

    main = getcurrent()

    def flat() -> int:
        for yields in range(ct + 1):
            main.switch(yields)
        return -1

    co = greenlet(flat)
    check(co.switch() == 0, "the first resume was lost")
    start = time.perf_counter_ns()
    for resumes in range(1, ct + 1):
        if co.switch() != resumes:
            check(False, "a resume was lost")
    ns = (time.perf_counter_ns() - start) / ct
    check(co.switch() == -1 and co.dead, "the coroutine did not end")
    print(f"ns {ns:.3f}")


# ---- tornado: its own coroutines, which run until they have to wait, or by way of its loop ------


def with_tornado(kind: str) -> Skynet:
    from tornado import gen
    from tornado.ioloop import IOLoop

    @gen.coroutine
    def nested(first: int, ct: int) -> Generator[Any, int, int]:
        if ct == 1:
            return first
        total = 0
        for child in [nested(*child) for child in children(first, ct)]:
            total += yield child
        return total

    @gen.coroutine
    def scheduled(first: int, ct: int) -> Generator[Any, Any, int]:
        yield gen.moment
        if ct == 1:
            return first
        return sum((yield [scheduled(*child) for child in children(first, ct)]))

    body = nested if kind == "nested" else scheduled
    return lambda leaves: IOLoop.current().run_sync(lambda: body(0, leaves))


# ---- Which workload -----------------------------------------------------------------------------


def number(word: str) -> int:
    check(word.isdecimal() and int(word) > 0, "the arguments of a workload are numbers, 1 or more")
    return int(word)


def measure(skynet: Skynet, leaves: int) -> None:
    check(str(leaves).rstrip("0") == "1", "the leaves of skynet are a power of ten")
    start = time.perf_counter_ns()
    total = skynet(leaves)
    ms = (time.perf_counter_ns() - start) / 1e6
    check(total == leaves * (leaves - 1) // 2, "skynet's sum is wrong")
    print(f"ms {ms:.3f}")


SKYNETS = {"asyncio": with_asyncio, "gevent": with_gevent, "tornado": with_tornado}


def main() -> None:
    match sys.argv[1:]:
        case [library, "skynet", "nested" | "scheduler" as kind, *leaves]:
            measure(SKYNETS[library](kind), number(leaves[0]) if leaves else 1000000)
        case ["gevent", "switch", ct]:
            switch_greenlet(number(ct))
        case _:
            sys.exit(77)


main()
