"""Tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A name and one text for each column."""

    name: str
    cells: Sequence[str]

    @classmethod
    def blank(cls, columns: int) -> Row:
        return cls("", [""] * columns)


def table(rows: Iterable[Row]) -> str:
    """The rows with their columns aligned to the right."""
    kept = list(rows)
    name = max(len(row.name) for row in kept)
    width = max(len(cell) for row in kept for cell in row.cells) + 2
    lines = [
        f"{row.name:{name}}{''.join(f'{cell:>{width}}' for cell in row.cells)}" for row in kept
    ]
    return "\n".join(line.rstrip() for line in lines)
