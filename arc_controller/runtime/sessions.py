"""Sockets: how a session to an API server is put together, whoever says where it is."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from arc_controller.runtime.errors import ConfigurationError

KEEP_ALIVE_SECONDS = 60.0
"""An idle connection is closed after this: before the API server does it (90 s), which would break
a request that is being sent at that moment."""
READ_BUFFER = 2**18
PROBE_AFTER, PROBE_EVERY, PROBES = 30, 10, 3
"""A silent peer is probed by TCP after so many seconds, so often; then it counts as dead."""


def connector(connections: int, ssl: Any = True) -> aiohttp.TCPConnector:
    """At most `connections` at once (0: any number); must be called in the running loop."""
    return aiohttp.TCPConnector(
        limit=connections,
        ssl=ssl,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        ttl_dns_cache=30,
        socket_factory=_probed_socket,
    )


def session_options() -> dict[str, Any]:
    """No cookies, and nothing from the environment: `environment_proxy` is asked once instead of
    on every request."""
    return {
        "trust_env": False,
        "cookie_jar": aiohttp.DummyCookieJar(),
        "read_bufsize": READ_BUFFER,
    }


def host_of(url: str, what: str = "the API server's URL") -> str:
    """``host:port``. Raises `ConfigurationError` if nobody can be reached at the URL.

    A URL with a password is not quoted.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # such as a port that is none
        usable = False
    if not usable or any(char.isspace() for char in url):
        shown = repr(url) if "@" not in url else "(with a password)"
        raise ConfigurationError(
            f"{what} {shown} cannot be used: write https://host or https://host:port"
        )
    return parts.netloc


def environment_proxy(url: str) -> str | None:
    """What ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` say about this server."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _probed_socket(address: Any) -> socket.socket:
    family, type_, protocol, _, _ = address
    sock = socket.socket(family=family, type=type_, proto=protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER),
        ("TCP_KEEPINTVL", PROBE_EVERY),
        ("TCP_KEEPCNT", PROBES),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
