"""What the charts grant to a manager that looks after one namespace only."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from arc_controller.testing.envtest import run_program
from tests.scenarios.permissions import (
    CONTROLLER_NAMESPACE,
    MANAGER_ACCOUNT,
    ROOT,
    Manifest,
    Permissions,
    in_namespace,
)

WATCHED = "the-watched-namespace"
_CONTROLLER = {
    "fullnameOverride": MANAGER_ACCOUNT,
    "replicaCount": 2,
    "flags": {"watchSingleNamespace": WATCHED},
}
_SCALE_SET = {
    "githubConfigUrl": "https://github.com/acme",
    "githubConfigSecret": "credentials",
    "controllerServiceAccount": {"namespace": CONTROLLER_NAMESPACE, "name": MANAGER_ACCOUNT},
    "githubServerTLS": {"certificateFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
}


async def single_namespace(helm: Path) -> Permissions:
    """Of ``watchSingleNamespace``, and of a scale set with a certificate in its namespace."""
    kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    controller = [
        each
        for each in await _render(helm, "gha-runner-scale-set-controller", _CONTROLLER)
        if each["kind"] in kinds
    ]
    release = [
        each
        for each in await _render(helm, "gha-runner-scale-set", _SCALE_SET)
        if each["kind"] in ("Role", "RoleBinding")
    ]
    for manifest in release:
        # The scale set would let go of them; the stage is struck without one.
        del manifest["metadata"]["finalizers"]
    watched = [each for each in controller if each["metadata"].get("namespace") == WATCHED]
    return Permissions(
        controller=[each for each in controller if each not in watched],
        runners=lambda namespace: [
            in_namespace(manifest, namespace) for manifest in (*watched, *release)
        ],
        single_namespace=True,
    )


async def _render(helm: Path, chart: str, values: dict[str, Any]) -> list[Manifest]:
    with TemporaryDirectory(prefix="values-") as folder:
        path = Path(folder) / "values.json"
        path.write_text(json.dumps(values))
        rendered = await run_program(
            helm,
            "template",
            "release",
            str(ROOT / "charts" / chart),
            f"--namespace={CONTROLLER_NAMESPACE}",
            f"--values={path}",
            environ={"HOME": folder},
        )
    return [document for document in yaml.safe_load_all(rendered) if document]
