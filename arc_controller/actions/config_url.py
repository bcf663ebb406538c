"""Whose runners they are (enterprise, organisation, repository), and where its REST API is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote, urlsplit

from .errors import InvalidConfigUrl
from .http import redact_url

FORCE_GHES_VARIABLE = "GITHUB_ACTIONS_FORCE_GHES"
"""Set to anything but the empty string, every host is taken for a GitHub Enterprise Server."""

_HOSTED = frozenset({"github.com", "www.github.com", "github.localhost"})
_EXPECTED = (
    "expected https://HOST/enterprises/ENTERPRISE, https://HOST/ORGANIZATION "
    "or https://HOST/OWNER/REPOSITORY"
)


class ConfigKind(StrEnum):
    """What a config URL names."""

    ENTERPRISE = "enterprise"
    ORGANIZATION = "organization"
    REPOSITORY = "repository"


@dataclass(frozen=True, slots=True)
class ConfigUrl:
    """A config URL taken apart. Made by :func:`parse_config_url`.

    ``enterprise``, ``organization`` and ``repository`` are ``""`` where they do not apply; a
    repository's owner is its ``organization``. ``url`` and ``rest_url`` end without a slash.
    """

    url: str
    kind: ConfigKind
    enterprise: str
    organization: str
    repository: str
    is_hosted: bool
    rest_url: str

    @property
    def rest_path(self) -> str:
        """The path of the named thing below ``rest_url``, for example ``/repos/OWNER/NAME``."""
        match self.kind:
            case ConfigKind.ENTERPRISE:
                return f"/enterprises/{quote(self.enterprise, safe='')}"
            case ConfigKind.ORGANIZATION:
                return f"/orgs/{quote(self.organization, safe='')}"
            case ConfigKind.REPOSITORY:
                owner, name = quote(self.organization, safe=""), quote(self.repository, safe="")
                return f"/repos/{owner}/{name}"

    def __str__(self) -> str:
        return self.url


def parse_config_url(url: str, *, environ: Mapping[str, str] | None = None) -> ConfigUrl:
    """Take a config URL apart; a trailing slash is ignored.

    Hosted are ``github.com``, ``www.github.com``, ``github.localhost`` and ``*.ghe.com``, unless
    ``GITHUB_ACTIONS_FORCE_GHES`` is set in ``environ`` (the process's own by default).

    Raises :class:`InvalidConfigUrl` for anything that does not name exactly one enterprise,
    organisation or repository over http or https.
    """
    environ = os.environ if environ is None else environ
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidConfigUrl(_sentence(url, str(error))) from None

    # urlsplit drops some of these without a word.
    if not url.strip().isprintable():
        raise InvalidConfigUrl(_sentence(url, "it holds a control character"))
    if parts.scheme not in {"http", "https"}:
        raise InvalidConfigUrl(_sentence(url, "it does not begin with https:// or http://"))
    if not host or any(c.isspace() for c in host):
        raise InvalidConfigUrl(_sentence(url, "it has no host"))
    if parts.username is not None or parts.password is not None:
        raise InvalidConfigUrl(_sentence(url, "credentials do not belong into it"))
    if parts.query or parts.fragment:
        raise InvalidConfigUrl(_sentence(url, "it has a query or a fragment"))

    raw = parts.path.strip("/")
    names = [unquote(segment) for segment in raw.split("/")] if raw else []
    if any(not _is_name(name) for name in names):
        raise InvalidConfigUrl(_sentence(url, "its path has an empty or unusable part"))

    enterprise = organization = repository = ""
    match names:
        case ["enterprises"]:
            raise InvalidConfigUrl(_sentence(url, "the name of the enterprise is missing"))
        case ["enterprises", enterprise]:
            kind = ConfigKind.ENTERPRISE
        case [organization]:
            kind = ConfigKind.ORGANIZATION
        case [organization, repository]:
            kind = ConfigKind.REPOSITORY
        case _:
            raise InvalidConfigUrl(
                _sentence(url, f"its path has {len(names)} parts instead of one or two")
            )

    host_text = f"[{host}]" if ":" in host else host
    netloc = host_text if port is None else f"{host_text}:{port}"
    hosted = (host in _HOSTED or host.endswith(".ghe.com")) and not environ.get(FORCE_GHES_VARIABLE)
    if hosted:
        rest_url = f"{parts.scheme}://api.{netloc.removeprefix('www.')}"
    else:
        rest_url = f"{parts.scheme}://{netloc}/api/v3"
    path = "/".join(quote(name, safe="") for name in names)
    return ConfigUrl(
        url=f"{parts.scheme}://{netloc}/{path}",
        kind=kind,
        enterprise=enterprise,
        organization=organization,
        repository=repository,
        is_hosted=hosted,
        rest_url=rest_url,
    )


def _is_name(name: str) -> bool:
    return bool(name) and name not in {".", ".."} and name.isprintable() and "/" not in name


def _sentence(url: str, why: str) -> str:
    return f"config URL {redact_url(url)!r} cannot be used: {why}; {_EXPECTED}"
