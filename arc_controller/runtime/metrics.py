"""Metrics of queues, controllers and leader election, under the names their users know.

The names, labels and buckets are those of controller-runtime and client-go, so that existing
dashboards work. Nothing is global: a `RuntimeMetrics` belongs to one registry.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30),
    *(40, 50, 60),
)
QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
RESULTS = ("success", "error", "requeue", "requeue_after")


class ObservedQueue(Sized, Protocol):
    """What is read from a queue when the metrics are collected."""

    def unfinished_seconds(self) -> float: ...
    def longest_running_seconds(self) -> float: ...


class QueueMetrics:
    """One queue's metrics."""

    def __init__(self, families: _QueueFamilies, name: str) -> None:
        self._families = families
        self._labels = {"name": name, "controller": name}
        self.adds = families.adds.labels(**self._labels)
        self.retries = families.retries.labels(**self._labels)
        self.queue_duration = families.queue_duration.labels(**self._labels)
        self.work_duration = families.work_duration.labels(**self._labels)

    def observe(self, queue: ObservedQueue) -> None:
        """Read the gauges from `queue` whenever the metrics are collected; idle costs nothing."""
        families, labels = self._families, self._labels
        families.depth.labels(**labels).set_function(lambda: len(queue))
        families.unfinished.labels(**labels).set_function(queue.unfinished_seconds)
        families.longest_running.labels(**labels).set_function(queue.longest_running_seconds)


class ControllerMetrics:
    """One controller's metrics."""

    def __init__(self, families: _ControllerFamilies, name: str, workers: int) -> None:
        self._total = {
            result: families.total.labels(controller=name, result=result) for result in RESULTS
        }
        self.errors = families.errors.labels(controller=name)
        self.terminal_errors = families.terminal_errors.labels(controller=name)
        self.timeouts = families.timeouts.labels(controller=name)
        self.time = families.time.labels(controller=name)
        self.active_workers = families.active_workers.labels(controller=name)
        families.max_concurrent.labels(controller=name).set(workers)

    def count(self, result: str) -> None:
        """One reconcile ended with `result`, one of `RESULTS`."""
        self._total[result].inc()


class RuntimeMetrics:
    """All families of the runtime, registered once with `registry` (a new one by default)."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._queues = _QueueFamilies(self.registry)
        self._controllers = _ControllerFamilies(self.registry)
        self._is_leader = Gauge(
            "leader_election_master_status",
            "Whether this process is the leader: 1 if it is, 0 if it waits for the lease.",
            ["name"],
            registry=self.registry,
        )
        self.events = Counter(
            "event_recorder_events_total",
            "What became of recorded events.",
            ["outcome"],
            registry=self.registry,
        )

    def queue(self, name: str) -> QueueMetrics:
        return QueueMetrics(self._queues, name)

    def controller(self, name: str, workers: int) -> ControllerMetrics:
        return ControllerMetrics(self._controllers, name, workers)

    def set_leader(self, name: str, is_leader: bool) -> None:
        self._is_leader.labels(name=name).set(is_leader)


class _QueueFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["name", "controller"]

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"workqueue_{name}", text, labels, registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"workqueue_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(
                f"workqueue_{name}", text, labels, registry=registry, buckets=QUEUE_BUCKETS
            )

        self.depth = gauge("depth", "How many items are ready to be processed.")
        self.unfinished = gauge(
            "unfinished_work_seconds", "Seconds of work in progress, summed over all workers."
        )
        self.longest_running = gauge(
            "longest_running_processor_seconds", "For how long the longest worker has been busy."
        )
        self.adds = counter("adds_total", "How many adds there were.")
        self.retries = counter("retries_total", "How many rate limited adds there were.")
        self.queue_duration = histogram(
            "queue_duration_seconds", "How long an item was ready before it was handed out."
        )
        self.work_duration = histogram("work_duration_seconds", "How long an item was processed.")


class _ControllerFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["controller"]

        def counter(name: str, text: str, more: tuple[str, ...] = ()) -> Counter:
            return Counter(f"controller_runtime_{name}", text, [*labels, *more], registry=registry)

        self.total = counter("reconcile_total", "Reconciles by result.", ("result",))
        self.errors = counter("reconcile_errors_total", "Reconciles that failed.")
        self.terminal_errors = counter(
            "terminal_reconcile_errors_total", "Reconciles that failed for good."
        )
        self.timeouts = counter("reconcile_timeouts_total", "Reconciles that took too long.")
        self.time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciles took.",
            labels,
            registry=registry,
            buckets=RECONCILE_BUCKETS,
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers",
            "Reconciles that are running.",
            labels,
            registry=registry,
        )
        self.max_concurrent = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "How many reconciles may run at the same time.",
            labels,
            registry=registry,
        )
