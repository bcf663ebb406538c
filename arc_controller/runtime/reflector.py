"""Follows one collection of the API server: list it, watch it, and again whenever that breaks.

The reflector is one explicit state machine. It owns what is known about the position in the
server's history, and nothing else: what it learns goes to a `Sink`.

::

    EMPTY ──► LISTING ──► WATCHING ──┐
      ▲          │  ▲        │  ▲    │ the stream ended: resume from the last version
      │          │  └─ page   │  └────┘
      └──────────┴───────────┘  history is gone, or the server refuses to resume
"""

from __future__ import annotations

import asyncio
import enum
import random as random_
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from arc_controller.runtime.errors import (
    SAME_PAGE,
    ApiError,
    BadRequest,
    Gone,
    Invalid,
    MalformedAnswer,
    NotFound,
    Status,
    TooManyRequests,
    TransportError,
    error_from_response,
    error_from_status,
)
from arc_controller.runtime.objects import (
    K,
    KubeObject,
    LabelSelector,
    ListMeta,
    NamespacedName,
    ObjectMeta,
)
from arc_controller.runtime.scheme import Scheme
from arc_controller.runtime.transport import Transport

PAGE = 500
WATCH_SECONDS = (300, 600)
"""For how long the server is asked to serve one watch: a random number in this range, so that not
everybody comes back at the same time."""
GRACE_SECONDS = 30.0
"""How much longer than asked for a watch may take before the connection counts as dead."""
HEALTHY_SECONDS = 10.0
"""A watch that lived this long, or brought an event, ends a run of failures."""
BACKOFF_BASE, BACKOFF_CAP = 0.2, 30.0
RESUMES = 5
"""The server may refuse to resume (or answer nonsense, or end the watch at once) so many times in a
row; then the collection is listed again."""
MOST_PATIENCE = 300.0
"""Seconds that a server may ask to be left alone for: longer, and the cache would be a memory."""
QUIET_FAILURES = 2
"""So many in a row are nothing to warn of."""
BATCH = 32
"""After so many events in a row the loop gets to do something else."""

DEEPEST = 10_000
"""The API server refuses what is nested more deeply."""

_log = structlog.get_logger(__name__)


class State(enum.Enum):
    """What is known of the collection, and so what the next step does."""

    EMPTY = "empty"
    """Nothing, or nothing that can be resumed. Begins a list; leads to LISTING at once."""

    LISTING = "listing"
    """Some pages of it. Reads one page: the last one goes with all the others to the sink and
    leads to WATCHING. 410 leads to EMPTY (and to a list in one page), other errors read the page
    again later."""

    WATCHING = "watching"
    """Everything up to `version`. Serves one watch to its end and stays; 410, or too many refusals
    in a row, lead to EMPTY, and so does the end of a watch that brought something unreadable."""


K_contra = TypeVar("K_contra", bound=KubeObject, contravariant=True)


class Sink(Protocol[K_contra]):
    """Takes what a reflector learns. Calls are synchronous, cheap, and do not raise."""

    def replaced(
        self, objects: Sequence[K_contra], unreadable: frozenset[NamespacedName], version: str
    ) -> None:
        """The whole collection as of `version`; `unreadable` are there but could not be decoded."""

    def changed(self, obj: K_contra) -> None:
        """The object is new or different."""

    def deleted(self, last: KubeObject) -> None:
        """The object is gone or no longer selected. At least the metadata of `last` are known."""

    def reached(self, version: str) -> None:
        """Nothing else happened up to `version`."""


