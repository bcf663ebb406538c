"""What an EphemeralRunner owns: its pod and the secret with its just-in-time configuration."""

from __future__ import annotations

from typing import Any, Final

from arc_controller.api.core import PodManifest, Secret
from arc_controller.api.v1alpha1 import (
    RUNNER_CONTAINER,
    EphemeralRunner,
    EphemeralRunnerSpec,
    Label,
)
from arc_controller.controllers.labels import merged_annotations, merged_labels
from arc_controller.controllers.meta import own
from arc_controller.controllers.proxy import proxy_variables
from arc_controller.runtime.objects import ObjectMeta

RUNNER_POD_LABEL: Final = "runner-pod"
"""Container hooks put it, with the runner pod's name, on the pods and secrets that they make."""

JIT_TOKEN: Final = "jitToken"
RUNNER_NAME: Final = "runnerName"
RUNNER_ID: Final = "runnerId"
SCALE_SET_ID: Final = "scaleSetId"

_JIT_CONFIG_ENV: Final = "ACTIONS_RUNNER_INPUT_JITCONFIG"
_USER_AGENT_ENV: Final = "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT"
_OUTDATED_ENV: Final = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"
_HOOKS_ENV: Final = "ACTIONS_RUNNER_CONTAINER_HOOKS"


class InvalidTemplate(ValueError):
    """The pod template cannot become a runner pod; the text names the field."""


def build_pod(runner: EphemeralRunner, version: str) -> PodManifest:
    """The runner's pod: its template as it is, and what makes its container ``runner`` a runner.

    Raises `InvalidTemplate`.
    """
    template, pod_spec = runner.spec.metadata, dict(runner.spec.spec)
    if runner_container(runner.spec) is None:
        raise InvalidTemplate(
            f"spec.containers: no container is named {RUNNER_CONTAINER!r}; "
            f"the container that runs jobs must be called {RUNNER_CONTAINER!r}"
        )
    pod_spec["containers"] = [
        _with_env(container, _environment(runner, version)) if _is_runner(container) else container
        for container in pod_spec["containers"]
    ]
    pod_spec.setdefault("restartPolicy", "Never")
    metadata = ObjectMeta(
        name=runner.metadata.name,
        namespace=runner.metadata.namespace,
        labels={
            **_texts(template, "labels"),
            **runner.metadata.labels,
            Label.EPHEMERAL_RUNNER: "True",
        },
        annotations={**_texts(template, "annotations"), **runner.metadata.annotations},
    )
    return PodManifest(metadata=own(runner, metadata), spec=pod_spec)


def build_jit_secret(runner: EphemeralRunner, runner_id: int, jit_config: str) -> Secret:
    """The secret that keeps the answer of the service; see `runner_id_in` for reading it."""
    extra = runner.spec.ephemeral_runner_config_secret_metadata
    metadata = ObjectMeta(
        name=runner.metadata.name,
        namespace=runner.metadata.namespace,
        labels=merged_labels(extra, runner.metadata.labels),
        annotations=merged_annotations(extra),
    )
    return Secret(
        metadata=own(runner, metadata),
        type="Opaque",
        data={
            JIT_TOKEN: jit_config.encode(),
            RUNNER_NAME: runner.metadata.name.encode(),
            RUNNER_ID: str(runner_id).encode(),
            SCALE_SET_ID: str(runner.spec.runner_scale_set_id).encode(),
        },
    )


def runner_id_in(secret: Secret, runner: EphemeralRunner) -> int:
    """The runner's id at the service; 0 for a secret that is corrupt or of another runner."""
    data = secret.data
    try:
        runner_id = int(data.get(RUNNER_ID, b""))
        scale_set_id = int(data.get(SCALE_SET_ID, b""))
    except ValueError:
        return 0
    sound = (
        runner_id > 0
        and scale_set_id == runner.spec.runner_scale_set_id
        and bool(data.get(JIT_TOKEN))
        and data.get(RUNNER_NAME) == runner.metadata.name.encode()
    )
    return runner_id if sound else 0


def work_folder(spec: EphemeralRunnerSpec) -> str:
    """Where the runner unpacks its jobs; ``""`` leaves that to the runner."""
    container = runner_container(spec) or {}
    return str(container.get("workingDir") or "")


def uses_container_hooks(spec: EphemeralRunnerSpec) -> bool:
    """Whether the runner makes pods and secrets of its own, for which nobody else cleans up."""
    container = runner_container(spec) or {}
    return any(variable.get("name") == _HOOKS_ENV for variable in container.get("env") or [])


def sidecars(spec: EphemeralRunnerSpec) -> frozenset[str]:
    """The init containers that run beside the runner and are restarted when they end."""
    return frozenset(
        container["name"]
        for container in spec.spec.get("initContainers") or []
        if container.get("restartPolicy") == "Always" and "name" in container
    )


def runner_container(spec: EphemeralRunnerSpec) -> dict[str, Any] | None:
    """The container that runs jobs, as the template has it."""
    return next((c for c in spec.spec.get("containers") or [] if _is_runner(c)), None)


def _is_runner(container: Any) -> bool:
    return isinstance(container, dict) and container.get("name") == RUNNER_CONTAINER


def _environment(runner: EphemeralRunner, version: str) -> list[dict[str, Any]]:
    environment: list[dict[str, Any]] = [
        _from_secret(_JIT_CONFIG_ENV, runner.metadata.name, JIT_TOKEN),
        {"name": _USER_AGENT_ENV, "value": f"actions-runner-controller/{version}"},
        {"name": _OUTDATED_ENV, "value": "1"},
    ]
    if runner.spec.proxy_secret_ref:
        environment += [
            _from_secret(name, runner.spec.proxy_secret_ref, name)
            for name in proxy_variables(runner.spec.proxy)
        ]
    return environment


def _from_secret(variable: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _with_env(container: dict[str, Any], ours: list[dict[str, Any]]) -> dict[str, Any]:
    names = {variable["name"] for variable in ours}
    theirs = [v for v in container.get("env") or [] if v.get("name") not in names]
    return {**container, "env": [*theirs, *ours]}


def _texts(template: dict[str, Any], field: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in (template.get(field) or {}).items()}
