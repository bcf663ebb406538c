"""Tokens of the fake service: JWTs that end, and that can be made to end early."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec


class TokenMint:
    """Signs and checks HS256 JWTs. ``key`` makes them this service's own."""

    def __init__(self, key: bytes, now: Callable[[], datetime]) -> None:
        self._key = key
        self._now = now
        self._generation: Counter[str] = Counter()
        self._number = 0

    def mint(self, kind: str, lifetime: timedelta, **claims: Any) -> str:
        """A token of that kind, good for ``lifetime`` from now."""
        self._number += 1
        now = self._now()
        payload = {
            "kind": kind,
            "jti": self._number,
            "generation": self._generation[kind],
            "iat": int(now.timestamp()),
            "exp": int((now + lifetime).timestamp()),
            **claims,
        }
        signed = f"{_encode({'alg': 'HS256', 'typ': 'JWT'})}.{_encode(payload)}"
        return f"{signed}.{self._signature(signed)}"

    def claims(self, kind: str, token: str) -> dict[str, Any] | None:
        """What the token says; None unless it is ours, of that kind, and has not ended."""
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signature(signed).encode(), signature.encode()):
            return None
        claims: dict[str, Any] = msgspec.json.decode(_decode(signed.partition(".")[2]))
        good = (
            claims["kind"] == kind
            and claims["generation"] == self._generation[kind]
            and claims["exp"] > self._now().timestamp()
        )
        return claims if good else None

    def expire(self, kind: str) -> None:
        """From now on, every token of that kind minted before is refused."""
        self._generation[kind] += 1

    def _signature(self, signed: str) -> str:
        digest = hmac.new(self._key, signed.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _encode(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
