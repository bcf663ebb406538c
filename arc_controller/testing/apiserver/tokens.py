"""`serviceaccounts/token`: tokens that stand for a service account until they expire."""

from __future__ import annotations

import base64
from datetime import timedelta
from random import Random
from typing import Any

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.authn import Authenticator
from arc_controller.testing.apiserver.messages import Object, encode_json, service_account_user
from arc_controller.testing.apiserver.metadata import rfc3339
from arc_controller.testing.apiserver.store import Store
from arc_controller.testing.apiserver.writer import Writer

ISSUER = "https://kubernetes.default.svc.cluster.local"
_DEFAULT_SECONDS = 3600
_MIN_SECONDS = 600
_MAX_SECONDS = 2**32


class TokenIssuer:
    def __init__(
        self, store: Store, writer: Writer, authenticator: Authenticator, random: Random
    ) -> None:
        self._store = store
        self._writer = writer
        self._authenticator = authenticator
        self._random = random

    def issue(self, namespace: str, account: Object, body: Object) -> Object:
        """Answer a TokenRequest for a service account."""
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        seconds = _DEFAULT_SECONDS if seconds is None else int(seconds)
        self._check_duration(seconds)
        audiences = list(spec.get("audiences") or [ISSUER])
        name, uid = account["metadata"]["name"], account["metadata"]["uid"]
        bound = spec.get("boundObjectRef")
        extra: dict[str, tuple[str, ...]] = {}
        claims: Object = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        if bound:
            claims.update(self._bind(namespace, bound, extra))
        now = self._writer.moment()
        expires = now + timedelta(seconds=seconds)
        token = self._encode(
            {
                "aud": audiences,
                "exp": int(expires.timestamp()),
                "iat": int(now.timestamp()),
                "iss": ISSUER,
                "kubernetes.io": claims,
                "nbf": int(now.timestamp()),
                "sub": f"system:serviceaccount:{namespace}:{name}",
            }
        )
        user = service_account_user(namespace, name, uid, extra)
        self._authenticator.add_token(token, user, expires, tuple(audiences))
        answer_spec: Object = {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": bound,
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": rfc3339(now),
            },
            "spec": answer_spec,
            "status": {"token": token, "expirationTimestamp": rfc3339(expires)},
        }

    def _check_duration(self, seconds: int) -> None:
        why = ""
        if seconds < _MIN_SECONDS:
            why = "may not specify a duration less than 10 minutes"
        elif seconds > _MAX_SECONDS:
            why = "may not specify a duration larger than 2^32 seconds"
        if why:
            problem = errors.invalid_value("spec.expirationSeconds", seconds, why)
            raise errors.invalid("authentication.k8s.io", "TokenRequest", "", [problem])

    def _bind(
        self, namespace: str, bound: Object, extra: dict[str, tuple[str, ...]]
    ) -> dict[str, Any]:
        kind, name = bound.get("kind"), bound.get("name", "")
        plural = {"Pod": "pods", "Secret": "secrets"}.get(str(kind))
        if plural is None:
            raise errors.bad_request(f"cannot bind token to object of type {kind}")
        stored = self._store.read(plural, namespace, name)
        if stored is None:
            raise errors.not_found("", plural, name)
        uid = stored.obj["metadata"]["uid"]
        if bound.get("uid") and bound["uid"] != uid:
            why = (
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID in "
                "record. The object might have been deleted and then recreated"
            )
            raise errors.conflict("", plural, name, why)
        if kind == "Pod":
            extra["authentication.kubernetes.io/pod-name"] = (name,)
            extra["authentication.kubernetes.io/pod-uid"] = (uid,)
        return {str(kind).lower(): {"name": name, "uid": uid}}

    def _encode(self, claims: Object) -> str:
        header = {"alg": "RS256", "kid": "embedded"}
        signature = self._random.getrandbits(256).to_bytes(32, "big")
        parts = (encode_json(header), encode_json(claims), signature)
        return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
