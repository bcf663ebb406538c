"""Everything outside the resources: discovery, version, health."""

from __future__ import annotations

from arc_controller.testing.apiserver import discovery, errors
from arc_controller.testing.apiserver.messages import (
    Request,
    Response,
    json_response,
    text_response,
)
from arc_controller.testing.apiserver.negotiate import negotiate
from arc_controller.testing.apiserver.openapi import OpenApi
from arc_controller.testing.apiserver.resources import ResourceTable
from arc_controller.testing.apiserver.routing import RequestInfo

_HEALTH = ("/healthz", "/livez", "/readyz")


class NonResource:
    def __init__(self, resources: ResourceTable) -> None:
        self._resources = resources
        self._openapi = OpenApi(resources)

    def answer(self, request: Request, info: RequestInfo) -> Response:
        path = info.path.rstrip("/") or "/"
        if path.startswith(_HEALTH):
            return text_response(200, "ok")
        if path == "/version":
            return json_response(200, discovery.VERSION)
        if path in ("/api", "/apis"):
            return self._roots(request, core=path == "/api")
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) == 2:
            return self._version("", parts[1])
        if parts[0] == "apis" and len(parts) == 2:
            group = discovery.one_group(self._resources, parts[1])
            return _not_found() if group is None else json_response(200, group)
        if parts[0] == "apis" and len(parts) == 3:
            return self._version(parts[1], parts[2])
        if path == "/openapi/v2":
            return self._version_two(request)
        if path == "/openapi/v3":
            return json_response(200, self._openapi.index())
        if path.startswith("/openapi/v3/"):
            document = self._openapi.document(path.removeprefix("/openapi/v3/"))
            return _not_found() if document is None else json_response(200, document)
        if path == "/":
            return json_response(200, {"paths": self._paths()})
        return _not_found()

    def _version_two(self, request: Request) -> Response:
        accept = request.header("accept")
        if accept and "json" not in accept and "*/*" not in accept:
            raise errors.not_acceptable(("application/json",))
        return json_response(200, self._openapi.version_two())

    def _roots(self, request: Request, *, core: bool) -> Response:
        form, version = negotiate(request.header("accept"))
        if form == "Discovery":
            body = discovery.aggregated(self._resources, core=core, version=version)
            kind = f"application/json;g={discovery.AGGREGATED};v={version};as=APIGroupDiscoveryList"
            return json_response(200, body, {"Content-Type": kind})
        if core:
            return json_response(200, discovery.core_versions())
        return json_response(200, discovery.group_list(self._resources))

    def _version(self, group: str, version: str) -> Response:
        found = discovery.resource_list(self._resources, group, version)
        return _not_found() if found is None else json_response(200, found)

    def _paths(self) -> list[str]:
        paths = ["/api", "/api/v1", "/apis"]
        for group, versions in self._resources.groups().items():
            if group:
                paths.append(f"/apis/{group}")
                paths += [f"/apis/{group}/{version}" for version in versions]
        return sorted(
            [*paths, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
        )


def _not_found() -> Response:
    return text_response(404, "404 page not found\n")
