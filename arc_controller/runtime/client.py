"""Reading and writing objects: small protocols first, then the client that implements them.

Fakes and recorders implement the protocols; reconcilers ask only for the ones they need.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol

import msgspec
import structlog

from arc_controller.runtime.changes import changed_fields
from arc_controller.runtime.errors import (
    SAME_PAGE,
    Gone,
    MalformedAnswer,
    NotFound,
    Status,
    StatusDetails,
    error_from_response,
)
from arc_controller.runtime.objects import K, KubeObject, LabelSelector, NamespacedName
from arc_controller.runtime.scheme import Scheme
from arc_controller.runtime.transport import Transport

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"
Propagation = Literal["Background", "Foreground", "Orphan"]
Query = list[tuple[str, str]]
PAGE = 500
DEBUG = logging.DEBUG

log = structlog.get_logger(__name__)


class Reader(Protocol):
    """Reads. What a cached reader returns is shared: it must not be changed, see `LazyCopy`."""

    async def get(self, kind: type[K], key: NamespacedName) -> K:
        """Raises `NotFound`, or another `ApiError`."""

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        """Like `get`, with None where that raises `NotFound`."""

    async def list(
        self,
        kind: type[K],
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]:
        """All that match; an empty namespace means all namespaces.

        ``index=("owner", uid)`` asks a field index that was added to the cache; only a cached
        reader has those, others raise `LookupError`.
        """


class Writer(Protocol):
    """Writes of objects and their metadata."""

    async def create(self, obj: K) -> K:
        """Raises `AlreadyExists`, `Invalid`, `Forbidden`, …"""

    async def patch(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        """Send an RFC 7396 merge patch. A ``metadata.resourceVersion`` in it is an optimistic lock.

        Raises `Conflict` if the lock does not hold, `NotFound`, …
        """

    async def delete(
        self,
        kind: type[KubeObject],
        key: NamespacedName,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> bool:
        """Delete; False if it was gone already.

        With `uid` or `resource_version` only that very object (or version) is deleted; a different
        one raises `Conflict`.
        """


class StatusWriter(Protocol):
    """Writes of the status subresource."""

    async def patch_status(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        """Like `Writer.patch`, on the status subresource."""


class Client(Reader, Writer, StatusWriter, Protocol):
    """All of it."""


class CachedReader(Protocol):
    """What `CachingClient` needs of the cache."""

    def covers(self, kind: type[KubeObject], namespace: str = "") -> bool:
        """Whether the cache answers reads of this kind in this namespace.

        An empty namespace means all that the cache was told to hold, for a cache is told what
        its program is about.
        """

    def get(self, kind: type[K], key: NamespacedName) -> K | None: ...

    def list(
        self,
        kind: type[K],
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]: ...

    def observe(self, obj: KubeObject) -> None:
        """Take in the server's answer to a write, so that the writer reads its own write."""


@dataclass(frozen=True, slots=True)
class Deletion(Generic[K]):
    """The server's answer to a delete.

    ``remaining`` is the object as it is now, when the server told: waiting for its finalizers or
    its grace period, or in its last state.
    """

    found: bool
    remaining: K | None = None


