"""The simple JSONPath of printer columns: fields, indexes, `[*]`, and equality filters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Step = Callable[[Any], list[Any]]

_TOKEN = re.compile(
    r"""
    \.(?P<field>(?:\\.|[^.\[\\])+)
    | \[\s*'(?P<quoted>[^']*)'\s*\]
    | \[\s*(?P<index>-?\d+)\s*\]
    | \[\s*(?P<every>\*)\s*\]
    | \[\?\(\s*@\.(?P<key>[^=!<>\s]+)\s*==\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\s*\)\]
    """,
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Callable[[Any], list[Any]]:
    """A function from an object to the values found. Raises `ValueError` on other syntax."""
    text = path.strip().removeprefix("{").removesuffix("}")
    if text and text[0] not in ".[":
        text = f".{text}"
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"unsupported JSONPath {path!r} at {text[position:]!r}")
        steps.append(_step(match))
        position = match.end()

    def find(value: Any) -> list[Any]:
        found = [value]
        for step in steps:
            found = [each for value in found for each in step(value)]
        return found

    return find


def _step(match: re.Match[str]) -> Step:
    if match["field"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", match["field"]))
    if match["quoted"] is not None:
        return _field(match["quoted"])
    if match["index"] is not None:
        return _index(int(match["index"]))
    if match["every"] is not None:
        return _every
    return _where(match["key"].split("."), match["value"])


def _field(name: str) -> Step:
    if name == "*":
        return _every
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _index(number: int) -> Step:
    def pick(value: Any) -> list[Any]:
        if isinstance(value, list) and -len(value) <= number < len(value):
            return [value[number]]
        return []

    return pick


def _every(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return list(value.values()) if isinstance(value, dict) else []


def _where(path: list[str], wanted: str) -> Step:
    def holds(item: Any) -> bool:
        for part in path:
            if not isinstance(item, dict):
                return False
            item = item.get(part)
        return isinstance(item, (str, int)) and str(item) == wanted

    return lambda value: [each for each in _every(value) if holds(each)]
