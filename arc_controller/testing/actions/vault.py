"""A fake of Azure Key Vault and of the authority that gives tokens for it, on one TLS socket.

The Azure SDK insists on https and on the vault's domain. :meth:`FakeAzureVault.session` resolves
every name to this server, so that the real addresses can be used.
"""

from __future__ import annotations

import socket
import ssl
from collections import Counter
from typing import Any
from urllib.parse import parse_qs

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from .certificates import LocalAuthority

VAULT_URL = "https://runners.vault.azure.net"
AUTHORITY = "login.microsoftonline.com"


class FakeAzureVault:
    """Knows one service principal, by its certificate, and ``secrets`` by name.

    ``calls`` counts ``token``, ``challenge`` and ``secret``. ``forbidden`` makes the vault answer
    403 to a token that is good.
    """

    def __init__(
        self,
        *,
        tenant_id: str,
        client_id: str,
        certificate: str,
        secrets: dict[str, str] | None = None,
        authority: LocalAuthority | None = None,
    ) -> None:
        self.tenant_id = tenant_id
        self.client_id = client_id
        self.certificate = certificate
        self.secrets = dict(secrets or {})
        self.forbidden = False
        self.calls: Counter[str] = Counter()
        self.port = 0
        self._authority = authority or LocalAuthority()
        self._runner: web.AppRunner | None = None
        self._token = "the-vault-token"

    @property
    def root_ca(self) -> str:
        """What a client must trust."""
        return self._authority.pem

    async def __aenter__(self) -> FakeAzureVault:
        app = web.Application()
        app.router.add_post("/{tenant}/oauth2/v2.0/token", self._give_token)
        app.router.add_get("/secrets/{name}/{version:.*}", self._give_secret)
        app.router.add_get("/secrets/{name}", self._give_secret)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        names = (VAULT_URL.removeprefix("https://"), AUTHORITY, "127.0.0.1", "localhost")
        context = self._authority.server_context(*names)
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def session(self) -> aiohttp.ClientSession:
        """A session for which every host is this server."""
        context = ssl.create_default_context(cadata=self.root_ca)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, resolver=_Here(self.port)),
            auto_decompress=False,
        )

    async def _give_token(self, request: web.Request) -> web.Response:
        self.calls["token"] += 1
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        good = (
            request.match_info["tenant"] == self.tenant_id
            and form.get("grant_type") == "client_credentials"
            and form.get("client_id") == self.client_id
            and form.get("scope") == "https://vault.azure.net/.default"
            and self._is_ours(form.get("client_assertion", ""))
        )
        if not good:
            return web.json_response(
                {
                    "error": "invalid_client",
                    "error_description": "AADSTS700027: the certificate is not registered",
                },
                status=401,
            )
        return web.json_response(
            {"token_type": "Bearer", "expires_in": 3599, "access_token": self._token}
        )

    async def _give_secret(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            self.calls["challenge"] += 1
            challenge = (
                f'Bearer authorization="https://{AUTHORITY}/{self.tenant_id}", '
                'resource="https://vault.azure.net"'
            )
            return _error(401, "Unauthorized", "no token", {"WWW-Authenticate": challenge})
        self.calls["secret"] += 1
        if self.forbidden:
            return _error(403, "Forbidden", "the caller lacks the permission secrets/get")
        name = request.match_info["name"]
        if name not in self.secrets:
            return _error(404, "SecretNotFound", f"A secret with name {name} was not found")
        return web.json_response(
            {
                "value": self.secrets[name],
                "id": f"{VAULT_URL}/secrets/{name}/0123456789abcdef",
                "attributes": {"enabled": True},
            }
        )

    def _is_ours(self, assertion: str) -> bool:
        import jwt
        from cryptography.x509 import load_pem_x509_certificate

        pem = self.certificate[self.certificate.index("-----BEGIN CERTIFICATE") :]
        public: Any = load_pem_x509_certificate(pem.encode()).public_key()
        try:
            claims = jwt.decode(
                assertion, public, algorithms=["RS256", "PS256"], options={"verify_aud": False}
            )
        except jwt.PyJWTError:
            return False
        return claims.get("iss") == self.client_id == claims.get("sub")


class _Here(AbstractResolver):
    """Every name is 127.0.0.1, every port is ours."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host="127.0.0.1",
                port=self._port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        """Nothing is open."""


def _error(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    return web.json_response(
        {"error": {"code": code, "message": message}}, status=status, headers=headers
    )
