"""Clients of the Actions service, one for everybody who means the same place with the same key.

What makes two clients the same is the *content* of their credentials, proxy and CAs, not the names
of the secrets that hold them: so a rotated secret leads to a new client by itself.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import msgspec
from cachetools import LRUCache, TTLCache

from arc_controller.actions import (
    ActionsClient,
    Credentials,
    InvalidCertificates,
    ProxySettings,
    TooManyRequests,
    Unauthorized,
    UserAgent,
    credentials_from_mapping,
    parse_config_url,
)
from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import (
    AutoscalingListenerSpec,
    AutoscalingRunnerSetSpec,
    EphemeralRunnerSpec,
    Proxy,
    ServerTLS,
    Vault,
)
from arc_controller.controllers.inputs import InputError, Inputs
from arc_controller.controllers.proxy import proxy_environment, proxy_settings
from arc_controller.controllers.tls import described, server_root_ca
from arc_controller.controllers.trouble import LONGEST_LIMIT, UNAUTHORIZED, limited_for
from arc_controller.controllers.vault import Vaults
from arc_controller.runtime.clock import loop_time
from arc_controller.runtime.objects import NamespacedName

MAX_CLIENTS = 1024
LIFETIME = 3600.0
"""Seconds that a client is kept; about as long as the service's admin token lives."""
PAUSE = 9.0
"""Seconds for which credentials that were refused are not tried again."""
LOOK_AGAIN = 2.0
"""Seconds between two looks for new ones instead of credentials that were refused."""
REFUSED_FOR = 60.0
"""Seconds after which a refusal is forgotten."""
LINGER = 600.0
"""Seconds before a client that is no longer handed out is closed: longer than any call takes."""


class ClientFactory(Protocol):
    """Makes a client. Tests and simulations give one with a network of their own."""

    def __call__(
        self,
        config_url: str,
        credentials: Credentials,
        *,
        proxy: ProxySettings | None,
        root_cas: tuple[str, ...],
        user_agent: UserAgent,
    ) -> ActionsClient: ...


@dataclass(frozen=True, slots=True)
class Access:
    """Where a client goes and what it needs for it, as a spec says it."""

    config_url: str
    secret: str
    namespace: str
    proxy: Proxy | None = None
    tls: ServerTLS | None = None
    vault: Vault | None = None

    @classmethod
    def of(
        cls,
        spec: AutoscalingRunnerSetSpec | EphemeralRunnerSpec | AutoscalingListenerSpec,
        namespace: str,
    ) -> Access:
        """`namespace` is where the scale set is: that is where its secrets are, too."""
        return cls(
            spec.github_config_url,
            spec.github_config_secret,
            namespace,
            spec.proxy,
            spec.github_server_tls,
            spec.vault_config,
        )


class StillRefused(InputError):
    """The service refused these credentials a moment ago, and they are still the same."""

    def __init__(self) -> None:
        super().__init__(UNAUTHORIZED.reason, UNAUTHORIZED.message)


@dataclass(frozen=True, slots=True)
class _Resolved:
    """What a spec refers to; `key` is the same for the same content."""

    key: str
    content: Mapping[str, str]
    environment: Mapping[str, str]
    root_ca: str


@dataclass(slots=True)
class _Refusal:
    """Until when not to try again, and when the credentials were last looked at; loop's time."""

    pause: float
    looked: float


