# SPDX-License-Identifier: Apache-2.0
"""The group `runtime`: servers and tasks. What is measured, and the tables and charts of it."""

from __future__ import annotations

from dataclasses import dataclass

from charts import Points, curves
from model import Results, Value, label, number
from plan import Workload
from tables import each, markdown, missing, versions, with_range

# ==== Workloads ===================================================================================

LIMIT = "epoll"  # what servers are compared with
CONNECTIONS = (100, 1000, 10_000)
SCALED_CONNECTIONS = (10, *CONNECTIONS, 19_900)  # and some more descriptors, of 20,000
COUNTS = tuple(10 ** k for k in range(1, 7))
REQUESTS = 25_000

# Patterns of peers.
SERVERS = r"^(?!client$)"
MANY_SERVERS = r"^(?!client$|State Threads)"  # which has select() here, so 1,024 descriptors
SCALED = r"^(epoll|aco pool|aco share stack)$"
THREADED = r"^(epoll|aco pool|aco share stack|Go|tokio|may \(Rust\))$"
TASKS = r"^(aco pool|aco share stack|Go)"
OURS = r"^aco "
COUNTED = r"^(aco pool|aco share stack|Go)$"


def echo(name: str, layout: str, connections: int, peers: str) -> Workload:
    return Workload(name, layout + " {count} {n}", 1000, connections, fixed_n=REQUESTS,
                    quick_n=10_000, peers=peers, is_quick=connections in (100, 1000),
                    runner="client")


