"""The built-in kinds other than pods: their rules and the table entries of all of them."""

from __future__ import annotations

import base64

from arc_controller.testing.apiserver.errors import (
    FieldError,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.metadata import name_problem_label, name_problem_path_segment
from arc_controller.testing.apiserver.pods import default_pod_spec
from arc_controller.testing.apiserver.strategy import Call, Strategy, default_in
from arc_controller.testing.apiserver.types import Node

_RBAC = "rbac.authorization.k8s.io"
_SECRET_LIMIT = 1024 * 1024
_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


class NamespaceStrategy(Strategy):
    returns_deleted = True
    deletion_counts_grace = False

    def prepare_create(self, obj: Object, call: Call) -> None:
        spec = obj.setdefault("spec", {}) or {}
        obj["spec"] = spec
        finalizers = spec.setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, obj: Object, old: Object, call: Call) -> None:
        obj["spec"] = old.get("spec", {})

    def default(self, obj: Object) -> None:
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")

    def validate_name(self, name: str) -> str:
        return name_problem_label(name)

    def prepare_delete(self, obj: Object) -> None:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}

    def is_held(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("finalizers"))


class SecretStrategy(Strategy):
    def default(self, obj: Object) -> None:
        _store_string_data(obj)
        default_in(obj, "type", "Opaque")

    def validate(self, obj: Object) -> list[FieldError]:
        data = obj.get("data") or {}
        problems = _validate_keys(data, "data")
        problems += [
            required(f"data[{key}]")
            for key in _SECRET_KEYS.get(obj.get("type", ""), ())
            if key not in data
        ]
        if obj.get("type") == "kubernetes.io/basic-auth" and not {"username", "password"} & set(
            data
        ):
            problems += [required("data[username]"), required("data[password]")]
        size = sum(len(base64.b64decode(value or "")) for value in data.values())
        if size > _SECRET_LIMIT:
            detail = f"may not be more than {_SECRET_LIMIT} bytes"
            problems.append(FieldError("TooLong", "data", "", detail))
        return problems

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        problems = []
        if obj.get("type") != old.get("type"):
            problems.append(invalid_value("type", obj.get("type"), "field is immutable"))
        if old.get("immutable"):
            if not obj.get("immutable"):
                problems.append(
                    forbidden_value("immutable", "field is immutable when `immutable` is set")
                )
            if obj.get("data") != old.get("data"):
                problems.append(
                    forbidden_value("data", "field is immutable when `immutable` is set")
                )
        return problems + self.validate(obj)


class ConfigMapStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        problems = _validate_keys(obj.get("data"), "data")
        problems += _validate_keys(obj.get("binaryData"), "binaryData")
        both = (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys()
        problems += [
            invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in sorted(both)
        ]
        size = sum(len(value.encode()) for value in (obj.get("data") or {}).values())
        if size > _SECRET_LIMIT:
            detail = f"may not be more than {_SECRET_LIMIT} bytes"
            problems.append(FieldError("TooLong", "", "", detail))
        return problems

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        problems = []
        if old.get("immutable"):
            if not obj.get("immutable"):
                problems.append(
                    forbidden_value("immutable", "field is immutable when `immutable` is set")
                )
            problems += [
                forbidden_value(key, "field is immutable when `immutable` is set")
                for key in ("data", "binaryData")
                if obj.get(key) != old.get(key)
            ]
        return problems + self.validate(obj)


class ServiceAccountStrategy(Strategy):
    returns_deleted = True


class ResourceQuotaStrategy(Strategy):
    returns_deleted = True

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["status"] = {}


class NodeStrategy(Strategy):
    pass


class ServiceStrategy(Strategy):
    returns_deleted = True
    create_on_update = True

    def validate_name(self, name: str) -> str:
        return name_problem_label(name)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["status"] = {"loadBalancer": {}}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_in(spec, "type", "ClusterIP")
        default_in(spec, "sessionAffinity", "None")
        for port in spec.get("ports") or ():
            default_in(port, "protocol", "TCP")
            default_in(port, "targetPort", port.get("port"))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        if spec.get("ports") or spec.get("clusterIP") == "None" or spec["type"] == "ExternalName":
            return []
        return [required("spec.ports")]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj)


class LeaseStrategy(Strategy):
    qualified_finalizers = False
    unconditional_update = False
    validates_metadata_again = False
    create_on_update = True

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        problems = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            problems.append(
                invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
            )
        transitions = spec.get("leaseTransitions")
        if transitions is not None and transitions < 0:
            problems.append(
                invalid_value(
                    "spec.leaseTransitions", transitions, "must be greater than or equal to 0"
                )
            )
        return problems

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj)


