"""Azure Key Vault, through the real SDK, against a server that answers as the vault does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from arc_controller.actions import (
    AzureKeyVault,
    PersonalAccessToken,
    ProxySettings,
    VaultError,
    credentials_from_mapping,
    read_azure_key_vault,
)
from arc_controller.testing.actions import FakeProxy
from arc_controller.testing.actions.certificates import LocalAuthority
from arc_controller.testing.actions.vault import VAULT_URL, FakeAzureVault

TENANT = "11111111-2222-3333-4444-555555555555"


def certificate() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return LocalAuthority().issue("runner-controller", key=key)


@pytest.fixture(scope="module")
def ours() -> str:
    return certificate()


@pytest.fixture
async def vault(ours: str) -> AsyncIterator[FakeAzureVault]:
    fake = FakeAzureVault(
        tenant_id=TENANT,
        client_id="client",
        certificate=ours,
        secrets={"creds": json.dumps({"github_token": "ghp_from_vault"})},
    )
    async with fake:
        yield fake


@pytest.fixture
def config(ours: str, tmp_path: Path) -> AzureKeyVault:
    path = tmp_path / "certificate.pem"
    path.write_text(ours)
    return AzureKeyVault(VAULT_URL, TENANT, "client", str(path))


async def read(vault: FakeAzureVault, config: AzureKeyVault, name: str) -> Mapping[str, str]:
    return await read_azure_key_vault(config, name, session=vault.session)


async def sentence(vault: FakeAzureVault, config: AzureKeyVault, name: str = "creds") -> str:
    with pytest.raises(VaultError) as caught:
        await read(vault, config, name)
    text = str(caught.value)
    assert "\n" not in text
    return text


async def test_credentials_are_read_with_the_certificate(
    vault: FakeAzureVault, config: AzureKeyVault
) -> None:
    content = await read(vault, config, "creds")
    assert credentials_from_mapping(content) == PersonalAccessToken("ghp_from_vault")
    assert vault.calls == {"challenge": 1, "token": 1, "secret": 1}


async def test_numbers_in_the_secret_are_read_as_text(
    vault: FakeAzureVault, config: AzureKeyVault
) -> None:
    vault.secrets["app"] = json.dumps({"github_app_id": 7, "github_token": None})
    assert await read(vault, config, "app") == {"github_app_id": "7"}


async def test_a_secret_that_is_not_there_is_told_by_name(
    vault: FakeAzureVault, config: AzureKeyVault
) -> None:
    assert await sentence(vault, config, "nope") == (
        "secret 'nope' in https://runners.vault.azure.net does not exist"
    )


@pytest.mark.parametrize("content", ["ghp_plain_planted", "[]", ""])
async def test_a_secret_that_is_no_json_object_is_told_without_its_content(
    vault: FakeAzureVault, config: AzureKeyVault, content: str
) -> None:
    vault.secrets["creds"] = content
    text = await sentence(vault, config)
    assert "is not a JSON object: expected github_token" in text
    assert "planted" not in text


async def test_a_certificate_that_is_not_registered_is_told(
    vault: FakeAzureVault, config: AzureKeyVault
) -> None:
    vault.certificate = certificate()
    text = await sentence(vault, config)
    assert "Azure does not accept client client of tenant 11111111" in text


async def test_a_missing_permission_is_told(vault: FakeAzureVault, config: AzureKeyVault) -> None:
    vault.forbidden = True
    text = await sentence(vault, config)
    assert "the vault answered with status 403" in text
    assert "secrets/get" in text


@pytest.mark.parametrize(
    ("content", "words"), [("hello", "cannot be used"), (None, "cannot be read: No such file")]
)
async def test_a_certificate_file_that_is_missing_or_wrong_is_told_by_path(
    vault: FakeAzureVault,
    config: AzureKeyVault,
    replace_file: Callable[[str | None], None],
    content: str | None,
    words: str,
) -> None:
    replace_file(content)
    assert f"certificate_path {config.certificate_path!r} {words}" in await sentence(vault, config)


@pytest.fixture
def replace_file(config: AzureKeyVault) -> Callable[[str | None], None]:
    def replace(content: str | None) -> None:
        path = Path(config.certificate_path)
        if content is None:
            path.unlink()
        else:
            path.write_text(content)

    return replace


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("", "t", "c", "p"), "lacks url"),
        (("https://v.test", "", "", "p"), "lacks tenant_id, client_id"),
        (("http://v.test", "t", "c", "p"), "expected https://NAME.vault.azure.net"),
    ],
)
def test_an_incomplete_configuration_is_told_by_field(
    values: tuple[str, str, str, str], words: str
) -> None:
    with pytest.raises(VaultError, match=words):
        AzureKeyVault(*values)


async def test_the_vault_and_its_authority_are_reached_through_the_proxy(
    vault: FakeAzureVault, config: AzureKeyVault
) -> None:
    hosts = {"runners.vault.azure.net": vault.port, "login.microsoftonline.com": vault.port}
    async with FakeProxy(hosts, user="me", password="pass word") as proxy:
        settings = ProxySettings(https=f"http://me:pass%20word@127.0.0.1:{proxy.port}")
        content = await read_azure_key_vault(
            config, "creds", proxy=settings, root_cas=(vault.root_ca,)
        )
    assert content == {"github_token": "ghp_from_vault"}
    assert {request.split()[1] for request in proxy.requests} == {
        "runners.vault.azure.net:443",
        "login.microsoftonline.com:443",
    }
