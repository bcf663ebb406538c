"""From a URL to what is asked: the request info of the real server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, unquote

from arc_controller.testing.apiserver.messages import Request, Response, UserInfo
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.strategy import Call

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}


@dataclass(slots=True)
class RequestInfo:
    """What a request asks for. `verb` is the authorizer's (get, list, watch, create, …)."""

    method: str
    path: str
    verb: str
    query: dict[str, str] = field(default_factory=dict)
    is_resource: bool = False
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: UserInfo | None = None
    user_agent: str = ""
    resource: Resource | None = None
    call: Call | None = None
    """The write behind the request, once there is one."""
    phase: Literal["before", "after"] = "before"
    """When a fault hook is called: before the request takes effect, or after."""
    response: Response | None = None
    """The answer about to be given; set in the phase `after`."""


def parse_request(request: Request) -> RequestInfo:
    """Split the URL. Paths outside `/api` and `/apis` come back with `is_resource` false."""
    path = request.path
    query = dict(parse_qsl(request.query, keep_blank_values=True)) if request.query else {}
    info = RequestInfo(request.method, path, _VERBS.get(request.method, "get"), query)
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) >= 3:
        info.version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        info.group, info.version, rest = parts[1], parts[2], parts[3:]
    else:
        info.verb = request.method.lower()
        return info
    info.is_resource = True
    if rest[0] == "watch" and len(rest) > 1:
        info.query.setdefault("watch", "true")
        rest = rest[1:]
    if rest[0] == "namespaces" and not info.group:
        _split_namespaces(info, rest)
    elif rest[0] == "namespaces" and len(rest) > 2:
        info.namespace = rest[1]
        _split(info, rest[2:])
    else:
        _split(info, rest)
    _settle_verb(info)
    return info


def _split_namespaces(info: RequestInfo, rest: list[str]) -> None:
    """`namespaces` is both a resource and the way to the resources in one."""
    if len(rest) <= 2 or rest[2] in ("status", "finalize"):
        _split(info, rest)
        if info.name:
            info.namespace = info.name
    else:
        info.namespace = rest[1]
        _split(info, rest[2:])


def _split(info: RequestInfo, rest: list[str]) -> None:
    info.plural = rest[0]
    if len(rest) > 1:
        info.name = rest[1]
    if len(rest) > 2:
        info.subresource = "/".join(rest[2:])


def _settle_verb(info: RequestInfo) -> None:
    watching = info.query.get("watch", "") in ("1", "true", "True")
    if info.verb == "get" and not info.name:
        info.verb = "watch" if watching else "list"
    elif info.verb == "get" and watching and not info.subresource:
        info.verb = "watch"
    elif info.verb == "delete" and not info.name:
        info.verb = "deletecollection"
