"""The server without a socket: one coroutine from request to response."""

from __future__ import annotations

import random as random_module
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeAlias

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.accounts import (
    ServiceAccountAdmission,
    ServiceAccountController,
    pod_defaults,
)
from arc_controller.testing.apiserver.authn import Authenticator
from arc_controller.testing.apiserver.authz import EscalationCheck, default_policy
from arc_controller.testing.apiserver.background import Background
from arc_controller.testing.apiserver.bodies import media_type
from arc_controller.testing.apiserver.builtins import builtin_resources
from arc_controller.testing.apiserver.crds import CRD_GROUP, CRD_PLURAL, defined_resources
from arc_controller.testing.apiserver.crdwatch import DefinitionController
from arc_controller.testing.apiserver.deleter import Deleter
from arc_controller.testing.apiserver.errors import StatusError
from arc_controller.testing.apiserver.gc import GarbageCollector
from arc_controller.testing.apiserver.handlers import Handlers
from arc_controller.testing.apiserver.messages import Object, Request, Response, UserInfo
from arc_controller.testing.apiserver.namespaces import (
    DEFAULT_NAMESPACES,
    NamespaceController,
    NamespaceLifecycle,
)
from arc_controller.testing.apiserver.quota import QuotaAdmission, QuotaController
from arc_controller.testing.apiserver.rbac import Rbac
from arc_controller.testing.apiserver.requestlog import RequestLog, RequestRecord
from arc_controller.testing.apiserver.resources import ResourceTable
from arc_controller.testing.apiserver.routing import RequestInfo, parse_request
from arc_controller.testing.apiserver.store import Store
from arc_controller.testing.apiserver.watch import Watch
from arc_controller.testing.apiserver.writer import Writer

FaultHook: TypeAlias = Callable[[Request, RequestInfo], Awaitable[Response | None]]
LogSource: TypeAlias = Callable[[str, str, str, Mapping[str, str]], Awaitable[bytes] | bytes]


def utc_now() -> datetime:
    return datetime.now(UTC)


