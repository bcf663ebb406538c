"""Tables: what `kubectl get` shows, rendered by the server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from arc_controller.testing.apiserver.jsonpath import compile_path
from arc_controller.testing.apiserver.messages import Object, encode_json
from arc_controller.testing.apiserver.printers import PRINTERS, Printer
from arc_controller.testing.apiserver.resources import Column, Resource
from arc_controller.testing.apiserver.shorttime import age_of

NAME_COLUMN = Column(
    "Name",
    "string",
    format="name",
    description=(
        "Name must be unique within a namespace. Is required when creating resources, although "
        "some resources may allow a client to request the generation of an appropriate name "
        "automatically. Name is primarily intended for creation idempotence and configuration "
        "definition. Cannot be updated."
    ),
)
_DEFAULT = Printer(
    (
        NAME_COLUMN,
        Column("Created At", "date"),
    ),
    lambda obj, now: [obj["metadata"].get("name"), obj["metadata"].get("creationTimestamp")],
)


class TableMaker:
    """Renders objects of one resource as table rows at one moment."""

    def __init__(self, resource: Resource, version: str, include: str, now: datetime) -> None:
        self._version = version or "v1"
        self._include = include or "Metadata"
        self._now = now
        self._no_rows: list[Object] | None = []
        if resource.custom:
            self._columns: tuple[Column, ...] = (NAME_COLUMN, *resource.columns)
            self._cells = _custom_cells(resource.columns)
            self._conditions = _DEFAULT.conditions
        else:
            printer = PRINTERS.get(resource.storage_key, _DEFAULT)
            self._columns = printer.columns
            self._cells = printer.cells
            self._conditions = printer.conditions
            if printer is _DEFAULT:
                self._no_rows = None

    def table(
        self, objects: list[Object], metadata: dict[str, Any], *, headers: bool = True
    ) -> bytes:
        """A Table. `metadata` is that of the list."""
        table: Object = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self._version}",
            "metadata": metadata,
            "columnDefinitions": [_definition(each) for each in self._columns] if headers else None,
            "rows": [self._row(each) for each in objects] or self._no_rows,
        }
        return encode_json(table)

    def _row(self, obj: Object) -> Object:
        row: Object = {"cells": self._cells(obj, self._now)}
        if conditions := self._conditions(obj):
            row["conditions"] = conditions
        if self._include == "Object":
            row["object"] = obj
        elif self._include != "None":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{self._version}",
                "metadata": obj["metadata"],
            }
        return row


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _custom_cells(columns: tuple[Column, ...]) -> Callable[[Object, datetime], list[Any]]:
    finders = [(column, compile_path(column.path)) for column in columns]

    def cells(obj: Object, now: datetime) -> list[Any]:
        row: list[Any] = [obj["metadata"].get("name")]
        for column, find in finders:
            found = find(obj)
            row.append(_cell(column.type, found[0], now) if found else None)
        return row

    return cells


def _cell(kind: str, value: Any, now: datetime) -> Any:
    if value is None:
        return None
    if kind == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else _go_text(value)
    if kind == "date":
        return age_of(value, now) if isinstance(value, str) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if kind == "integer" else value


def _go_text(value: Any) -> str:
    return encode_json(value).decode()
