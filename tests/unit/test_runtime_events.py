"""Events reach the API server, in bounded numbers, and never get in anybody's way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from arc_controller.api import SCHEME
from arc_controller.api.core import Pod
from arc_controller.runtime.errors import Forbidden, NotFound, Status, TransportError
from arc_controller.runtime.events import MAX_PENDING, Event, EventRecorder
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import K, KubeObject, NamespacedName, ObjectMeta
from arc_controller.testing.loop import now, simulated


class Sink:
    """Takes events as the API server would; `failure` is raised instead, if there is one."""

    def __init__(self) -> None:
        self.events: dict[NamespacedName, Event] = {}
        self.writes = 0
        self.failure: Callable[[], Exception] | None = None

    async def create(self, obj: K) -> K:
        await self._answer()
        assert isinstance(obj, Event)
        self.events[obj.key] = obj
        return obj

    async def patch(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        await self._answer()
        if key not in self.events:
            raise NotFound(Status(code=404))
        event = self.events[key]
        event.count = patch["count"]
        event.message = patch["message"]
        event.last_timestamp = patch["lastTimestamp"]
        assert isinstance(event, kind)
        return event

    async def delete(self, kind: type[KubeObject], key: NamespacedName, **_options: Any) -> bool:
        raise NotImplementedError

    async def _answer(self) -> None:
        await asyncio.sleep(0.01)
        self.writes += 1
        if self.failure is not None:
            raise self.failure()

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [(event.message, event.count) for event in self.events.values()]


class Fixture:
    def __init__(self) -> None:
        self.sink = Sink()
        self.registry = CollectorRegistry()
        self.recorder = EventRecorder(
            self.sink,
            SCHEME,
            component="test",
            now=now,
            random=random.Random(1),
            metrics=RuntimeMetrics(self.registry),
        )

    def outcome(self, name: str) -> float:
        sample = "event_recorder_events_total"
        return self.registry.get_sample_value(sample, {"outcome": name}) or 0


@asynccontextmanager
async def recording() -> AsyncIterator[Fixture]:
    fixture = Fixture()
    task = asyncio.create_task(fixture.recorder.start())
    yield fixture
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


def pod(name: str = "runner") -> Pod:
    return Pod(metadata=ObjectMeta(namespace="default", name=name, uid=f"uid-{name}"))


@simulated
async def test_an_event_says_what_happened_to_which_object() -> None:
    async with recording() as f:
        f.recorder.event(pod(), "Warning", "Evicted", "The node ran out of memory.")
        await asyncio.sleep(1)
    (event,) = f.sink.events.values()
    about = event.involved_object
    assert (about.api_version, about.kind, about.namespace, about.name, about.uid) == (
        "v1",
        "Pod",
        "default",
        "runner",
        "uid-runner",
    )
    assert event.metadata.namespace == "default"
    assert event.metadata.name.startswith("runner.")
    assert (event.type, event.reason, event.count) == ("Warning", "Evicted", 1)
    assert event.message == "The node ran out of memory."
    assert event.source.component == event.reporting_component == "test"
    assert event.first_timestamp == event.last_timestamp
    assert event.last_timestamp is not None
    assert event.last_timestamp.isoformat() == "2025-01-01T00:00:00+00:00"


@simulated
async def test_repeats_are_counted_on_one_event() -> None:
    async with recording() as f:
        for _ in range(5):
            f.recorder.event(pod(), "Normal", "Waiting", "for a pod")
        await asyncio.sleep(60)
        f.recorder.event(pod(), "Normal", "Waiting", "for a pod")
        await asyncio.sleep(60)
    assert f.sink.counts == [("for a pod", 6)]
    assert f.sink.writes == 2
    (event,) = f.sink.events.values()
    assert event.first_timestamp != event.last_timestamp


@simulated
async def test_a_repeat_after_a_long_time_is_another_event() -> None:
    async with recording() as f:
        f.recorder.event(pod(), "Normal", "Waiting", "for a pod")
        await asyncio.sleep(3600)
        f.recorder.event(pod(), "Normal", "Waiting", "for a pod")
        await asyncio.sleep(1)
    assert f.sink.counts == [("for a pod", 1)] * 2


@simulated
async def test_an_event_that_expired_on_the_server_is_written_anew() -> None:
    async with recording() as f:
        f.recorder.event(pod(), "Normal", "Waiting", "for a pod")
        await asyncio.sleep(1)
        f.sink.events.clear()
        f.recorder.event(pod(), "Normal", "Waiting", "for a pod")
        await asyncio.sleep(1)
    assert f.sink.counts == [("for a pod", 1)]


@simulated
async def test_many_similar_events_share_one() -> None:
    async with recording() as f:
        for number in range(30):
            f.recorder.event(pod(), "Warning", "Failed", f"attempt {number}")
            await asyncio.sleep(1)
    assert len(f.sink.events) == 11
    assert f.sink.counts[-1][0].startswith("(combined) attempt ")


@simulated
async def test_one_object_cannot_flood_the_server() -> None:
    async with recording() as f:
        for number in range(200):
            f.recorder.event(pod(), "Warning", f"Reason{number}", "again")
        f.recorder.event(pod("other"), "Normal", "Fine", "all is well")
        await asyncio.sleep(60)
    assert len(f.sink.events) == 25 + 1
    assert f.outcome("dropped") == 175


@simulated
async def test_what_waits_is_bounded() -> None:
    async with recording() as f:
        f.sink.failure = lambda: TransportError("refused")
        for number in range(MAX_PENDING + 50):
            f.recorder.event(pod(str(number)), "Normal", "Created", "it")
        assert f.outcome("dropped") == 50


@simulated
async def test_writing_has_a_rate() -> None:
    async with recording() as f:
        for number in range(300):
            f.recorder.event(pod(str(number)), "Normal", "Created", "it")
        await asyncio.sleep(5)
        assert 100 + 5 * 10 < f.sink.writes <= 100 + 5 * 20 + 1
        await asyncio.sleep(60)
    assert f.sink.writes == 300


@simulated
async def test_an_outage_is_waited_for_and_then_the_event_is_written() -> None:
    async with recording() as f:
        f.sink.failure = lambda: TransportError("refused")
        f.recorder.event(pod(), "Normal", "Created", "it")
        await asyncio.sleep(2)
        f.sink.failure = None
        await asyncio.sleep(10)
    assert f.sink.counts == [("it", 1)]


@pytest.mark.parametrize("error", [Forbidden(Status(code=403)), RuntimeError("bug")])
@simulated
async def test_what_is_refused_is_dropped_and_the_next_is_written(error: Exception) -> None:
    async with recording() as f:
        f.sink.failure = lambda: error
        f.recorder.event(pod(), "Normal", "Created", "it")
        await asyncio.sleep(1)
        f.sink.failure = None
        f.recorder.event(pod(), "Normal", "Deleted", "it")
        await asyncio.sleep(1)
    assert [event.reason for event in f.sink.events.values()] == ["Deleted"]
    assert (f.outcome("dropped"), f.outcome("written")) == (1, 1)


@simulated
async def test_an_object_of_an_unknown_kind_disturbs_nobody() -> None:
    async with recording() as f:
        f.recorder.event(KubeObject(), "Normal", "Created", "it")
        await asyncio.sleep(1)
    assert f.outcome("dropped") == 1


@simulated
async def test_draining_writes_what_is_left_without_delay() -> None:
    async with recording() as f:
        for number in range(150):
            f.recorder.event(pod(str(number)), "Normal", "Created", "it")
        await f.recorder.drain()
        assert f.sink.writes == 150
        assert asyncio.get_running_loop().time() <= 2


@simulated
async def test_events_of_cluster_scoped_objects_go_to_the_default_namespace() -> None:
    async with recording() as f:
        f.recorder.event(Pod(metadata=ObjectMeta(name="x")), "Normal", "Created", "y" * 5000)
        await asyncio.sleep(1)
    (event,) = f.sink.events.values()
    assert (event.metadata.namespace, event.involved_object.namespace) == ("default", "")
    assert len(event.message) == 1024
