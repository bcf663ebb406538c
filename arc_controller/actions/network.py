"""The network itself: aiohttp, with proxies and extra CA certificates."""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp
from yarl import URL

from .errors import ClientClosed, ConnectionFailed, InvalidCertificates, RequestNotSent, scrub
from .http import HttpRequest, HttpResponse
from .proxy import ProxySettings

_CONNECT_TIMEOUT = 30.0
_IDLE_CONNECTION = 60.0


class AiohttpTransport:
    """A pool of connections, opened when first used. Many clients may share one.

    ``root_cas`` are PEM texts, trusted beside the system's, for targets and https proxies alike.
    Raises :class:`InvalidCertificates` when one of them cannot be read.
    """

    def __init__(self, *, proxy: ProxySettings | None = None, root_cas: Sequence[str] = ()) -> None:
        self._proxy = proxy
        self._secrets = proxy.secrets if proxy else ()
        self._ssl: ssl.SSLContext | bool = ssl_context(tuple(root_cas)) if root_cas else True
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(self, request: HttpRequest) -> HttpResponse:
        session = self._open()
        proxy_url, proxy_headers = self._proxy_for(request.url)
        tunnel = request.url.startswith("https:")
        try:
            response = await session.request(
                request.method,
                URL(request.url, encoded=True),
                # Without a tunnel the proxy reads the headers of the request itself.
                headers=request.headers if tunnel else {**request.headers, **proxy_headers},
                data=aiohttp.BytesPayload(request.body) if request.body else None,
                allow_redirects=False,
                proxy=proxy_url,
                proxy_headers=proxy_headers if tunnel else None,
                ssl=self._ssl,
            )
            # Reading to the end, or failing to, gives the connection back.
            body = await response.read()
            return HttpResponse(response.status, response.headers, body)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = scrub(_reason(error), self._secrets)
        except ValueError:
            # Not its words: they may quote the header.
            raise RequestNotSent(
                request.method,
                request.url,
                "its address or a header holds a character that HTTP does not allow",
            ) from None
        except RuntimeError:
            if not self._closed:
                raise
            raise ClientClosed("the client was closed during the call") from None
        # Not chained: aiohttp's errors carry the request, and with it tokens and passwords.
        raise ConnectionFailed(request.method, request.url, reason)

    async def aclose(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit: every listener holds one connection for as long as it polls.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=None, sock_connect=_CONNECT_TIMEOUT
                ),
                trust_env=False,
            )
        return self._session

    def _proxy_for(self, url: str) -> tuple[str | None, dict[str, str]]:
        """The proxy's URL without its credentials, and these as a header."""
        proxy = self._proxy.for_url(url) if self._proxy else None
        if proxy is None:
            return None, {}
        parts = urlsplit(proxy)
        bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        if parts.username is None:
            return bare, {}
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return bare, {"proxy-authorization": f"Basic {b64encode(pair.encode()).decode()}"}


@lru_cache(maxsize=32)
def ssl_context(root_cas: tuple[str, ...]) -> ssl.SSLContext:
    """One context for all who trust the same: it takes a megabyte."""
    context = ssl.create_default_context()
    for number, pem in enumerate(root_cas, 1):
        try:
            context.load_verify_locations(cadata=pem)
        except (ssl.SSLError, ValueError):
            raise InvalidCertificates(
                f"CA certificate {number} of {len(root_cas)} cannot be read: expected PEM text "
                "that begins with -----BEGIN CERTIFICATE-----"
            ) from None
    return context


def _reason(error: BaseException) -> str:
    match error:
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy {error.host}:{error.port} cannot be reached: {_cause(error)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refused the connection with status {error.status} {error.message}"
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "") or "not trusted"
            return f"the certificate of {error.host} is not accepted: {why}"
        case aiohttp.ClientConnectorError():
            return f"{error.host}:{error.port} cannot be reached: {_cause(error)}"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed before the answer"
        case aiohttp.ClientPayloadError():
            return "the connection broke in the middle of the answer"
        case TimeoutError():
            return f"no connection within {_CONNECT_TIMEOUT:.0f} s"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return type(error).__name__


def _cause(error: aiohttp.ClientConnectorError) -> str:
    """What the system says, without the address that asyncio writes around it."""
    number = error.os_error.errno
    if number is not None and number > 0:  # those of name look-ups are negative
        return os.strerror(number)
    return error.strerror or "no reason given"
