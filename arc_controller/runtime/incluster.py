"""From inside a pod: a token file, a CA and two environment variables are all there is.

The listener runs once per scale set and does without the official client, which would cost it half
of its memory (see `officialclient`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from arc_controller.runtime import sessions
from arc_controller.runtime.errors import ConfigurationError
from arc_controller.runtime.http import HttpTransport

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS = 60.0
"""The kubelet replaces the token well before it expires; the file is read this often."""


class InClusterConnection:
    """A pod's service account.

    Raises `ConfigurationError` if the process does not run in a pod.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        service_account: Path = SERVICE_ACCOUNT,
    ) -> None:
        environ = os.environ if environ is None else environ
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "")
        if not host or not port:
            raise ConfigurationError(
                "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
            )
        self.url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.options: Mapping[str, Any] = _proxy(self.url)
        self._token_file = service_account / "token"
        self._token = ""
        self._read_at = float("-inf")
        try:
            self._ssl = ssl.create_default_context(cafile=str(service_account / "ca.crt"))
            self._read_token()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
            raise ConfigurationError(
                f"the service account in {service_account} cannot be read: {error}"
            ) from error

    def open_session(self, connections: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=sessions.connector(connections, self._ssl), **sessions.session_options()
        )

    async def authorization(self) -> str:
        now = asyncio.get_running_loop().time()
        if now - self._read_at >= REREAD_SECONDS:
            self._read_at = now
            try:
                self._read_token()
            except (OSError, ValueError):
                pass  # The old one is good until the server says otherwise.
        return f"Bearer {self._token}"

    async def renew(self) -> bool:
        old = self._token
        try:
            self._read_token()
        except (OSError, ValueError):
            return False
        return self._token != old

    def _read_token(self) -> None:
        token = self._token_file.read_text("utf-8").strip()
        if not token:
            raise ValueError(f"{self._token_file} is empty")
        self._token = token


class InClusterTransport(HttpTransport):
    """`HttpTransport` with a pod's service account, without importing the official client.

    Raises `ConfigurationError` if the process does not run in a pod.
    """

    def __init__(
        self,
        *,
        qps: float = 100.0,
        burst: int = 200,
        user_agent: str = "",
        registry: CollectorRegistry | None = None,
    ) -> None:
        super().__init__(
            InClusterConnection(), qps=qps, burst=burst, user_agent=user_agent, registry=registry
        )


def _proxy(url: str) -> dict[str, Any]:
    proxy = sessions.environment_proxy(url)
    return {"proxy": proxy} if proxy else {}
