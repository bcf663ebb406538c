"""Events: what happened to an object, for ``kubectl describe`` and ``kubectl get events``.

They are ``v1`` Events, which the API server also shows as ``events.k8s.io/v1``. Recording is fire
and forget: it never waits, never fails and never grows without bound; repeats are counted on one
Event instead of written again.
"""

from __future__ import annotations

import asyncio
import random as random_
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import msgspec
import structlog
from cachetools import LRUCache, TTLCache

from arc_controller.runtime.client import Writer
from arc_controller.runtime.clock import Now, loop_time, utc_now
from arc_controller.runtime.errors import (
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
)
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import KubeObject, NamespacedName, ObjectMeta, Wire
from arc_controller.runtime.ratelimiters import TokenBucket
from arc_controller.runtime.scheme import Resource, Scheme

log = structlog.get_logger(__name__)

EventType = Literal["Normal", "Warning"]

MAX_PENDING = 1000
"""How many different events wait to be written; more are dropped."""
MAX_REMEMBERED = 4096
REMEMBERED_FOR = 600.0
"""Seconds for which a repeat is counted on the first Event instead of written as another."""
SIMILAR = 10
"""After so many messages for one reason, further ones share one Event."""
BURST_PER_OBJECT, SECONDS_PER_EVENT = 25, 300.0
MAX_MESSAGE = 1024
ATTEMPTS = 4


class ObjectReference(Wire):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSource(Wire):
    component: str = ""


class Event(KubeObject, kw_only=True):
    """https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/"""

    involved_object: ObjectReference
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    source: EventSource = msgspec.field(default_factory=EventSource)
    reporting_component: str = ""


def event_scheme() -> Scheme:
    """A scheme that knows `Event`, for the client of an `EventRecorder`."""
    scheme = Scheme()
    scheme.register(Event, Resource("", "v1", "Event", "events"))
    return scheme


@dataclass(frozen=True, slots=True)
class _Key:
    """What makes two events the same. The message is empty where similar ones are combined."""

    subject: tuple[str, ...]
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Pending:
    about: ObjectReference
    message: str
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class _Written:
    key: NamespacedName
    count: int


class EventRecorder:
    """Writes events in the background, while `start` runs.

    `client` is one whose scheme knows `Event`; `scheme` is the one of the objects that events are
    about; `component` says who reports. A message must not contain secrets: everybody who may
    look at a namespace can read its events.
    """

    needs_leader_election = False

    def __init__(
        self,
        client: Writer,
        scheme: Scheme,
        *,
        component: str,
        now: Now = utc_now,
        random: random_.Random | None = None,
        metrics: RuntimeMetrics | None = None,
        qps: float = 20.0,
        burst: int = 100,
    ) -> None:
        self._client = client
        self._scheme = scheme
        self._component = component
        self._now = now
        self._random = random or random_.Random()
        self._metrics = metrics
        self._bucket = TokenBucket[None](qps, burst)
        self._pending: dict[_Key, _Pending] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False
        self._written = TTLCache[_Key, _Written](MAX_REMEMBERED, REMEMBERED_FOR, timer=loop_time)
        self._messages = TTLCache[_Key, frozenset[str]](
            MAX_REMEMBERED, REMEMBERED_FOR, timer=loop_time
        )
        self._per_object = LRUCache[tuple[str, ...], TokenBucket[None]](MAX_REMEMBERED)

    def event(self, obj: KubeObject, type_: EventType, reason: str, message: str) -> None:
        """Record that something happened to `obj`. Returns at once and never raises.

        `reason` is one CamelCase word for machines, `message` a sentence for people.
        """
        try:
            self._record(obj, type_, reason, message[:MAX_MESSAGE])
        except Exception as error:
            self._drop(reason, error)

    async def start(self) -> None:
        """Write what is recorded, until cancelled. What the API server refuses is dropped."""
        while True:
            while self._pending:
                key = next(iter(self._pending))
                await self._write(key, self._pending.pop(key))
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def drain(self) -> None:
        """Wait until all that was recorded is written, or dropped. `start` must be running."""
        self._is_draining = True
        await self._idle.wait()

    def _record(self, obj: KubeObject, type_: str, reason: str, message: str) -> None:
        resource, now = self._scheme.resource(type(obj)), self._now().replace(microsecond=0)
        about = ObjectReference(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=obj.metadata.namespace,
            name=obj.metadata.name,
            uid=obj.metadata.uid,
        )
        subject = (about.uid, about.kind, about.namespace, about.name)
        key = self._combined(_Key(subject, type_, reason, message))
        pending = self._pending.get(key)
        if pending is not None:
            pending.count += 1
            pending.last, pending.message = now, message
            return
        if len(self._pending) >= MAX_PENDING:
            self._drop(reason, f"{MAX_PENDING} others wait to be written")
            return
        self._pending[key] = _Pending(about, message, 1, now, now)
        self._idle.clear()
        self._wake.set()

    def _combined(self, key: _Key) -> _Key:
        """The key itself, or the one that all further events of its kind share."""
        group = replace(key, message="")
        messages = self._messages.get(group, frozenset())
        if key.message in messages:
            return key
        if len(messages) >= SIMILAR:
            return group
        self._messages[group] = messages | {key.message}
        return key

    async def _write(self, key: _Key, pending: _Pending) -> None:
        if not self._may_write(key.subject):
            self._drop(key.reason, "too many events about this object")
            return
        delay = 0.0 if self._is_draining else self._bucket.when(None)
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(delay)
            try:
                await self._send(key, pending)
            except (TransportError, ServerError, TooManyRequests) as error:
                delay = 2.0**attempt * (1 + self._random.random())
                failure: Exception = error
            except Exception as error:
                failure = error
                break
            else:
                self._count("written")
                return
        self._drop(key.reason, failure)

    def _may_write(self, subject: tuple[str, ...]) -> bool:
        bucket = self._per_object.get(subject)
        if bucket is None:
            bucket = TokenBucket(1 / SECONDS_PER_EVENT, BURST_PER_OBJECT)
            self._per_object[subject] = bucket
        return bucket.take()

    async def _send(self, key: _Key, pending: _Pending) -> None:
        written = self._written.get(key)
        message = pending.message if key.message else f"(combined) {pending.message}"
        if written is not None:
            count = written.count + pending.count
            # Nobody else writes this Event, so there is nothing to lock against.
            patch = {"count": count, "message": message, "lastTimestamp": pending.last}
            try:
                await self._client.patch(Event, written.key, patch)
            except NotFound:
                pass  # the API server keeps events for an hour or so: write another
            else:
                self._written[key] = _Written(written.key, count)
                return
        event = Event(
            metadata=ObjectMeta(
                namespace=pending.about.namespace or "default",
                name=f"{pending.about.name[:200]}.{self._random.getrandbits(64):016x}",
            ),
            involved_object=pending.about,
            type=key.type,
            reason=key.reason,
            message=message,
            count=pending.count,
            first_timestamp=pending.first,
            last_timestamp=pending.last,
            source=EventSource(component=self._component),
            reporting_component=self._component,
        )
        await self._client.create(event)
        self._written[key] = _Written(event.key, pending.count)

    def _drop(self, reason: str, error: object) -> None:
        self._count("dropped")
        log.debug("an event was dropped", reason=reason, error=str(error))

    def _count(self, outcome: str) -> None:
        if self._metrics is not None:
            self._metrics.events.labels(outcome=outcome).inc()
