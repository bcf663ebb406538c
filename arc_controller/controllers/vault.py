"""Credentials that are kept in a vault instead of in a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol

from cachetools import TTLCache

from arc_controller.actions import ProxySettings
from arc_controller.api.v1alpha1 import Vault
from arc_controller.controllers.inputs import REMEMBERED, InputError
from arc_controller.controllers.meaning import meaning_hash

AZURE_KEY_VAULT = "azure_key_vault"


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

    def __init__(self, readers: Mapping[str, VaultReader], *, ttl: float = REMEMBERED) -> None:
        self._readers = readers
        self._remembered: TTLCache[tuple[str, str], Mapping[str, str]] = TTLCache(
            256, ttl, timer=lambda: asyncio.get_running_loop().time()
        )

    async def read(self, vault: Vault, name: str, proxy: ProxySettings | None) -> Mapping[str, str]:
        """Raises `InputError` for a type that is not known and `VaultError`."""
        reader = self._readers.get(vault.type)
        if reader is None:
            known = " or ".join(sorted(self._readers)) or "none: this build has no vaults"
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
