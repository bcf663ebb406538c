"""From credentials to an admin token: two or three calls, made once for everybody who waits."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from .config_url import ConfigUrl
from .credentials import Credentials, PersonalAccessToken, app_token
from .exchange import Exchange
from .http import REDACTED, HttpResponse, redact_url
from .renewal import SharedCall

RENEW_BEFORE = timedelta(seconds=60)

# A registration token needs a moment to be known everywhere.
_PROPAGATION = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class AdminConnection:
    """Where the service is and the token that opens it. ``expires`` is None when unreadable."""

    url: str
    token: str
    expires: datetime | None

    def __repr__(self) -> str:
        return (
            f"AdminConnection(url={redact_url(self.url)!r}, token={REDACTED}, "
            f"expires={self.expires})"
        )


class Registration:
    """Holds the admin connection and renews it when it is about to end or was refused."""

    def __init__(
        self,
        config: ConfigUrl,
        credentials: Credentials,
        exchange: Exchange,
        now: Callable[[], datetime],
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._exchange = exchange
        self._now = now
        self._connection: AdminConnection | None = None
        self._renewal = SharedCall(self._renew)

    async def connection(self, *, refused: AdminConnection | None = None) -> AdminConnection:
        """A connection good for at least a minute, and not the ``refused`` one.

        Many callers at once cause one renewal; one of them being cancelled disturbs nobody.
        Raises :class:`CallError`, :class:`InvalidCredentials` or :class:`ClientClosed`.
        """
        current = self._connection
        if current is not None and current is not refused and not self._ends_soon(current):
            return current
        return await self._renewal()

    async def aclose(self) -> None:
        await self._renewal.aclose()

    def _ends_soon(self, connection: AdminConnection) -> bool:
        return connection.expires is not None and self._now() > connection.expires - RENEW_BEFORE

    async def _renew(self) -> AdminConnection:
        if isinstance(self._credentials, PersonalAccessToken):
            bearer = self._credentials.token
        else:
            app = self._credentials
            bearer = await self._token(
                f"/app/installations/{app.installation_id}/access_tokens",
                app_token(app, self._now()),
            )
        token = await self._token(
            f"{self._config.rest_path}/actions/runners/registration-token", bearer
        )
        self._connection = await self._exchange.call(
            "POST",
            f"{self._config.rest_url}/actions/runner-registration",
            authorization=f"RemoteAuth {token}",
            body={"url": self._config.url, "runner_event": "register"},
            retry_on=_PROPAGATION,
            read=_admin_connection,
        )
        return self._connection

    async def _token(self, path: str, bearer: str) -> str:
        return await self._exchange.call(
            "POST",
            f"{self._config.rest_url}{path}",
            authorization=f"Bearer {bearer}",
            headers={"accept": "application/vnd.github+json"},
            read=lambda response: msgspec.json.decode(response.body, type=_Token).token,
        )


class _Token(msgspec.Struct):
    token: str


class _Admin(msgspec.Struct):
    url: str
    token: str


def _admin_connection(response: HttpResponse) -> AdminConnection:
    answer = msgspec.json.decode(response.body, type=_Admin)
    if not answer.url.startswith(("http://", "https://")) or not answer.token:
        raise msgspec.ValidationError("it names no service address or no token")
    return AdminConnection(answer.url.rstrip("/"), answer.token, token_expiry(answer.token))


def token_expiry(token: str) -> datetime | None:
    """When a JWT ends, read without checking its signature (that is the service's business); None
    when it does not say."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, binascii.Error):
        return None
    except msgspec.DecodeError:
        return None
