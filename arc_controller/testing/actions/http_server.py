"""The fake service on a socket, for clients in other processes and for those not ours."""

from __future__ import annotations

import ssl
from types import TracebackType

from aiohttp import web

from arc_controller.actions import HttpRequest

from .calls import ConnectionReset, CutResponse
from .service import FakeActionsService


class HttpActionsService:
    """Serves a :class:`FakeActionsService` on 127.0.0.1.

    ``async with HttpActionsService(service) as server:`` then ``server.config_url("acme/app")`` is
    what to configure. ``port`` 0 takes a free one. With ``ssl_context`` it speaks TLS.
    """

    def __init__(
        self,
        service: FakeActionsService,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.service = service
        self._host = host
        self._port = port
        self._ssl_context = ssl_context
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        scheme = "https" if self._ssl_context else "http"
        return f"{scheme}://{self._host}:{self._port}"

    def config_url(self, path: str = "acme") -> str:
        """The config URL of an organisation, ``OWNER/REPO`` or ``enterprises/NAME`` here."""
        return f"{self.url}/{path}"

    async def start(self) -> None:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that hangs up must end its poll: the session's life depends on it.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._ssl_context)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and break what is open. The service itself is left as it is."""
        if self._runner is not None:
            self.service.reset_polls()
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> HttpActionsService:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        scheme = "https" if self._ssl_context else "http"
        asked = HttpRequest(
            request.method,
            f"{scheme}://{request.host}{request.raw_path}",
            dict(request.headers),
            await request.read(),
        )
        try:
            answer = await self.service.handle(asked)
        except ConnectionReset:
            _hang_up(request)
            return web.Response(status=500)
        headers = {**answer.headers}
        if isinstance(answer, CutResponse):
            response = web.StreamResponse(status=answer.status, headers=headers)
            response.content_length = answer.length
            await response.prepare(request)
            await response.write(answer.body)
            _hang_up(request)
            return response
        return web.Response(status=answer.status, headers=headers, body=answer.body)


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
