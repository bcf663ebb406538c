"""Proxies and certificates: from references to values."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.api.core import ConfigMap, Secret
from arc_controller.api.v1alpha1 import (
    CertificateSource,
    ConfigMapKey,
    Proxy,
    ProxyServer,
    ServerTLS,
)
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.proxy import proxy_environment, proxy_settings, proxy_variables
from arc_controller.controllers.tls import server_root_ca
from arc_controller.runtime.objects import K, KubeObject, NamespacedName
from arc_controller.testing.loop import run_simulated


class Objects:
    """What there is, by name, in the namespace ``ci``."""

    def __init__(self, **objects: KubeObject) -> None:
        self._objects = objects

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        assert key.namespace == "ci"
        found = self._objects.get(key.name)
        return found if isinstance(found, kind) else None


def with_password(url: str) -> Proxy:
    return Proxy(http=ProxyServer(url=url, credential_secret_ref="pw"))


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_password_arrives_as_it_is(user: str, password: str) -> None:
    user, password = user.strip(), password.strip()
    secret = Secret(data={"username": user.encode(), "password": password.encode()})

    async def scenario() -> None:
        environment = await proxy_environment(
            Objects(pw=secret), with_password("http://proxy:3128"), "ci"
        )
        parts = urlsplit(environment["http_proxy"])
        assert unquote(parts.username or "") == user
        assert unquote(parts.password or "") == password
        assert (parts.hostname, parts.port) == ("proxy", 3128)

    run_simulated(scenario())


async def test_only_what_is_configured_appears() -> None:
    assert await proxy_environment(Objects(), Proxy(), "ci") == {}
    proxy = Proxy(https=ProxyServer(url="http://p:1"), no_proxy=["a", "b"])
    assert proxy_variables(proxy) == ["https_proxy", "no_proxy"]
    assert await proxy_environment(Objects(), proxy, "ci") == {
        "https_proxy": "http://p:1",
        "no_proxy": "a,b",
    }
    assert proxy_variables(None) == []


async def test_credentials_replace_those_in_the_url_and_a_scheme_is_filled_in() -> None:
    secret = Secret(data={"username": b"u", "password": b"p"})
    for url in ("proxy:3128", "http://x:y@proxy:3128"):
        environment = await proxy_environment(Objects(pw=secret), with_password(url), "ci")
        assert environment["http_proxy"] == "http://u:p@proxy:3128"


@pytest.mark.parametrize(
    ("data", "url", "reason", "words"),
    [
        (None, "http://p:1", "ProxySecretNotFound", "there is no secret ci/pw"),
        ({}, "http://p:1", "InvalidProxySecret", "lacks username and password"),
        ({"username": b"u"}, "http://p:1", "InvalidProxySecret", "lacks password"),
        ({"username": b"u", "password": b"p"}, "http://", "InvalidProxy", "has no host"),
    ],
)
async def test_what_is_wrong_is_said_with_field_and_object(
    data: dict[str, bytes] | None, url: str, reason: str, words: str
) -> None:
    objects = Objects() if data is None else Objects(pw=Secret(data=data))
    with pytest.raises(InputError, match=words) as caught:
        await proxy_environment(objects, with_password(url), "ci")
    assert caught.value.reason == reason
    assert "proxy.http" in str(caught.value)


def test_settings_for_our_own_calls_are_the_same() -> None:
    settings = proxy_settings({"https_proxy": "http://u:p@proxy:1", "no_proxy": "a,b"})
    assert settings is not None
    assert settings.for_url("https://github.com") == "http://u:p@proxy:1"
    assert settings.for_url("https://a") is None
    assert proxy_settings({}) is None


def _tls(key: str = "ca.pem", optional: bool | None = None) -> ServerTLS:
    reference = ConfigMapKey(name="ca", key=key, optional=optional)
    return ServerTLS(certificate_from=CertificateSource(config_map_key_ref=reference))


async def test_a_root_ca_is_read_from_its_config_map() -> None:
    objects = Objects(ca=ConfigMap(data={"ca.pem": "PEM"}))
    assert await server_root_ca(objects, _tls(), "ci") == "PEM"
    assert await server_root_ca(objects, None, "ci") == ""


@pytest.mark.parametrize("tls", [ServerTLS(), ServerTLS(certificate_from=CertificateSource())])
async def test_server_tls_without_a_config_map_is_said_to_be_empty(tls: ServerTLS) -> None:
    with pytest.raises(InputError, match=r"configMapKeyRef is empty: name a config map and its"):
        await server_root_ca(Objects(), tls, "ci")


async def test_a_missing_root_ca_is_an_error_unless_it_is_optional() -> None:
    objects = Objects(ca=ConfigMap(data={"other": "PEM"}))
    with pytest.raises(InputError, match=r"ci/ca has no key 'ca.pem'; it has other"):
        await server_root_ca(objects, _tls(), "ci")
    with pytest.raises(InputError, match="there is no config map ci/ca"):
        await server_root_ca(Objects(), _tls(), "ci")
    for each in (objects, Objects()):
        assert await server_root_ca(each, _tls(optional=True), "ci") == ""
