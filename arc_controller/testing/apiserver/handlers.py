"""The verbs: what each request does to the store and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from arc_controller.testing.apiserver import bodies, errors, negotiate, patching, reader
from arc_controller.testing.apiserver.authn import Authenticator
from arc_controller.testing.apiserver.authz import attributes_of
from arc_controller.testing.apiserver.decode import DecodeError, Decoder
from arc_controller.testing.apiserver.deleter import Deleter, parse_options
from arc_controller.testing.apiserver.incoming import check_identity, stale_precondition
from arc_controller.testing.apiserver.messages import (
    JSON,
    Object,
    Request,
    Response,
    encode_json,
    json_response,
    text_response,
)
from arc_controller.testing.apiserver.metadata import require_version
from arc_controller.testing.apiserver.nonresource import NonResource
from arc_controller.testing.apiserver.rbac import Rbac
from arc_controller.testing.apiserver.resources import Resource, ResourceTable
from arc_controller.testing.apiserver.reviews import Reviews
from arc_controller.testing.apiserver.routing import RequestInfo
from arc_controller.testing.apiserver.store import Store, Stored
from arc_controller.testing.apiserver.strategy import Call
from arc_controller.testing.apiserver.subresources import Subresources
from arc_controller.testing.apiserver.table import TableMaker
from arc_controller.testing.apiserver.tokens import TokenIssuer
from arc_controller.testing.apiserver.types import META, core_node
from arc_controller.testing.apiserver.watch import Watch, encoded
from arc_controller.testing.apiserver.writer import Writer

if TYPE_CHECKING:
    from arc_controller.testing.apiserver.server import LogSource

_WATCH_HEADERS = {"Content-Type": JSON}
_MIN_WATCH_SECONDS = 1800
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_COLLECTION_VERBS = ("list", "watch", "deletecollection")


class Handlers:
    def __init__(
        self,
        *,
        store: Store,
        resources: ResourceTable,
        writer: Writer,
        deleter: Deleter,
        authenticator: Authenticator,
        random: Random,
        rbac: Rbac | None,
        watches: set[Watch],
        bookmark_interval: float,
    ) -> None:
        self._store = store
        self._resources = resources
        self._writer = writer
        self._deleter = deleter
        self._random = random
        self._watches = watches
        self._bookmark_interval = bookmark_interval
        self._nonresource = NonResource(resources)
        self._rbac = rbac
        self._reviews = Reviews(authenticator, rbac)
        issuer = TokenIssuer(store, writer, authenticator, random)
        self._subresources = Subresources(store, resources, writer, deleter, issuer)
        self._verbs: dict[str, Callable[[Request, RequestInfo, Resource], Response]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def dispatch(
        self, request: Request, info: RequestInfo, logs: LogSource | None
    ) -> Response:
        """Answer an authenticated request. Raises `StatusError`."""
        if self._rbac is not None:
            assert info.user is not None
            self._rbac.check(info.user, attributes_of(info))
        if not info.is_resource:
            return self._nonresource.answer(request, info)
        if self._reviews.serves(info):
            return self._reviews.answer(request, info)
        resource = self._resources.find(info.group, info.version, info.plural)
        if resource is None:
            served = self._resources.in_version(info.group, info.version)
            if any(not each.custom for each in served):
                raise errors.no_such_resource()
            return text_response(404, "404 page not found\n")
        info.resource = resource
        if info.subresource:
            if info.subresource not in resource.subresources:
                if resource.custom:
                    raise errors.not_found(resource.group, resource.plural, info.name)
                raise errors.no_such_resource()
            if info.subresource not in ("status", "ephemeralcontainers"):
                return await self._subresources.answer(request, info, resource, logs)
            if info.verb not in ("get", "update", "patch"):
                raise errors.method_not_allowed()
        elif info.verb not in resource.verbs:
            raise errors.method_not_allowed()
        if not resource.namespaced:
            info.namespace = ""
        elif not info.namespace and info.name:
            raise errors.no_such_resource()
        elif not info.namespace and info.verb not in ("list", "watch"):
            raise errors.method_not_allowed()
        if resource.custom and not info.name and info.verb in ("update", "patch"):
            raise errors.bad_request("name must be provided")
        if resource.custom and info.verb == "create":
            info.name = ""
        if bool(info.name) is (info.verb == "create") and info.verb not in _COLLECTION_VERBS:
            raise errors.method_not_allowed()
        try:
            return self._verbs[info.verb](request, info, resource)
        except errors.StatusError as error:
            if info.call is not None:
                error.headers.update(_warning_headers(info.call))
            raise

    def _get(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        stored = reader.read_one(self._store, resource, info.namespace, info.name)
        form, version = negotiate.negotiate(request.header("accept"))
        if form == "Table":
            maker = self._table(resource, version, info.query)
            metadata = {"resourceVersion": str(stored.revision)}
            return json_response(200, maker.table([stored.obj], metadata))
        return self._answer(200, request, resource, stored)

    def _list(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        wanted = reader.make_filter(resource, info.namespace, info.name, info.query)
        page = reader.read_page(self._store, resource, wanted, info.query)
        form, version = negotiate.negotiate(request.header("accept"))
        if form == "Table":
            maker = self._table(resource, version, info.query)
            objects = [each.obj for each in page.stored]
            return json_response(200, maker.table(objects, reader.list_metadata(page)))
        if form == "PartialObjectMetadata":
            items = [encode_json(_partial(each.obj)) for each in page.stored]
            body = reader.encode_list(resource, page, items, partial=True)
            return json_response(200, body)
        items = [encoded(resource, each) for each in page.stored]
        if not resource.custom:
            cut = len(resource.prefix)
            items = [b"{" + each[cut:] for each in items]
        return json_response(200, reader.encode_list(resource, page, items))

    def _watch(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        wanted = reader.make_filter(resource, info.namespace, info.name, info.query)
        form, version = negotiate.negotiate(request.header("accept"))
        encode: Callable[[Stored], bytes] | None = None
        if form == "PartialObjectMetadata":
            encode = _encode_partial
        elif form == "Table":
            encode = self._table_frames(resource, version, info.query)
        watch = reader.open_watch(
            self._store,
            resource,
            wanted,
            info.query,
            bookmark_interval=self._bookmark_interval,
            default_timeout=lambda: _MIN_WATCH_SECONDS * (1 + self._random.random()),
            encode=encode,
            on_close=self._watches.discard,
        )
        self._watches.add(watch)
        return Response(200, dict(_WATCH_HEADERS), watch)

    def _create(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        body = bodies.decode_object(request, resource)
        call = self._call(request, info)
        stored = self._writer.create(call, resource, info.namespace, _incoming(resource, body))
        return self._answer(201, request, resource, stored, call)

    def _update(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        body = _incoming(resource, bodies.decode_object(request, resource))
        body.setdefault("metadata", {})
        call = self._call(request, info)
        missing = self._store.read(resource.storage_key, info.namespace, info.name) is None
        created = missing and resource.strategy.create_on_update and not info.subresource
        meta = body["metadata"]
        if missing or not isinstance(meta, dict) or meta.get("name") != info.name:
            self._writer.check(
                replace(call, warnings=[]) if created else call, resource, info.namespace, body
            )
        check_identity(resource, body, info.name)
        if created:
            if meta.get("uid"):
                raise stale_precondition(
                    resource, info.namespace, info.name, field="UID", given=meta["uid"], stored=""
                )
            require_version(meta.pop("resourceVersion", None))
            stored = self._writer.create(call, resource, info.namespace, body)
            return self._answer(201, request, resource, stored, call)
        stored = self._writer.update(
            call,
            resource,
            info.namespace,
            info.name,
            lambda old: body,
            subresource=info.subresource,
        )
        return self._answer(200, request, resource, stored, call)

    def _patch(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        call = self._call(request, info)
        stored, created = patching.patch(self._writer, call, request, info, resource)
        return self._answer(201 if created else 200, request, resource, stored, call)

    def _delete(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        body = _options_body(request)
        options = parse_options(body, info.query)
        call = self._call(request, info)
        call.dry_run = call.dry_run or bool(body.get("dryRun"))
        deletion = self._deleter.delete(call, resource, info.namespace, info.name, options)
        status = 200
        if not deletion.gone and options.propagation in ("Background", "Foreground"):
            status = 202 if body.get("orphanDependents") is False else 200
        if not deletion.gone or resource.strategy.returns_deleted:
            return self._answer(status, request, resource, deletion.stored, call)
        details: Object = {"name": info.name}
        if resource.group:
            details["group"] = resource.group
        details["kind"] = resource.plural
        details["uid"] = deletion.stored.obj["metadata"]["uid"]
        return json_response(
            status,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            },
            _warning_headers(call),
        )

    def _delete_collection(
        self, request: Request, info: RequestInfo, resource: Resource
    ) -> Response:
        body = _options_body(request)
        options = parse_options(body, info.query)
        call = self._call(request, info)
        call.dry_run = call.dry_run or bool(body.get("dryRun"))
        wanted = reader.make_filter(resource, info.namespace, "", info.query)
        page = reader.read_page(self._store, resource, wanted, info.query)
        for stored in page.stored:
            try:
                self._deleter.delete(call, resource, stored.namespace, stored.name, options)
            except errors.StatusError as error:
                if error.code != 404:
                    raise
        items = [encoded(resource, each) for each in page.stored]
        if not resource.custom:
            cut = len(resource.prefix)
            items = [b"{" + each[cut:] for each in items]
        return json_response(200, reader.encode_list(resource, page, items))

    def _table(self, resource: Resource, version: str, query: dict[str, str]) -> TableMaker:
        return TableMaker(resource, version, query.get("includeObject", ""), self._writer.moment())

    def _table_frames(
        self, resource: Resource, version: str, query: dict[str, str]
    ) -> Callable[[Stored], bytes]:
        """Every event of a watch as a table of one row; the first one has the headers."""
        first = True

        def encode(stored: Stored) -> bytes:
            nonlocal first
            headers, first = first, False
            maker = self._table(resource, version, query)
            metadata = {"resourceVersion": str(stored.revision)}
            return maker.table([stored.obj], metadata, headers=headers)

        return encode

    def _call(self, request: Request, info: RequestInfo) -> Call:
        return make_call(self._writer, request, info)

    def _answer(
        self,
        status: int,
        request: Request,
        resource: Resource,
        stored: Stored,
        call: Call | None = None,
    ) -> Response:
        accept = request.header("accept")
        form, _ = negotiate.negotiate(accept) if accept else ("Object", "")
        if form == "PartialObjectMetadata":
            data = _encode_partial(stored)
        else:
            data = encoded(resource, stored)
        return json_response(status, data, _warning_headers(call))


def make_call(writer: Writer, request: Request, info: RequestInfo) -> Call:
    """What the write needs to know about its request. Raises BadRequest on unknown options."""
    query = info.query
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        problem = errors.not_supported("dryRun", [dry_run], ("All",))
        kind = _OPTIONS.get(info.verb, "DeleteOptions")
        raise errors.invalid("meta.k8s.io", kind, "", [problem])
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        problem = errors.not_supported(
            "fieldValidation", validation, ("", "Ignore", "Strict", "Warn")
        )
        kind = _OPTIONS.get(info.verb, "DeleteOptions")
        raise errors.invalid("meta.k8s.io", kind, "", [problem])
    manager = query.get("fieldManager", "") or info.user_agent.partition("/")[0]
    if len(query.get("fieldManager", "")) > 128:
        problem = errors.FieldError("TooLong", "fieldManager", "", "may not be more than 128 bytes")
        kind = _OPTIONS.get(info.verb, "DeleteOptions")
        raise errors.invalid("meta.k8s.io", kind, "", [problem])
    assert info.user is not None
    info.call = Call(
        now=writer.timestamp(),
        user=info.user,
        dry_run=bool(dry_run),
        field_validation=validation,
        manager=manager or "unknown",
    )
    return info.call


def _incoming(resource: Resource, body: Object) -> Object:
    return body if resource.convert_in is None else resource.convert_in(body)


def _options_body(request: Request) -> Object:
    if not request.body.strip():
        return {}
    body = bodies.decode_body(request)
    if not isinstance(body, dict):
        raise errors.bad_request("the body must be DeleteOptions")
    try:
        Decoder().conform(core_node(f"{META}DeleteOptions"), body, None, "")
    except DecodeError as error:
        raise errors.bad_request(str(error)) from None
    return body


def _warning_headers(call: Call | None) -> dict[str, str]:
    if call is None or not call.warnings:
        return {}
    quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in call.warnings)
    return {"Warning": ", ".join(f'299 - "{each}"' for each in quoted)}


def _partial(obj: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def _encode_partial(stored: Stored) -> bytes:
    return encode_json(_partial(stored.obj))
