"""What every Kubernetes object has in common.

Resource types are `msgspec.Struct`s: camelCase on the wire, snake_case in Python, defaults omitted.
They declare only the fields that the code reads or writes. That is safe because every update is a
merge patch: what a type does not declare is on neither side of the diff and so is never erased.
"""

from __future__ import annotations

import re
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

    ``last_transition_time`` moves only when ``status`` does, as the API conventions demand, and
    has whole seconds, as a ``metav1.Time`` does.
    """
    now = now.replace(microsecond=0)
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


class Requirement(NamedTuple):
    """One requirement of a selector; `values` is empty for ``exists`` and ``absent``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "in":
                return labels.get(self.key) in self.values
            case "notin":
                return labels.get(self.key) not in self.values
            case "exists":
                return self.key in labels
            case _:
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator:
            case "in" | "notin" if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'in' else '!='}{self.values[0]}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case "exists":
                return self.key
            case _:
                return f"!{self.key}"


class LabelSelector:
    """``LabelSelector({"app": "x"})`` or ``LabelSelector.parse("app=x,tier!=y")``.

    Understands equality and set based requirements and existence, as in
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors.
    Equal selectors are those with the same requirements, in whatever order they were written.
    """

    __slots__ = ("_requirements",)

    def __init__(self, equals: Mapping[str, str]) -> None:
        """Raises `ValueError` for a key or value that no label can have."""
        self._requirements = _canonical(
            Requirement(key, "in", (value,)) for key, value in equals.items()
        )

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Raises `ValueError` with the requirement that cannot be read."""
        selector = cls({})
        selector._requirements = _canonical(map(_parse_requirement, _split(text)))
        return selector

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        return self._requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self._requirements)

    def __str__(self) -> str:
        """The form that goes into a ``labelSelector`` query parameter."""
        return ",".join(map(str, self._requirements))

    def __repr__(self) -> str:
        return f"LabelSelector.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSelector) and self._requirements == other._requirements

    def __hash__(self) -> int:
        return hash(self._requirements)


_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = re.compile(rf"({_NAME}/)?{_NAME}")
_VALUE = re.compile(rf"({_NAME})?")
_SET_BASED = re.compile(r"(?P<key>[^\s,()!=]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s,()!=]+)\s*(?P<operator>!=|==|=)\s*(?P<value>[^\s,()!=]*)")
_EXISTENCE = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s,()!=]+)")


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts] if text.strip() else []


def _parse_requirement(part: str) -> Requirement:
    if match := _SET_BASED.fullmatch(part):
        values = tuple(sorted({value.strip() for value in match["values"].split(",")}))
        return Requirement(match["key"], match["operator"], values)
    if match := _EQUALITY.fullmatch(part):
        operator = "notin" if match["operator"] == "!=" else "in"
        return Requirement(match["key"], operator, (match["value"],))
    if match := _EXISTENCE.fullmatch(part):
        return Requirement(match["key"], "absent" if match["absent"] else "exists")
    raise ValueError(
        f"label selector {part!r}: "
        "use key=value, key!=value, key in (…), key notin (…), key or !key"
    )


def _canonical(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    result = tuple(sorted(set(requirements)))
    for requirement in result:
        if len(requirement.key) > 317 or not _KEY.fullmatch(requirement.key):
            raise ValueError(f"label selector: {requirement.key!r} cannot be the key of a label")
        for value in requirement.values:
            if len(value) > 63 or not _VALUE.fullmatch(value):
                raise ValueError(
                    f"label selector: {value!r} cannot be the value of label {requirement.key}"
                )
    return result


def to_builtins(value: Any) -> Any:
    """The plain JSON value (dicts, lists, strings) of a struct, defaults omitted."""
    return msgspec.to_builtins(value, str_keys=True)
