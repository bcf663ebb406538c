"""From an event to the keys of the objects that have to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias

from arc_controller.runtime.objects import K, KubeObject, NamespacedName
from arc_controller.runtime.predicates import Predicate
from arc_controller.runtime.scheme import Scheme
from arc_controller.runtime.workqueue import WorkQueue

Handler: TypeAlias = Callable[[K, Scheme], Iterable[NamespacedName]]
"""The keys to enqueue for an object. Called for every event: cheap, and never waits."""


def enqueue_self(obj: KubeObject, _scheme: Scheme) -> Iterable[NamespacedName]:
    """The object itself."""
    return (obj.key,)


def enqueue_owner(owner: type[KubeObject], *, controller_only: bool = True) -> Handler[KubeObject]:
    """The owners of kind `owner`; with `controller_only`, only the one that controls the object."""

    def owners(obj: KubeObject, scheme: Scheme) -> Iterable[NamespacedName]:
        resource = scheme.resource(owner)
        namespace = obj.metadata.namespace if resource.namespaced else ""
        return [
            NamespacedName(namespace, ref.name)
            for ref in obj.metadata.owner_references
            if ref.kind == resource.kind
            and ref.api_version.rpartition("/")[0] == resource.group
            and (ref.controller or not controller_only)
        ]

    return owners


def enqueue_mapped(func: Callable[[K], Iterable[NamespacedName]]) -> Handler[K]:
    """Whatever `func` says."""
    return lambda obj, _scheme: func(obj)


class EnqueueingHandler(Generic[K]):
    """An informer's event handler that asks the predicates and fills a queue.

    For an update both states are mapped: an object that changes its owner concerns both.
    """

    def __init__(
        self,
        queue: WorkQueue[NamespacedName],
        handler: Handler[K],
        scheme: Scheme,
        predicates: Iterable[Predicate[K]] = (),
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._scheme = scheme
        self._predicates = tuple(predicates)

    def on_add(self, obj: K, initial: bool) -> None:
        if all(predicate.create(obj) for predicate in self._predicates):
            self._enqueue(obj)

    def on_update(self, old: K, new: K) -> None:
        if all(predicate.update(old, new) for predicate in self._predicates):
            self._enqueue(new, old)

    def on_delete(self, obj: K) -> None:
        if all(predicate.delete(obj) for predicate in self._predicates):
            self._enqueue(obj)

    def __repr__(self) -> str:
        return f"<handler of controller {self._queue.name}>"

    def _enqueue(self, *objects: K) -> None:
        handler, scheme = self._handler, self._scheme
        keys = {key: None for obj in objects for key in handler(obj, scheme)}
        for key in keys:
            # A NamespacedName is a tuple: a function that returns one key instead of several would
            # otherwise enqueue its two halves.
            if not isinstance(key, NamespacedName):
                raise TypeError(
                    f"{self!r}: {key!r} is no NamespacedName; a handler returns several of them"
                )
        for key in keys:
            self._queue.add(key)