class ApiServer:
    """A Kubernetes API server in memory.

    `handle` answers a request; nothing else runs but short-lived tasks that collect garbage and
    empty namespaces, started by writes. All time comes from `now` and from the running loop.

    - `crds`: definitions to install at once.
    - `history`: how many writes are kept for watches and consistent lists; older ones are Gone.
    - `authorization`: enforce the RBAC objects in the store. Without it everyone may do anything.
    - `garbage_collection`, `namespace_controller`: turn off what kube-controller-manager does.
    - `service_accounts`: make the account `default` in every namespace and give pods their account
      and token, as a real cluster does.
    - `managed_fields`: record who set which field, as the real server does; without it writes are
      a fifth faster and updates never conflict with an apply.
    - `quotas`: enforce ResourceQuota objects (counts, and cpu and memory of pods).
    - `controller_delay`: seconds (of the loop) between a write and what those do about it.
    - `bookmark_interval`: seconds between the bookmarks of a watch that asked for them.

    `faults` may be set to an async hook: it is called before a request takes effect and, with
    `info.phase == "after"` and `info.response`, once it has; what it returns is the answer.
    """

    def __init__(
        self,
        *,
        crds: Iterable[Mapping[str, Any]] = (),
        now: Callable[[], datetime] = utc_now,
        random: Random | None = None,
        history: int = 10_000,
        authorization: bool = False,
        garbage_collection: bool = True,
        namespace_controller: bool = True,
        service_accounts: bool = False,
        quotas: bool = True,
        managed_fields: bool = True,
        controller_delay: float = 0.0,
        bookmark_interval: float = 60.0,
        request_log_size: int = 20_000,
    ) -> None:
        self.store = Store(history)
        self.resources = ResourceTable()
        self.request_log = RequestLog(request_log_size)
        self.faults: FaultHook | None = None
        self.pod_logs: LogSource | None = None
        """Answers `pods/log`: (namespace, pod, container, query) → bytes."""
        self.random = random if random is not None else random_module.Random()
        self._watches: set[Watch] = set()
        self._background = Background(controller_delay)
        self.writer = Writer(self.store, self.resources, now, self.random)
        self.writer.fields.enabled = managed_fields
        self.deleter = Deleter(self.writer)
        for resource in builtin_resources():
            self.resources.add(resource)
        self.writer.admit.append(NamespaceLifecycle(self.store))
        self.writer.admit.append(pod_defaults)
        self.authenticator = Authenticator(self.store, now, authorization=authorization)
        parts = (self.store, self.resources, self.writer, self.deleter, self._background)
        DefinitionController(*parts)
        if garbage_collection:
            GarbageCollector(*parts)
        if namespace_controller:
            NamespaceController(*parts)
        self.rbac: Rbac | None = None
        """Who may do what, and who needed it; None without authorization."""
        if authorization:
            self.rbac = Rbac(self.store)
            self.writer.review.append(EscalationCheck(self.rbac))
        if quotas:
            self.writer.review.append(QuotaAdmission(self.store))
            QuotaController(self.store, self.resources, self.writer, self._background)
        if service_accounts:
            self.writer.admit.append(ServiceAccountAdmission(self.store, self.random))
        self._handlers = Handlers(
            store=self.store,
            resources=self.resources,
            writer=self.writer,
            deleter=self.deleter,
            authenticator=self.authenticator,
            random=self.random,
            rbac=self.rbac,
            watches=self._watches,
            bookmark_interval=bookmark_interval,
        )
        for name in DEFAULT_NAMESPACES:
            self._create("", "namespaces", "", {"metadata": {"name": name}})
        if self.rbac is not None:
            self.authenticator.check_impersonation = self.rbac.check_impersonation
            for policy in default_policy():
                self.install(policy)
        if service_accounts:
            ServiceAccountController(
                self.store, self.resources, self.writer, self._background
            ).ensure_all()
        for manifest in crds:
            self.install_crd(manifest)

    async def handle(self, request: Request) -> Response:
        """Answer one request. Never raises for what the client did wrong."""
        self._background.start()
        info = parse_request(request)
        info.user_agent = request.header("user-agent")
        response: Response | None = None
        try:
            if self.faults is not None:
                response = await self.faults(request, info)
            if response is None:
                info.user = self.authenticator.authenticate(request)
                response = await self._handlers.dispatch(request, info, self.pod_logs)
        except StatusError as error:
            response = error.response()
        if self.faults is not None:
            info.phase = "after"
            info.response = response
            response = await self.faults(request, info) or response
        self._record(request, info, response)
        return response

    def install_crd(self, manifest: Mapping[str, Any]) -> None:
        """Create or replace a CustomResourceDefinition; its resources are served at once."""
        defined_resources(manifest)
        name = manifest["metadata"]["name"]
        if self.store.get(CRD_GROUP, CRD_PLURAL, "", name) is None:
            self._create(CRD_GROUP, CRD_PLURAL, "", manifest)
            return
        resource = self.resources.by_storage(f"{CRD_PLURAL}.{CRD_GROUP}")

        def change(old: Object) -> Object:
            return {**old, "spec": _plain(manifest["spec"])}

        self.writer.update(self.writer.call(), resource, "", name, change)

    def install(self, manifest: Mapping[str, Any]) -> Object:
        """Create an object as the administrator, without a request; it says what was stored."""
        resource = self.resources.by_kind(manifest["apiVersion"], manifest["kind"])
        if resource is None:
            raise errors.no_such_resource()
        namespace = ""
        if resource.namespaced:
            namespace = manifest["metadata"].get("namespace") or "default"
        stored = self.writer.create(self.writer.call(), resource, namespace, _plain(manifest))
        return stored.copy()

    async def settled(self) -> None:
        """Wait until the garbage collector and the namespace controller have nothing to do."""
        self._background.start()
        await self._background.settled()

    def add_token(self, token: str, user: UserInfo) -> None:
        """Let a bearer token stand for a user."""
        self.authenticator.add_token(token, user)

    def drop_watches(self) -> None:
        """End every open watch, as a restart of the server does."""
        for watch in tuple(self._watches):
            watch.close()

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    async def aclose(self) -> None:
        """End watches and background work. The store can still be read."""
        self.drop_watches()
        await self._background.aclose()

    def _create(self, group: str, plural: str, namespace: str, manifest: Mapping[str, Any]) -> None:
        resource = self.resources.find(group, "v1", plural)
        assert resource is not None
        self.writer.create(self.writer.call(), resource, namespace, _plain(manifest))

    def _record(self, request: Request, info: RequestInfo, response: Response) -> None:
        body = response.body
        is_patch = info.verb == "patch"
        record = RequestRecord(
            method=request.method,
            verb=info.verb,
            path=request.path,
            group=info.group,
            resource=info.plural,
            subresource=info.subresource,
            namespace=info.namespace,
            name=info.name,
            user=info.user.name if info.user is not None else "",
            user_agent=info.user_agent,
            status=response.status,
            bytes_in=len(request.body),
            bytes_out=len(body) if isinstance(body, bytes) else 0,
            patch_type=media_type(request) if is_patch else "",
            patch_body=request.body if is_patch else b"",
            query=request.query,
        )
        if isinstance(body, Watch):
            body.record = record
        self.request_log.add(record)


def _plain(value: Any) -> Any:
    """A private copy of plain JSON data."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