def counted(name: str, arguments: str, count: int, n: int = 0) -> Workload:
    return Workload(f"{name}_{count}", arguments, max(1, 1000 // count), count, fixed_n=n,
                    peers=COUNTED, is_quick=count <= 10_000, gib=8 if count >= 1_000_000 else 0)


WORKLOADS = [
    *(echo(f"echo_{ct}", "apart", ct, SERVERS if ct <= 1000 else MANY_SERVERS)
      for ct in CONNECTIONS),
    *(echo(f"echo_{ct}", "apart", ct, SCALED) for ct in SCALED_CONNECTIONS
      if ct not in CONNECTIONS),
    echo("echo_one", "one", 1000, THREADED),
    echo("echo_two", "two", 1000, THREADED),
    *(Workload(name, name + " {n}", 10_000, peers=TASKS)
      for name in ("yield", "spawn", "rendezvous", "buffered", "mutex")),
    Workload("handover", "handover {n}", 10_000, peers=OURS),
    counted("parked", "parked {count}", COUNTS[-1], 1),
    *(counted("turns", "turns {count} {n}", count) for count in COUNTS),
    *(counted("sleepers", "sleepers {count}", count, 1) for count in COUNTS),
    Workload("lateness", "lateness {n}", 10, metric="us", fixed_n=200, peers=OURS),
    Workload("idle", "idle {n}", 1, metric="wakes", fixed_n=2, peers=OURS),
    Workload("cold", "cold {n}", 1, metric="us", fixed_n=1, peers=OURS),
]


# ==== Tables ======================================================================================


@dataclass(frozen=True)
class Row:
    """A row of the table of tasks."""

    head: str
    workload: str
    metric: str = "ns"


ROWS = [
    Row("let the others run, ns", "yield"),
    Row("spawn, run and end, ns", "spawn"),
    Row("message, rendezvous, ns", "rendezvous"),
    Row("message, channel of 100, ns", "buffered"),
    Row("lock and unlock, ns", "mutex"),
    Row("lock handed to the next waiter, ns", "handover"),
    Row("1,000,000 parked tasks, bytes each", "parked_1000000", "bytes"),
    Row("of these, spawn and park, ns", "parked_1000000", "create_ns"),
    Row("of these, wake and end, ns", "parked_1000000"),
    Row("1,000,000 sleeping tasks: spawn, sleep, wake, end, ns", "sleepers_1000000"),
    Row("the same, woken in random order, ns", "sleepers_1000000", "random_ns"),
    Row("sleep of 1 ms, late by µs", "lateness", "us"),
    Row("100 tasks wait for sockets, wake-ups a second", "idle", "wakes"),
    Row("`aco_run()` of an empty task in a new process, µs", "cold", "us"),
]
COLUMNS = ["aco pool", "aco pool, own control words", "aco share stack", "Go"]


def cell(value: Value | None) -> str:
    return with_range(value, "") if value else "–"


def quotients(results: Results, workload: str, metric: str, above: str, below: str) -> Value | None:
    """Within each round that both took part in."""
    upper, lower = results.get(above, workload, metric), results.get(below, workload, metric)
    if upper is None or lower is None or not all(lower.rounds):
        return None
    return Value([a / b for a, b in zip(upper.rounds, lower.rounds)])


def quotient_text(value: Value | None) -> str:
    if value is None:
        return "–"
    low, high = f"{min(value.rounds):.2f}", f"{max(value.rounds):.2f}"
    return f"{value.median:.2f}" + (f" ({low}–{high})" if low != high else "")


def servers(results: Results, workload: str) -> list[str]:
    """Those that have a result, the one with the least processor time first."""
    return results.titles(workload, "server_ns")


def echo_table(results: Results) -> str:
    """Processor time of each server beside that of the limit, by the number of connections."""
    rows = []
    for title in servers(results, f"echo_{CONNECTIONS[1]}"):
        ratios = [quotient_text(quotients(results, f"echo_{ct}", "server_ns", title, LIMIT))
                  for ct in CONNECTIONS]
        last = f"echo_{CONNECTIONS[-1]}"
        rows.append([label(title), *ratios,
                     cell(results.get(title, f"echo_{CONNECTIONS[1]}", "server_ns")),
                     number(value) if (value := results.median(title, last, "bytes")) else "–"])
    head = ["server", *(f"{ct:,} connections" for ct in CONNECTIONS), "ns at 1,000",
            "bytes of a connection"]
    return markdown(head, rows) if rows else ""


def per_second(value: Value | None) -> str:
    return cell(Value([1e9 / ns for ns in value.rounds]) if value else None)


def threads_table(results: Results) -> str:
    """Requests per second on one processor and on two."""
    rows = []
    for title in results.titles("echo_two", "ns"):
        one, two = (results.get(title, f"echo_{name}", "ns") for name in ("one", "two"))
        if one and two:
            factor = Value([a / b for a, b in zip(one.rounds, two.rounds)])
            rows.append([label(title), per_second(one), per_second(two), quotient_text(factor)])
    head = ["server", "one processor, requests a second", "two processors", "factor"]
    return markdown(head, rows) if rows else ""


def tasks_table(results: Results) -> str:
    rows = []
    for row in ROWS:
        values = [results.get(title, row.workload, row.metric) for title in COLUMNS]
        if any(values):
            beside = quotients(results, row.workload, row.metric, COLUMNS[-1], COLUMNS[0])
            rows.append([row.head, *map(cell, values),
                         f"{beside.median:.1f}" if beside else "–"])
    head = ["", *map(label, COLUMNS), f"{COLUMNS[-1]} ÷ {COLUMNS[0]}"]
    return markdown(head, rows) if rows else ""


def scale_table(results: Results) -> str:
    """What a connection costs, by how many there are."""
    titles = servers(results, f"echo_{SCALED_CONNECTIONS[-1]}")
    metrics = (("server_ns", "ns a request"), ("bytes", "bytes"))
    rows = [[f"{ct:,}", *(number(value) if (value := results.median(
        title, f"echo_{ct}", metric)) else "–" for metric, _ in metrics for title in titles)]
        for ct in SCALED_CONNECTIONS]
    head = ["connections", *(f"{title}, {words}" for _, words in metrics for title in titles)]
    return markdown(head, rows) if titles else ""


def counts_table(results: Results) -> str:
    """What a turn and a sleep of a task cost, by how many tasks there are."""
    kinds = [(name, words, title) for name, words in (("turns", "turn"), ("sleepers", "sleep"))
             for title in sorted(results.titles(f"{name}_{COUNTS[-1]}", "ns"))]
    rows = [[f"{count:,}", *(number(value) if (value := results.median(
        title, f"{name}_{count}", "ns")) else "–" for name, _, title in kinds)]
        for count in COUNTS]
    head = ["tasks", *(f"{title}, {words}, ns" for _, words, title in kinds)]
    return markdown(head, rows) if kinds else ""


def machine_text(machines: list[Results]) -> str:
    return "\n".join(
        f"- **{results.name}**: {results.machine['machine']}; {results.machine['compiler']}; "
        f"measured on {results.machine['date']}, at commit {results.machine['commit']}."
        for results in machines)


def blocks(machines: list[Results]) -> dict[str, str]:
    """What documents can have, by name."""
    return {
        "runtime machine": machine_text(machines),
        "runtime echo": each(machines, echo_table),
        "runtime threads": each(machines, threads_table),
        "runtime tasks": each(machines, tasks_table),
        "runtime scale": each(machines, scale_table),
        "runtime counts": each(machines, counts_table),
    }


def page(machines: list[Results]) -> str:
    made = blocks(machines)
    titles = {"echo": "Processor time of echo servers, beside that of plain epoll",
              "threads": "Two processors", "tasks": "Tasks", "scale": "Connections",
              "counts": "Tasks by their number"}
    made |= {"runtime missing": each(machines, missing),
             "runtime packages": each(machines, versions)}
    titles |= {"missing": "What is not measured", "packages": "Versions"}
    sections = [f"## {title}\n\n{text}\n" for name, title in titles.items()
                if (text := made[f"runtime {name}"])]
    return "\n".join(["# All figures of the runtime\n", made["runtime machine"] + "\n", *sections])


# ==== Charts ======================================================================================


def points(results: Results, name: str, counts: tuple[int, ...],
           metric: str) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for count in counts:
        workload = f"{name}_{count}"
        for title in results.titles(workload, metric):
            value = results.median(title, workload, metric)
            if value and value > 0:  # the scale is logarithmic
                found.setdefault(title, []).append((count, value))
    return found


def scaled(results: Results) -> dict[str, Points]:
    """Only of servers that were measured throughout."""
    found = points(results, "echo", SCALED_CONNECTIONS, "server_ns")
    return {title: at for title, at in found.items()
            if results.get(title, f"echo_{SCALED_CONNECTIONS[-1]}", "server_ns")}


def draw(machines: list[Results]) -> dict[str, str]:
    made = {
        "scale_connections": curves(
            machines, scaled, "Echo of 64 bytes, by the number of connections",
            "processor time of the server for a request, ns", "connections"),
        "scale_turns": curves(
            machines, lambda results: points(results, "turns", COUNTS, "ns"),
            "Tasks that run in turn, by their number", "ns for a turn", "tasks"),
        "scale_sleepers": curves(
            machines, lambda results: points(results, "sleepers", COUNTS, "ns"),
            "Sleeping tasks, by their number", "ns for spawn, sleep, wake and end", "tasks"),
    }
    return {name: svg for name, svg in made.items() if svg}
