"""When two pieces of a spec say the same thing.

An API server and a YAML author spell "nothing" in many ways: a field is absent, null, ``""``,
``[]`` or ``{}``. A comparison that minds the spelling finds differences for ever and rewrites
objects for ever, so ours compares what is meant.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


def same_meaning(a: Any, b: Any) -> bool:
    """Whether two JSON values, or structs of them, say the same.

    Absent, null and empty are the same; ``0`` and ``false`` are not empty, and ``1``, ``1.0`` and
    ``true`` are three values. In a list every element counts, an empty one too.
    """
    return _canonical(a) == _canonical(b)


def meaning_hash(*values: Any) -> str:
    """A short digest; equal for values of the same meaning. Fit for an annotation."""
    return hashlib.sha256(_canonical(list(values))).hexdigest()[:32]


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(_normal(msgspec.to_builtins(value)), order="sorted")


def _normal(value: Any) -> Any:
    """The value with everything empty left out, from the leaves up; None if nothing is left."""
    if isinstance(value, dict):
        kept = {name: _normal(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item is not None} or None
    if isinstance(value, list):
        return [_normal(item) for item in value] or None
    return None if value == "" else value
