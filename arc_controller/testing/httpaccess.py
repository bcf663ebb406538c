"""The way to an API server on a socket, embedded or real, for every user of a test's cluster.

Each comes over a connection of its own, with a token of its own: what the server refuses to a
controller or a listener is refused in the test, too.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import msgspec

from arc_controller.runtime import sessions
from arc_controller.runtime.errors import TransportError, error_from_response
from arc_controller.runtime.http import HttpTransport
from arc_controller.runtime.transport import Transport

MANAGER_AGENT: Final = "manager"
LISTENER_AGENT: Final = "listener"
TOKEN_SECONDS: Final = 3600


class HttpAccess:
    """`arc_controller.testing.cluster.ApiAccess` to the server at ``url``.

    - ``ca_pem``: what its certificate is checked against; empty for plain HTTP.
    - ``admin_token``: of somebody who may do everything: the test, the kubelet.
    - ``manager_token``: of the manager; the same as ``admin_token`` lets it do everything.

    A listener's token is minted by the server for its service account, as a kubelet has it done;
    that takes a service account that exists. Managers and listeners have the client-side limits of
    production (``qps``, ``burst``), the others none.
    """

    def __init__(
        self,
        url: str,
        *,
        admin_token: str,
        manager_token: str,
        ca_pem: str = "",
        qps: float = 100.0,
        burst: int = 200,
    ) -> None:
        self.url = url.rstrip("/")
        self._ca_pem = ca_pem
        self._admin_token = admin_token
        self._manager_token = manager_token
        self._qps = qps
        self._burst = burst

    def manager(self) -> Transport:
        return self._limited(_known(self._manager_token), MANAGER_AGENT)

    def listener(self, namespace: str, account: str) -> Transport:
        async def token() -> str:
            return await self.account_token(namespace, account)

        return self._limited(token, LISTENER_AGENT)

    def admin(self, user_agent: str) -> Transport:
        connection = TokenConnection(self.url, _known(self._admin_token), self._ca_pem)
        return HttpTransport(connection, qps=0, user_agent=user_agent)

    async def account_token(self, namespace: str, account: str) -> str:
        """A token of the service account, good for an hour. Raises `ApiError`."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        transport = self.admin("kubelet-tokens")
        try:
            response = await transport.request("POST", path, body=msgspec.json.encode(body))
        finally:
            await transport.close()
        if response.status >= 400:
            raise error_from_response(response.status, response.body, f"POST {path}", "")
        return str(msgspec.json.decode(response.body)["status"]["token"])

    def kubeconfig(self, token: str, namespace: str = "default") -> dict[str, Any]:
        """A kubeconfig for whoever has this token."""
        cluster: dict[str, Any] = {"server": self.url}
        if self._ca_pem:
            cluster["certificate-authority-data"] = base64.b64encode(self._ca_pem.encode()).decode()
        context = {"cluster": "test", "user": "test", "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }

    def manager_kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig for a manager in a process of its own."""
        return self.kubeconfig(self._manager_token)

    async def listener_kubeconfig(self, namespace: str, account: str) -> dict[str, Any]:
        """A kubeconfig for a listener in a process of its own."""
        return self.kubeconfig(await self.account_token(namespace, account), namespace)

    def _limited(self, token: Callable[[], Awaitable[str]], user_agent: str) -> Transport:
        connection = TokenConnection(self.url, token, self._ca_pem)
        return HttpTransport(connection, qps=self._qps, burst=self._burst, user_agent=user_agent)


class TokenConnection:
    """`arc_controller.runtime.http.Connection` of somebody whose token ``mint`` gives.

    It is asked once, and again when the server refuses the token.
    """

    def __init__(self, url: str, mint: Callable[[], Awaitable[str]], ca_pem: str = "") -> None:
        self.url = url
        self.options: Mapping[str, Any] = {}
        self._mint = mint
        self._token = ""
        self._minting = asyncio.Lock()
        self._ssl = ssl.create_default_context(cadata=ca_pem) if ca_pem else None

    def open_session(self, connections: int) -> aiohttp.ClientSession:
        connector = sessions.connector(connections, self._ssl if self._ssl is not None else True)
        return aiohttp.ClientSession(connector=connector, **sessions.session_options())

    async def authorization(self) -> str:
        async with self._minting:
            if not self._token:
                self._token = await self._mint()
        return f"Bearer {self._token}"

    async def renew(self) -> bool:
        async with self._minting:
            old = self._token
            try:
                self._token = await self._mint()
            except TransportError:
                return False
        return self._token != old


def _known(token: str) -> Callable[[], Awaitable[str]]:
    async def mint() -> str:
        return token

    return mint
