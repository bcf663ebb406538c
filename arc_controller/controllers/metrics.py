"""The manager's own metrics, under the names that dashboards in the field use."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from arc_controller.actions import InvalidConfigUrl, parse_config_url
from arc_controller.runtime.objects import NamespacedName

LABELS = ("name", "namespace", "repository", "organization", "enterprise")


class ControllerMetrics:
    """Gauges by object; what belongs to an object goes away with it.

    `registry` is the manager's; two managers in one process need two.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> _PerObject:
            return _PerObject(Gauge(f"gha_controller_{name}", text, LABELS, registry=registry))

        self._pending = gauge("pending_ephemeral_runners", "Runners that wait for a job.")
        self._running = gauge("running_ephemeral_runners", "Runners that hold a job.")
        self._failed = gauge("failed_ephemeral_runners", "Runners that failed.")
        self._listeners = gauge("running_listeners", "1 if the listener runs, 0 if it does not.")

    def runners(
        self, key: NamespacedName, config_url: str, *, pending: int, running: int, failed: int
    ) -> None:
        """The counts of the scale set `key`."""
        labels = _labels(key, config_url)
        self._pending.set(key, labels, pending)
        self._running.set(key, labels, running)
        self._failed.set(key, labels, failed)

    def listener(self, key: NamespacedName, config_url: str, *, runs: bool) -> None:
        """Whether the listener `key` runs."""
        self._listeners.set(key, _labels(key, config_url), int(runs))

    def forget_scale_set(self, key: NamespacedName) -> None:
        for gauge in (self._pending, self._running, self._failed):
            gauge.remove(key)

    def forget_listener(self, key: NamespacedName) -> None:
        self._listeners.remove(key)


class _PerObject:
    """A gauge with one series per object, also when the object's labels change."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._series: dict[NamespacedName, tuple[str, ...]] = {}

    def set(self, key: NamespacedName, labels: tuple[str, ...], value: int) -> None:
        if self._series.get(key, labels) != labels:
            self.remove(key)
        self._series[key] = labels
        self._gauge.labels(*labels).set(value)

    def remove(self, key: NamespacedName) -> None:
        labels = self._series.pop(key, None)
        if labels is not None:
            self._gauge.remove(*labels)


def _labels(key: NamespacedName, config_url: str) -> tuple[str, ...]:
    """In the order of `LABELS`; a URL that nobody can read names nothing."""
    places: Iterable[str]
    try:
        url = parse_config_url(config_url)
        places = (url.repository, url.organization, url.enterprise)
    except InvalidConfigUrl:
        places = ("", "", "")
    return (key.name, key.namespace, *places)
