"""Who gets which client of the service, and how often secrets are read for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from arc_controller.actions import (
    ActionsClient,
    Credentials,
    InvalidConfigUrl,
    InvalidCredentials,
    ProxySettings,
    UserAgent,
)
from arc_controller.api.core import ConfigMap, Secret
from arc_controller.api.v1alpha1 import (
    AutoscalingListenerSpec,
    AutoscalingRunnerSetSpec,
    CertificateSource,
    ConfigMapKey,
    EphemeralRunnerSpec,
    Proxy,
    ProxyServer,
    ServerTLS,
    Vault,
)
from arc_controller.controllers import service as service_module
from arc_controller.controllers.inputs import InputError, Inputs
from arc_controller.controllers.service import (
    LIFETIME,
    LINGER,
    PAUSE,
    ActionsClients,
    StillRefused,
)
from arc_controller.controllers.vault import Vaults
from arc_controller.runtime.objects import K, LabelSelector, NamespacedName
from arc_controller.testing.loop import simulated

URL = "https://github.com/acme"


@dataclass
class Cluster:
    """Secrets and config maps in ``ci``; counts the reads."""

    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        await asyncio.sleep(0.01)
        self.reads.append(key.name)
        if kind is Secret and key.name in self.secrets:
            return Secret(data=dict(self.secrets[key.name]))  # type: ignore[return-value]
        if kind is ConfigMap and key.name in self.config_maps:
            return ConfigMap(data=dict(self.config_maps[key.name]))  # type: ignore[return-value]
        return None

    async def get(self, kind: type[K], key: NamespacedName) -> K:
        raise NotImplementedError

    async def list(
        self,
        kind: type[K],
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]:
        raise NotImplementedError


class Client(ActionsClient):
    """Remembers what it was made from, and whether it was closed."""

    def __init__(self, url: str, credentials: Credentials, **options: Any) -> None:
        self.url, self.credentials, self.options, self.closed = url, credentials, options, False

    def __repr__(self) -> str:
        return "Client()"

    async def aclose(self) -> None:
        self.closed = True


def _factory(
    config_url: str,
    credentials: Credentials,
    *,
    proxy: ProxySettings | None,
    root_cas: tuple[str, ...],
    user_agent: UserAgent,
) -> Client:
    return Client(config_url, credentials, proxy=proxy, root_cas=root_cas)


def made(cluster: Cluster, **options: Any) -> ActionsClients:
    return ActionsClients(Inputs(cluster), factory=_factory, **options)


def spec(**changes: Any) -> EphemeralRunnerSpec:
    fields = {"github_config_url": URL, "github_config_secret": "github", **changes}
    return EphemeralRunnerSpec(**fields)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(
        secrets={
            "github": {"github_token": b"one"},
            "same": {"github_token": b"one"},
            "other": {"github_token": b"two"},
        }
    )


@simulated
async def test_the_same_place_and_key_is_the_same_client_for_all_kinds() -> None:
    clients = made(Cluster(secrets={"github": {"github_token": b"one"}}))
    first = await clients.for_runner(spec(), "ci")
    for_set = AutoscalingRunnerSetSpec(github_config_url=URL, github_config_secret="github")
    for_listener = AutoscalingListenerSpec(
        github_config_url=URL, github_config_secret="github", autoscaling_runner_set_namespace="ci"
    )
    assert await clients.for_runner(spec(), "ci") is first
    assert await clients.for_scale_set(for_set, "ci") is first
    assert await clients.for_listener(for_listener) is first
    await clients.aclose()


def test_what_makes_clients_different(cluster: Cluster) -> None:
    cluster.config_maps["ca"] = {"pem": "PEM"}
    reference = ConfigMapKey(name="ca", key="pem")
    tls = ServerTLS(certificate_from=CertificateSource(config_map_key_ref=reference))

    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        found = [
            await clients.for_runner(spec(), "ci"),
            await clients.for_runner(spec(), "elsewhere"),
            await clients.for_runner(spec(github_config_url=f"{URL}/app"), "ci"),
            await clients.for_runner(spec(github_config_secret="other"), "ci"),
            await clients.for_runner(spec(proxy=Proxy(http=ProxyServer(url="http://p:1"))), "ci"),
            await clients.for_runner(spec(github_server_tls=tls), "ci"),
        ]
        assert len(set(map(id, found))) == len(found)
        same = await clients.for_runner(spec(github_config_secret="same"), "ci")
        assert same is found[0], "the content counts, not the name of the secret"
        assert isinstance(found[-1], Client)
        assert found[-1].options["root_cas"] == ("PEM",)
        await clients.aclose()
        assert all(isinstance(client, Client) and client.closed for client in found)

    scenario()


def test_a_certificate_that_cannot_be_read_is_told_by_field_config_map_and_key(
    cluster: Cluster,
) -> None:
    cluster.config_maps["ca"] = {"pem": "-----BEGIN CERTIFICATE-----\nno\n"}
    reference = ConfigMapKey(name="ca", key="pem")
    tls = ServerTLS(certificate_from=CertificateSource(config_map_key_ref=reference))

    @simulated
    async def scenario() -> None:
        clients = ActionsClients(Inputs(cluster))
        with pytest.raises(InputError) as caught:
            await clients.for_runner(spec(github_server_tls=tls), "ci")
        assert caught.value.reason == "InvalidCertificates"
        assert str(caught.value).startswith(
            "githubServerTLS.certificateFrom.configMapKeyRef: the key 'pem' of config map ci/ca "
            "holds a certificate that cannot be read"
        )

    scenario()


def test_a_thousand_runners_cost_one_read(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        async with asyncio.TaskGroup() as group:
            for _ in range(1000):
                group.create_task(clients.for_runner(spec(), "ci"))
        assert cluster.reads == ["github"]

    scenario()


def test_a_rotated_secret_takes_effect_within_a_minute(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        before = await clients.for_runner(spec(), "ci")
        cluster.secrets["github"] = {"github_token": b"new"}
        assert await clients.for_runner(spec(), "ci") is before
        await asyncio.sleep(60)
        after = await clients.for_runner(spec(), "ci")
        assert after is not before
        assert isinstance(before, Client)
        assert not before.closed, "calls may be in flight"
        await clients.aclose()

    scenario()


def test_refused_credentials_are_read_again_at_once(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        before = await clients.for_runner(spec(), "ci")
        cluster.secrets["github"] = {"github_token": b"new"}
        clients.refused(spec(), "ci")
        assert await clients.for_runner(spec(), "ci") is not before

    scenario()


def test_credentials_refused_twice_rest_for_a_moment_and_are_looked_at_meanwhile(
    cluster: Cluster,
) -> None:
    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        for _ in range(2):
            await clients.for_runner(spec(), "ci")
            clients.refused(spec(), "ci")
        cluster.reads.clear()
        for _ in range(30):
            with pytest.raises(StillRefused):
                await clients.for_runner(spec(), "ci")
            await asyncio.sleep(0.1)
        assert len(cluster.reads) == 2, "at once, and once more in three seconds"
        cluster.secrets["github"] = {"github_token": b"new"}
        await asyncio.sleep(2)
        await clients.for_runner(spec(), "ci")

    scenario()


def test_credentials_that_rested_are_tried_again(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        for _ in range(2):
            await clients.for_runner(spec(), "ci")
            clients.refused(spec(), "ci")
        await asyncio.sleep(PAUSE)
        await clients.for_runner(spec(), "ci")

    scenario()


def test_a_client_that_is_not_used_any_more_is_closed_but_not_at_once(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        old = await clients.for_runner(spec(), "ci")
        assert isinstance(old, Client)
        await asyncio.sleep(LIFETIME + 1)
        await clients.for_runner(spec(), "ci")
        assert not old.closed
        await asyncio.sleep(LINGER + 1)
        await clients.for_runner(spec(), "ci")
        assert old.closed

    scenario()


def test_there_are_never_more_clients_than_the_bound(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "MAX_CLIENTS", 3)

    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        found = [
            await clients.for_runner(spec(github_config_url=f"{URL}/r{n}"), "ci") for n in range(9)
        ]
        assert len(clients._clients) == 3
        await asyncio.sleep(LINGER + 1)
        await clients.for_runner(spec(github_config_url=f"{URL}/r8"), "ci")
        closed = [isinstance(client, Client) and client.closed for client in found]
        assert closed == [True] * 6 + [False] * 3
        await clients.aclose()

    scenario()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"github_config_url": "https://github.com"}, InvalidConfigUrl, "expected https"),
        ({"github_config_secret": ""}, InputError, "githubConfigSecret is empty"),
        ({"github_config_secret": "nope"}, InputError, "secret ci/nope .* does not exist"),
        ({"github_config_secret": "empty"}, InvalidCredentials, "no credentials"),
        ({"github_config_secret": "binary"}, InputError, "github_token is not text"),
        ({"github_config_secret": "half"}, InvalidCredentials, "lacks github_app_installation_id"),
        ({"vault_config": Vault(type="paper")}, InputError, "vaultConfig.type is 'paper'"),
    ],
)
def test_what_cannot_be_used_is_said(
    cluster: Cluster, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    cluster.secrets |= {
        "empty": {},
        "binary": {"github_token": b"\xff"},
        "half": {"github_app_id": b"1", "github_app_private_key": b"k"},
    }

    @simulated
    async def scenario() -> None:
        with pytest.raises(error, match=words):
            await made(cluster).for_runner(spec(**changes), "ci")

    scenario()


def test_a_secret_that_is_not_there_is_looked_for_every_time(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        clients = made(cluster)
        with pytest.raises(InputError):
            await clients.for_runner(spec(github_config_secret="late"), "ci")
        cluster.secrets["late"] = {"github_token": b"x"}
        await clients.for_runner(spec(github_config_secret="late"), "ci")

    scenario()


def test_a_vault_is_asked_by_the_secrets_name_and_not_all_the_time(cluster: Cluster) -> None:
    asked: list[tuple[str, ProxySettings | None]] = []

    async def read(vault: Vault, name: str, proxy: ProxySettings | None) -> Mapping[str, str]:
        asked.append((name, proxy))
        return {"github_token": "from-the-vault"}

    @simulated
    async def scenario() -> None:
        clients = made(cluster, vaults=Vaults({"box": read}))
        vault = Vault(type="box", proxy=Proxy(https=ProxyServer(url="http://p:1")))
        for _ in range(5):
            await clients.for_runner(spec(vault_config=vault, github_config_secret="k"), "ci")
        assert asked == [("k", ProxySettings(https="http://p:1"))]
        clients.refused(spec(github_config_secret="k"), "ci")
        await clients.for_runner(spec(vault_config=vault, github_config_secret="k"), "ci")
        assert len(asked) == 2

    scenario()


def test_without_a_proxy_the_process_own_is_used(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        default = ProxySettings(https="http://p:1")
        clients = made(cluster, default_proxy=default)
        client = await clients.for_runner(spec(), "ci")
        assert isinstance(client, Client)
        assert client.options["proxy"] is default

    scenario()


def test_one_reader_that_is_cancelled_disturbs_nobody(cluster: Cluster) -> None:
    @simulated
    async def scenario() -> None:
        inputs = Inputs(cluster)
        key = NamespacedName("ci", "github")
        first = asyncio.create_task(inputs.find(Secret, key))
        second = asyncio.create_task(inputs.find(Secret, key))
        await asyncio.sleep(0.001)
        first.cancel()
        found = await second
        assert found is not None
        assert cluster.reads == ["github"]

    scenario()
