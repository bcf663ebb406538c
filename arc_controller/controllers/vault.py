"""Credentials that are kept in a vault instead of in a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol

from cachetools import TTLCache

from arc_controller.actions import ProxySettings, VaultError
from arc_controller.actions.vault import AZURE_KEY_VAULT, AzureKeyVault, read_azure_key_vault
from arc_controller.api.v1alpha1 import Vault
from arc_controller.controllers.inputs import REMEMBERED, InputError
from arc_controller.controllers.meaning import meaning_hash


class VaultReader(Protocol):
    """Looks a secret up in a vault of one type."""

    def __call__(
        self, vault: Vault, name: str, proxy: ProxySettings | None
    ) -> Awaitable[Mapping[str, str]]:
        """The keys and values of the secret `name`. Raises `arc_controller.actions.VaultError`."""


class Vaults:
    """Reads vaults by their ``type`` and remembers what they said for `ttl` seconds.

    A vault is billed and limited by the read, and one secret serves many runners.
    """

    def __init__(
        self, readers: Mapping[str, VaultReader] | None = None, *, ttl: float = REMEMBERED
    ) -> None:
        known: Mapping[str, VaultReader] = {AZURE_KEY_VAULT: _read_azure}
        self._readers = dict(known if readers is None else readers)
        self._remembered: TTLCache[tuple[str, str], Mapping[str, str]] = TTLCache(
            256, ttl, timer=lambda: asyncio.get_running_loop().time()
        )

    async def read(self, vault: Vault, name: str, proxy: ProxySettings | None) -> Mapping[str, str]:
        """Raises `InputError` for a type that is not known and `VaultError`."""
        reader = self._readers.get(vault.type)
        if reader is None:
            known = " or ".join(sorted(self._readers))
            raise InputError(
                "UnknownVault", f"vaultConfig.type is {vault.type!r}; expected {known}"
            )
        slot = (name, meaning_hash(vault))
        known_content = self._remembered.get(slot)
        if known_content is not None:
            return known_content
        content = await reader(vault, name, proxy)
        self._remembered[slot] = content
        return content

    def forget(self, name: str) -> None:
        """Ask the vault again next time."""
        for slot in [slot for slot in self._remembered if slot[0] == name]:
            self._remembered.pop(slot, None)


async def _read_azure(vault: Vault, name: str, proxy: ProxySettings | None) -> Mapping[str, str]:
    settings = vault.azure_key_vault
    if settings is None:
        raise VaultError(f"vaultConfig.azureKeyVault is missing: type {AZURE_KEY_VAULT} needs it")
    where = AzureKeyVault(
        url=settings.url,
        tenant_id=settings.tenant_id,
        client_id=settings.client_id,
        certificate_path=settings.certificate_path,
    )
    return await read_azure_key_vault(where, name, proxy=proxy)
