"""Role-based access control over the roles and bindings in the store.

Also keeps count of what each user was granted and used, for tests that want neither a refusal nor
a permission that nobody needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.messages import Object, UserInfo
from arc_controller.testing.apiserver.store import Event, Store

GROUP = "rbac.authorization.k8s.io"
ROLES = f"roles.{GROUP}"
CLUSTER_ROLES = f"clusterroles.{GROUP}"
BINDINGS = f"rolebindings.{GROUP}"
CLUSTER_BINDINGS = f"clusterrolebindings.{GROUP}"
MASTERS = "system:masters"
_KEYS = frozenset({ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS})


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for: a verb on a resource, or on a path."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: `pods/log`."""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource (or path), as a rule grants it."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    """The only object it is for; empty: all."""
    path: str = ""
    namespace: str = ""
    """The namespace of the binding; empty: the whole cluster."""


@dataclass(frozen=True, slots=True)
class _Grant:
    rule: Mapping[str, Any]
    namespace: str


_Fitting = tuple[Collection[str], Permission]
"""A grant that fits: the only objects it is for (empty: all), and what of it was used."""


class Rbac:
    """Answers who may do what; raises on what is refused."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._grants: dict[tuple[str, tuple[str, ...], str], tuple[list[_Grant], list[str]]] = {}
        self._fitting: dict[tuple[str, tuple[str, ...], Attributes], list[_Fitting]] = {}
        self.used: Counter[tuple[str, Permission]] = Counter()
        """How often each user needed each permission."""
        store.observe(self._observe)

    def check(self, user: UserInfo, asked: Attributes) -> None:
        """Raise Forbidden unless the user may."""
        allowed, why = self.allows(user, asked)
        if not allowed:
            raise refusal(user, asked, why)

    def allows(self, user: UserInfo, asked: Attributes, *, count: bool = True) -> tuple[bool, str]:
        """Whether the user may, and what went wrong on the way."""
        if MASTERS in user.groups:
            return True, ""
        for names, permission in self._fitting_for(user, asked):
            if names and asked.name not in names:
                continue
            if count:
                used = replace(permission, name=asked.name) if names else permission
                self.used[user.name, used] += 1
            return True, ""
        problems = self._of(user, asked.namespace)[1]
        why = f"RBAC: {_joined(problems)}" if problems else ""
        return False, why

    def check_impersonation(self, user: UserInfo, name: str) -> None:
        """Raise Forbidden unless the user may act as the named one."""
        self.check(user, Attributes("impersonate", "", "users", "", name))

    def rules(self, user: UserInfo, namespace: str) -> list[Mapping[str, Any]]:
        """The rules that hold for a user in a namespace (and cluster-wide)."""
        if MASTERS in user.groups:
            return [_EVERYTHING, _EVERY_PATH]
        return [grant.rule for grant in self._of(user, namespace)[0]]

    def granted(self, user: UserInfo) -> set[Permission]:
        """Every single permission that the bindings give to a user, wherever."""
        found: set[Permission] = set()
        namespaces = {stored.namespace for stored in self._store.scan(BINDINGS)}
        for namespace in ("", *sorted(namespaces)):
            for grant in self._of(user, namespace)[0]:
                found |= set(_atoms(grant.rule, grant.namespace))
        return found

    def unused(self, user: UserInfo) -> set[Permission]:
        """The permissions of `granted` that no request needed so far."""
        needed = {permission for name, permission in self.used if name == user.name}
        return self.granted(user) - needed

    def uncovered(
        self, user: UserInfo, namespace: str, rules: Iterable[Mapping[str, Any]]
    ) -> list[Permission]:
        """What the rules grant beyond what the user holds."""
        held = self.rules(user, namespace)
        return [
            atom
            for rule in rules
            for atom in _atoms(rule, "")
            if not any(_covers(each, atom) for each in held)
        ]

    def rules_of(self, ref: Mapping[str, Any], namespace: str) -> list[Mapping[str, Any]] | None:
        """The rules of the role that a binding refers to; None when it is missing."""
        if ref.get("kind") == "ClusterRole":
            stored = self._store.read(CLUSTER_ROLES, "", ref.get("name", ""))
        else:
            stored = self._store.read(ROLES, namespace, ref.get("name", ""))
        return None if stored is None else list(stored.obj.get("rules") or ())

    def _observe(self, event: Event) -> None:
        if event.stored.resource in _KEYS:
            self._grants.clear()
            self._fitting.clear()

    def _fitting_for(self, user: UserInfo, asked: Attributes) -> list[_Fitting]:
        """The grants that fit whatever the object's name is. Clients ask the same all the time."""
        if asked.path:
            return self._fits(user, asked)
        kind = Attributes(asked.verb, asked.group, asked.resource, asked.namespace)
        key = (user.name, user.groups, kind)
        found = self._fitting.get(key)
        if found is None:
            found = self._fitting[key] = self._fits(user, kind)
        return found

    def _fits(self, user: UserInfo, asked: Attributes) -> list[_Fitting]:
        return [
            (() if asked.path else grant.rule.get("resourceNames") or (), _permission(grant, asked))
            for grant in self._of(user, asked.namespace)[0]
            if _fits(grant.rule, asked)
        ]

    def _of(self, user: UserInfo, namespace: str) -> tuple[list[_Grant], list[str]]:
        key = (user.name, user.groups, namespace)
        found = self._grants.get(key)
        if found is None:
            found = self._grants[key] = self._resolve(user, namespace)
        return found

    def _resolve(self, user: UserInfo, namespace: str) -> tuple[list[_Grant], list[str]]:
        grants: list[_Grant] = []
        problems: list[str] = []
        bindings = [(each.obj, "") for each in self._store.scan(CLUSTER_BINDINGS)]
        if namespace:
            bindings += [(each.obj, namespace) for each in self._store.scan(BINDINGS, namespace)]
        for binding, within in bindings:
            if not _applies(binding, user, within):
                continue
            ref = binding.get("roleRef") or {}
            rules = self.rules_of(ref, within)
            if rules is None:
                kind = str(ref.get("kind", "")).lower()
                problems.append(f"{kind}.{GROUP} {errors.go_quote(ref.get('name', ''))} not found")
                continue
            grants += [_Grant(rule, within) for rule in rules]
        return grants, problems