class Reflector(Generic[K]):
    """Keeps a sink up to date with the objects of one kind in one namespace and label selection.

    It never gives up: every error leads to another try, after a jittered exponential backoff.
    Lists are consistent (the most recent state), so the collection never goes back in time.
    Cancelling `run` or `step` is safe at any moment; a cancelled step may be repeated.
    """

    def __init__(
        self,
        kind: type[K],
        sink: Sink[K],
        transport: Transport,
        scheme: Scheme,
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        random: random_.Random | None = None,
    ) -> None:
        self.state = State.EMPTY
        self.version = ""
        """The resource version up to which the sink knows everything."""
        self.failures = 0
        """How many steps in a row failed."""
        self._kind = kind
        self._sink = sink
        self._transport = transport
        self._scheme = scheme
        self._random = random or random_.Random()
        self._path = scheme.resource(kind).path(namespace)
        self._selection = [("labelSelector", str(labels))] if labels is not None else []
        self._pages: list[K] = []
        self._token = ""
        self._paginate = True
        self._unreadable: set[NamespacedName] = set()
        self._list_again = False
        self._log = _log.bind(kind=kind.__name__, namespace=namespace or "*")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.step()

    async def step(self) -> None:
        """One transition, and the wait after it if it failed."""
        delay = 0.0
        try:
            match self.state:
                case State.EMPTY:
                    self._begin_list()
                case State.LISTING:
                    await self._read_page()
                case State.WATCHING:
                    delay = await self._watch()
        except (ApiError, TransportError, msgspec.DecodeError, RecursionError) as error:
            delay = self._failed(error)
        if delay:
            await asyncio.sleep(delay)

    # --- listing ----------------------------------------------------------------------------------

    def _begin_list(self) -> None:
        self._pages, self._token = [], ""
        self._unreadable = set()
        self._list_again = False
        self.state = State.LISTING

    async def _read_page(self) -> None:
        query = list(self._selection)
        if self._paginate:
            query.append(("limit", str(PAGE)))
        if self._token:
            query.append(("continue", self._token))
        response = await self._transport.request("GET", self._path, query=query)
        if response.status >= 300:
            retry_after = response.headers.get("Retry-After", "")
            call = f"GET {self._path}"
            raise error_from_response(response.status, response.body, call, retry_after)
        page = _read_page(response.body)
        if page.items is msgspec.UNSET:  # Not even an empty list, so nothing is known to be gone.
            said = f" and says {page.message[:300]!r}" if page.message else ""
            message = f"the answer is no list: it has no items, kind {page.kind!r}{said}"
            raise MalformedAnswer(Status(message=message), f"GET {self._path}")
        objects: list[K] = []
        for count, item in enumerate(page.items or (), 1):
            obj = self._decode(item)
            if isinstance(obj, self._kind):
                objects.append(obj)
            if count % BATCH == 0:
                await asyncio.sleep(0)
        if page.metadata.continue_ == self._token != "":
            self._begin_list()
            raise MalformedAnswer(Status(message=SAME_PAGE), f"GET {self._path}")
        self._pages += objects
        self._token = page.metadata.continue_
        if self._token:
            return
        version = page.metadata.resource_version
        self._sink.replaced(self._pages, frozenset(self._unreadable), version)
        self.version = version
        self._pages = []
        self._paginate = True
        self.state = State.WATCHING

    # --- watching ---------------------------------------------------------------------------------

    async def _watch(self) -> float:
        seconds = self._random.randint(*WATCH_SECONDS)
        query = [
            *self._selection,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self.version),
            ("timeoutSeconds", str(seconds)),
        ]
        loop = asyncio.get_running_loop()
        started = loop.time()
        events = 0
        try:
            async with (
                asyncio.timeout(seconds + GRACE_SECONDS),
                self._transport.stream(self._path, query=query) as lines,
            ):
                async for line in lines:
                    if self._take(line):
                        self.failures = 0
                    events += 1
                    if events % BATCH == 0:
                        await asyncio.sleep(0)
        except TimeoutError:
            self._log.warning("watch was silent past its end: the connection counts as dead")
        finally:
            if loop.time() - started >= HEALTHY_SECONDS:
                self.failures = 0
        if self._list_again:
            self.state = State.EMPTY
        if loop.time() - started >= HEALTHY_SECONDS:
            return 0.0
        self.failures += 1
        if self.failures % RESUMES == 0:
            self.state = State.EMPTY
        if self.failures > QUIET_FAILURES:
            self._log.warning(
                "watch ends as soon as it begins", failures=self.failures, next=self.state.value
            )
        return self._backoff()

    def _take(self, line: bytes) -> bool:
        """Hand one event on; says whether it was about an object. Raises what an ERROR carries."""
        event = _decode_event(line)
        match event.type:
            case "ADDED" | "MODIFIED":
                obj = self._decode(event.object)
                if isinstance(obj, self._kind):
                    self._sink.changed(obj)
            case "DELETED":
                obj = self._decode(event.object)
                if obj is not None:
                    self._sink.deleted(obj)
            case "BOOKMARK":
                obj = _decode_partial(event.object)
                self._sink.reached(obj.metadata.resource_version)
            case "ERROR":
                raise error_from_status(_decode_status(event.object), f"WATCH {self._path}")
            case _:
                self._log.warning("unknown type of watch event", type=event.type)
                return False
        if obj is not None and obj.metadata.resource_version:
            self.version = obj.metadata.resource_version
        return event.type != "BOOKMARK"

    # --- what both need ---------------------------------------------------------------------------

    def _decode(self, raw: msgspec.Raw) -> K | KubeObject | None:
        """The object; its metadata alone, or None, if more cannot be decoded."""
        try:
            obj = self._scheme.decode(self._kind, raw)
        except msgspec.DecodeError as error:
            return self._unread(raw, str(error))
        return obj if obj.metadata.name else self._unread(raw, "it has no name")

    def _unread(self, raw: msgspec.Raw, why: str) -> KubeObject | None:
        partial = _decode_least(raw)
        key = partial.key if partial is not None else None
        self._log.error("object cannot be read", key=str(key or "?"), error=why)
        self._list_again = True
        if key is not None:
            self._unreadable.add(key)
        return partial

    def _failed(self, error: Exception) -> float:
        self.failures += 1
        listing = self.state is State.LISTING
        match error:
            case Gone():
                # Pages that expired while they were read would expire again.
                self._paginate = not (listing and self._token)
                self.state = State.EMPTY
            case BadRequest() | Invalid():
                self.state = State.EMPTY
            case TransportError():
                pass  # While nobody answers, the version stays as good as it is.
            case _ if not listing and self.failures % RESUMES == 0:
                self.state = State.EMPTY
        delay = self._backoff()
        if isinstance(error, TooManyRequests):
            delay = max(delay, min(error.retry_after, MOST_PATIENCE))
        log = self._log.warning if self.failures > QUIET_FAILURES else self._log.info
        hint = (
            " (is its CustomResourceDefinition installed?)" if isinstance(error, NotFound) else ""
        )
        log(
            "list failed" if listing else "watch failed",
            error=f"{error}{hint}",
            failures=self.failures,
            retry_in=round(delay, 3),
            next=self.state.value,
        )
        return delay

    def _backoff(self) -> float:
        delay = min(BACKOFF_CAP, BACKOFF_BASE * 2.0 ** min(self.failures - 1, 16))
        return delay * self._random.uniform(0.5, 1.0)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Page(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET  # null: Go's nil slice
    kind: str = ""
    message: str = ""


class _LeastMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Least(msgspec.Struct):
    metadata: _LeastMeta


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_page = msgspec.json.Decoder(_Page).decode
_decode_status = msgspec.json.Decoder(Status).decode
_decode_partial = msgspec.json.Decoder(KubeObject).decode
_least = msgspec.json.Decoder(_Least).decode


def _read_page(body: bytes) -> _Page:
    try:
        return _decode_page(body)
    except RecursionError:
        # One object that is nested too deeply for Python must not hide all others.
        with _deeper():
            return _decode_page(body)


@contextmanager
def _deeper() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _decode_least(raw: msgspec.Raw) -> KubeObject | None:
    """What identifies an object that cannot be read; None if not even that can."""
    try:
        with _deeper():
            meta = _least(raw).metadata
    except (msgspec.DecodeError, RecursionError):
        return None
    if not meta.name:
        return None
    return KubeObject(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
    )
