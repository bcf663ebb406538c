"""`ControllerBuilder`: says which kinds a controller watches, and how their events become keys.

::

    controller = (
        ControllerBuilder(manager)
        .named("ephemeralrunner")
        .for_(EphemeralRunner, predicates=[generation_changed])
        .owns(Pod)
        .with_options(max_concurrent_reconciles=16)
        .build(reconciler)
    )
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from arc_controller.runtime.controller import Controller, Reconciler
from arc_controller.runtime.handlers import (
    EnqueueingHandler,
    Handler,
    enqueue_owner,
    enqueue_self,
)
from arc_controller.runtime.objects import K, KubeObject, NamespacedName
from arc_controller.runtime.predicates import Predicate
from arc_controller.runtime.ratelimiters import RateLimiter
from arc_controller.runtime.workqueue import WorkQueue

if TYPE_CHECKING:
    from arc_controller.runtime.manager import Manager


class ControllerBuilder:
    """Collects what a controller is made of; `build` makes it and adds it to the manager."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._name = ""
        self._kind: type[KubeObject] | None = None
        self._watches: list[
            tuple[type[KubeObject], Handler[Any] | None, tuple[Predicate[Any], ...]]
        ] = []
        self._max_concurrent_reconciles = 1
        self._reconcile_timeout: float | None = None
        self._rate_limiter: RateLimiter[Hashable] | None = None
        self._expected_errors: tuple[type[Exception], ...] = ()
        self._sync_period = manager.options.sync_period
        self._needs_leader_election = True

    def named(self, name: str) -> ControllerBuilder:
        """The name in logs and metrics; by default the lower case name of the `for_` kind."""
        self._name = name
        return self

    def for_(self, kind: type[K], *, predicates: Iterable[Predicate[K]] = ()) -> ControllerBuilder:
        """The kind that is reconciled: its events enqueue the object itself."""
        if self._kind is not None:
            raise ValueError(
                f"for_({kind.__name__}): a controller reconciles one kind, "
                f"this one already has {self._kind.__name__}"
            )
        self._kind = kind
        return self.watches(kind, enqueue_self, predicates=predicates)

    def owns(
        self,
        kind: type[K],
        *,
        predicates: Iterable[Predicate[K]] = (),
        controller_only: bool = True,
    ) -> ControllerBuilder:
        """A kind that the reconciled kind owns: its events enqueue the owner."""
        if controller_only:
            self._watches.append((kind, None, tuple(predicates)))
            return self
        return self.watches(
            kind,
            enqueue_owner(self._kind_for("owns"), controller_only=False),
            predicates=predicates,
        )

    def watches(
        self,
        kind: type[K],
        handler: Handler[K],
        *,
        predicates: Iterable[Predicate[K]] = (),
    ) -> ControllerBuilder:
        """Any other kind; `handler` says what to enqueue."""
        self._watches.append((kind, handler, tuple(predicates)))
        return self

    def with_options(
        self,
        *,
        max_concurrent_reconciles: int | None = None,
        rate_limiter: RateLimiter[Hashable] | None = None,
        reconcile_timeout: float | None = None,
        sync_period: float | None = None,
        needs_leader_election: bool | None = None,
        expected_errors: Iterable[type[Exception]] = (),
    ) -> ControllerBuilder:
        """What is not given keeps its default: one worker, `default_rate_limiter`, no timeout,
        the manager's `sync_period`, and reconciling only while leader. Times are in seconds.

        ``expected_errors`` are retried like any other, and logged without a traceback.
        """
        if max_concurrent_reconciles is not None:
            self._max_concurrent_reconciles = max_concurrent_reconciles
        if rate_limiter is not None:
            self._rate_limiter = rate_limiter
        if reconcile_timeout is not None:
            self._reconcile_timeout = reconcile_timeout
        if sync_period is not None:
            self._sync_period = sync_period
        if needs_leader_election is not None:
            self._needs_leader_election = needs_leader_election
        self._expected_errors += tuple(expected_errors)
        return self

    def build(self, reconciler: Reconciler) -> Controller:
        """The controller, added to the manager, which starts it.

        Its kinds are cached from now on. Its queue is filled from the time it starts, beginning
        with all that the cache holds then.
        """
        manager, kind = self._manager, self._kind_for("build")
        name = self._name or kind.__name__.lower()
        queue = WorkQueue[NamespacedName](
            name, rate_limiter=self._rate_limiter, metrics=manager.metrics.queue(name)
        )
        controller = Controller(
            name,
            reconciler,
            queue,
            max_concurrent_reconciles=self._max_concurrent_reconciles,
            reconcile_timeout=self._reconcile_timeout,
            expected_errors=self._expected_errors,
            on_start=[self._source(queue, *watch) for watch in self._watches],
            resync=lambda: [obj.key for obj in manager.cache.list(kind)],
            sync_period=self._sync_period,
            metrics=manager.metrics,
            random=manager.random,
        )
        controller.needs_leader_election = self._needs_leader_election
        manager.add(controller)
        return controller

    def _source(
        self,
        queue: WorkQueue[NamespacedName],
        kind: type[KubeObject],
        handler: Handler[Any] | None,
        predicates: tuple[Predicate[Any], ...],
    ) -> Callable[[], None]:
        manager = self._manager
        informer = manager.cache.informer(kind)
        if handler is None:
            handler = enqueue_owner(self._kind_for("owns"))
        events = EnqueueingHandler[Any](queue, handler, manager.scheme, predicates)
        return lambda: informer.add_handler(events)

    def _kind_for(self, caller: str) -> type[KubeObject]:
        if self._kind is None:
            raise ValueError(f"{caller}: say for_(Kind) first, which kind is reconciled")
        return self._kind
