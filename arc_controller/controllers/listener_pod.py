"""The pod that a listener runs in, with the user's ``listenerTemplate`` merged in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from arc_controller.api.core import PodManifest
from arc_controller.api.v1alpha1 import LISTENER_CONTAINER, AutoscalingListener, ResourceMeta
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.labels import merged_annotations, merged_labels
from arc_controller.controllers.listener_config import (
    CONFIG_KEY,
    config_secret_key,
    metrics_port,
    proxy_secret_key,
)
from arc_controller.controllers.meta import own, with_integrity
from arc_controller.controllers.proxy import proxy_variables
from arc_controller.runtime.objects import ObjectMeta

CONFIG_DIRECTORY = "/etc/gha-listener"
CONFIG_PATH_VARIABLE = "LISTENER_CONFIG_PATH"
CONFIG_VOLUME = "listener-config"
GRACE_PERIOD = 60

_NOT_TAKEN = frozenset(
    {"serviceAccountName", "serviceAccount", "automountServiceAccountToken", "containers"}
)

Json = dict[str, Any]


def listener_pod(
    listener: AutoscalingListener, config: ControllerConfig, *secrets: Mapping[str, bytes]
) -> PodManifest:
    """The pod. Its integrity hash covers what is in `secrets` too: a process reads them once."""
    template = listener.spec.template
    asked = template.metadata if template else {}
    extra = ResourceMeta(
        labels=dict(asked.get("labels") or {}), annotations=dict(asked.get("annotations") or {})
    )
    spec = _base(listener, config)
    if template is not None:
        spec = merged_spec(spec, template.spec)
    metadata = ObjectMeta(
        name=listener.metadata.name,
        namespace=listener.metadata.namespace,
        labels=merged_labels(extra, listener.metadata.labels),
        annotations=merged_annotations(extra),
    )
    # The uid is salt: nobody shall find out from two hashes that two secrets are equal.
    metadata = with_integrity(own(listener, metadata), spec, listener.uid, *secrets)
    return PodManifest(metadata=metadata, spec=spec)


def _base(listener: AutoscalingListener, config: ControllerConfig) -> Json:
    proxy = proxy_secret_key(listener).name
    container: Json = {
        "name": LISTENER_CONTAINER,
        "image": listener.spec.image,
        "command": [config.listener_entrypoint],
        "env": [
            {"name": CONFIG_PATH_VARIABLE, "value": f"{CONFIG_DIRECTORY}/{CONFIG_KEY}"},
            *(
                {
                    "name": variable,
                    "valueFrom": {"secretKeyRef": {"name": proxy, "key": variable}},
                }
                for variable in proxy_variables(listener.spec.proxy)
            ),
        ],
        "volumeMounts": [
            {"name": CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True},
        ],
    }
    port = metrics_port(config)
    if port is not None:
        container["ports"] = [{"name": "metrics", "containerPort": port, "protocol": "TCP"}]
    spec: Json = {
        "serviceAccountName": listener.metadata.name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_PERIOD,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
        "volumes": [
            {"name": CONFIG_VOLUME, "secret": {"secretName": config_secret_key(listener).name}}
        ],
    }
    if listener.spec.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": ref.name} for ref in listener.spec.image_pull_secrets]
    return spec


def merged_spec(base: Json, template: Mapping[str, Any]) -> Json:
    """The pod spec `base` with the user's `template` in it. Neither is changed.

    The container ``listener`` is merged field by field, other containers and volumes are added, and
    all other fields of the pod are taken over, except those that say who it is.
    """
    spec = {**base, **{k: v for k, v in template.items() if k not in _NOT_TAKEN and _is_given(v)}}
    spec["nodeSelector"] = {**base["nodeSelector"], **(template.get("nodeSelector") or {})}
    for name in ("volumes", "imagePullSecrets"):
        joined = _joined(base.get(name, []), template.get(name) or [], key=_name)
        if joined:
            spec[name] = joined

    ours = base["containers"][0]
    others: list[Json] = []
    for container in template.get("containers") or []:
        if container.get("name") == LISTENER_CONTAINER:
            ours = _merged_container(ours, container)
        else:
            others.append(container)
    spec["containers"] = [ours, *others]
    return spec


def _merged_container(base: Json, template: Json) -> Json:
    container = {**base, **{k: v for k, v in template.items() if _is_given(v)}}
    container["env"] = _overlaid(base["env"], template.get("env") or [], CONFIG_PATH_VARIABLE)
    container["volumeMounts"] = _joined(
        base["volumeMounts"], template.get("volumeMounts") or [], key=lambda m: m.get("mountPath")
    )
    ports = _ports(base.get("ports", []), template.get("ports") or [])
    if ports:
        container["ports"] = ports
    return container


def _ports(ours: Sequence[Json], theirs: Sequence[Json]) -> list[Json]:
    """Both lists; theirs replaces ours of the same number or name, since both must be unique."""
    numbers = {(port.get("containerPort"), port.get("protocol") or "TCP") for port in theirs}
    names = {port.get("name") for port in theirs}
    kept = [
        port
        for port in ours
        if (port["containerPort"], port["protocol"]) not in numbers and port["name"] not in names
    ]
    return [*kept, *theirs]


def _overlaid(ours: Sequence[Json], theirs: Sequence[Json], kept: str) -> list[Json]:
    """Both lists of variables; theirs replaces ours of the same name, except `kept`."""
    replaced = {entry.get("name") for entry in theirs} - {kept}
    appended = [entry for entry in theirs if entry.get("name") != kept]
    return [*(entry for entry in ours if entry["name"] not in replaced), *appended]


def _joined(
    first: Iterable[Json], second: Iterable[Json], *, key: Callable[[Json], Hashable]
) -> list[Json]:
    """Both lists; of entries with the same key the first counts: the API server wants one."""
    found: dict[Hashable, Json] = {}
    for entry in (*first, *second):
        found.setdefault(key(entry), entry)
    return list(found.values())


def _name(entry: Json) -> Hashable:
    return str(entry.get("name"))


def _is_given(value: Any) -> bool:
    return value not in (None, "", [], {})
