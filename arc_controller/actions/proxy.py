"""Which proxy, if any, a request goes through."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import unquote, urlsplit

from .errors import InvalidProxy
from .http import redact_url

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Proxies by the scheme of the *target*, and the targets that need none.

    ``http`` and ``https`` are URLs of http or https proxies, with the credentials as user
    information (percent-encoded); a missing scheme means http. Entries of ``no_proxy``:

    - ``example.com`` (it and what is below it), ``.example.com`` or ``*.example.com`` (only what is
      below it), an IP address, a CIDR block, ``*`` for everything;
    - each but CIDR and ``*`` may end in ``:PORT`` and then counts for that port only.

    ``localhost`` and loopback addresses never go through a proxy.

    Raises :class:`InvalidProxy` when a URL cannot be used.
    """

    http: str | None = None
    https: str | None = None
    no_proxy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in ("http", "https"):
            value = getattr(self, field)
            object.__setattr__(self, field, _proxy_url(field, value) if value else None)
        entries = tuple(entry.strip() for entry in self.no_proxy if entry.strip())
        object.__setattr__(self, "no_proxy", entries)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> ProxySettings:
        """Read ``http_proxy``, ``https_proxy`` and ``no_proxy``, lower case before upper case."""
        environ = os.environ if environ is None else environ

        def read(name: str) -> str:
            return environ.get(name) or environ.get(name.upper()) or ""

        return cls(
            read("http_proxy") or None,
            read("https_proxy") or None,
            tuple(read("no_proxy").replace(",", " ").split()),
        )

    def for_url(self, url: str) -> str | None:
        """The URL of the proxy to use for this target, credentials included; None for none."""
        parts = urlsplit(url)
        proxy = self.https if parts.scheme == "https" else self.http
        host = (parts.hostname or "").rstrip(".")
        if proxy is None or is_excluded(
            host, parts.port or _DEFAULT_PORTS.get(parts.scheme, 0), self.no_proxy
        ):
            return None
        return proxy

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        passwords = [urlsplit(url).password for url in (self.http, self.https) if url]
        return tuple(form for text in passwords if text for form in (text, unquote(text)))

    def __repr__(self) -> str:
        http, https = (redact_url(url) if url else None for url in (self.http, self.https))
        return f"ProxySettings(http={http!r}, https={https!r}, no_proxy={self.no_proxy!r})"


def is_excluded(host: str, port: int, no_proxy: Iterable[str]) -> bool:
    """Whether a target needs no proxy; see :class:`ProxySettings` for the rules."""
    host = host.lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, port) for entry in no_proxy)


def _matches(entry: str, host: str, port: int) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted_port = _split_port(entry)
    if wanted_port is not None and wanted_port != port:
        return False
    entry_address = _address(name)
    if entry_address is not None or address is not None:
        return entry_address == address
    name = name.rstrip(".")
    if name.startswith("*."):
        name = name[1:]
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        return entry, None
    return name, int(port) if port.isascii() and port.isdigit() else None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _proxy_url(field: str, value: str) -> str:
    url = value.strip()
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidProxy(
            f"{field} proxy {redact_url(url)!r} cannot be used: "
            "expected http://HOST:PORT or https://HOST:PORT"
        )
    return url.rstrip("/")
