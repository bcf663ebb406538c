"""Pods: defaults, validation, what may change, and the grace period of their deletion."""

from __future__ import annotations

import re
from typing import Any

from arc_controller.testing.apiserver.errors import (
    FieldError,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from arc_controller.testing.apiserver.messages import Object, decode_json, encode_json
from arc_controller.testing.apiserver.metadata import name_problem_label
from arc_controller.testing.apiserver.quantity import parse_quantity
from arc_controller.testing.apiserver.strategy import Call, DeleteOptions, Strategy, default_in

_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


class PodStrategy(Strategy):
    returns_deleted = True
    counts_generation = True
    status_resets = frozenset({"ownerReferences", "deletionTimestamp"})

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_pod_spec(spec)
        if isinstance(spec, dict):
            default_in(spec, "enableServiceLinks", True)

    def prepare_create(self, obj: Object, call: Call) -> None:
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj.get("spec") or {})}

    def prepare_status(self, obj: Object, old: Object, call: Call) -> None:
        meta, before = obj["metadata"], old["metadata"]
        for key in self.status_resets:
            if key in before:
                meta[key] = before[key]
            else:
                meta.pop(key, None)
        status = obj.setdefault("status", {})
        if old.get("status", {}).get("qosClass"):
            status["qosClass"] = old["status"]["qosClass"]

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        return validate_pod_spec(spec, "spec")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        problems = validate_pod_spec(obj.get("spec") or {}, "spec")
        problems += _deadline_problems(obj, old)
        problems += _toleration_problems(obj, old)
        if _fixed_part(obj, old) != old.get("spec"):
            problems.append(forbidden_value("spec", _IMMUTABLE))
        return problems

    def grace_period(self, obj: Object, options: DeleteOptions) -> int | None:
        spec = obj.get("spec") or {}
        phase = (obj.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        period = options.grace_period
        if period is None:
            period = spec.get("terminationGracePeriodSeconds")
            period = 30 if period is None else int(period)
        return 1 if period < 0 else period


def default_pod_spec(spec: Any) -> None:
    if not isinstance(spec, dict):
        return
    default_in(spec, "restartPolicy", "Always")
    default_in(spec, "terminationGracePeriodSeconds", 30)
    default_in(spec, "dnsPolicy", "ClusterFirst")
    default_in(spec, "securityContext", {})
    default_in(spec, "schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for kind in _CONTAINER_LISTS:
        for container in spec.get(kind) or ():
            if isinstance(container, dict):
                _default_container(container)
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict):
            _default_volume(volume)


def _default_container(container: Object) -> None:
    default_in(container, "terminationMessagePath", "/dev/termination-log")
    default_in(container, "terminationMessagePolicy", "File")
    default_in(container, "resources", {})
    if container.get("imagePullPolicy") is None:
        image = str(container.get("image") or "")
        tag = image.rpartition("@")[0] or image.rpartition("/")[2].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for port in container.get("ports") or ():
        default_in(port, "protocol", "TCP")
    for env in container.get("env") or ():
        source = env.get("valueFrom") or {}
        if "fieldRef" in source:
            default_in(source["fieldRef"], "apiVersion", "v1")
    resources = container["resources"]
    for key, value in (resources.get("limits") or {}).items():
        requests = resources.setdefault("requests", {})
        requests.setdefault(key, value)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(probe), dict):
            _default_probe(container[probe])


def _default_probe(probe: Object) -> None:
    for key, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        default_in(probe, key, value)
    if isinstance(probe.get("httpGet"), dict):
        default_in(probe["httpGet"], "path", "/")
        default_in(probe["httpGet"], "scheme", "HTTP")


def _default_volume(volume: Object) -> None:
    for source in ("secret", "configMap", "projected", "downwardAPI"):
        if isinstance(volume.get(source), dict):
            default_in(volume[source], "defaultMode", 420)
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    downward = list((volume.get("downwardAPI") or {}).get("items") or ())
    if isinstance(volume.get("hostPath"), dict):
        default_in(volume["hostPath"], "type", "")
    projected = volume.get("projected")
    for source in (projected or {}).get("sources") or ():
        if isinstance(source.get("serviceAccountToken"), dict):
            default_in(source["serviceAccountToken"], "expirationSeconds", 3600)
        downward += (source.get("downwardAPI") or {}).get("items") or ()
    for item in downward:
        if isinstance(item.get("fieldRef"), dict):
            default_in(item["fieldRef"], "apiVersion", "v1")


