"""What differs, and which differences are known to stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arc_controller.testing.apiserver.differential.normal import normal
from arc_controller.testing.apiserver.differential.sides import Answer
from arc_controller.testing.apiserver.differential.steps import COLLECTIONS, Step
from arc_controller.testing.apiserver.messages import Object


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer (or a watch's events, `what` says so) that is not the same on both sides."""

    step: Step
    real: Any
    ours: Any
    what: str

    def reason(self) -> str:
        """Why this difference is known and accepted; empty when it is not."""
        return next((why for why, holds in KNOWN if holds(self)), "")

    @property
    def kind(self) -> tuple[str, ...]:
        """Two differences of one kind probably have one cause."""
        codes = [str(each[0]) for each in (self.real, self.ours)] if self.what == "status" else []
        name = self.step.path.rpartition("/")[2]
        subresource = name if len(name) > 1 and name not in COLLECTIONS else ""
        shape = (self.step.method, plural_of(self.step.path), subresource, self.step.content_type)
        return (self.what, *shape, *codes)


def differences(step: Step, real: Answer, ours: Answer) -> list[Difference]:
    if real.status != ours.status:
        return [Difference(step, [real.status, real.body], [ours.status, ours.body], "status")]
    theirs, mine = normal(real.body), normal(ours.body)
    if theirs != mine:
        return [Difference(step, theirs, mine, "body")]
    if real.warnings != ours.warnings:
        return [Difference(step, real.warnings, ours.warnings, "warnings")]
    return []


def events_of(found: list[Object]) -> list[tuple[str, Any]]:
    """Without the bookmarks that come every minute or so, whenever that is."""
    return [
        (each["type"], normal(each["object"]))
        for each in found
        if each["type"] != "BOOKMARK" or "annotations" in each["object"]["metadata"]
    ]


def plural_of(path: str) -> str:
    parts = path.split("/")
    at = parts.index("namespaces") + 2 if "namespaces" in parts else 0
    return parts[at] if 0 < at < len(parts) else parts[-1]


def _changing(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Without those that show an object as it was."""
    last: dict[str, Any] = {}
    found = []
    for type_, obj in events:
        name = obj.get("metadata", {}).get("name", "")
        if type_ != "MODIFIED" or last.get(name) != obj:
            found.append((type_, obj))
        last[name] = obj
    return found


def _says(difference: Difference, text: str) -> bool:
    return text in json.dumps([difference.real, difference.ours])


KNOWN: tuple[tuple[str, Callable[[Difference], bool]], ...] = (
    (
        "an apply that leaves a struct of a custom resource empty makes it null on the real "
        "server, which its schema then refuses",
        lambda each: _says(each, r"in body must be of type object: \"null\""),
    ),
    (
        "a pod's containers and its other fields are refused in another order",
        lambda each: (
            each.what == "body" and _says(each, "pod updates may not add or remove containers")
        ),
    ),
    (
        "the update that ends a deleted role answers with the empty list of rules that was sent",
        lambda each: each.what == "body" and _says(each, '"rules": []'),
    ),
    (
        "what is null or malformed in the applied metadata of a custom resource stays in etcd, "
        "unread: the next write is an event that changes nothing",
        lambda each: each.what == "events" and _changing(each.real) == each.ours,
    ),
    (
        "malformed JSON is explained by another parser",
        lambda each: (
            each.what == "body" and "error decoding the body as JSON" in json.dumps(each.ours)
        ),
    ),
)
"""(why, whether it is this) of the differences that stay."""
