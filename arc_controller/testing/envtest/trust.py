"""The HTTPS server that tells the API server which tokens to trust (OpenID discovery)."""

from __future__ import annotations

import ssl
from pathlib import Path

from aiohttp import web

from arc_controller.testing.envtest.pki import TokenIssuer

DISCOVERY_PATH = "/.well-known/openid-configuration"
_KEYS_PATH = "/keys"
# The API server asks once and keeps the keys, so it needs nothing from our event loop later on.
_FOREVER = {"Cache-Control": "max-age=31536000"}


class DiscoveryServer:
    """Serves the public key of a `TokenIssuer` until `stop`."""

    def __init__(self, issuer: TokenIssuer, port: int, certificate: Path, key: Path) -> None:
        self._issuer = issuer
        self._port = port
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate, key)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get(DISCOVERY_PATH, self._discovery)
        app.router.add_get(_KEYS_PATH, self._keys)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _discovery(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self._issuer.url,
                "jwks_uri": self._issuer.url + _KEYS_PATH,
                "authorization_endpoint": self._issuer.url,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            },
            headers=_FOREVER,
        )

    async def _keys(self, request: web.Request) -> web.Response:
        return web.json_response(self._issuer.key_set(), headers=_FOREVER)


def authentication_configuration(issuer: TokenIssuer, ca_pem: str) -> dict[str, object]:
    """The ``AuthenticationConfiguration`` that makes an API server trust ``issuer``."""
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [
            {
                "issuer": {
                    "url": issuer.url,
                    "audiences": [issuer.audience],
                    "certificateAuthority": ca_pem,
                },
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": ""},
                    "groups": {"claim": "groups", "prefix": ""},
                },
            }
        ],
    }
