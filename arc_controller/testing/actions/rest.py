"""GitHub's own REST API, as far as it leads to the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from arc_controller.actions import ActionsError, HttpRequest, HttpResponse, parse_config_url

from .calls import SERVICE_PATH, Call, RestRefusal, json_response
from .endpoints import ADMIN
from .tokens import TokenMint

REGISTRATION = "registration"
INSTALLATION = "installation"

_REGISTRATION_LIFETIME = timedelta(hours=1)
_MAX_JWT_LIFETIME = 600
_BAD_CREDENTIALS = RestRefusal(401, "Bad credentials")


@dataclass(frozen=True, slots=True)
class RegisteredApp:
    """A GitHub App that the fake knows."""

    app_id: str
    public_key: str
    installation_id: int
    client_id: str = ""


class Rest:
    """Registration tokens, installation tokens and the registration itself."""

    def __init__(
        self,
        mint: TokenMint,
        *,
        now: Callable[[], datetime],
        admin_token_lifetime: timedelta,
    ) -> None:
        self.accepted_tokens: set[str] | None = None
        self.apps: list[RegisteredApp] = []
        self._mint = mint
        self._now = now
        self._admin_token_lifetime = admin_token_lifetime

    def handle(self, call: Call, path: dict[str, str], request: HttpRequest) -> HttpResponse:
        match call:
            case Call.INSTALLATION_TOKEN:
                return self._installation_token(int(path["installation"]), request)
            case Call.REGISTRATION_TOKEN:
                return self._registration_token(path["scope"], request)
            case _:
                return self._register(request)

    def _installation_token(self, installation_id: int, request: HttpRequest) -> HttpResponse:
        token = _token(request, "bearer")
        apps = [app for app in self.apps if app.installation_id == installation_id]
        if not any(self._is_signed_by(app, token) for app in self.apps):
            raise RestRefusal(401, "A JSON web token could not be decoded")
        if not any(self._is_signed_by(app, token) for app in apps):
            raise RestRefusal(404, "Not Found")
        minted = self._mint.mint(INSTALLATION, timedelta(hours=1))
        return json_response(201, {"token": minted, "expires_at": self._in(timedelta(hours=1))})

    def _registration_token(self, scope: str, request: HttpRequest) -> HttpResponse:
        token = _token(request, "bearer")
        personal = bool(token) and (self.accepted_tokens is None or token in self.accepted_tokens)
        if not personal and self._mint.claims(INSTALLATION, token) is None:
            raise _BAD_CREDENTIALS
        minted = self._mint.mint(REGISTRATION, _REGISTRATION_LIFETIME, scope=_rest_scope(scope))
        return json_response(201, {"token": minted, "expires_at": self._in(_REGISTRATION_LIFETIME)})

    def _register(self, request: HttpRequest) -> HttpResponse:
        claims = self._mint.claims(REGISTRATION, _token(request, "remoteauth"))
        if claims is None:
            raise _BAD_CREDENTIALS
        try:
            content: dict[str, Any] = msgspec.json.decode(request.body)
            scope = config_scope(str(content["url"]))
        except (msgspec.DecodeError, KeyError, TypeError, ActionsError):
            raise RestRefusal(422, "the body names no usable url") from None
        if content.get("runner_event") != "register":
            raise RestRefusal(422, "runner_event is not register")
        if scope != claims["scope"]:
            raise RestRefusal(403, "the token was issued for somebody else")
        parts = urlsplit(request.url)
        return json_response(
            200,
            {
                "url": f"{parts.scheme}://{parts.netloc}{SERVICE_PATH}/",
                "token": self._mint.mint(ADMIN, self._admin_token_lifetime, scope=scope),
                "token_schema": "OAuthAccessToken",
            },
        )

    def _is_signed_by(self, app: RegisteredApp, token: str) -> bool:
        import jwt

        try:
            claims = jwt.decode(
                token,
                app.public_key,
                algorithms=["RS256"],
                options={
                    "verify_exp": False,
                    "verify_iat": False,
                    "require": ["exp", "iat", "iss"],
                },
            )
        except jwt.PyJWTError:
            return False
        now = self._now().timestamp()
        return (
            str(claims["iss"]) in {app.app_id, app.client_id}
            and claims["iat"] <= now < claims["exp"]
            and claims["exp"] - now <= _MAX_JWT_LIFETIME
        )

    def _in(self, lifetime: timedelta) -> str:
        return (self._now() + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")


def config_scope(url: str) -> str:
    """Whose runners a config URL means, as the service compares it."""
    return unquote(urlsplit(parse_config_url(url).url).path.strip("/")).lower()


def _rest_scope(path: str) -> str:
    return unquote(path.removeprefix("orgs/").removeprefix("repos/")).lower()


def _token(request: HttpRequest, scheme: str) -> str:
    given, _, token = request.header("authorization").partition(" ")
    return token.strip() if given.lower() in {scheme, "token"} else ""
