"""What a write changes, in words for a debug log: which fields, and never what secrets say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_LOCK = "metadata.resourceVersion"


def changed_fields(patch: Mapping[str, Any]) -> list[str]:
    """The fields that a merge patch changes: ``spec.replicas=3``, ``status.phase``,
    ``metadata.annotations[example.com/note]=null``.

    Of values only numbers, booleans and null (which removes a field) are shown: texts and lists may
    hold secrets. The optimistic lock is left out.
    """
    return [field for field in _fields(patch, "") if field != _LOCK]


def _fields(part: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in part.items():
        path = _joined(prefix, name)
        if isinstance(value, Mapping) and value:
            yield from _fields(value, path)
        elif value is None:
            yield f"{path}=null"
        elif isinstance(value, bool | int | float):
            yield f"{path}={str(value).lower()}"
        else:
            yield path


def _joined(prefix: str, name: str) -> str:
    if not name.isidentifier():
        return f"{prefix}[{name}]"
    return f"{prefix}.{name}" if prefix else name
