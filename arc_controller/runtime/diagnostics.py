"""What a running manager is doing: tasks, queues, informers, memory (``--pprof-addr``).

Pages are tables for people, or JSON with ``?format=json``. They show names, keys, counts and
positions in the code; never the content of an object or a variable.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arc_controller.runtime.cache import Cache
from arc_controller.runtime.controller import Controller
from arc_controller.runtime.servers import Page, PageRequest, View

Row = dict[str, Any]

TOP = 25


class Diagnostics:
    """The pages; `controllers` is asked anew for each."""

    def __init__(self, cache: Cache, controllers: Callable[[], Sequence[Controller]]) -> None:
        self._cache = cache
        self._controllers = controllers

    def views(self) -> dict[str, View]:
        pages: dict[str, Callable[[PageRequest], list[Row]]] = {
            "/tasks": lambda _: tasks(),
            "/queues": lambda _: self.queues(),
            "/informers": lambda _: self.informers(),
            "/memory": memory,
        }
        index = "".join(f"{path}\n" for path in pages)
        help_ = "?format=json; /memory?objects, /memory?tracemalloc=start|top|stop\n"
        views: dict[str, View] = {path: _page(rows) for path, rows in pages.items()}
        views["/"] = lambda _: Page((index + help_).encode())
        return views

    def queues(self) -> list[Row]:
        return [
            {
                "controller": controller.name,
                "ready": len(controller.queue),
                "delayed": controller.queue.delayed,
                "active": controller.queue.active,
                "workers": controller.max_concurrent_reconciles,
                "longest_seconds": round(controller.queue.longest_running_seconds(), 3),
                "working_on": ", ".join(map(str, controller.queue.working_on())),
            }
            for controller in self._controllers()
        ]

    def informers(self) -> list[Row]:
        return [
            {
                "kind": informer.kind.__name__,
                "objects": len(informer.store),
                "synced": informer.has_synced,
                "namespace": scope.namespace or "*",
                "labels": scope.labels,
                "state": scope.state.name.lower(),
                "version": scope.version,
                "failures": scope.failures,
                "last_heard": scope.last_heard.isoformat() if scope.last_heard else "",
            }
            for informer in self._cache.informers()
            for scope in informer.status()
        ]


def tasks() -> list[Row]:
    """Every task and where it waits."""
    rows = []
    for task in asyncio.all_tasks():
        stack = task.get_stack(limit=1)
        where = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else ""
        function = getattr(task.get_coro(), "__qualname__", "?")
        rows.append({"task": task.get_name(), "function": function, "at": where})
    return sorted(rows, key=lambda row: (row["task"], row["function"]))


def memory(request: PageRequest) -> list[Row]:
    """Resident memory and the collector's counters; objects and allocations where asked for.

    Counting objects or allocations stops the process for a moment, in proportion to its memory.
    """
    query = request.query
    rows: list[Row] = [{"what": name, "value": value} for name, value in _resident().items()]
    for generation, stats in enumerate(gc.get_stats()):
        rows.append({"what": f"gc generation {generation}", "value": stats["collections"]})
    rows.append({"what": "allocated blocks", "value": sys.getallocatedblocks()})
    if "objects" in query:
        counts = Counter(type(obj).__qualname__ for obj in gc.get_objects())
        rows += [{"what": f"objects: {name}", "value": n} for name, n in counts.most_common(TOP)]
    match query.get("tracemalloc"):
        case "start":
            tracemalloc.start()
        case "stop":
            tracemalloc.stop()
        case "top" if tracemalloc.is_tracing():
            for stat in tracemalloc.take_snapshot().statistics("lineno")[:TOP]:
                rows.append({"what": str(stat.traceback), "value": stat.size})
    rows.append({"what": "tracemalloc", "value": "on" if tracemalloc.is_tracing() else "off"})
    return rows


def _resident() -> dict[str, str]:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux
        return {}
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    names = {"VmRSS": "resident", "VmHWM": "resident at most", "Threads": "threads"}
    return {text: fields[name].strip() for name, text in names.items() if name in fields}


def _page(rows: Callable[[PageRequest], list[Row]]) -> View:
    def view(request: PageRequest) -> Page:
        found = rows(request)
        if request.query.get("format") == "json" or "application/json" in request.accept:
            return Page(msgspec.json.encode(found), "application/json")
        return Page(table(found).encode())

    return view


def table(rows: Sequence[Row]) -> str:
    """The rows with their names as a header, in columns of equal width."""
    if not rows:
        return "none\n"
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
