"""Access reviews and token reviews: resources that are asked, not stored."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver import bodies, errors
from arc_controller.testing.apiserver.authn import Authenticator
from arc_controller.testing.apiserver.authz import review_user
from arc_controller.testing.apiserver.discovery import VIRTUAL
from arc_controller.testing.apiserver.messages import (
    Object,
    Request,
    Response,
    UserInfo,
    json_response,
)
from arc_controller.testing.apiserver.rbac import Attributes, Rbac
from arc_controller.testing.apiserver.routing import RequestInfo

_KINDS = {(group, plural): kind for group, _, plural, kind, _ in VIRTUAL}


class Reviews:
    """`rbac` is None when everything is allowed."""

    def __init__(self, authenticator: Authenticator, rbac: Rbac | None) -> None:
        self._authenticator = authenticator
        self._rbac = rbac

    def serves(self, info: RequestInfo) -> bool:
        return (info.group, info.plural) in _KINDS and info.version == "v1"

    def answer(self, request: Request, info: RequestInfo) -> Response:
        if info.verb != "create" or info.name:
            raise errors.method_not_allowed()
        kind = _KINDS[info.group, info.plural]
        body = bodies.decode_body(request)
        if not isinstance(body, dict):
            raise errors.bad_request(f"the body must be a {kind}")
        assert info.user is not None
        spec = body.get("spec") or {}
        status: Object
        if kind == "SelfSubjectAccessReview":
            status = self._access(info.user, spec)
        elif kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
            status = self._access(self._subject(kind, spec), spec)
        elif kind == "SelfSubjectRulesReview":
            status = self._rules(info.user, spec)
        elif kind == "SelfSubjectReview":
            status = {"userInfo": _user_object(info.user)}
        else:
            status = self._token(spec)
        answer = {
            "kind": kind,
            "apiVersion": f"{info.group}/v1",
            "metadata": body.get("metadata") or {},
            "spec": spec,
            "status": status,
        }
        if kind == "SelfSubjectReview":
            del answer["spec"]
        return json_response(201, answer)

    def _subject(self, kind: str, spec: Object) -> UserInfo:
        problems = []
        if not spec.get("user") and not spec.get("groups"):
            problems.append(
                errors.invalid_value(
                    "spec.user", "", "at least one of user or group must be specified"
                )
            )
        if not spec.get("resourceAttributes") and not spec.get("nonResourceAttributes"):
            problems.append(
                errors.invalid_value(
                    "spec.resourceAttributes",
                    None,
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                )
            )
        if problems:
            raise errors.invalid("authorization.k8s.io", kind, "", problems)
        return review_user(spec)

    def _access(self, user: UserInfo, spec: Object) -> Object:
        if self._rbac is None:
            return {"allowed": True}
        path = spec.get("nonResourceAttributes")
        if path:
            asked = Attributes(path.get("verb", ""), path=path.get("path", ""))
        else:
            what = spec.get("resourceAttributes") or {}
            resource = what.get("resource", "")
            if what.get("subresource"):
                resource = f"{resource}/{what['subresource']}"
            asked = Attributes(
                what.get("verb", ""),
                what.get("group", ""),
                resource,
                what.get("namespace", ""),
                what.get("name", ""),
            )
        allowed, why = self._rbac.allows(user, asked, count=False)
        status: Object = {"allowed": allowed}
        if why:
            status["reason"] = why
        return status

    def _rules(self, user: UserInfo, spec: Object) -> Object:
        namespace = spec.get("namespace") or ""
        if not namespace:
            raise errors.bad_request("no namespace on request")
        rules: list[Any]
        if self._rbac is None:
            rules = [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        else:
            rules = [dict(each) for each in self._rbac.rules(user, namespace)]
        return {
            "resourceRules": [each for each in rules if each.get("resources")],
            "nonResourceRules": [each for each in rules if each.get("nonResourceURLs")],
            "incomplete": False,
        }

    def _token(self, spec: Object) -> Object:
        user = self._authenticator.review(str(spec.get("token") or ""))
        if user is None:
            return {"authenticated": False, "error": "the token is not valid"}
        return {"authenticated": True, "user": _user_object(user)}


def _user_object(user: UserInfo) -> Object:
    found: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        found["uid"] = user.uid
    if user.extra:
        found["extra"] = {key: list(value) for key, value in user.extra.items()}
    return found
