"""The server on a socket: an aiohttp server around `ApiServer.handle`."""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from arc_controller.testing.apiserver.messages import (
    ADMIN,
    Request,
    Response,
    UserInfo,
    encode_json,
)
from arc_controller.testing.apiserver.metadata import new_uid
from arc_controller.testing.apiserver.server import ApiServer, utc_now
from arc_controller.testing.apiserver.watch import Watch

_MAX_BODY = 8 * 1024 * 1024


class HttpApiServer:
    """`async with HttpApiServer(api) as http: http.url` — on a loopback port.

    Users come in with bearer tokens: `token(user)` makes one, `kubeconfig(user)` wraps it.
    `tls` serves HTTPS under a fresh certificate authority (`ca_pem`, also in the kubeconfig): Go
    clients, kubectl among them, send tokens over TLS only. Leaving the context ends all watches
    and closes the socket; the `ApiServer` itself stays open.
    """

    def __init__(
        self, api: ApiServer, host: str = "127.0.0.1", port: int = 0, *, tls: bool = False
    ) -> None:
        self.api = api
        self.ca_pem = b""
        self._tls = tls
        self._host = host
        self._port = port
        self._runner: web.ServerRunner | None = None
        self._tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    async def start(self, host: str | None = None, port: int | None = None) -> None:
        """Listen; port 0 takes a free one."""
        self._host = host or self._host
        self._port = self._port if port is None else port
        server = web.Server(
            self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=300
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        context = self._certify() if self._tls else None
        site = web.TCPSite(self._runner, self._host, self._port, backlog=1024, ssl_context=context)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.api.drop_watches()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def __aenter__(self) -> HttpApiServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def token(self, user: UserInfo = ADMIN) -> str:
        """A bearer token that stands for the user; the same one each time."""
        token = self._tokens.get(user.name)
        if token is None:
            token = self._tokens[user.name] = new_uid(self.api.random)
            self.api.add_token(token, user)
        return token

    def kubeconfig(self, user: UserInfo = ADMIN, namespace: str = "default") -> dict[str, Any]:
        """A kubeconfig for the user, as a dict."""
        cluster = {"server": self.url}
        if self.ca_pem:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_pem).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "users": [{"name": user.name, "user": {"token": self.token(user)}}],
            "contexts": [
                {
                    "name": "embedded",
                    "context": {
                        "cluster": "embedded",
                        "user": user.name,
                        "namespace": namespace,
                    },
                }
            ],
            "current-context": "embedded",
        }

    def write_kubeconfig(
        self, path: Path | str, user: UserInfo = ADMIN, namespace: str = "default"
    ) -> Path:
        """Write the kubeconfig (as JSON, which is YAML) readable for its owner only."""
        target = Path(path)
        target.touch(mode=0o600)
        target.write_bytes(encode_json(self.kubeconfig(user, namespace)))
        return target

    def _certify(self) -> ssl.SSLContext:
        from arc_controller.testing.envtest.pki import Authority

        now = utc_now()
        authority = Authority.new(now)
        self.ca_pem = authority.pem
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            authority.issue(home, "server", [self._host, "localhost"], now)
            context.load_cert_chain(home / "server.crt", home / "server.key")
        return context

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        body = await raw.read() if raw.can_read_body else b""
        request = Request(
            raw.method, raw.rel_url.raw_path, raw.rel_url.raw_query_string, raw.headers, body
        )
        response = await self.api.handle(request)
        if isinstance(response.body, bytes):
            return web.Response(
                status=response.status, headers=response.headers, body=response.body
            )
        return await self._stream(raw, response)

    async def _stream(self, raw: web.BaseRequest, response: Response) -> web.StreamResponse:
        body = response.body
        assert not isinstance(body, bytes)
        stream = web.StreamResponse(status=response.status, headers=response.headers)
        stream.enable_chunked_encoding()
        try:
            await stream.prepare(raw)
            if isinstance(body, Watch):
                while True:
                    try:
                        batch = await body.next_batch()
                    except StopAsyncIteration:
                        break
                    await stream.write(batch)
            else:
                async for frame in body:
                    await stream.write(frame)
            await stream.write_eof()
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        finally:
            closing = getattr(body, "aclose", None)
            if closing is not None:
                await closing()
        return stream
