"""Discovery: which groups, versions and resources there are, in the old form and aggregated."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.resources import Resource, ResourceTable

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}

AGGREGATED = "apidiscovery.k8s.io"

_CUSTOM_VERBS = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
_SCALE = ("autoscaling", "v1", "Scale")
_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "eviction": ("policy", "v1", "Eviction"),
    "binding": ("", "v1", "Binding"),
    "scale": _SCALE,
}
_SUBRESOURCE_VERBS: dict[str, list[str]] = {
    "token": ["create"],
    "eviction": ["create"],
    "binding": ["create"],
    "log": ["get"],
    "finalize": ["update"],
}

# Resources that are asked and not stored: (group, version, plural, kind, namespaced).
VIRTUAL = (
    ("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False),
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False),
    ("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False),
)


def core_versions() -> Object:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:443"}
        ],
    }


def group_list(table: ResourceTable) -> Object:
    groups = [_group(name, versions) for name, versions in _groups(table).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def one_group(table: ResourceTable, name: str) -> Object | None:
    versions = _groups(table).get(name)
    if not name or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(table: ResourceTable, group: str, version: str) -> Object | None:
    """APIResourceList of one version; None when it does not exist."""
    found: list[Object] = []
    for resource in sorted(table.in_version(group, version), key=lambda each: each.plural):
        found.append(_entry(resource))
        parts = sorted(resource.subresources, key=lambda each: (each != "status", each))
        if not resource.custom:
            parts.sort()
        found += [_subentry(resource, each) for each in parts]
    found += [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": namespaced,
            "kind": kind,
            "verbs": ["create"],
        }
        for of, at, plural, kind, namespaced in VIRTUAL
        if (of, at) == (group, version)
    ]
    if not found:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": found,
    }


def aggregated(table: ResourceTable, *, core: bool, version: str) -> Object:
    """APIGroupDiscoveryList of the core group, or of all the others."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None}
            if name
            else {"creationTimestamp": None},
            "versions": [_aggregated_version(table, name, each) for each in versions],
        }
        for name, versions in _groups(table).items()
        if core is not bool(name)
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{AGGREGATED}/{version}",
        "metadata": {},
        "items": items,
    }


def _groups(table: ResourceTable) -> dict[str, list[str]]:
    groups = table.groups()
    for group, version, *_ in VIRTUAL:
        versions = groups.setdefault(group, [])
        if version not in versions:
            versions.append(version)
    return groups


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _entry(resource: Resource) -> Object:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular_name,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_CUSTOM_VERBS if resource.custom else resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _subentry(resource: Resource, subresource: str) -> Object:
    entry: Object = {
        "name": f"{resource.plural}/{subresource}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _SUBRESOURCE_VERBS.get(subresource, ["get", "patch", "update"]),
    }
    other = _SUBRESOURCE_KINDS.get(subresource)
    if other is not None:
        group, version, kind = other
        entry["kind"] = kind
        if group != resource.group:
            entry.update(group=group, version=version)
    return entry


def _aggregated_version(table: ResourceTable, group: str, version: str) -> Object:
    found: list[Object] = []
    for resource in sorted(table.in_version(group, version), key=lambda each: each.plural):
        entry = _aggregated_entry(
            resource.plural, resource.kind, (group, version), resource.namespaced, resource.verbs
        )
        entry["singularResource"] = resource.singular_name
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        parts = []
        for part in sorted(resource.subresources):
            to_group, to_version, kind = _SUBRESOURCE_KINDS.get(
                part, (group, version, resource.kind)
            )
            parts.append(
                {
                    "subresource": part,
                    "responseKind": {"group": to_group, "version": to_version, "kind": kind},
                    "verbs": _SUBRESOURCE_VERBS.get(part, ["get", "patch", "update"]),
                }
            )
        if parts:
            entry["subresources"] = parts
        found.append(entry)
    found += [
        {
            **_aggregated_entry(plural, kind, (of, at), namespaced, ("create",)),
            "singularResource": kind.lower(),
        }
        for of, at, plural, kind, namespaced in VIRTUAL
        if (of, at) == (group, version)
    ]
    return {"version": version, "resources": found, "freshness": "Current"}


def _aggregated_entry(
    plural: str, kind: str, at: tuple[str, str], namespaced: bool, verbs: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": at[0], "version": at[1], "kind": kind},
        "scope": "Namespaced" if namespaced else "Cluster",
        "verbs": list(verbs),
    }
