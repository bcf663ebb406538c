"""The two API servers that scenarios run on, each with the shipped permissions and nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Protocol

import msgspec

from arc_controller.api.crd import custom_resource_definitions
from arc_controller.testing.apiserver import ADMIN, ApiServer, HttpApiServer, RequestRecord
from arc_controller.testing.apiserver.errors import forbidden
from arc_controller.testing.apiserver.messages import service_account_user
from arc_controller.testing.apiserver.writer import Attempt
from arc_controller.testing.envtest import AuditEvent, Envtest
from arc_controller.testing.httpaccess import HttpAccess
from tests.scenarios.permissions import (
    CONTROLLER_NAMESPACE,
    MANAGER_ACCOUNT,
    Permissions,
    shipped,
)

SCHEMAS = custom_resource_definitions
AFTER_RESTART = timedelta(seconds=10)
RESTRICTED = 'violates PodSecurity "restricted:latest"'


class Server(Protocol):
    """An API server with our CRDs, the controller's namespace and the manager's permissions.

    `unjudged` are namespaces that lack the permissions on purpose, or lost them by being deleted.
    """

    access: HttpAccess
    permissions: Permissions
    is_real: bool
    unjudged: set[str]

    def requests(self) -> list[AuditEvent]:
        """Every request that it was sent, oldest first."""

    async def restart(self) -> None:
        """Break every connection and watch; the state stays."""

    async def restrict_pods(self, namespace: str) -> None:
        """From now on admission refuses pods that do not say they will not run as root."""

    def is_starting(self, event: AuditEvent) -> bool:
        """Whether the request came while the server had just been restarted: until it has read the
        roles, it refuses everybody."""


class EmbeddedServer:
    is_real = False

    def __init__(
        self, api: ApiServer, http: HttpApiServer, access: HttpAccess, permissions: Permissions
    ) -> None:
        self.api = api
        self.http = http
        self.access = access
        self.permissions = permissions
        self.unjudged: set[str] = set()

    def requests(self) -> list[AuditEvent]:
        return [_audited(number, record) for number, record in enumerate(self.api.request_log)]

    async def restart(self) -> None:
        await self.http.stop()
        await self.http.start()

    async def restrict_pods(self, namespace: str) -> None:
        def admit(attempt: Attempt) -> None:
            meta = attempt.obj["metadata"]
            if attempt.resource.storage_key != "pods" or meta["namespace"] != namespace:
                return
            for container in attempt.obj["spec"]["containers"]:
                if not (container.get("securityContext") or {}).get("runAsNonRoot"):
                    why = f"{RESTRICTED}: runAsNonRoot != true"
                    raise forbidden("", "pods", meta["name"], why)

        self.api.writer.review.append(admit)

    def is_starting(self, event: AuditEvent) -> bool:
        return False


class RealServer:
    is_real = True

    def __init__(self, env: Envtest, access: HttpAccess, permissions: Permissions) -> None:
        self.env = env
        self.access = access
        self.permissions = permissions
        self.unjudged: set[str] = set()
        self._restarts: list[tuple[str, str]] = []

    def requests(self) -> list[AuditEvent]:
        return self.env.audit_events()

    async def restart(self) -> None:
        begin = datetime.now(UTC)
        await self.env.restart_api_server(kill=True)
        self._restarts.append((_stamp(begin), _stamp(datetime.now(UTC) + AFTER_RESTART)))

    async def restrict_pods(self, namespace: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        path = f"/api/v1/namespaces/{namespace}"
        await ask(self.access, "PATCH", path, {"metadata": {"labels": labels}})

    def is_starting(self, event: AuditEvent) -> bool:
        return any(begin <= event.received <= end for begin, end in self._restarts)


@asynccontextmanager
async def embedded_server(permissions: Permissions | None = None) -> AsyncIterator[EmbeddedServer]:
    permissions = permissions or shipped()
    api = ApiServer(
        crds=SCHEMAS(),
        authorization=True,
        service_accounts=True,
        random=Random(1),
        request_log_size=1_000_000,
    )
    async with HttpApiServer(api) as http:
        manager = service_account_user(CONTROLLER_NAMESPACE, MANAGER_ACCOUNT)
        access = HttpAccess(
            http.url, admin_token=http.token(ADMIN), manager_token=http.token(manager)
        )
        await _install(access, permissions)
        yield EmbeddedServer(api, http, access, permissions)
    await api.aclose()


@asynccontextmanager
async def real_server(permissions: Permissions | None = None) -> AsyncIterator[RealServer]:
    permissions = permissions or shipped()
    async with Envtest(SCHEMAS(), controller_manager=True, audit=True) as env:
        manager = await env.service_account(CONTROLLER_NAMESPACE, MANAGER_ACCOUNT)
        access = HttpAccess(
            env.admin.url,
            admin_token=env.admin.token,
            manager_token=manager.token,
            ca_pem=env.admin.ca_pem,
        )
        await _install(access, permissions)
        yield RealServer(env, access, permissions)


async def make_namespace(access: HttpAccess, name: str) -> None:
    """A namespace, with the default account that pods without another one run as."""
    await create(access, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    async with asyncio.timeout(30):
        while (await ask(access, "GET", account))[0] != 200:
            await asyncio.sleep(0.05)


async def create(access: HttpAccess, *manifests: Mapping[str, Any]) -> None:
    """Create objects as the administrator. Raises `AssertionError` on a refusal."""
    for manifest in manifests:
        path = collection_path(manifest)
        status, answer = await ask(access, "POST", path, manifest)
        assert status == 201, f"POST {path}: {status} {answer.get('message')}"


async def ask(
    access: HttpAccess, method: str, path: str, body: Mapping[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """One request as the administrator: status and decoded body."""
    transport = access.admin("test")
    try:
        content = None if body is None else msgspec.json.encode(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        response = await transport.request(method, path, body=content, content_type=kind)
        return response.status, msgspec.json.decode(response.body)
    finally:
        await transport.close()


def collection_path(manifest: Mapping[str, Any]) -> str:
    """Where objects of the manifest's kind are created."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    if namespace:
        root = f"{root}/namespaces/{namespace}"
    return f"{root}/{manifest['kind'].lower()}s"


async def _install(access: HttpAccess, permissions: Permissions) -> None:
    await make_namespace(access, CONTROLLER_NAMESPACE)
    await create(access, *permissions.controller)


def _stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _audited(number: int, record: RequestRecord) -> AuditEvent:
    part = f"/{record.subresource}" if record.subresource else ""
    return AuditEvent(
        audit_id=str(number),
        username=record.user,
        verb=record.verb,
        group=record.group,
        resource=f"{record.resource}{part}",
        namespace=record.namespace,
        name=record.name,
        uri=f"{record.path}?{record.query}",
        code=record.status,
        # A quota's refusal looks the same here; without the right to create pods nothing would run.
        allowed=record.status != 403 or (record.verb, record.resource) == ("create", "pods"),
        user_agent=record.user_agent,
    )
