"""The light way to the API server from inside a pod."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from arc_controller.runtime.errors import ConfigurationError
from arc_controller.runtime.incluster import InClusterConnection, InClusterTransport
from arc_controller.testing.loop import simulated
from tests.unit.authority import Authority

ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    authority = Authority(tmp_path)
    authority.file.rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def test_the_server_is_where_the_environment_says(account: Path) -> None:
    assert InClusterConnection(ENVIRONMENT, account).url == "https://10.96.0.1:443"
    six = {**ENVIRONMENT, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert InClusterConnection(six, account).url == "https://[fd00::1]:443"


@pytest.mark.parametrize("missing", sorted(ENVIRONMENT))
def test_outside_of_a_pod_it_says_what_is_missing(account: Path, missing: str) -> None:
    environment = {name: value for name, value in ENVIRONMENT.items() if name != missing}
    with pytest.raises(ConfigurationError, match="not in a pod: KUBERNETES_SERVICE_HOST and"):
        InClusterConnection(environment, account)


@pytest.mark.parametrize("file", ["token", "ca.crt"])
@pytest.mark.parametrize("content", [None, ""])
def test_a_service_account_that_is_not_there_is_named(
    account: Path, file: str, content: str | None
) -> None:
    (account / file).unlink()
    if content is not None:
        (account / file).write_text(content)
    with pytest.raises(ConfigurationError, match=r"the service account in .* cannot be read"):
        InClusterConnection(ENVIRONMENT, account)


def test_the_transport_outside_of_a_pod_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="not in a pod"):
        InClusterTransport()


def test_the_token_is_read_again_every_minute(account: Path) -> None:
    seen: list[str] = []

    @simulated
    async def play() -> None:
        connection = InClusterConnection(ENVIRONMENT, account)
        seen.append(await connection.authorization())
        (account / "token").write_text("second")
        for _ in range(2):
            await asyncio.sleep(31)
            seen.append(await connection.authorization())
        (account / "token").unlink()  # The kubelet is in the middle of it.
        await asyncio.sleep(61)
        seen.append(await connection.authorization())
        assert not await connection.renew()

    play()
    assert seen == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]


async def test_a_refused_token_is_read_again_at_once(account: Path) -> None:
    connection = InClusterConnection(ENVIRONMENT, account)
    assert not await connection.renew()
    (account / "token").write_text("second")
    assert await connection.renew()
    assert await connection.authorization() == "Bearer second"


async def test_a_proxy_of_the_environment_is_used_unless_it_says_not_to(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert InClusterConnection(ENVIRONMENT, account).options == {"proxy": "http://proxy:3128"}
    monkeypatch.setenv("NO_PROXY", "10.96.0.1")
    assert InClusterConnection(ENVIRONMENT, account).options == {}


async def test_a_token_file_that_is_broken_for_a_moment_leaves_the_old_token(account: Path) -> None:
    connection = InClusterConnection(ENVIRONMENT, account)
    connection._read_at = float("-inf")
    (account / "token").write_bytes(b"\xff\xfe")
    assert await connection.authorization() == "Bearer first"
    assert not await connection.renew()


def test_a_token_file_that_is_no_text_is_a_configuration_error(account: Path) -> None:
    (account / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="the service account in"):
        InClusterConnection(ENVIRONMENT, account)
