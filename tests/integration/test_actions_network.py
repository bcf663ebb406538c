"""Proxies and certificates: through a real proxy, to a real TLS server, by names of our own."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator

import pytest

from arc_controller.actions import (
    ActionsClient,
    ActionsError,
    ClientClosed,
    ConnectionFailed,
    InvalidCertificates,
    PersonalAccessToken,
    ProxySettings,
    RequestNotSent,
    RetryPolicy,
    is_transient,
)
from arc_controller.testing.actions import FakeActionsService, FakeProxy, HttpActionsService
from arc_controller.testing.actions.certificates import LocalAuthority

ONCE = RetryPolicy(retries=0)
PAT = PersonalAccessToken("ghp_example_token")
NAME = "ghes.test"
PASSWORD = "hunter/2:ä"
ENCODED = "hunter%2F2%3A%C3%A4"


@pytest.fixture(scope="module")
def authority() -> LocalAuthority:
    return LocalAuthority()


@pytest.fixture
async def plain() -> AsyncIterator[HttpActionsService]:
    async with HttpActionsService(FakeActionsService()) as server:
        yield server


@pytest.fixture
async def secure(authority: LocalAuthority) -> AsyncIterator[HttpActionsService]:
    context = authority.server_context("127.0.0.1", NAME)
    async with HttpActionsService(FakeActionsService(), ssl_context=context) as server:
        yield server


async def use(client: ActionsClient) -> None:
    async with client:
        assert await client.get_runner_scale_set("set", 1) is None
        assert (await client.get_runner_group("Default")).id == 1


async def error_of(client: ActionsClient) -> ActionsError:
    with pytest.raises(ActionsError) as caught:
        await use(client)
    return caught.value


# Certificates


async def test_an_extra_ca_makes_a_server_trusted(
    secure: HttpActionsService, authority: LocalAuthority
) -> None:
    other = LocalAuthority("another authority")
    await use(
        ActionsClient(secure.config_url(), PAT, retries=ONCE, root_cas=(other.pem, authority.pem))
    )
    await use(
        ActionsClient(secure.config_url(), PAT, retries=ONCE, root_cas=(other.pem + authority.pem,))
    )


async def test_a_server_of_an_unknown_ca_is_not_trusted(secure: HttpActionsService) -> None:
    error = await error_of(ActionsClient(secure.config_url(), PAT, retries=ONCE))
    assert isinstance(error, ConnectionFailed)
    assert "the certificate of 127.0.0.1 is not accepted" in str(error)


@pytest.mark.parametrize(
    "pem", ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_a_ca_that_cannot_be_read_is_told_at_once(
    authority: LocalAuthority, pem: str
) -> None:
    with pytest.raises(InvalidCertificates, match="CA certificate 2 of 2 cannot be read"):
        ActionsClient("https://github.com/acme", PAT, root_cas=(authority.pem, pem))


@pytest.mark.parametrize("token", ["ghp_planted\nx", "ghp_planted\x00x"])
async def test_a_token_that_http_cannot_carry_is_an_error_without_the_token(
    plain: HttpActionsService, token: str
) -> None:
    error = await error_of(
        ActionsClient(plain.config_url(), PersonalAccessToken(token), retries=ONCE)
    )
    assert isinstance(error, RequestNotSent)
    assert not is_transient(error)
    assert "holds a character that HTTP does not allow" in str(error)
    assert "planted" not in "".join(traceback.format_exception(error))


# Proxies


async def test_plain_http_goes_through_the_http_proxy_with_credentials(
    plain: HttpActionsService,
) -> None:
    async with FakeProxy({NAME: plain.port}, user="me", password=PASSWORD) as proxy:
        settings = ProxySettings(http=f"http://me:{ENCODED}@127.0.0.1:{proxy.port}")
        await use(ActionsClient(f"http://{NAME}/acme", PAT, retries=ONCE, proxy=settings))
        assert f"POST http://{NAME}/api/v3/actions/runner-registration" in proxy.requests
        assert proxy.refused == 0
    assert len(proxy.requests) == sum(plain.service.calls.values())


async def test_https_is_tunnelled_through_the_https_proxy_with_credentials(
    secure: HttpActionsService, authority: LocalAuthority
) -> None:
    async with FakeProxy({NAME: secure.port}, user="me", password=PASSWORD) as proxy:
        settings = ProxySettings(
            http="http://nowhere.test:1", https=f"http://me:{ENCODED}@127.0.0.1:{proxy.port}"
        )
        await use(
            ActionsClient(
                f"https://{NAME}/acme",
                PAT,
                retries=ONCE,
                proxy=settings,
                root_cas=(authority.pem,),
            )
        )
        assert proxy.requests[0] == f"CONNECT {NAME}:443"
        assert {request.split()[0] for request in proxy.requests} == {"CONNECT"}


async def test_a_proxy_that_wants_other_credentials_is_told_without_the_password(
    plain: HttpActionsService, secure: HttpActionsService
) -> None:
    hosts = {NAME: secure.port, "plain.test": plain.port}
    async with FakeProxy(hosts, user="me", password=PASSWORD) as proxy:
        url = f"http://me:wrong-password@127.0.0.1:{proxy.port}"
        settings = ProxySettings(http=url, https=url)
        for target in (f"https://{NAME}/acme", "http://plain.test/acme"):
            error = await error_of(ActionsClient(target, PAT, retries=ONCE, proxy=settings))
            assert "407" in str(error)
            assert "wrong-password" not in f"{error} {error!r}"
            assert error.__cause__ is None
        assert proxy.refused == 2


async def test_a_proxy_that_is_not_there_is_told_with_its_address() -> None:
    async with FakeProxy({}) as proxy:
        port = proxy.port
    settings = ProxySettings(https=f"http://me:secret-password@127.0.0.1:{port}")
    error = await error_of(
        ActionsClient("https://ghes.test/acme", PAT, retries=ONCE, proxy=settings)
    )
    assert isinstance(error, ConnectionFailed)
    assert f"proxy 127.0.0.1:{port} cannot be reached" in str(error)
    assert "secret-password" not in str(error)


async def test_a_proxy_that_does_not_know_the_host_is_told(plain: HttpActionsService) -> None:
    async with FakeProxy({}) as proxy:
        settings = ProxySettings(http=proxy.url, https=proxy.url)
        error = await error_of(
            ActionsClient("https://unknown.test/acme", PAT, retries=ONCE, proxy=settings)
        )
    assert "the proxy refused the connection with status 502" in str(error)


async def test_no_proxy_goes_around_the_proxy(plain: HttpActionsService) -> None:
    async with FakeProxy({}) as proxy:
        settings = ProxySettings(http=proxy.url, no_proxy=("10.0.0.0/8",))
        # 127.0.0.1 never goes through a proxy.
        await use(ActionsClient(plain.config_url(), PAT, retries=ONCE, proxy=settings))
        assert (proxy.requests, proxy.refused) == ([], 0)


async def test_the_environment_is_left_alone(
    plain: HttpActionsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    await use(ActionsClient(plain.config_url(), PAT, retries=ONCE))


async def test_a_closed_client_says_so(plain: HttpActionsService) -> None:
    client = ActionsClient(plain.config_url(), PAT, retries=ONCE)
    await use(client)
    await client.aclose()
    with pytest.raises(ClientClosed):
        await client.get_runner(1)
