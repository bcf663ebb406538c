"""Proxies: from a spec with references to secrets to plain settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote, urlsplit, urlunsplit

from arc_controller.actions import ProxySettings
from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import Proxy, ProxyServer
from arc_controller.controllers.inputs import InputError
from arc_controller.runtime.objects import K, NamespacedName

HTTP_PROXY = "http_proxy"
HTTPS_PROXY = "https_proxy"
NO_PROXY = "no_proxy"


class Finder(Protocol):
    """The part of a reader that is needed here."""

    async def find(self, kind: type[K], key: NamespacedName) -> K | None: ...


def proxy_variables(proxy: Proxy | None) -> list[str]:
    """Which of ``http_proxy``, ``https_proxy``, ``no_proxy`` are configured, in this order."""
    if proxy is None:
        return []
    configured = (
        (HTTP_PROXY, bool(proxy.http and proxy.http.url)),
        (HTTPS_PROXY, bool(proxy.https and proxy.https.url)),
        (NO_PROXY, bool(proxy.no_proxy)),
    )
    return [name for name, is_set in configured if is_set]


async def proxy_environment(reader: Finder, proxy: Proxy, namespace: str) -> dict[str, str]:
    """The variables of `proxy_variables` with their values, credentials inserted.

    The credentials are the keys ``username`` and ``password`` of the secret that
    ``credentialSecretRef`` names in `namespace`. Raises `InputError` when that secret, or the URL
    of a proxy, cannot be used, and `ApiError`.
    """
    environment: dict[str, str] = {}
    for name in proxy_variables(proxy):
        if name == NO_PROXY:
            environment[name] = ",".join(proxy.no_proxy)
            continue
        server = proxy.http if name == HTTP_PROXY else proxy.https
        assert server is not None
        environment[name] = await _url(reader, name.removesuffix("_proxy"), server, namespace)
    return environment


def proxy_settings(environment: Mapping[str, str]) -> ProxySettings | None:
    """The same for our own calls; None when nothing is configured.

    Raises `arc_controller.actions.InvalidProxy`.
    """
    if not environment:
        return None
    return ProxySettings(
        http=environment.get(HTTP_PROXY),
        https=environment.get(HTTPS_PROXY),
        no_proxy=tuple(filter(None, environment.get(NO_PROXY, "").split(","))),
    )


async def _url(reader: Finder, scheme: str, server: ProxyServer, namespace: str) -> str:
    if not server.credential_secret_ref:
        return server.url
    key = NamespacedName(namespace, server.credential_secret_ref)
    field = f"proxy.{scheme}.credentialSecretRef"
    secret = await reader.find(Secret, key)
    if secret is None:
        raise InputError("ProxySecretNotFound", f"{field}: there is no secret {key}")
    missing = [name for name in ("username", "password") if name not in secret.data]
    if missing:
        raise InputError(
            "InvalidProxySecret", f"{field}: the secret {key} lacks {' and '.join(missing)}"
        )
    user, password = (
        quote(secret.data[name].decode("utf-8", "replace").strip(), safe="")
        for name in ("username", "password")
    )
    url = server.url if "://" in server.url else f"http://{server.url}"
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    if not host:
        raise InputError(
            "InvalidProxy", f"proxy.{scheme}.url: {server.url!r} has no host; use http://HOST:PORT"
        )
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{host}"))
