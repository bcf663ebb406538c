"""What the demo shows while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

PHASES = ("Pending", "Running", "Succeeded", "Failed", "Outdated")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the demo."""

    seconds: float
    jobs: Mapping[str, int]
    runners: Mapping[str, int]
    pods: Mapping[str, int]
    requests: Mapping[str, int]
    notes: tuple[str, ...] = ()
    queued: int = 0
    hint: str = field(default="", compare=False)

    @property
    def completed(self) -> int:
        return self.jobs.get("completed", 0)


class View(Protocol):
    def show(self, snapshot: Snapshot) -> None: ...

    def say(self, line: str) -> None: ...

    def close(self) -> None: ...


def make_view(stream: TextIO | None = None) -> View:
    """A table where there is a terminal, lines where there is none."""
    stream = stream or sys.stdout
    return TableView(Console(file=stream)) if stream.isatty() else LineView(stream)


class LineView:
    """One line whenever jobs, runners or pods changed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: tuple[object, ...] = ()

    def show(self, snapshot: Snapshot) -> None:
        state = (snapshot.jobs, snapshot.runners, snapshot.pods)
        if state == self._last:
            return
        self._last = state
        self.say(
            f"{snapshot.seconds:6.1f} s  jobs: {_counts(snapshot.jobs)}  "
            f"runners: {_counts(snapshot.runners)}  pods: {_counts(snapshot.pods)}  "
            f"requests: {_counts(snapshot.requests)}"
        )

    def say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing is open."""


class TableView:
    """A table that is drawn anew a few times a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(render(snapshot))

    def say(self, line: str) -> None:
        self._live.console.print(Text(line))

    def close(self) -> None:
        self._live.stop()


def render(snapshot: Snapshot) -> Group:
    """The table."""
    table = Table(title=f"arc_controller demo, {snapshot.seconds:.1f} s", title_justify="left")
    for heading in ("", "now"):
        table.add_column(heading)
    done, all_jobs = snapshot.completed, snapshot.queued
    table.add_row("jobs", f"{_bar(done, all_jobs)} {done}/{all_jobs}  {_counts(snapshot.jobs)}")
    for phase in PHASES:
        count = snapshot.runners.get(phase, 0)
        if count or phase in ("Pending", "Running"):
            table.add_row(f"runners {phase}", f"{_bar(count, all_jobs)} {count}")
    table.add_row("pods", _counts(snapshot.pods))
    table.add_row("API requests", _counts(snapshot.requests))
    return Group(table, Text(snapshot.hint))


def _bar(count: int, of: int, width: int = 30) -> str:
    full = 0 if of <= 0 else round(width * min(1.0, count / of))
    return "█" * full + "·" * (width - full)


def _counts(counts: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{count} {name}" for name, count in Counter(counts).items() if count) or "none"
    )