def refusal(user: UserInfo, asked: Attributes, why: str = "") -> errors.StatusError:
    """Forbidden, worded as the real authorizer does."""
    name = errors.go_quote(user.name)
    if asked.path:
        text = f"User {name} cannot {asked.verb} path {errors.go_quote(asked.path)}"
        if why:
            text += f": {why}"
        return errors.StatusError(403, "Forbidden", f"forbidden: {text}", {})
    where = "at the cluster scope"
    if asked.namespace:
        where = f"in the namespace {errors.go_quote(asked.namespace)}"
    text = (
        f"User {name} cannot {asked.verb} resource {errors.go_quote(asked.resource)} in API group "
        f"{errors.go_quote(asked.group)} {where}"
    )
    if why:
        text += f": {why}"
    plural = asked.resource.partition("/")[0]
    return errors.forbidden(asked.group, plural, asked.name, text)


def compact(permissions: Iterable[Permission]) -> list[str]:
    """Permissions as rules, the verbs of a resource together, in the real server's notation."""
    grouped: dict[tuple[str, str, str, str], list[str]] = {}
    for each in permissions:
        key = (each.group, each.resource, each.name, each.path)
        verbs = grouped.setdefault(key, [])
        if each.verb not in verbs:
            verbs.append(each.verb)
    lines = []
    for (group, resource, name, path), verbs in grouped.items():
        parts = []
        if path:
            parts.append(f"NonResourceURLs:{_quoted([path])}")
        else:
            parts.append(f"APIGroups:{_quoted([group])}")
            parts.append(f"Resources:{_quoted([resource])}")
        if name:
            parts.append(f"ResourceNames:{_quoted([name])}")
        parts.append(f"Verbs:{_quoted(verbs)}")
        lines.append("{" + ", ".join(parts) + "}")
    return sorted(lines)


_EVERYTHING: Mapping[str, Any] = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_EVERY_PATH: Mapping[str, Any] = {"verbs": ["*"], "nonResourceURLs": ["*"]}


def _quoted(texts: list[str]) -> str:
    return "[" + " ".join(errors.go_quote(each) for each in texts) + "]"


def _joined(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _applies(binding: Object, user: UserInfo, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.groups:
            return True
        if kind == "ServiceAccount":
            where = subject.get("namespace") or namespace
            if user.name == f"system:serviceaccount:{where}:{name}":
                return True
    return False


def _fits(rule: Mapping[str, Any], asked: Attributes) -> bool:
    """Whether the rule grants it, as far as that does not depend on the object's name."""
    if not _has(rule.get("verbs"), asked.verb):
        return False
    if asked.path:
        return any(_path_matches(each, asked.path) for each in rule.get("nonResourceURLs") or ())
    if not _has(rule.get("apiGroups"), asked.group):
        return False
    return _resource_matches(rule.get("resources") or (), asked.resource)


def _has(values: Iterable[str] | None, wanted: str) -> bool:
    return values is not None and any(each in ("*", wanted) for each in values)


def _resource_matches(resources: Iterable[str], wanted: str) -> bool:
    subresource = wanted.partition("/")[2]
    return any(
        each in ("*", wanted) or (subresource and each == f"*/{subresource}") for each in resources
    )


def _path_matches(pattern: str, path: str) -> bool:
    if pattern in ("*", path):
        return True
    return pattern.endswith("*") and path.startswith(pattern.rstrip("*"))


def _permission(grant: _Grant, asked: Attributes) -> Permission:
    """The atom of the rule that the request used, but for the object's name."""
    if asked.path:
        return Permission(asked.verb, path=asked.path)

    def spelled(values: Iterable[str], wanted: str) -> str:
        return wanted if wanted in values else "*"

    rule = grant.rule
    resources = rule.get("resources") or ()
    resource = asked.resource
    if resource not in resources:
        part = f"*/{resource.partition('/')[2]}"
        resource = part if part in resources else "*"
    return Permission(
        verb=spelled(rule["verbs"], asked.verb),
        group=spelled(rule["apiGroups"], asked.group),
        resource=resource,
        namespace=grant.namespace,
    )


def _atoms(rule: Mapping[str, Any], namespace: str) -> Iterator[Permission]:
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Permission(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    yield Permission(verb, group, resource, name, namespace=namespace)


def _covers(rule: Mapping[str, Any], atom: Permission) -> bool:
    if not _has(rule.get("verbs"), atom.verb):
        return False
    if atom.path:
        return any(_path_matches(each, atom.path) for each in rule.get("nonResourceURLs") or ())
    if not _has(rule.get("apiGroups"), atom.group):
        return False
    if not _resource_matches(rule.get("resources") or (), atom.resource):
        return False
    names = rule.get("resourceNames")
    return not names or (bool(atom.name) and atom.name in names)
