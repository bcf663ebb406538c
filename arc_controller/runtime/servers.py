"""The small HTTP servers of a manager: metrics, probes, diagnostics."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from aiohttp import web

OFF = ("", "0")
SHUTDOWN_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class PageRequest:
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


View = Callable[[PageRequest], Page | Awaitable[Page]]


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    """Empty: all interfaces, IPv4 and IPv6."""
    port: int
    """0: any free port."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CannotListen(OSError):
    """A server's address is taken, or not one of this machine; the text names both."""

    def __str__(self) -> str:
        return str(self.strerror)


def parse_address(text: str, what: str = "address") -> Address | None:
    """``":8080"``, ``"127.0.0.1:8080"``, ``"[::1]:8080"``; ``""`` and ``"0"`` are off: None.

    Raises `ValueError` that names `what`.
    """
    if text in OFF:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal():
        raise ValueError(f'{what} {text!r}: use host:port or :port, "0" turns it off')
    if len(port) > 5 or int(port) > 65535:
        raise ValueError(f"{what} {text!r}: a port is a number from 0 (any free one) to 65535")
    if ":" in host:
        try:
            host = str(ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]")))
        except ValueError:
            raise ValueError(
                f"{what} {text!r}: an IPv6 address is written [address]:port"
            ) from None
    return Address(host, int(port))


class HttpServer:
    """Serves pages at `address` between `start` and `stop`; aiohttp is imported by `start`."""

    def __init__(self, name: str, address: Address, views: Mapping[str, View]) -> None:
        self.name = name
        self.address = address
        self._views = dict(views)
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 before `start`."""
        if self._runner is None or not self._runner.addresses:
            return 0
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Listen. Raises `CannotListen` if that is not possible."""
        from aiohttp import web

        app = web.Application()
        for path, view in self._views.items():
            app.router.add_get(path, _handler(view))
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT
        )
        await self._runner.setup()
        address = self.address
        site = web.TCPSite(self._runner, address.host or None, address.port)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            number = error.errno or 0
            why = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
            raise CannotListen(
                number, f"the {self.name} server cannot listen on {address}: {why}"
            ) from None

    async def stop(self) -> None:
        """Close all connections, those that are being answered within a second."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()


def metrics_page(registry: CollectorRegistry) -> View:
    """``/metrics``, as text or OpenMetrics, whichever is asked for."""

    def view(request: PageRequest) -> Page:
        encode, content_type = choose_encoder(request.accept)
        return Page(encode(registry), content_type)

    return view


class Checks:
    """Named checks behind ``/healthz`` or ``/readyz``.

    A check returns an empty string if all is well, else what is wrong. All well answers 200 and
    ``ok`` (or every check, with ``?verbose``); otherwise 500 and every check.
    """

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[], str]] = {}

    def add(self, name: str, check: Callable[[], str]) -> None:
        """Raises `ValueError` if the name is taken."""
        if name in self._checks:
            raise ValueError(f"there is a check {name!r} already")
        self._checks[name] = check

    def failures(self) -> dict[str, str]:
        """What is wrong, by the name of the check."""
        return {name: wrong for name, check in self._checks.items() if (wrong := _run(check))}

    def page(self, request: PageRequest) -> Page:
        failures = self.failures()
        if not failures and "verbose" not in request.query:
            return Page(b"ok")
        lines = [
            f"[-]{name} failed: {failures[name]}" if name in failures else f"[+]{name} ok"
            for name in self._checks
        ]
        text = "\n".join([*lines, "check failed" if failures else "check passed", ""])
        return Page(text.encode(), status=500 if failures else 200)


def _run(check: Callable[[], str]) -> str:
    try:
        return check()
    except Exception as error:
        return str(error) or type(error).__name__


def _handler(view: View) -> Callable[[web.Request], Awaitable[web.Response]]:
    from aiohttp import web

    async def handle(request: web.Request) -> web.Response:
        page = view(PageRequest(dict(request.query), request.headers.get("Accept", "")))
        if not isinstance(page, Page):
            page = await page
        return web.Response(
            body=page.body, status=page.status, headers={"Content-Type": page.content_type}
        )

    return handle
