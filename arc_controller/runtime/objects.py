"""What every Kubernetes object has in common.

Resource types are `msgspec.Struct`s: camelCase on the wire, snake_case in Python, defaults omitted.
They declare only the fields that the code reads or writes. That is safe because every update is a
merge patch: what a type does not declare is on neither side of the diff and so is never erased.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

K = TypeVar("K", bound="KubeObject")


class Wire(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The base of everything that is sent to or read from an API server."""


class NamespacedName(NamedTuple):
    """The key of an object within its kind. Cluster-scoped objects have the namespace ``""``."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(Wire):
    """https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/"""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire):
    """The part of the standard metadata that controllers read or write."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)
    finalizers: list[str] = msgspec.field(default_factory=list)


class KubeObject(Wire):
    """An object that lives in an API server.

    The kind's group, version and path are not fields: a class is registered once with a `Scheme`,
    which adds them when an object is encoded.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> NamespacedName:
        return NamespacedName(self.metadata.namespace, self.metadata.name)

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def is_being_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class ListMeta(Wire):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Condition(Wire):
    """The standard condition (``metav1.Condition``)."""

    type: str
    status: str
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None


def set_condition(conditions: list[Condition], condition: Condition, now: datetime) -> bool:
    """Put `condition` into the list, in place, and say whether anything changed.

    ``last_transition_time`` moves only when ``status`` does, as the API conventions demand.
    """
    for index, current in enumerate(conditions):
        if current.type != condition.type:
            continue
        same_status = current.status == condition.status
        condition.last_transition_time = current.last_transition_time if same_status else now
        if current == condition:
            return False
        conditions[index] = condition
        return True
    condition.last_transition_time = now
    conditions.append(condition)
    return True


def find_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    return next((c for c in conditions if c.type == type_), None)


class LabelSelector:
    """``LabelSelector({"app": "x"})`` or ``LabelSelector.parse("app=x,tier!=y")``.

    Understands equality and set based requirements and existence, as in
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors.
    """

    __slots__ = ("_requirements", "_text")

    def __init__(self, equals: Mapping[str, str]) -> None:
        self._requirements: tuple[tuple[str, str, frozenset[str]], ...] = tuple(
            (key, "in", frozenset({value})) for key, value in sorted(equals.items())
        )
        self._text = ",".join(f"{key}={value}" for key, value in sorted(equals.items()))

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Raises `ValueError` with the requirement that cannot be read."""
        selector = cls({})
        selector._requirements = tuple(_requirement(part) for part in _split(text))
        selector._text = text
        return selector

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(_holds(requirement, labels) for requirement in self._requirements)

    def __str__(self) -> str:
        """The form that goes into a ``labelSelector`` query parameter."""
        return self._text

    def __repr__(self) -> str:
        return f"LabelSelector.parse({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSelector) and self._requirements == other._requirements

    def __hash__(self) -> int:
        return hash(self._requirements)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _requirement(part: str) -> tuple[str, str, frozenset[str]]:
    for word, operator in ((" notin ", "notin"), (" in ", "in")):
        if word in part:
            key, values = part.split(word, 1)
            values = values.strip()
            if not (values.startswith("(") and values.endswith(")")):
                raise ValueError(f"label selector {part!r}: the values belong in parentheses")
            return key.strip(), operator, frozenset(v.strip() for v in values[1:-1].split(","))
    for word, operator in (("!=", "notin"), ("==", "in"), ("=", "in")):
        if word in part:
            key, value = part.split(word, 1)
            if not key.strip():
                raise ValueError(f"label selector {part!r}: the key is missing")
            return key.strip(), operator, frozenset({value.strip()})
    if part.startswith("!"):
        return part[1:].strip(), "absent", frozenset()
    if " " in part:
        raise ValueError(f"label selector {part!r}: use =, !=, in (…), notin (…), key or !key")
    return part, "exists", frozenset()


def _holds(requirement: tuple[str, str, frozenset[str]], labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement
    match operator:
        case "in":
            return labels.get(key) in values
        case "notin":
            return labels.get(key) not in values
        case "exists":
            return key in labels
        case _:
            return key not in labels


def to_builtins(value: Any) -> Any:
    """The plain JSON value (dicts, lists, strings) of a struct, defaults omitted."""
    return msgspec.to_builtins(value)
