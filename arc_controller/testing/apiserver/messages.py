"""What goes in and out of the server without a socket: requests, responses, users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

JSON = "application/json"

encode_json = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Who asks: what an authenticator of the real server would have found out."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ADMIN = UserInfo("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))


def service_account_user(
    namespace: str,
    name: str,
    uid: str = "",
    extra: Mapping[str, tuple[str, ...]] | None = None,
) -> UserInfo:
    """The user that a service account's token stands for."""
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    )
    return UserInfo(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `query` is the raw query string; `user` skips authentication."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: UserInfo | None = None

    def header(self, name: str) -> str:
        """The header's value, whatever its case; empty when absent."""
        value = self.headers.get(name)
        if value is not None:
            return value
        lowered = name.lower()
        for key, value in self.headers.items():
            if key.lower() == lowered:
                return value
        return ""


@dataclass(slots=True)
class Response:
    """One HTTP response. A watch's body is an async iterator of frames, one JSON line each;
    closing it (`aclose`) ends the watch."""

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes]

    def json(self) -> Any:
        """The decoded body of a response that is not a watch."""
        if not isinstance(self.body, bytes):
            raise TypeError("a watch has no JSON body: iterate over it")
        return decode_json(self.body)


def json_response(status: int, value: Any, headers: Mapping[str, str] | None = None) -> Response:
    body = value if isinstance(value, bytes) else encode_json(value)
    return Response(status, {"Content-Type": JSON, **(headers or {})}, body)


def text_response(status: int, text: str) -> Response:
    return Response(status, {"Content-Type": "text/plain; charset=utf-8"}, text.encode())


def json_type(value: Any) -> str:
    """The JSON type as Go's decoder names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
