"""One thing wrong with an object."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from arc_controller.testing.apiserver.messages import Object


def spoil(random: Random, body: Object) -> None:
    """Make a mistake in the object."""
    random.choice(_MISTAKES)(random, body)


Mistake = Callable[[Random, Object], None]


def _in_metadata(key: str, *values: Any) -> Mistake:
    def make(random: Random, body: Object) -> None:
        body["metadata"][key] = random.choice(values)

    return make


def _at_top(key: str, *values: Any) -> Mistake:
    def make(random: Random, body: Object) -> None:
        body[key] = random.choice(values)

    return make


def _without(key: str) -> Mistake:
    def make(random: Random, body: Object) -> None:
        body.pop(key, None)

    return make


def _no_name(random: Random, body: Object) -> None:
    body["metadata"].pop("name")


def _in_body(random: Random, body: Object) -> None:
    """Something wrong in whatever the kind calls its contents."""
    keys = [key for key in body if key not in ("apiVersion", "kind", "metadata")]
    if not keys:
        return
    key = random.choice(keys)
    inner = body[key]
    if isinstance(inner, dict) and inner and random.random() < 0.7:
        field = random.choice(list(inner))
        mistake = random.choice(["unknown", "gone", "type", "null"])
        if mistake == "unknown":
            inner["nope"] = random.choice(["1", {"deep": True}])
        elif mistake == "gone":
            del inner[field]
        else:
            inner[field] = None if mistake == "null" else random.choice([5, "x", [], {}, True, 1.5])
        return
    body[key] = random.choice([None, 5, "x", [], {}, ["x"], True])


_OWNER: Object = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}

_MISTAKES: list[Mistake] = [
    _no_name,
    _in_metadata("name", "Bad_Name", "-x", "x" * 254, "", "x/y", "..", 5, None),
    _in_metadata("generateName", "Bad_", "ok-"),
    _in_metadata("namespace", "other", "", "Bad Namespace"),
    _in_metadata(
        "labels", {"bad key": "1"}, {"l": "x y"}, {"l": "x" * 64}, {"l": 5}, "x", [], None
    ),
    _in_metadata("labels", {"/x": "1"}, {"x.io/": "1"}, {"UP.io/x": "1"}, {"a/b/c": "1"}),
    _in_metadata("annotations", {"bad key": "1"}, {"x": 5}, {"x": None}, "x", {"": "1"}),
    _in_metadata("finalizers", ["nope"], ["x.io/"], [""], ["bad key/x"], "x", [5]),
    _in_metadata("ownerReferences", [{**_OWNER, "uid": ""}], [{}], [{**_OWNER, "name": ""}], "x"),
    _in_metadata(
        "ownerReferences",
        [{**_OWNER, "controller": True}, {**_OWNER, "uid": "2", "controller": True}],
        [{**_OWNER, "apiVersion": ""}],
        [{**_OWNER, "kind": ""}],
        [_OWNER, _OWNER],
        [{"kind": "Event", "apiVersion": "v1", "name": "x", "uid": "1"}],
    ),
    _in_metadata("nope", "x", {"y": 1}),
    _in_metadata("resourceVersion", "7", "x", 5),
    _in_metadata("deletionTimestamp", "2020-01-01T00:00:00Z", "x"),
    _in_metadata("creationTimestamp", "2020-01-01T00:00:00Z", "x", None),
    _in_metadata("generation", 5, "x"),
    _at_top("metadata", "x", None, [], {}),
    _at_top("nope", "x", {"y": 1}),
    _at_top("apiVersion", "v9", "x.io/v1", "", 5, "a/b/c"),
    _at_top("kind", "Nope", "", "ConfigMap", 5),
    _at_top("spec", "x", None, [], {}, 5),
    _at_top("status", "x", None, {"nope": 1}),
    _without("apiVersion"),
    _without("kind"),
    _without("metadata"),
    _without("spec"),
    _without("roleRef"),
    *[_in_body] * 8,
]
