"""Config URLs: what they name and where its REST API is."""

from __future__ import annotations

import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.actions import ConfigKind, InvalidConfigUrl, parse_config_url
from arc_controller.actions.config_url import ConfigUrl

HOSTED: dict[str, str] = {}


def parse(url: str) -> ConfigUrl:
    return parse_config_url(url, environ=HOSTED)


@pytest.mark.parametrize(
    ("url", "kind", "names", "rest_url"),
    [
        ("https://github.com/acme", "organization", ("", "acme", ""), "https://api.github.com"),
        ("https://github.com/acme/", "organization", ("", "acme", ""), "https://api.github.com"),
        (
            "https://github.com/acme/app",
            "repository",
            ("", "acme", "app"),
            "https://api.github.com",
        ),
        (
            "https://github.com/enterprises/big",
            "enterprise",
            ("big", "", ""),
            "https://api.github.com",
        ),
        ("https://www.github.com/acme", "organization", ("", "acme", ""), "https://api.github.com"),
        (
            "http://github.localhost/acme",
            "organization",
            ("", "acme", ""),
            "http://api.github.localhost",
        ),
        (
            "https://big.ghe.com/acme/app",
            "repository",
            ("", "acme", "app"),
            "https://api.big.ghe.com",
        ),
        (
            "https://ghes.corp.example:8443/acme",
            "organization",
            ("", "acme", ""),
            "https://ghes.corp.example:8443/api/v3",
        ),
        (
            "https://ghe.com/enterprises/big/",
            "enterprise",
            ("big", "", ""),
            "https://ghe.com/api/v3",
        ),
        (
            "http://127.0.0.1:8080/acme/app",
            "repository",
            ("", "acme", "app"),
            "http://127.0.0.1:8080/api/v3",
        ),
        ("http://[::1]:8080/acme", "organization", ("", "acme", ""), "http://[::1]:8080/api/v3"),
    ],
)
def test_a_config_url_names_one_thing_and_its_rest_api(
    url: str, kind: str, names: tuple[str, str, str], rest_url: str
) -> None:
    config = parse(url)
    assert config.kind == kind
    assert (config.enterprise, config.organization, config.repository) == names
    assert config.rest_url == rest_url
    assert config.url == url.rstrip("/")
    assert config.is_hosted is not rest_url.endswith("/api/v3")


@pytest.mark.parametrize(
    ("url", "rest_path"),
    [
        ("https://github.com/acme", "/orgs/acme"),
        ("https://github.com/acme/app", "/repos/acme/app"),
        ("https://github.com/enterprises/big", "/enterprises/big"),
    ],
)
def test_the_rest_path_depends_on_the_kind(url: str, rest_path: str) -> None:
    assert parse(url).rest_path == rest_path


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "begin with https"),
        ("github.com/acme", "begin with https"),
        ("ftp://github.com/acme", "begin with https"),
        ("https:///acme", "no host"),
        ("http://\x00/a", "control character"),
        ("https://git\nhub.com/acme", "control character"),
        ("https://github.com", "0 parts"),
        ("https://github.com/", "0 parts"),
        ("https://github.com/a/b/c", "3 parts"),
        ("https://github.com/enterprises/a/b", "3 parts"),
        ("https://github.com/enterprises", "name of the enterprise is missing"),
        ("https://github.com/acme//app", "empty"),
        ("https://github.com/acme/..", "unusable"),
        ("https://github.com/acme?x=1", "query"),
        ("https://github.com/acme#x", "query or a fragment"),
        ("https://github.com:port/acme", "cannot be used"),
        ("https://user:hunter2@github.com/acme", "credentials"),
    ],
)
def test_anything_else_is_one_clear_sentence(url: str, why: str) -> None:
    with pytest.raises(InvalidConfigUrl) as caught:
        parse(url)
    assert why in str(caught.value)
    assert "https://HOST/ORGANIZATION" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_force_ghes_makes_github_com_a_server_of_ones_own() -> None:
    config = parse_config_url(
        "https://github.com/acme", environ={"GITHUB_ACTIONS_FORCE_GHES": "true"}
    )
    assert not config.is_hosted
    assert config.rest_url == "https://github.com/api/v3"


NAMES = st.text(string.ascii_letters + string.digits + "-_.äé +%&", min_size=1, max_size=20).filter(
    lambda name: name not in {".", "..", "enterprises"} and name.strip() == name
)
HOSTS = st.sampled_from(["github.com", "big.ghe.com", "ghes.example", "10.0.0.1:8443"])


@given(HOSTS, NAMES, NAMES, st.sampled_from(["", "/"]))
def test_names_survive_whatever_is_in_them(host: str, owner: str, name: str, end: str) -> None:
    config = parse(f"https://{host}/{quote(owner, safe='')}/{quote(name, safe='')}{end}")
    assert (config.kind, config.organization, config.repository) == (
        ConfigKind.REPOSITORY,
        owner,
        name,
    )
    assert parse(config.url) == config


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    for url in (text, f"https://{text}", f"https://github.com/{text}"):
        try:
            config = parse(url)
        except InvalidConfigUrl:
            continue
        assert parse(config.url) == config
