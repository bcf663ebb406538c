"""Which targets go through which proxy."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.actions import InvalidProxy, ProxySettings
from arc_controller.actions.proxy import is_excluded

BOTH = ProxySettings("http://plain:3128", "http://secure:3129")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://api.github.com/x", "http://plain:3128"),
        ("https://api.github.com/x", "http://secure:3129"),
        ("https://localhost/x", None),
        ("http://127.0.0.1:8080/x", None),
        ("http://127.9.9.9/x", None),
        ("http://[::1]:8080/x", None),
    ],
)
def test_the_scheme_of_the_target_chooses_the_proxy(url: str, proxy: str | None) -> None:
    assert BOTH.for_url(url) == proxy


def test_without_a_proxy_for_the_scheme_the_connection_is_direct() -> None:
    assert ProxySettings(http="http://plain:3128").for_url("https://api.github.com") is None
    assert ProxySettings().for_url("http://api.github.com") is None


@pytest.mark.parametrize(
    ("entry", "host", "port", "excluded"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "api.example.com", 443, True),
        ("example.com", "badexample.com", 443, False),
        ("example.com", "example.com.evil.org", 443, False),
        ("Example.COM", "API.example.com", 443, True),
        ("example.com.", "api.example.com", 443, True),
        (".example.com", "example.com", 443, False),
        (".example.com", "api.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "a.b.example.com", 443, True),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "api.example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        (".example.com:8443", "api.example.com", 443, False),
        ("*", "anything.at.all", 1, True),
        ("10.0.0.1", "10.0.0.1", 443, True),
        ("10.0.0.1", "10.0.0.2", 443, False),
        ("10.0.0.1:8443", "10.0.0.1", 8443, True),
        ("10.0.0.1:8443", "10.0.0.1", 443, False),
        ("10.0.0.0/8", "10.200.3.4", 443, True),
        ("10.0.0.0/8", "11.0.0.1", 443, False),
        ("10.1.2.3/8", "10.200.3.4", 443, True),
        ("10.0.0.0/8", "ten.example.com", 443, False),
        ("10.0.0.0/99", "10.0.0.1", 443, False),
        ("fd00::/8", "fd12::1", 443, True),
        ("fd00::/8", "fe80::1", 443, False),
        ("fd12::1", "fd12:0:0::1", 443, True),
        ("[fd12::1]:8443", "fd12::1", 8443, True),
        ("[fd12::1]:8443", "fd12::1", 443, False),
        ("[fd12::1]", "fd12::1", 443, True),
        ("0.0.1", "10.0.0.1", 443, False),
        ("", "example.com", 443, False),
    ],
)
def test_no_proxy_understands_domains_blocks_and_ports(
    entry: str, host: str, port: int, excluded: bool
) -> None:
    assert is_excluded(host, port, (entry,)) is excluded
    url_host = f"[{host}]" if ":" in host else host
    settings = ProxySettings(None, "http://p:1", ("other.test", f" {entry} "))
    assert (settings.for_url(f"https://{url_host}:{port}/x") is None) is excluded


def test_the_default_port_of_the_scheme_counts() -> None:
    settings = ProxySettings("http://p:1", "http://p:1", ("example.com:443",))
    assert settings.for_url("https://example.com/x") is None
    assert settings.for_url("http://example.com/x") == "http://p:1"


def test_a_proxy_without_scheme_is_an_http_proxy() -> None:
    assert ProxySettings(https="user:pw@p:3128/").https == "http://user:pw@p:3128"


@pytest.mark.parametrize("url", ["socks5://p:1", "http://", "http://p:port", "http://p:99999"])
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    planted = url.replace("://", "://user:hunter2@")
    with pytest.raises(
        InvalidProxy, match=r"https proxy .* cannot be used: expected http"
    ) as error:
        ProxySettings(https=planted)
    assert "hunter2" not in str(error.value)


def test_the_environment_is_read_in_lower_case_first() -> None:
    settings = ProxySettings.from_environment(
        {
            "HTTPS_PROXY": "http://upper:1",
            "https_proxy": "http://lower:1",
            "HTTP_PROXY": "http://plain:1",
            "no_proxy": "a.test, b.test,,10.0.0.0/8",
        }
    )
    assert settings == ProxySettings(
        "http://plain:1", "http://lower:1", ("a.test", "b.test", "10.0.0.0/8")
    )


def test_an_empty_environment_means_no_proxy() -> None:
    assert ProxySettings.from_environment({}) == ProxySettings()


def test_proxy_passwords_are_not_shown() -> None:
    settings = ProxySettings("http://user:hunter2@p:1", "https://user:hunter%322@p:1")
    assert "hunter" not in repr(settings)
    assert "user" not in repr(settings)


LABEL = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
DOMAIN = (
    st.lists(LABEL, min_size=2, max_size=4)
    .map(".".join)
    .filter(lambda name: not name.rpartition(".")[2].isdigit())
)


@given(DOMAIN, st.lists(LABEL, min_size=1, max_size=3), st.integers(1, 65535))
def test_a_domain_excludes_itself_and_all_below_it_and_nothing_beside_it(
    domain: str, below: list[str], port: int
) -> None:
    child = ".".join([*below, domain])
    assert is_excluded(domain, port, (domain,))
    assert is_excluded(child, port, (domain,))
    assert is_excluded(child, port, (f"{domain}:{port}",))
    assert not is_excluded(f"x{domain}", port, (domain,))
    assert not is_excluded(domain, port, (child,))


@given(st.ip_addresses(v=4), st.integers(0, 32))
def test_a_block_excludes_exactly_the_addresses_in_it(address: object, length: int) -> None:
    if str(address).startswith("127."):
        return
    block = f"{address}/{length}"
    assert is_excluded(str(address), 443, (block,))
    flipped = list(map(int, str(address).split(".")))
    flipped[0] ^= 128  # differs in the first bit
    other = ".".join(map(str, flipped))
    if not other.startswith("127."):
        assert is_excluded(other, 443, (block,)) is (length == 0)


@given(st.text(max_size=30), st.text(max_size=30), st.integers(0, 65535))
def test_no_entry_breaks_the_matching(entry: str, host: str, port: int) -> None:
    assert is_excluded(host, port, (entry,)) in {True, False}
