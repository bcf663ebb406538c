"""Watches: frames pushed by the store, read as an async iterator.

A watch never polls. It has no task of its own: the store's write puts the frame into the watch's
queue and wakes its reader; time limits are timers of the running loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from arc_controller.testing.apiserver.decode import Decoder
from arc_controller.testing.apiserver.errors import StatusError
from arc_controller.testing.apiserver.managed import resource_node
from arc_controller.testing.apiserver.messages import Object, encode_json
from arc_controller.testing.apiserver.requestlog import RequestRecord
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.selectors import FieldMatcher, Matcher, labels_of
from arc_controller.testing.apiserver.store import Event, Store, Stored

Encode = Callable[[Stored], bytes]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BACKLOG = 50_000
"""A reader this many frames behind is closed, as the real server closes slow watchers."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which objects of a resource a list or watch is about."""

    namespace: str = ""
    name: str = ""
    labels: Matcher | None = None
    fields: FieldMatcher | None = None

    @property
    def everything(self) -> bool:
        return self.labels is None and self.fields is None and not self.name

    def selects(self, stored: Stored) -> bool:
        if self.namespace and stored.namespace != self.namespace:
            return False
        if self.name and stored.name != self.name:
            return False
        if self.labels is not None and not self.labels(labels_of(stored.obj)):
            return False
        return self.fields is None or self.fields(stored.obj)


class Watch:
    """The body of a watch response. `aclose` (or the time limit) ends it.

    `encode` renders an object when the client asked for another form than the plain object
    (a table, metadata only); such frames are not shared.
    """

    def __init__(
        self,
        store: Store,
        resource: Resource,
        wanted: Filter,
        *,
        timeout: float | None = None,
        bookmark_interval: float | None = None,
        encode: Encode | None = None,
        on_close: Callable[[Watch], None] | None = None,
    ) -> None:
        self._store = store
        self._resource = resource
        self._wanted = wanted
        self._encode = encode
        self._variant = resource.api_version
        self._frames: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._on_close = on_close
        self._interval = bookmark_interval
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unsubscribe: Callable[[], None] = lambda: None
        self.record: RequestRecord | None = None
        """Where the bytes sent are counted."""
        if timeout is not None:
            self._timers["timeout"] = self._loop.call_later(timeout, self.close)
        self._next_bookmark()

    def begin(self, replay: list[Event]) -> None:
        """Send past events, then follow the store."""
        for event in replay:
            self._offer(event)
        self._unsubscribe = self._store.subscribe(
            self._resource.storage_key, self._offer, self._wanted.name
        )

    def add_existing(self, objects: list[Stored]) -> None:
        """Synthetic ADDED events for what is there already."""
        for stored in objects:
            if self._wanted.selects(stored):
                self._push(self._frame("ADDED", stored))

    def bookmark(self, revision: int, *, initial_events_end: bool = False) -> None:
        meta: Object = {"resourceVersion": str(revision)}
        if initial_events_end:
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj: Object = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.api_version,
            "metadata": meta,
        }
        if not self._resource.custom:
            # Go writes the zero values of its structs.
            Decoder().conform(resource_node(self._resource), obj, None, "")
        if self._encode is None:
            data = encode_json(obj)
        else:
            stored = Stored(
                self._resource.storage_key, "", "", revision=revision, obj=obj, data=b""
            )
            data = self._encode(stored)
        self._push(_line(b"BOOKMARK", data))

    def fail(self, error: StatusError) -> None:
        """An ERROR event, after which the watch ends."""
        self._push(_line(b"ERROR", encode_json(error.status())))
        self.close()

    def close(self) -> None:
        """End the watch once what is queued has been read."""
        if self._closed:
            return
        self._closed = True
        self._unsubscribe()
        for timer in self._timers.values():
            timer.cancel()
        self._wake()
        if self._on_close is not None:
            self._on_close(self)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> bytes:
        """The next frame: one JSON line."""
        while not self._frames:
            await self._wait()
        return self._frames.popleft()

    async def next_batch(self) -> bytes:
        """All frames queued by now, joined. Raises StopAsyncIteration at the end."""
        while not self._frames:
            await self._wait()
        batch = b"".join(self._frames)
        self._frames.clear()
        return batch

    async def aclose(self) -> None:
        self._frames.clear()
        self.close()

    async def _wait(self) -> None:
        if self._closed:
            raise StopAsyncIteration
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _offer(self, event: Event) -> None:
        stored = event.stored
        wanted = self._wanted
        if wanted.namespace and stored.namespace != wanted.namespace:
            return
        if wanted.name and stored.name != wanted.name:
            return
        if wanted.everything:
            self._push(self._event_frame(event, event.type))
            return
        previous = event.previous
        was = previous is not None and wanted.selects(previous)
        if event.type == "DELETED":
            if was:
                self._push(self._event_frame(event, "DELETED"))
        elif wanted.selects(stored):
            self._push(self._event_frame(event, "MODIFIED" if was else "ADDED"))
        elif was and previous is not None:
            self._push(self._frame("DELETED", _at(previous, event.revision)))

    def _event_frame(self, event: Event, type_: str) -> bytes:
        if self._encode is not None:
            return self._frame(type_, event.stored)
        key = f"{type_} {self._variant}"
        frame = event.frames.get(key)
        if frame is None:
            frame = event.frames[key] = self._frame(type_, event.stored)
        return frame

    def _frame(self, type_: str, stored: Stored) -> bytes:
        data = encoded(self._resource, stored) if self._encode is None else self._encode(stored)
        return _line(type_.encode(), data)

    def _push(self, frame: bytes) -> None:
        if self._closed:
            return
        if self.record is not None:
            self.record.bytes_out += len(frame)
        self._frames.append(frame)
        if len(self._frames) > _BACKLOG:
            self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _next_bookmark(self) -> None:
        if self._interval is not None:
            self._timers["bookmark"] = self._loop.call_later(self._interval, self._send_bookmark)

    def _send_bookmark(self) -> None:
        if not self._closed:
            self.bookmark(self._store.revision)
            self._next_bookmark()


def encoded(resource: Resource, stored: Stored) -> bytes:
    """The object's bytes in the version that was asked for."""
    if resource.convert_out is None:
        return stored.data
    data = stored.variants.get(resource.api_version)
    if data is None:
        data = encode_json(resource.convert_out(stored.copy()))
        stored.variants[resource.api_version] = data
    return data


def _at(stored: Stored, revision: int) -> Stored:
    obj = stored.copy()
    obj["metadata"]["resourceVersion"] = str(revision)
    return Stored(
        stored.resource,
        stored.namespace,
        stored.name,
        revision=revision,
        obj=obj,
        data=encode_json(obj),
    )


def _line(type_: bytes, data: bytes) -> bytes:
    return b'{"type":"' + type_ + b'","object":' + data + b"}\n"
