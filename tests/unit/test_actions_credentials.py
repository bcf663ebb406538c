"""Credentials: which keys make them, and what is said when they do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from arc_controller.actions import (
    GitHubApp,
    InvalidCredentials,
    PersonalAccessToken,
    credentials_from_mapping,
)
from arc_controller.actions.credentials import app_token

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


@cache
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(form: PrivateFormat = PrivateFormat.TraditionalOpenSSL) -> str:
    return key().private_bytes(Encoding.PEM, form, NoEncryption()).decode()


def app_keys(private_key: str) -> dict[str, str]:
    return {
        "github_app_id": "7",
        "github_app_installation_id": "42",
        "github_app_private_key": private_key,
    }


def test_a_token_makes_personal_access_token_credentials() -> None:
    assert credentials_from_mapping({"github_token": b"ghp_abc\n"}) == PersonalAccessToken(
        "ghp_abc"
    )


@pytest.mark.parametrize("form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
def test_an_app_key_may_be_pkcs1_or_pkcs8(form: PrivateFormat) -> None:
    credentials = credentials_from_mapping(app_keys(pem(form)))
    assert isinstance(credentials, GitHubApp)
    assert (credentials.app_id, credentials.installation_id) == ("7", 42)
    public = key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = jwt.decode(
        app_token(credentials, NOW), public, algorithms=["RS256"], options={"verify_exp": False}
    )
    assert claims["iss"] == "7"
    assert claims["iat"] == int((NOW - timedelta(seconds=60)).timestamp())
    assert claims["exp"] - claims["iat"] == 540


def test_an_app_key_on_one_line_with_escaped_line_breaks_is_understood() -> None:
    one_line = pem().replace("\n", "\\n")
    credentials = credentials_from_mapping(app_keys(one_line))
    assert isinstance(credentials, GitHubApp)
    assert app_token(credentials, NOW).count(".") == 2


@pytest.mark.parametrize("form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
@pytest.mark.parametrize("line_break", ["\r\n", "\r", "\\r\\n", "\\n", "\n    "])
def test_an_app_key_with_the_line_breaks_of_other_systems_is_understood(
    form: PrivateFormat, line_break: str
) -> None:
    text = f"\ufeff{pem(form)}\n".replace("\n", line_break)
    credentials = credentials_from_mapping(app_keys(text))
    assert isinstance(credentials, GitHubApp)
    assert app_token(credentials, NOW).count(".") == 2


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {},
            "secret team/creds has no credentials: it needs either github_token or "
            "github_app_id, github_app_installation_id and github_app_private_key",
        ),
        ({"github_token": "  "}, "has no credentials"),
        (
            {"github_token": "t", "github_app_id": "7"},
            "has both github_token and github_app_id: keep either",
        ),
        (
            {"github_app_id": "7"},
            "has github_app_id but lacks github_app_installation_id and github_app_private_key",
        ),
        (
            {"github_app_id": "7", "github_app_installation_id": "1"},
            "has github_app_id and github_app_installation_id but lacks github_app_private_key",
        ),
        (
            {
                "github_app_id": "7",
                "github_app_installation_id": "x1",
                "github_app_private_key": "k",
            },
            "github_app_installation_id 'x1', which is not a number",
        ),
        ({"github_token": b"\xff\xfe"}, "has a github_token that is not text"),
    ],
)
def test_incomplete_or_contradictory_credentials_are_told_by_key(
    keys: dict[str, str | bytes], sentence: str
) -> None:
    with pytest.raises(InvalidCredentials) as caught:
        credentials_from_mapping(keys, "secret team/creds")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("secret team/creds ")


@pytest.mark.parametrize(
    ("token", "what"),
    [
        ("ghp_plan\nted", "a line break as character 9 of 12"),
        ("ghp_plan ted", "white space as character 9 of 12"),
        ("ghp_plan\x00ted", "a control character as character 9 of 12"),
        ("ghp_plan\u2026ted", "something that is not ASCII as character 9 of 12"),
    ],
)
def test_a_character_that_no_token_has_is_told_by_its_place_and_not_its_value(
    token: str, what: str
) -> None:
    keys = app_keys(pem()) | {"github_app_id": token}
    for key, mapping in (("github_token", {"github_token": token}), ("github_app_id", keys)):
        with pytest.raises(InvalidCredentials) as caught:
            credentials_from_mapping(mapping, "secret team/creds")
        text = str(caught.value)
        assert text.startswith(f"secret team/creds has a {key} with {what}: expected ")
        assert "plan" not in text
        assert text.isprintable()


def test_another_keys_secret_in_the_place_of_a_number_is_not_shown() -> None:
    for wrong in (pem(), "ghp_" + "x" * 36, "9" * 5000):
        keys = app_keys(pem()) | {"github_app_installation_id": wrong}
        with pytest.raises(InvalidCredentials) as caught:
            credentials_from_mapping(keys)
        assert "github_app_installation_id with a text, which is not a number" in str(caught.value)
        assert wrong[:20] not in str(caught.value)


def _encrypted() -> str:
    return (
        key()
        .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2"))
        .decode()
    )


def _elliptic() -> str:
    other = ec.generate_private_key(ec.SECP256R1())
    return other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("private_key", "what"),
    [
        ("hello", "not a PEM private key"),
        ("-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "not a PEM private key"),
        (pem()[:400] + "\n-----END RSA PRIVATE KEY-----\n", "damaged"),
        (pem().replace("M", "!"), "damaged"),
        (_encrypted(), "encrypted"),
        (_elliptic(), "not an RSA key"),
    ],
)
def test_a_wrong_key_gives_one_clear_sentence(private_key: str, what: str) -> None:
    with pytest.raises(InvalidCredentials) as caught:
        credentials_from_mapping(app_keys(private_key), "secret team/creds")
    text = str(caught.value)
    assert text.startswith("secret team/creds has a github_app_private_key that is ")
    assert what in text
    assert ".pem file" in text
    assert "\n" not in text
    assert (private_key[40:60] or private_key) not in text


def test_credentials_do_not_show_their_secrets() -> None:
    shown = repr(PersonalAccessToken("ghp_planted")) + repr(GitHubApp("7", 42, "key-planted"))
    assert "planted" not in shown
    assert "[redacted]" in shown