class ApiClient:
    """`Client` that asks the API server every time."""

    def __init__(self, transport: Transport, scheme: Scheme) -> None:
        self._transport = transport
        self._scheme = scheme

    @property
    def scheme(self) -> Scheme:
        return self._scheme

    async def get(self, kind: type[K], key: NamespacedName) -> K:
        path = self._scheme.path(kind, key)
        return self._decode(kind, await self._call("GET", path), f"GET {path}")

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        try:
            return await self.get(kind, key)
        except NotFound:
            return None

    async def list(
        self,
        kind: type[K],
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]:
        if index is not None:
            raise LookupError(f"index {index[0]!r}: only the cache has field indexes")
        path = self._scheme.resource(kind).path(namespace)
        query = [("labelSelector", str(labels))] if labels is not None else []
        try:
            return await self._pages(kind, path, [("limit", str(PAGE)), *query])
        except Gone:  # The pages took longer than the server keeps history: all in one answer then.
            return await self._pages(kind, path, query)

    async def create(self, obj: K) -> K:
        """Raises `ValueError` if the namespace of a namespaced kind is empty."""
        kind = type(obj)
        resource = self._scheme.resource(kind)
        if resource.namespaced and not obj.metadata.namespace:
            raise ValueError(f"{resource.kind} {obj.metadata.name!r}: the namespace is empty")
        path = resource.path(obj.metadata.namespace)
        body = await self._call("POST", path, body=self._scheme.encode(obj))
        # Reviews and token requests are answered, not stored: they have no names.
        named = bool(obj.metadata.name or obj.metadata.generate_name)
        answer = self._decode(kind, body, f"POST {path}", named=named)
        if log.is_enabled_for(DEBUG):
            log.debug("created", kind=self._name(kind), object=str(answer.key))
        return answer

    async def patch(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        return await self._patch(kind, key, patch, "")

    async def patch_status(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        return await self._patch(kind, key, patch, "status")

    async def delete(
        self,
        kind: type[KubeObject],
        key: NamespacedName,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> bool:
        deletion = await self.request_deletion(
            kind,
            key,
            uid=uid,
            resource_version=resource_version,
            grace_period_seconds=grace_period_seconds,
            propagation=propagation,
        )
        return deletion.found

    async def request_deletion(
        self,
        kind: type[K],
        key: NamespacedName,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> Deletion[K]:
        """`delete`, with what the server said about the object."""
        options = _delete_options(uid, resource_version, grace_period_seconds, propagation)
        path = self._scheme.path(kind, key)
        try:
            body = await self._call("DELETE", path, body=msgspec.json.encode(options))
        except NotFound:
            if log.is_enabled_for(DEBUG):
                log.debug("was deleted already", kind=self._name(kind), object=str(key))
            return Deletion(found=False)
        if log.is_enabled_for(DEBUG):
            log.debug("deleted", kind=self._name(kind), object=str(key))
        if not body or _head(body, f"DELETE {path}").kind == "Status":
            return Deletion(found=True)
        return Deletion(found=True, remaining=self._decode(kind, body, f"DELETE {path}"))

    async def _patch(
        self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any], subresource: str
    ) -> K:
        path = self._scheme.path(kind, key, subresource)
        body = await self._call(
            "PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE_PATCH
        )
        answer = self._decode(kind, body, f"PATCH {path}")
        if log.is_enabled_for(DEBUG):
            what = self._name(kind) + (f"/{subresource}" if subresource else "")
            log.debug("patched", kind=what, object=str(key), fields=changed_fields(patch))
        return answer

    def _name(self, kind: type[KubeObject]) -> str:
        return self._scheme.resource(kind).kind

    async def _pages(self, kind: type[K], path: str, query: Query) -> Sequence[K]:
        found: MutableSequence[K] = []
        token = ""
        while True:
            page_query = [*query, ("continue", token)] if token else query
            body = await self._call("GET", path, query=page_query)
            try:
                page = self._scheme.decode_list(self._scheme.registered(kind), body)
            except msgspec.DecodeError as error:
                raise _malformed(error, f"GET {path}") from error
            found += page.items
            if page.metadata.continue_ == token != "":
                raise MalformedAnswer(Status(message=SAME_PAGE), f"GET {path}")
            token = page.metadata.continue_
            if not token:
                return found

    def _decode(self, kind: type[K], body: bytes, call: str, *, named: bool = True) -> K:
        try:
            obj = self._scheme.decode(self._scheme.registered(kind), body)
        except msgspec.DecodeError as error:
            raise _malformed(error, call) from error
        if named and not obj.metadata.name:
            # Whatever it is (a Status, the answer of somebody in between), it is not that object.
            head = _head(body, call)
            said = f" and says {head.message[:300]!r}" if head.message else ""
            message = f"the answer is no {kind.__name__}: it has no name, kind {head.kind!r}{said}"
            raise MalformedAnswer(Status(message=message), call)
        return obj

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> bytes:
        response = await self._transport.request(
            method, path, query=query, body=body, content_type=content_type
        )
        if response.status >= 300:
            raise error_from_response(
                response.status,
                response.body,
                f"{method} {path}",
                response.headers.get("Retry-After", ""),
            )
        return response.body


@dataclass(frozen=True)
class CachingClient:
    """`Client` that answers reads of cached kinds from the cache and writes through to the server.

    The answer to every write is handed to the cache, so a later read never shows an older state
    than one's own last write.
    """

    api: ApiClient
    cache: CachedReader

    async def get(self, kind: type[K], key: NamespacedName) -> K:
        if not self.cache.covers(kind, key.namespace):
            return await self.api.get(kind, key)
        obj = self.cache.get(kind, key)
        if obj is None:
            raise _not_found(self.api.scheme, kind, key)
        return obj

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        if not self.cache.covers(kind, key.namespace):
            return await self.api.find(kind, key)
        return self.cache.get(kind, key)

    async def list(
        self,
        kind: type[K],
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]:
        if not self.cache.covers(kind, namespace):
            if index is not None:
                where = f" in namespace {namespace}" if namespace else ""
                raise LookupError(
                    f"{kind.__name__} is not cached{where} (or not yet), "
                    f"so it has no index {index[0]!r}"
                )
            return await self.api.list(kind, namespace=namespace, labels=labels)
        return self.cache.list(kind, namespace=namespace, labels=labels, index=index)

    async def create(self, obj: K) -> K:
        return self._observed(await self.api.create(obj))

    async def patch(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        return self._observed(await self.api.patch(kind, key, patch))

    async def patch_status(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        return self._observed(await self.api.patch_status(kind, key, patch))

    async def delete(
        self,
        kind: type[KubeObject],
        key: NamespacedName,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> bool:
        deletion = await self.api.request_deletion(
            kind,
            key,
            uid=uid,
            resource_version=resource_version,
            grace_period_seconds=grace_period_seconds,
            propagation=propagation,
        )
        if deletion.remaining is not None:
            self.cache.observe(deletion.remaining)
        return deletion.found

    def _observed(self, obj: K) -> K:
        self.cache.observe(obj)
        return obj


class _Head(msgspec.Struct):
    kind: str = ""
    message: str = ""


_decode_head = msgspec.json.Decoder(_Head).decode


def _head(body: bytes, call: str) -> _Head:
    try:
        return _decode_head(body)
    except msgspec.DecodeError as error:
        raise _malformed(error, call) from error
    except RecursionError:
        raise _malformed(msgspec.DecodeError("it is nested too deeply"), call) from None


def _malformed(error: msgspec.DecodeError, call: str) -> MalformedAnswer:
    return MalformedAnswer(Status(message=f"the answer cannot be read: {error}"), call)


def _delete_options(
    uid: str, resource_version: str, grace: int | None, propagation: Propagation | None
) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    preconditions = {name: value for name, value in preconditions.items() if value}
    if preconditions:
        options["preconditions"] = preconditions
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation is not None:
        options["propagationPolicy"] = propagation
    return options


def _not_found(scheme: Scheme, kind: type[KubeObject], key: NamespacedName) -> NotFound:
    resource = scheme.resource(kind)
    return NotFound(
        Status(
            status="Failure",
            message=f'{resource} "{key.name}" not found',
            reason="NotFound",
            code=404,
            details=StatusDetails(name=key.name, group=resource.group, kind=resource.plural),
        )
    )