def qos_class(spec: Object) -> str:
    guaranteed = True
    any_set = False
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        resources = (container.get("resources") or {}) if isinstance(container, dict) else {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        counted = {key for key in ("cpu", "memory") if key in limits or key in requests}
        any_set = any_set or bool(counted)
        for key in ("cpu", "memory"):
            if key not in limits or requests.get(key, limits[key]) != limits[key]:
                guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def validate_pod_spec(spec: Object, path: str) -> list[FieldError]:
    problems: list[FieldError] = []
    volumes = _validate_volumes(spec.get("volumes") or [], f"{path}.volumes", problems)
    if not spec.get("containers"):
        problems.append(required(f"{path}.containers"))
    names: set[str] = set()
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            _validate_container(container, f"{path}.{kind}[{index}]", names, volumes, problems)
    policy = spec.get("restartPolicy")
    if policy not in _RESTART_POLICIES:
        problems.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    dns = spec.get("dnsPolicy")
    if dns not in _DNS_POLICIES:
        problems.append(not_supported(f"{path}.dnsPolicy", dns, _DNS_POLICIES))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        problems.append(
            invalid_value(
                f"{path}.activeDeadlineSeconds",
                deadline,
                "must be between 1 and 2147483647, inclusive",
            )
        )
    return problems


def _validate_volumes(volumes: list[Any], path: str, problems: list[FieldError]) -> set[str]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name") or ""
        where = f"{path}[{index}].name"
        if not name:
            problems.append(required(where))
        elif problem := name_problem_label(name):
            problems.append(invalid_value(where, name, problem))
        elif name in names:
            problems.append(duplicate(where, name))
        names.add(name)
    return names


def _validate_container(
    container: Object,
    path: str,
    names: set[str],
    volumes: set[str],
    problems: list[FieldError],
) -> None:
    name = container.get("name") or ""
    if not name:
        problems.append(required(f"{path}.name"))
    elif problem := name_problem_label(name):
        problems.append(invalid_value(f"{path}.name", name, problem))
    elif name in names:
        problems.append(duplicate(f"{path}.name", name))
    names.add(name)
    image = container.get("image") or ""
    if not image:
        problems.append(required(f"{path}.image"))
    elif image != image.strip():
        problems.append(
            invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
        )
    _validate_resources(container.get("resources") or {}, f"{path}.resources", problems)
    policy = container.get("imagePullPolicy")
    if policy not in _PULL_POLICIES:
        problems.append(not_supported(f"{path}.imagePullPolicy", policy, _PULL_POLICIES))
    for index, env in enumerate(container.get("env") or ()):
        where = f"{path}.env[{index}].name"
        if not env.get("name"):
            problems.append(required(where))
        elif not _ENV_NAME.fullmatch(env["name"]):
            problems.append(
                invalid_value(
                    where,
                    env["name"],
                    "a valid environment variable name must consist only of printable ASCII "
                    "characters other than '='",
                )
            )
    mounts: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            problems.append(required(f"{where}.name"))
        elif mount["name"] not in volumes:
            problems.append(FieldError("NotFound", f"{where}.name", mount["name"]))
        if not mount.get("mountPath"):
            problems.append(required(f"{where}.mountPath"))
        elif mount["mountPath"] in mounts:
            problems.append(
                invalid_value(f"{where}.mountPath", mount["mountPath"], "must be unique")
            )
        mounts.add(mount.get("mountPath") or "")
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort")
        where = f"{path}.ports[{index}].containerPort"
        if not number:
            problems.append(required(where))
        elif not 0 < number < 65536:
            problems.append(invalid_value(where, number, "must be between 1 and 65535, inclusive"))


def _deadline_problems(obj: Object, old: Object) -> list[FieldError]:
    """A deadline may be set and shortened, nothing else."""
    path = "spec.activeDeadlineSeconds"
    new = (obj.get("spec") or {}).get("activeDeadlineSeconds")
    before = (old.get("spec") or {}).get("activeDeadlineSeconds")
    if before is None:
        return []
    if new is None:
        why = "must not update from a positive integer to nil value"
        return [invalid_value(path, None, why)]
    if new > before:
        return [invalid_value(path, new, "must be less than or equal to previous value")]
    return []


def _validate_resources(resources: Object, path: str, problems: list[FieldError]) -> None:
    limits = resources.get("limits") or {}
    for key, value in (resources.get("requests") or {}).items():
        if key in limits and parse_quantity(value) > parse_quantity(limits[key]):
            why = f"must be less than or equal to {key} limit of {limits[key]}"
            problems.append(invalid_value(f"{path}.requests", value, why))


def _toleration_problems(obj: Object, old: Object) -> list[FieldError]:
    """Tolerations may be added; of those that are there, only the seconds change."""
    kept = [_lasting(each) for each in (obj.get("spec") or {}).get("tolerations") or ()]
    before = (old.get("spec") or {}).get("tolerations") or ()
    if all(_lasting(each) in kept for each in before):
        return []
    why = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden_value("spec.tolerations", why)]


def _lasting(toleration: Object) -> Object:
    return {key: each for key, each in toleration.items() if key != "tolerationSeconds"}


def _fixed_part(obj: Object, old: Object) -> Object:
    """The new spec with everything that may change set back to what it was."""
    spec: Object = decode_json(encode_json(obj.get("spec") or {}))
    before = old.get("spec") or {}
    for kind in ("containers", "initContainers"):
        for new, was in zip(spec.get(kind) or (), before.get(kind) or (), strict=False):
            if "image" in was:
                new["image"] = was["image"]
    for key in ("activeDeadlineSeconds", "tolerations", "ephemeralContainers"):
        if key in before:
            spec[key] = before[key]
        else:
            spec.pop(key, None)
    return spec
