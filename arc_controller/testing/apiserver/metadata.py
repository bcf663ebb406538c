"""Rules of `metadata` that all kinds share: names, times, immutable fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from random import Random
from typing import Any
from uuid import UUID

from arc_controller.testing.apiserver.errors import (
    FieldError,
    forbidden_value,
    go_quote,
    internal,
    invalid_value,
    required,
)
from arc_controller.testing.apiserver.messages import Object

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_GENERATED_FROM = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATIONS_LIMIT = 256 * 1024

SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def rfc3339(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def rfc3339_micro(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def new_uid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


def generated_name(base: str, random: Random) -> str:
    """`generateName`'s rule: at most 58 characters of the base and five random ones."""
    return base[:58] + "".join(random.choices(_GENERATED_FROM, k=5))


@lru_cache(maxsize=8192)
def name_problem_subdomain(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if _SUBDOMAIN.fullmatch(name) else SUBDOMAIN_MESSAGE


@lru_cache(maxsize=8192)
def name_problem_label(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if "." in name:
        return "must not contain dots"
    return "" if _LABEL.fullmatch(name) else LABEL_MESSAGE


def name_problem_path_segment(name: str) -> str:
    """The rule of kinds whose names only have to fit a URL (roles, bindings)."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    for illegal in ("/", "%"):
        if illegal in name:
            return f"may not contain '{illegal}'"
    return ""


@lru_cache(maxsize=8192)
def qualified_name_problems(name: str) -> tuple[str, ...]:
    """All that is wrong with the key of a label or annotation, or with a finalizer."""
    if name.count("/") > 1:
        rule = QUALIFIED_MESSAGE.removeprefix("name part ")
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a qualified name {rule} {example}",)
    prefix, slash, short = name.rpartition("/")
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash and (problem := name_problem_subdomain(prefix)):
        problems.append(f"prefix part {problem}")
    if not short:
        problems.append("name part must be non-empty")
    elif len(short) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(short):
        problems.append(QUALIFIED_MESSAGE)
    return tuple(problems)


@lru_cache(maxsize=8192)
def label_value_problem(value: str) -> str:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL_VALUE.fullmatch(value) else LABEL_VALUE_MESSAGE


def validate_metadata(metadata: Object, path: str = "metadata") -> list[FieldError]:
    """What every kind checks but the name: labels, annotations, owners, finalizers."""
    problems: list[FieldError] = []
    labels = metadata.get("labels")
    if labels:
        problems += validate_labels(labels, f"{path}.labels")
    annotations = metadata.get("annotations")
    if annotations:
        problems += validate_annotations(annotations, f"{path}.annotations")
    owners = metadata.get("ownerReferences")
    if owners:
        problems += validate_owners(owners, f"{path}.ownerReferences")
    finalizers = metadata.get("finalizers")
    if finalizers:
        problems += validate_finalizers(finalizers, f"{path}.finalizers")
    return problems


def validate_labels(labels: dict[str, str], path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    for key, value in labels.items():
        problems += [
            invalid_value(path, key, each.replace("a qualified name", "a valid label key"))
            for each in qualified_name_problems(key)
        ]
        problem = label_value_problem(value)
        if problem:
            problems.append(invalid_value(path, value, problem))
    return problems


def validate_annotations(annotations: dict[str, str], path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        found = qualified_name_problems(key.lower())
        problems += [invalid_value(path, key, each) for each in found]
        size += len(key.encode()) + len(value.encode())
    if size > _ANNOTATIONS_LIMIT:
        detail = f"may not be more than {_ANNOTATIONS_LIMIT} bytes"
        problems.append(FieldError("TooLong", path, "", detail))
    return problems


def validate_owners(owners: list[Object], path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    controller = ""
    for owner in owners:
        if not str(owner.get("apiVersion") or "").rpartition("/")[2]:
            problems.append(
                invalid_value(
                    f"{path}.apiVersion", owner.get("apiVersion", ""), "version must not be empty"
                )
            )
        problems += [
            invalid_value(f"{path}.{key}", owner.get(key) or "", "must not be empty")
            for key in ("kind", "name", "uid")
            if not owner.get(key)
        ]
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            why = "/v1, Kind=Event is disallowed from being an owner"
            problems.append(invalid_value(path, owner, why))
        if owner.get("controller"):
            this = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                why = (
                    'Only one reference can have Controller set to true. Found "true" in '
                    f"references for {controller} and {this}"
                )
                problems.append(invalid_value(path, owners, why))
            else:
                controller = this
    return problems


def validate_finalizers(finalizers: list[str], path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    for finalizer in finalizers:
        found = qualified_name_problems(finalizer)
        problems += [invalid_value(path, finalizer, each) for each in found]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        problems.append(invalid_value(path, finalizers, why))
    return problems


def validate_builtin_finalizers(metadata: Object) -> list[FieldError]:
    """Built-in kinds take finalizers with a domain only, but for the three that Kubernetes has."""
    standard = ("kubernetes", "orphan", "foregroundDeletion")
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid_value(f"metadata.finalizers[{index}]", each, why)
        for index, each in enumerate(metadata.get("finalizers") or ())
        if "/" not in each and each not in standard
    ]


_IMMUTABLE = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def validate_metadata_update(
    new: Object, old: Object, path: str = "metadata"
) -> Iterable[FieldError]:
    if old.get("deletionTimestamp"):
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            listed = ", ".join(go_quote(each) for each in added)
            yield forbidden_value(
                f"{path}.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{listed}}}",
            )
    for key in _IMMUTABLE:
        if new.get(key) != old.get(key):
            yield invalid_value(f"{path}.{key}", new.get(key), "field is immutable")


def name_problems(meta: Object, problem_of: Callable[[str], str]) -> list[FieldError]:
    """What is wrong with the name, and with the base it was generated from."""
    problems: list[FieldError] = []
    base = meta.get("generateName") or ""
    if base:
        problem = problem_of(base.rstrip("-.") or base)
        if problem:
            problems.append(invalid_value("metadata.generateName", base, problem))
    name = meta.get("name") or ""
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    elif problem := problem_of(name):
        problems.append(invalid_value("metadata.name", name, problem))
    return problems


def require_version(text: Any) -> None:
    """Raises what the server says to a resourceVersion that is no number."""
    if text and not str(text).isdigit():
        raise internal(f'strconv.ParseUint: parsing "{text}": invalid syntax')


def is_version(text: Any) -> bool:
    """Whether it is the resourceVersion of something stored."""
    return isinstance(text, str) and text.isdigit() and int(text) > 0


def string_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
