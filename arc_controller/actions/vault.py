"""Credentials kept in Azure Key Vault instead of a Kubernetes secret. Needs the extra ``azure``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from .errors import VaultError, scrub
from .proxy import ProxySettings

if TYPE_CHECKING:
    import aiohttp

AZURE_KEY_VAULT = "azure_key_vault"
"""The ``type`` of a vault configuration that means this vault."""

_PUBLIC_AUTHORITY = "login.microsoftonline.com"


@dataclass(frozen=True, slots=True)
class AzureKeyVault:
    """A vault and who we are to it: a service principal with a certificate. ``certificate_path``
    names a file, PEM or PKCS#12, that holds the certificate and its private key.

    Raises :class:`VaultError` when a field is missing or the URL is not https.
    """

    url: str
    tenant_id: str
    client_id: str
    certificate_path: str

    def __post_init__(self) -> None:
        missing = [field.name for field in fields(self) if not getattr(self, field.name)]
        if missing:
            raise VaultError(f"the Azure Key Vault configuration lacks {', '.join(missing)}")
        parts = urlsplit(self.url)
        if parts.scheme != "https" or not parts.hostname:
            raise VaultError(
                f"Azure Key Vault url {self.url!r} cannot be used: expected https://NAME.vault.azure.net"
            )


async def read_azure_key_vault(
    vault: AzureKeyVault,
    name: str,
    *,
    proxy: ProxySettings | None = None,
    root_cas: Sequence[str] = (),
    authority: str | None = None,
    session: Callable[[], aiohttp.ClientSession] | None = None,
) -> Mapping[str, str]:
    """The keys and values of the secret ``name``, which holds them as a JSON object: what
    :func:`credentials_from_mapping` takes.

    ``authority`` is the host that gives tokens (default: ``AZURE_AUTHORITY_HOST``, else the public
    cloud's); ``session`` replaces the network, and with it ``root_cas``. Reads anew on every call.
    The SDK's own retries apply. Raises :class:`VaultError` with one sentence.
    """
    try:
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
            ResourceNotFoundError,
        )
        from azure.core.pipeline.transport import AioHttpTransport
        from azure.identity.aio import CertificateCredential
        from azure.keyvault.secrets.aio import SecretClient
    except ImportError:
        raise VaultError(
            "Azure Key Vault needs more packages: pip install 'arc-controller[azure]'"
        ) from None

    def options(url: str) -> dict[str, Any]:
        proxy_url = proxy.for_url(url) if proxy else None
        return {"proxies": {"https": proxy_url}} if proxy_url else {}

    where = f"secret {name!r} in {vault.url}"
    host = authority or _PUBLIC_AUTHORITY
    authority_url = host if "://" in host else f"https://{host}"
    async with _session(session, tuple(root_cas)) as open_session:
        transport: Any = AioHttpTransport(session=open_session, session_owner=False)
        try:
            credential = CertificateCredential(
                vault.tenant_id,
                vault.client_id,
                vault.certificate_path,
                transport=transport,
                **({"authority": authority} if authority else {}),
                **options(authority_url),
            )
        except OSError as error:
            raise VaultError(
                f"certificate_path {vault.certificate_path!r} cannot be read: {error.strerror}"
            ) from None
        except ValueError as error:
            raise VaultError(
                f"certificate_path {vault.certificate_path!r} cannot be used, expected a PEM or "
                f"PKCS#12 file with a certificate and its RSA private key: {_line(error)}"
            ) from None
        client = SecretClient(vault.url, credential, transport=transport, **options(vault.url))
        secrets = proxy.secrets if proxy else ()
        try:
            value = (await client.get_secret(name)).value
        except ResourceNotFoundError:
            raise VaultError(f"{where} does not exist") from None
        except ClientAuthenticationError as error:
            raise VaultError(
                f"{where}: Azure does not accept client {vault.client_id} of tenant "
                f"{vault.tenant_id}: {scrub(_line(error), secrets)}"
            ) from None
        except HttpResponseError as error:
            raise VaultError(
                f"{where}: the vault answered with status {error.status_code}: "
                f"{scrub(_line(error), secrets)}"
            ) from None
        except AzureError as error:
            raise VaultError(f"{where} cannot be reached: {scrub(_line(error), secrets)}") from None
    return _keys(value or "", where)


def _keys(value: str, where: str) -> Mapping[str, str]:
    try:
        content = msgspec.json.decode(value)
    except msgspec.DecodeError:
        content = None
    if not isinstance(content, dict):
        raise VaultError(
            f"{where} is not a JSON object: expected github_token, or github_app_id, "
            "github_app_installation_id and github_app_private_key"
        )
    return {
        key: text if isinstance(text, str) else str(text)
        for key, text in content.items()
        if text is not None
    }


@asynccontextmanager
async def _session(
    factory: Callable[[], aiohttp.ClientSession] | None, root_cas: tuple[str, ...]
) -> AsyncIterator[aiohttp.ClientSession]:
    import aiohttp

    from .network import ssl_context

    if factory is None:
        connector = aiohttp.TCPConnector(ssl=ssl_context(root_cas) if root_cas else True)
        session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
    else:
        session = factory()
    async with session:
        yield session


def _line(error: Exception) -> str:
    """The first line of what the SDK says, which can be pages."""
    return str(error).strip().partition("\n")[0][:300]