class DeploymentStrategy(Strategy):
    """Stored and defaulted; nothing here makes pods of it."""

    counts_generation = True

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["status"] = {}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_in(spec, "replicas", 1)
        default_in(spec, "revisionHistoryLimit", 10)
        default_in(spec, "progressDeadlineSeconds", 600)
        strategy = spec.setdefault("strategy", {})
        default_in(strategy, "type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            default_in(rolling, "maxUnavailable", "25%")
            default_in(rolling, "maxSurge", "25%")
        template = spec.get("template")
        if isinstance(template, dict):
            default_pod_spec(template.get("spec"))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        problems = []
        if not spec.get("selector"):
            problems.append(required("spec.selector"))
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        wanted = (spec.get("selector") or {}).get("matchLabels") or {}
        if not spec.get("selector") or any(
            (labels or {}).get(key) != value for key, value in wanted.items()
        ):
            problems.append(
                invalid_value(
                    "spec.template.metadata.labels",
                    labels,
                    "`selector` does not match template `labels`",
                )
            )
        template = (spec.get("template") or {}).get("spec") or {}
        if not template.get("containers"):
            problems.append(required("spec.template.spec.containers"))
        return problems

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        problems = self.validate(obj)
        if (obj.get("spec") or {}).get("selector") != (old.get("spec") or {}).get("selector"):
            value = (obj.get("spec") or {}).get("selector")
            problems.append(invalid_value("spec.selector", value, "field is immutable"))
        return problems


class RoleStrategy(Strategy):
    create_on_update = True

    def conform(
        self, obj: Object, old: Object | None, node: Node, *, applied: bool = False
    ) -> list[str]:
        """An empty list of rules is stored as none, but whoever sent it owns it."""
        empty = obj.get("rules") == []
        unknown = super().conform(obj, old, node, applied=applied)
        if empty:
            obj["rules"] = []
        return unknown

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["rules"] = obj.get("rules") or None

    def prepare_update(self, obj: Object, old: Object, call: Call) -> None:
        obj["rules"] = obj.get("rules") or None

    def validate_name(self, name: str) -> str:
        return name_problem_path_segment(name)

    def validate(self, obj: Object) -> list[FieldError]:
        problems = []
        for index, rule in enumerate(obj.get("rules") or ()):
            path = f"rules[{index}]"
            if not rule.get("verbs"):
                problems.append(required(f"{path}.verbs", "verbs must contain at least one value"))
            urls = rule.get("nonResourceURLs")
            if urls and obj["kind"] == "Role":
                why = "namespaced rules cannot apply to non-resource URLs"
                problems.append(invalid_value(f"{path}.nonResourceURLs", urls, why))
            if urls:
                continue
            if not rule.get("apiGroups"):
                problems.append(
                    required(
                        f"{path}.apiGroups", "resource rules must supply at least one api group"
                    )
                )
            if not rule.get("resources"):
                problems.append(
                    required(
                        f"{path}.resources", "resource rules must supply at least one resource"
                    )
                )
        return problems

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj)


class RoleBindingStrategy(Strategy):
    create_on_update = True

    def __init__(self, *, cluster: bool = False) -> None:
        self._cluster = cluster

    def validate_name(self, name: str) -> str:
        return name_problem_path_segment(name)

    def default(self, obj: Object) -> None:
        ref = obj.get("roleRef")
        if isinstance(ref, dict):
            default_in(ref, "apiGroup", _RBAC)
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                default_in(subject, "apiGroup", _RBAC)

    def validate(self, obj: Object) -> list[FieldError]:
        problems = []
        ref = obj.get("roleRef") or {}
        kinds = ("ClusterRole",) if self._cluster else ("Role", "ClusterRole")
        if (ref.get("apiGroup") or _RBAC) != _RBAC:
            problems.append(not_supported("roleRef.apiGroup", ref["apiGroup"], (_RBAC,)))
        if ref.get("kind") not in kinds:
            problems.append(not_supported("roleRef.kind", ref.get("kind") or "", kinds))
        if not ref.get("name"):
            problems.append(required("roleRef.name"))
        elif problem := name_problem_path_segment(ref["name"]):
            problems.append(invalid_value("roleRef.name", ref["name"], problem))
        for index, subject in enumerate(obj.get("subjects") or ()):
            path = f"subjects[{index}]"
            if not subject.get("name"):
                problems.append(required(f"{path}.name"))
            kind = subject.get("kind") or ""
            if kind not in ("ServiceAccount", "User", "Group"):
                problems.append(
                    not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))
                )
                continue
            group = "" if kind == "ServiceAccount" else _RBAC
            if (subject.get("apiGroup") or group) != group:
                given = subject["apiGroup"]
                problems.append(not_supported(f"{path}.apiGroup", given, (group,)))
            if kind == "ServiceAccount" and self._cluster and not subject.get("namespace"):
                problems.append(required(f"{path}.namespace"))
        return problems

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        problems = self.validate(obj)
        if obj.get("roleRef") != old.get("roleRef"):
            shown = {
                "APIGroup": obj["roleRef"].get("apiGroup", ""),
                "Kind": obj["roleRef"].get("kind", ""),
                "Name": obj["roleRef"].get("name", ""),
            }
            problems.append(invalid_value("roleRef", shown, "cannot change roleRef"))
        return problems


class EventStrategy(Strategy):
    create_on_update = True

    def validate(self, obj: Object) -> list[FieldError]:
        involved = obj.get("involvedObject") or {}
        namespace = obj["metadata"].get("namespace", "")
        given = involved.get("namespace", "")
        if given and given != namespace:
            return [
                invalid_value("involvedObject.namespace", given, "does not match event.namespace")
            ]
        if not given and namespace not in ("default", "kube-system"):
            return [
                invalid_value("involvedObject.namespace", given, "does not match event.namespace")
            ]
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj)


def _store_string_data(obj: Object) -> None:
    """`stringData` is write-only: it lands in `data`, encoded."""
    given = obj.pop("stringData", None)
    if given:
        data = obj.get("data") or {}
        for key, value in given.items():
            data[key] = base64.b64encode(str(value).encode()).decode()
        obj["data"] = data


def _validate_keys(data: Object | None, path: str) -> list[FieldError]:
    problems = []
    for key in data or {}:
        if not key or len(key) > 253 or not _is_config_key(key):
            problems.append(
                invalid_value(
                    f"{path}[{key}]",
                    key,
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
                    "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation "
                    "is '[-._a-zA-Z0-9]+')",
                )
            )
    return problems


def _is_config_key(key: str) -> bool:
    return (
        key not in (".", "..")
        and key.isascii()
        and key.replace("-", "").replace(".", "").replace("_", "x").isalnum()
    )
