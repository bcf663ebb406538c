"""Answers without what two servers never share."""

from __future__ import annotations

import json
import re
from typing import Any

from arc_controller.testing.apiserver.messages import Object


def normal(value: Any, key: str = "") -> Any:
    """The value without what two runs never share."""
    if isinstance(value, dict):
        return {
            _UID.sub("UID", name): normal(each, name)
            for name, each in sorted(value.items())
            if name != "columnDefinitions"
        } | _columns(value)
    if isinstance(value, list):
        items = [normal(each, "cell" if key == "cells" else "") for each in value]
        if key == "causes":
            # Some of the real server's checks run two or three times; how often is its business.
            return [json.loads(each) for each in sorted({json.dumps(each) for each in items})]
        return sorted(items, key=str) if key == "managedFields" else items
    if not isinstance(value, str):
        return value
    if key == "resourceVersion":
        return "VERSION" if value else ""
    if key == "continue":
        return "TOKEN" if value else ""
    if key == "cell" and _AGE.fullmatch(value):
        return "AGE"
    text = _TIME.sub("TIME", _UID.sub("UID", value))
    text = _GENERATED.sub(r"\1XXXXX", text)
    text = _QUOTED_OBJECT.sub("Invalid value: OBJECT", text)
    text = _POD_DIFF.sub(r"\1", text)
    if key == "message":
        text = _VERSION.sub(r"\1VERSION", text)
        # Both servers walk maps in an order of their own; the real one stops at an unknown field.
        before, several, lines = text.partition("errors:\n")
        text = before + several + "\n".join(sorted(lines.split("\n")))
        text = _UNDECLARED.sub(r"\1FIELDS", text)
        found = re.search(r" is invalid: \[(.*)\]$", text, re.DOTALL)
        if found is not None:
            parts = ", ".join(sorted(found.group(1).split(", ")))
            text = f"{text[: found.start()]} is invalid: [{parts}]"
    return text


def _columns(value: Object) -> Object:
    """The columns of a table without their descriptions: those of built-in kinds are not kept."""
    if value.get("kind") != "Table":
        return {}
    return {
        "columnDefinitions": [
            {key: each for key, each in column.items() if key != "description"}
            for column in value.get("columnDefinitions") or ()
        ]
    }


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"\d+s|<invalid>")
_GENERATED = re.compile(r"\b(g\d+-)[a-z0-9]{5}\b")
_VERSION = re.compile(
    r"(resource version: |current: |\(|requested: |ResourceVersion in object meta: )\d+\b"
)
_UNDECLARED = re.compile(
    r"(failed to create typed patch object \([^)]*\): ).*field not declared in schema.*", re.DOTALL
)
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_QUOTED_OBJECT = re.compile(r'Invalid value: ("\{.*\}"|\[?\{.*\}\]?)(?=: )', re.DOTALL)
_POD_DIFF = re.compile(
    r"(it was previously negative\)).*?(?=, spec\.|, metadata\.|\]\Z|\Z)", re.DOTALL
)