class ActionsClients:
    """Resolves credentials, proxy and CAs of a spec and hands out the client for them.

    Every method raises `InputError` or an `arc_controller.actions.ActionsError` when the spec, or
    what it refers to, cannot be used, and `ApiError`. A client that was handed out is good for the
    calls of one reconcile: ask again the next time, it costs nothing.

    ``default_proxy`` is for specs without a proxy, usually what the process's environment says.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        factory: ClientFactory = ActionsClient,
        vaults: Vaults | None = None,
        default_proxy: ProxySettings | None = None,
        subsystem: str = "gha-runner-scale-set-controller",
    ) -> None:
        self.inputs = inputs
        self._factory = factory
        self._vaults = vaults or Vaults()
        self._default_proxy = default_proxy
        self._user_agent = UserAgent(subsystem=subsystem)
        self._clients = _Clients(MAX_CLIENTS, LIFETIME)
        self._credentials: LRUCache[str, Credentials] = LRUCache(MAX_CLIENTS)
        self._handed: LRUCache[tuple[str, str, str], str] = LRUCache(MAX_CLIENTS)
        self._refused: TTLCache[str, _Refusal] = TTLCache(MAX_CLIENTS, REFUSED_FOR, timer=loop_time)
        self._limited: TTLCache[str, tuple[float, TooManyRequests]] = TTLCache(
            MAX_CLIENTS, LONGEST_LIMIT, timer=loop_time
        )
        self._retired: deque[tuple[float, ActionsClient]] = deque()

    async def for_runner(self, spec: EphemeralRunnerSpec, namespace: str) -> ActionsClient:
        return await self.for_access(Access.of(spec, namespace))

    async def for_scale_set(self, spec: AutoscalingRunnerSetSpec, namespace: str) -> ActionsClient:
        return await self.for_access(Access.of(spec, namespace))

    async def for_listener(self, spec: AutoscalingListenerSpec) -> ActionsClient:
        return await self.for_access(Access.of(spec, spec.autoscaling_runner_set_namespace))

    async def for_access(self, access: Access) -> ActionsClient:
        _checked_url(access.config_url)
        found = await self._accepted(access)
        client = self._clients.get(found.key)
        if client is None:
            client = self._made(access, found)
            self._clients[found.key] = client
        self._handed[access.config_url, access.namespace, access.secret] = found.key
        await self._close_retired()
        return client

    def _made(self, access: Access, found: _Resolved) -> ActionsClient:
        try:
            return self._factory(
                access.config_url,
                self._parsed(found.content, access),
                proxy=proxy_settings(found.environment) or self._default_proxy,
                root_cas=(found.root_ca,) if found.root_ca else (),
                user_agent=self._user_agent,
            )
        except InvalidCertificates:
            where = described(access.tls, access.namespace)
            raise InputError(
                "InvalidCertificates",
                f"{where} holds a certificate that cannot be read: "
                "expected PEM text that begins with -----BEGIN CERTIFICATE-----",
            ) from None

    async def _accepted(self, access: Access) -> _Resolved:
        """What the spec refers to. After a refusal it is read anew instead of remembered, and for a
        moment nothing is tried with the same: raises `StillRefused`."""
        found = await self._resolve(access)
        self._keep_limit(found.key)
        refusal, now = self._refused.get(found.key), loop_time()
        if refusal is None:
            return found
        if now - refusal.looked >= LOOK_AGAIN:
            refusal.looked = now
            self._forget(access.namespace, access.secret)
            found = await self._resolve(access)
            refusal = self._refused.get(found.key)
        if refusal is not None and now < refusal.pause:
            raise StillRefused
        return found

    def _keep_limit(self, key: str) -> None:
        """Raises `TooManyRequests`, with the seconds that are left, as long as the service wants to
        be left alone."""
        until, error = self._limited.get(key, (0.0, None))
        left = until - loop_time()
        if error is None or left <= 0:
            return
        raise TooManyRequests(
            error.method, error.url, error.status, message=error.message, retry_after=left
        )

    async def _resolve(self, access: Access) -> _Resolved:
        content = await self.credentials(access)
        environment: dict[str, str] = {}
        if access.proxy is not None:
            environment = await proxy_environment(self.inputs, access.proxy, access.namespace)
        root_ca = await server_root_ca(self.inputs, access.tls, access.namespace)
        key = _fingerprint(access.config_url, access.namespace, content, environment, root_ca)
        return _Resolved(key, content, environment, root_ca)

    async def credentials(self, access: Access) -> Mapping[str, str]:
        """The keys and values of the credentials secret, or of its namesake in the vault.

        They are complete and make sense; whether the service accepts them is another question.
        """
        content = await self._content(access)
        self._parsed(content, access)
        return content

    async def _content(self, access: Access) -> Mapping[str, str]:
        if not access.secret:
            raise InputError("CredentialsMissing", "githubConfigSecret is empty; name a secret")
        if access.vault is not None and access.vault.type:
            return await self._from_vault(access, access.vault)
        secret = await self.inputs.find(Secret, NamespacedName(access.namespace, access.secret))
        if secret is None:
            raise InputError("CredentialsNotFound", f"{_where(access)} does not exist")
        return {name: _text(access, name, value) for name, value in secret.data.items()}

    def failed(
        self,
        error: Exception,
        spec: AutoscalingRunnerSetSpec | EphemeralRunnerSpec | AutoscalingListenerSpec,
        namespace: str,
    ) -> None:
        """What the service said to a call; to be told of every error, for some forbid the next."""
        if isinstance(error, Unauthorized):
            self.refused(spec, namespace)
        elif isinstance(error, TooManyRequests):
            place = spec.github_config_url, namespace, spec.github_config_secret
            key, until = self._handed.get(place), loop_time() + limited_for(error)
            if key is not None and until > self._limited.get(key, (0.0, None))[0]:
                self._limited[key] = until, error

    def refused(
        self,
        spec: AutoscalingRunnerSetSpec | EphemeralRunnerSpec | AutoscalingListenerSpec,
        namespace: str,
    ) -> None:
        """The service said Unauthorized: read the credentials again before the next call. If it
        says so again of the same, no call is made with them for `PAUSE` seconds."""
        secret = spec.github_config_secret
        key = self._handed.get((spec.github_config_url, namespace, secret))
        now = loop_time()
        if key is not None and key in self._refused:
            self._refused[key].pause = now + PAUSE
        elif key is not None:
            self._refused[key] = _Refusal(pause=now, looked=now)
        self._forget(namespace, secret)

    def _forget(self, namespace: str, secret: str) -> None:
        self.inputs.forget(Secret, NamespacedName(namespace, secret))
        self._vaults.forget(secret)

    async def aclose(self) -> None:
        """Close all clients; calls in flight fail."""
        clients = [client for _, client in self._retired]
        clients += [client for _, client in self._clients.drain()]
        self._retired.clear()
        for client in clients:
            await client.aclose()

    def _parsed(self, content: Mapping[str, str], access: Access) -> Credentials:
        """Parsing a private key takes milliseconds: once is enough."""
        slot = _fingerprint(content)
        known = self._credentials.get(slot)
        if known is None:
            known = self._credentials[slot] = credentials_from_mapping(content, _where(access))
        return known

    async def _from_vault(self, access: Access, vault: Vault) -> Mapping[str, str]:
        environment: dict[str, str] = {}
        if vault.proxy is not None:
            environment = await proxy_environment(self.inputs, vault.proxy, access.namespace)
        return await self._vaults.read(vault, access.secret, proxy_settings(environment))

    async def _close_retired(self) -> None:
        now = loop_time()
        self._retired.extend((now + LINGER, client) for client in self._clients.take_evicted())
        while self._retired and self._retired[0][0] <= now:
            _, client = self._retired.popleft()
            await client.aclose()


class _Clients(TTLCache[str, ActionsClient]):
    """A TTLCache that keeps what it throws out, since that has to be closed."""

    def __init__(self, size: int, ttl: float) -> None:
        super().__init__(size, ttl, timer=loop_time)
        self._evicted: list[ActionsClient] = []

    def popitem(self) -> tuple[str, ActionsClient]:
        key, client = super().popitem()
        self._evicted.append(client)
        return key, client

    def expire(self, time: float | None = None) -> list[tuple[str, ActionsClient]]:
        expired = list(super().expire(time))
        self._evicted.extend(client for _, client in expired)
        return expired

    def take_evicted(self) -> list[ActionsClient]:
        self.expire()
        evicted, self._evicted = self._evicted, []
        return evicted

    def drain(self) -> list[tuple[str, ActionsClient]]:
        """Everything, whatever its age; the cache is empty afterwards."""
        items = [("", client) for client in self.take_evicted()]
        while self:
            items.append(super().popitem())
        return items


_checked_url = lru_cache(MAX_CLIENTS)(parse_config_url)


def _where(access: Access) -> str:
    return f"the secret {access.namespace}/{access.secret} (githubConfigSecret)"


def _text(access: Access, name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InputError(
            "InvalidCredentials", f"{_where(access)}: the value of {name} is not text"
        ) from None


def _fingerprint(*parts: object) -> str:
    """A digest, so that the key of a cache entry, which errors may show, is no secret."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
