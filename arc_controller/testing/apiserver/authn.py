"""Who sent a request: bearer tokens and the user a request carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.messages import (
    ADMIN,
    ANONYMOUS,
    Request,
    UserInfo,
)
from arc_controller.testing.apiserver.store import Store


@dataclass(frozen=True, slots=True)
class _Token:
    user: UserInfo
    expires: datetime | None = None
    audiences: tuple[str, ...] = ()


class Authenticator:
    """Known bearer tokens. Without authorization a request without a token is the admin's."""

    def __init__(
        self, store: Store, now: Callable[[], datetime], *, authorization: bool = False
    ) -> None:
        self._store = store
        self._now = now
        self._tokens: dict[str, _Token] = {}
        self.check_impersonation: Callable[[UserInfo, str], None] | None = None
        self._nobody = ANONYMOUS if authorization else ADMIN

    def authenticate(self, request: Request) -> UserInfo:
        """The user of a request. Raises Unauthorized for a token that is not (or no longer)
        valid."""
        user = request.user
        if user is None:
            header = request.header("authorization")
            if not header:
                return self._nobody
            scheme, _, token = header.partition(" ")
            found = self.review(token.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                raise errors.unauthorized()
            user = found
        impersonated = request.header("impersonate-user")
        if impersonated:
            if self.check_impersonation is not None:
                self.check_impersonation(user, impersonated)
            groups = request.header("impersonate-group")
            listed = [each.strip() for each in groups.split(",") if each.strip()]
            return UserInfo(impersonated, (*listed, "system:authenticated"))
        return user

    def add_token(
        self,
        token: str,
        user: UserInfo,
        expires: datetime | None = None,
        audiences: tuple[str, ...] = (),
    ) -> None:
        self._tokens[token] = _Token(user, expires, audiences)

    def review(self, token: str) -> UserInfo | None:
        """The user a token stands for now; None when it stands for nobody."""
        found = self._tokens.get(token)
        if found is None:
            return None
        if found.expires is not None and found.expires <= self._now():
            del self._tokens[token]
            return None
        if found.user.uid and not self._account_lives(found.user):
            return None
        return found.user

    def _account_lives(self, user: UserInfo) -> bool:
        """Tokens of a service account end with it."""
        if not user.name.startswith("system:serviceaccount:"):
            return True
        _, _, namespace, name = user.name.split(":", 3)
        account = self._store.get("", "serviceaccounts", namespace, name)
        return account is not None and account["metadata"]["uid"] == user.uid
