"""What a pod's spec says: which container it is about, with which environment and files."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from arc_controller.api.core import PodManifest
from arc_controller.listener.process import CONFIG_PATH

JIT_CONFIG: Final = "ACTIONS_RUNNER_INPUT_JITCONFIG"
LISTENER_CONTAINER: Final = "listener"

ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes]]]
"""(namespace, name) → the secret's data; empty when there is none."""


def main_container(pod: PodManifest) -> dict[str, Any]:
    """The container that the pod is about: the runner, the listener, else the first."""
    containers: list[dict[str, Any]] = pod.spec.get("containers", [])
    for container in containers:
        if _takes_jit_config(container):
            return container
    return container_named(pod, LISTENER_CONTAINER) or (containers[0] if containers else {})


def pod_kind(pod: PodManifest) -> str:
    """``runner``, ``listener`` or ``other``."""
    container = main_container(pod)
    if _takes_jit_config(container):
        return "runner"
    return "listener" if container.get("name") == LISTENER_CONTAINER else "other"


async def config_of(pod: PodManifest, environ: Mapping[str, str], read: ReadSecret) -> bytes:
    """The file that ``LISTENER_CONFIG_PATH`` names, out of the secret that is mounted there."""
    path = environ.get(CONFIG_PATH, "")
    folder, name = posixpath.split(path)
    container = container_named(pod, LISTENER_CONTAINER)
    for mount in container.get("volumeMounts", []):
        if mount.get("mountPath", "").rstrip("/") != folder:
            continue
        for volume in pod.spec.get("volumes", []):
            if volume.get("name") == mount.get("name") and "secret" in volume:
                data = await read(pod.metadata.namespace, volume["secret"]["secretName"])
                return data.get(name, b"")
    return b""


async def environment_of(
    pod: PodManifest, container: Mapping[str, Any], read: ReadSecret
) -> dict[str, str]:
    """A container's environment, with values from secrets resolved as a kubelet does."""
    environ: dict[str, str] = {}
    for variable in container.get("env", []):
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            data = await read(pod.metadata.namespace, reference.get("name", ""))
            if reference.get("key") in data:
                environ[variable["name"]] = data[reference["key"]].decode()
        elif "fieldRef" in source:
            fields = {
                "metadata.name": pod.metadata.name,
                "metadata.namespace": pod.metadata.namespace,
            }
            environ[variable["name"]] = fields.get(source["fieldRef"].get("fieldPath"), "")
        else:
            environ[variable["name"]] = variable.get("value", "")
    return environ


def container_named(pod: PodManifest, name: str) -> dict[str, Any]:
    """The container of that name; empty when there is none."""
    containers: list[dict[str, Any]] = pod.spec.get("containers", [])
    return next((each for each in containers if each.get("name") == name), {})


def _takes_jit_config(container: Mapping[str, Any]) -> bool:
    return any(variable.get("name") == JIT_CONFIG for variable in container.get("env", []))
