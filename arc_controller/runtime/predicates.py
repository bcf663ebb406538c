"""Which events are worth a reconcile.

A predicate keeps an event away from a controller's queue; it saves work and decides nothing. ::

    builder.for_(EphemeralRunner, predicates=[any_of(generation_changed, labels_changed)])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from arc_controller.runtime.objects import KubeObject

K_contra = TypeVar("K_contra", bound=KubeObject, contravariant=True)


def _always(*_objects: Any) -> bool:
    return True


@dataclass(frozen=True)
class Predicate(Generic[K_contra]):
    """Three questions, each answered with True by default: is this event of interest?"""

    create: Callable[[K_contra], bool] = _always
    update: Callable[[K_contra, K_contra], bool] = _always
    delete: Callable[[K_contra], bool] = _always


def _spec_changed(old: KubeObject, new: KubeObject) -> bool:
    was, is_ = old.metadata, new.metadata
    return (
        was.generation != is_.generation
        or was.deletion_timestamp != is_.deletion_timestamp
        or was.uid != is_.uid
    )


generation_changed = Predicate[KubeObject](update=_spec_changed)
"""Updates that changed the spec or began the deletion; not those of status or metadata."""

labels_changed = Predicate[KubeObject](
    update=lambda old, new: old.metadata.labels != new.metadata.labels
)

annotations_changed = Predicate[KubeObject](
    update=lambda old, new: old.metadata.annotations != new.metadata.annotations
)

resource_version_changed = Predicate[KubeObject](
    update=lambda old, new: old.metadata.resource_version != new.metadata.resource_version
)


def on_objects(matches: Callable[[K_contra], bool]) -> Predicate[K_contra]:
    """Events of objects for which `matches` is true; of an update, the new state counts."""
    return Predicate(create=matches, update=lambda _old, new: matches(new), delete=matches)


def has_label(name: str, value: str | None = None) -> Predicate[KubeObject]:
    """Objects that have the label, with this value if one is given."""

    def matches(obj: KubeObject) -> bool:
        found = obj.metadata.labels.get(name)
        return found is not None if value is None else found == value

    return on_objects(matches)


def in_namespace(*namespaces: str) -> Predicate[KubeObject]:
    """Objects in one of the namespaces."""
    wanted = frozenset(namespaces)
    return on_objects(lambda obj: obj.metadata.namespace in wanted)


def all_of(*predicates: Predicate[K_contra]) -> Predicate[K_contra]:
    """What every one of them lets through."""
    return Predicate(
        create=lambda obj: all(p.create(obj) for p in predicates),
        update=lambda old, new: all(p.update(old, new) for p in predicates),
        delete=lambda obj: all(p.delete(obj) for p in predicates),
    )


def any_of(*predicates: Predicate[K_contra]) -> Predicate[K_contra]:
    """What at least one of them lets through."""
    return Predicate(
        create=lambda obj: any(p.create(obj) for p in predicates),
        update=lambda old, new: any(p.update(old, new) for p in predicates),
        delete=lambda obj: any(p.delete(obj) for p in predicates),
    )


def negate(predicate: Predicate[K_contra]) -> Predicate[K_contra]:
    """What it does not let through. Beware: `generation_changed` lets all creates through."""
    return Predicate(
        create=lambda obj: not predicate.create(obj),
        update=lambda old, new: not predicate.update(old, new),
        delete=lambda obj: not predicate.delete(obj),
    )
