"""Who we are to GitHub: a personal access token or an installation of a GitHub App."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from .errors import InvalidCredentials
from .http import REDACTED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

TOKEN_KEY = "github_token"
APP_KEYS = ("github_app_id", "github_app_installation_id", "github_app_private_key")

_ISSUED_AGO = timedelta(seconds=60)  # a clock that runs ahead of GitHub's must not matter
_LIFETIME = timedelta(minutes=9)  # GitHub refuses more than ten
_ID_DIGITS = 19  # of a 64 bit number


@dataclass(frozen=True, slots=True)
class PersonalAccessToken:
    """A personal access token, classic or fine-grained."""

    token: str

    def __repr__(self) -> str:
        return f"PersonalAccessToken({REDACTED})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return (self.token,)


@dataclass(frozen=True, slots=True)
class GitHubApp:
    """An installation of a GitHub App. ``app_id`` may be the app's client id; ``private_key`` is a
    PEM text, PKCS#1 or PKCS#8, not encrypted."""

    app_id: str
    installation_id: int
    private_key: str

    def __repr__(self) -> str:
        return (
            f"GitHubApp(app_id={self.app_id!r}, installation_id={self.installation_id}, "
            f"private_key={REDACTED})"
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return (self.private_key,)


Credentials = PersonalAccessToken | GitHubApp


def credentials_from_mapping(
    mapping: Mapping[str, str | bytes], where: str = "the secret"
) -> Credentials:
    """Read credentials from a secret's keys: ``github_token``, or ``github_app_id`` with
    ``github_app_installation_id`` and ``github_app_private_key``.

    Empty values count as absent; white space around a value is cut off. ``where`` names the secret
    in errors. Raises :class:`InvalidCredentials` saying which keys are missing, contradictory or
    malformed, and never their value. The private key is parsed here, so that a wrong one is told at
    once; so is a character that no token has and no HTTP header can carry.
    """
    values = {key: _text(mapping, key, where) for key in (TOKEN_KEY, *APP_KEYS)}
    token = values[TOKEN_KEY]
    given = [key for key in APP_KEYS if values[key]]
    if token and given:
        raise InvalidCredentials(
            f"{where} has both {TOKEN_KEY} and {_and(given)}: "
            f"keep either {TOKEN_KEY} or {_and(APP_KEYS)}"
        )
    if token:
        _check_characters(token, TOKEN_KEY, where)
        return PersonalAccessToken(token)
    if not given:
        raise InvalidCredentials(
            f"{where} has no credentials: it needs either {TOKEN_KEY} or {_and(APP_KEYS)}"
        )
    missing = [key for key in APP_KEYS if not values[key]]
    if missing:
        raise InvalidCredentials(f"{where} has {_and(given)} but lacks {_and(missing)}")

    app_id, installation, private_key = (values[key] for key in APP_KEYS)
    _check_characters(app_id, "github_app_id", where)
    if not (installation.isascii() and installation.isdigit() and len(installation) <= _ID_DIGITS):
        # What is long may be another key's value, and that is a secret.
        shown = repr(installation) if len(installation) <= _ID_DIGITS else "with a text"
        raise InvalidCredentials(
            f"{where} has github_app_installation_id {shown}, which is not a number"
        )
    check_private_key(private_key, where)
    return GitHubApp(app_id, int(installation), private_key)


def check_private_key(private_key: str, where: str = "the secret") -> None:
    """Raise :class:`InvalidCredentials` unless this is an RSA private key in PEM."""
    _load_key(private_key, where)


def app_token(app: GitHubApp, now: datetime) -> str:
    """The RS256 JWT that says we are the app: issued 60 s before ``now``, valid for 9 minutes.

    Raises :class:`InvalidCredentials` when the key cannot be used.
    """
    import jwt

    issued = now - _ISSUED_AGO
    claims = {"iat": int(issued.timestamp()), "exp": int((issued + _LIFETIME).timestamp())}
    key = _load_key(app.private_key, f"GitHub App {app.app_id}")
    return jwt.encode({**claims, "iss": app.app_id}, key, algorithm="RS256")


def _load_key(private_key: str, where: str) -> RSAPrivateKey:
    # cryptography is 10 MiB that a client with a personal access token never needs.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    expected = "expected the .pem file that GitHub offers when a private key is generated"
    if "PRIVATE KEY-----" not in private_key:
        raise InvalidCredentials(
            f"{where} has a github_app_private_key that is not a PEM private key: {expected}"
        )
    try:
        # Keys pasted into one-line secrets often carry the two characters \n for a line break.
        text = private_key.replace("\\r", "").replace("\\n", "\n")
        key = load_pem_private_key(text.encode(), password=None)
    except TypeError:
        raise InvalidCredentials(
            f"{where} has a github_app_private_key that is encrypted: {expected}"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidCredentials(
            f"{where} has a github_app_private_key that is damaged: {expected}"
        ) from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InvalidCredentials(
            f"{where} has a github_app_private_key that is not an RSA key: {expected}"
        )
    return key


def _text(mapping: Mapping[str, str | bytes], key: str, where: str) -> str:
    value = mapping.get(key, "")
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise InvalidCredentials(f"{where} has a {key} that is not text") from None
    if not isinstance(value, str):
        raise InvalidCredentials(f"{where} has a {key} that is not text")
    return value.strip()


def _check_characters(value: str, key: str, where: str) -> None:
    """Only what is printable ASCII and no space: the rest is an accident of copying."""
    for position, character in enumerate(value, 1):
        if not "!" <= character <= "~":
            raise InvalidCredentials(
                f"{where} has a {key} with {_kind(character)} as character {position} of "
                f"{len(value)}: expected letters, digits and signs alone, on one line"
            )


def _kind(character: str) -> str:
    if character in "\r\n":
        return "a line break"
    if character.isspace():
        return "white space"
    return "a control character" if ord(character) < 128 else "something that is not ASCII"


def _and(keys: tuple[str, ...] | list[str]) -> str:
    *head, last = keys
    return f"{', '.join(head)} and {last}" if head else last
