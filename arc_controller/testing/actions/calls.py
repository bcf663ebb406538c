"""The calls of the service by name, the errors it answers with, and how answers are made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from arc_controller.actions import HttpResponse


class Call(StrEnum):
    """Every call, as faults and counters name it."""

    REGISTRATION_TOKEN = "registration_token"
    INSTALLATION_TOKEN = "installation_token"
    REGISTER = "register"
    FIND_SCALE_SET = "find_scale_set"
    GET_SCALE_SET = "get_scale_set"
    CREATE_SCALE_SET = "create_scale_set"
    UPDATE_SCALE_SET = "update_scale_set"
    DELETE_SCALE_SET = "delete_scale_set"
    RUNNER_GROUP = "runner_group"
    GENERATE_JIT_CONFIG = "generate_jit_config"
    GET_RUNNER = "get_runner"
    FIND_RUNNER = "find_runner"
    REMOVE_RUNNER = "remove_runner"
    CREATE_SESSION = "create_session"
    REFRESH_SESSION = "refresh_session"
    DELETE_SESSION = "delete_session"
    GET_MESSAGE = "get_message"
    DELETE_MESSAGE = "delete_message"
    ACQUIRE_JOBS = "acquire_jobs"
    UNKNOWN = "unknown"


REST_CALLS = frozenset({Call.REGISTRATION_TOKEN, Call.INSTALLATION_TOKEN, Call.REGISTER})
QUEUE_CALLS = frozenset({Call.GET_MESSAGE, Call.DELETE_MESSAGE, Call.ACQUIRE_JOBS})

SERVICE_PATH = "/_services/pipelines"
"""Where the service lives below the host: a client that joins addresses badly gets 404."""

_SETS = rf"{SERVICE_PATH}/_apis/runtime/runnerscalesets"
_QUEUE = rf"{SERVICE_PATH}/_apis/runtime/messagequeues/(?P<scale_set>\d+)/messages"
_AGENTS = rf"{SERVICE_PATH}/_apis/distributedtask/pools/0/agents"
_REST = r"(?:/api/v3)?"

_ROUTES: list[tuple[str, re.Pattern[str], Call]] = [
    (method, re.compile(pattern), call)
    for method, pattern, call in (
        (
            "POST",
            rf"{_REST}/(?P<scope>orgs/[^/]+|repos/[^/]+/[^/]+|enterprises/[^/]+)"
            r"/actions/runners/registration-token",
            Call.REGISTRATION_TOKEN,
        ),
        (
            "POST",
            rf"{_REST}/app/installations/(?P<installation>\d+)/access_tokens",
            Call.INSTALLATION_TOKEN,
        ),
        ("POST", rf"{_REST}/actions/runner-registration", Call.REGISTER),
        ("GET", _SETS, Call.FIND_SCALE_SET),
        ("POST", _SETS, Call.CREATE_SCALE_SET),
        ("GET", rf"{_SETS}/(?P<scale_set>\d+)", Call.GET_SCALE_SET),
        ("PATCH", rf"{_SETS}/(?P<scale_set>\d+)", Call.UPDATE_SCALE_SET),
        ("DELETE", rf"{_SETS}/(?P<scale_set>\d+)", Call.DELETE_SCALE_SET),
        ("GET", rf"{SERVICE_PATH}/_apis/runtime/runnergroups/?", Call.RUNNER_GROUP),
        ("POST", rf"{_SETS}/(?P<scale_set>\d+)/generatejitconfig", Call.GENERATE_JIT_CONFIG),
        ("GET", _AGENTS, Call.FIND_RUNNER),
        ("GET", rf"{_AGENTS}/(?P<runner>\d+)", Call.GET_RUNNER),
        ("DELETE", rf"{_AGENTS}/(?P<runner>\d+)", Call.REMOVE_RUNNER),
        ("POST", rf"{_SETS}/(?P<scale_set>\d+)/sessions", Call.CREATE_SESSION),
        ("PATCH", rf"{_SETS}/(?P<scale_set>\d+)/sessions/(?P<session>[^/]+)", Call.REFRESH_SESSION),
        ("DELETE", rf"{_SETS}/(?P<scale_set>\d+)/sessions/(?P<session>[^/]+)", Call.DELETE_SESSION),
        ("GET", _QUEUE, Call.GET_MESSAGE),
        ("DELETE", rf"{_QUEUE}/(?P<message>\d+)", Call.DELETE_MESSAGE),
        ("POST", rf"{_SETS}/(?P<scale_set>\d+)/acquirejobs", Call.ACQUIRE_JOBS),
    )
]


def route(method: str, path: str) -> tuple[Call, dict[str, str]]:
    """Which call a request makes, and the parts of its path."""
    for wanted, pattern, call in _ROUTES:
        if wanted == method and (match := pattern.fullmatch(path)):
            return call, match.groupdict()
    return Call.UNKNOWN, {}


def queue_path(scale_set_id: int) -> str:
    return f"{SERVICE_PATH}/_apis/runtime/messagequeues/{scale_set_id}/messages"


class ConnectionReset(Exception):
    """The answer is no answer: the connection breaks."""


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """An error answer of the service. ``type_name`` is the short name of the exception."""

    status: int
    type_name: str
    message: str


@dataclass(frozen=True, slots=True)
class RestRefusal(Exception):
    """An error answer of the REST API."""

    status: int
    message: str


class CutResponse(HttpResponse):
    """An answer whose connection breaks before the promised ``length`` of its body is there."""

    __slots__ = ("length",)

    def __init__(self, response: HttpResponse, keep: int) -> None:
        super().__init__(response.status, response.headers, response.body[:keep])
        self.length = len(response.body)


def json_response(
    status: int, content: object, headers: dict[str, str] | None = None
) -> HttpResponse:
    return HttpResponse(
        status,
        {"content-type": "application/json; charset=utf-8", **(headers or {})},
        msgspec.json.encode(content),
    )


def list_response(values: list[Any]) -> HttpResponse:
    return json_response(200, {"count": len(values), "value": values})


def error_response(
    status: int,
    type_name: str,
    message: str,
    *,
    activity_id: str,
    request_id: str,
    retry_after: float | None = None,
) -> HttpResponse:
    """An error as the service words it; without a ``type_name`` as plain text."""
    headers = {"activityid": activity_id, "x-github-request-id": request_id}
    if retry_after is not None:
        headers["retry-after"] = f"{retry_after:g}"
    if not type_name:
        return HttpResponse(status, {"content-type": "text/plain", **headers}, message.encode())
    namespace = (
        "GitHub.DistributedTask.WebApi"
        if type_name.startswith(("Agent", "Job"))
        else ("GitHub.Actions.Runtime.WebApi")
    )
    content = {
        "$id": "1",
        "innerException": None,
        "message": message,
        "typeName": f"{namespace}.{type_name}, {namespace}",
        "typeKey": type_name,
        "errorCode": 0,
        "eventId": 3000,
    }
    return json_response(status, content, headers)
