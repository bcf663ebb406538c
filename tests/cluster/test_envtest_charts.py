"""The charts on a real API server: installed, upgraded, and what they render checked strictly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arc_controller.testing.envtest import Envtest, EnvtestError, Rest
from arc_controller.testing.envtest.rest import MERGE_PATCH

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHARTS = Path(__file__).parents[2] / "charts"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CREDENTIALS = {
    "githubConfigUrl": "https://github.com/my-org",
    "githubConfigSecret": {"github_token": "x"},
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dind": {"containerMode": {"type": "dind"}},
    "kubernetes": {"containerMode": {"type": "kubernetes", "kubernetesModeWorkVolumeClaim": CLAIM}},
    "novolume": {"containerMode": {"type": "kubernetes-novolume"}},
    "everything": {
        "minRunners": 1,
        "maxRunners": 5,
        "scaleSetLabels": ["linux"],
        "proxy": {"https": {"url": "http://proxy:3128"}, "noProxy": ["example.com"]},
        "githubServerTLS": {
            "certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}},
            "runnerMountPath": "/certs",
        },
        "listenerTemplate": {"spec": {"containers": [{"name": "listener"}]}},
        "listenerMetrics": {"counters": {"gha_started_jobs_total": {"labels": ["name"]}}},
        "resourceMeta": {"ephemeralRunner": {"labels": {"a": "b"}}},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare() -> AsyncIterator[Envtest]:
    async with Envtest() as env:
        yield env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(bare: Envtest) -> Envtest:
    """With the controller installed."""
    await bare.helm(
        "install",
        "arc",
        str(CHARTS / "gha-runner-scale-set-controller"),
        "--namespace=arc-systems",
        "--create-namespace",
        "--set=replicaCount=2",
    )
    await bare.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    await bare.namespace("arc-runners")
    return bare


def values(tmp_path: Path, mode: dict[str, Any]) -> str:
    path = tmp_path / "values.json"
    path.write_text(json.dumps({**CREDENTIALS, **mode}))
    return f"--values={path}"


async def test_without_a_controller_a_scale_set_says_what_to_set(
    bare: Envtest, tmp_path: Path
) -> None:
    """The first test: without the chart of the controller, its deployment or its CRDs."""
    release = ["x", str(CHARTS / "gha-runner-scale-set"), values(tmp_path, {})]
    with pytest.raises(EnvtestError, match=r"Set controllerServiceAccount\.namespace and"):
        await bare.helm("install", *release)


async def test_the_controller_is_installed_with_its_crds(env: Envtest) -> None:
    deployment = await env.rest.request(
        "GET", "/apis/apps/v1/namespaces/arc-systems/deployments/arc-gha-rs-controller"
    )
    assert deployment["spec"]["replicas"] == 2
    crds = await env.kubectl("get", "crd", "-o", "name")
    assert len(crds.split()) == 4


@pytest.mark.parametrize("mode", MODES)
async def test_a_scale_set_is_installed_for_the_controller_found_in_the_cluster(
    env: Envtest, tmp_path: Path, mode: str
) -> None:
    name = f"set-{mode}"
    chart = str(CHARTS / "gha-runner-scale-set")
    release = [name, chart, "--namespace=arc-runners", values(tmp_path, MODES[mode])]
    await env.helm("install", *release)
    binding = await env.rest.request(
        "GET",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/arc-runners/rolebindings/"
        f"{name}-gha-rs-manager",
    )
    (subject,) = binding["subjects"]
    assert (subject["namespace"], subject["name"]) == ("arc-systems", "arc-gha-rs-controller")
    # Strictly: every field that was rendered is one that the server knows.
    manifest = await env.helm("get", "manifest", name, "--namespace=arc-runners")
    said = await env.kubectl(
        "apply", "-f", "-", "--dry-run=server", "--validate=strict", stdin=manifest
    )
    assert f"autoscalingrunnerset.actions.github.com/{name}" in said
    await env.helm("upgrade", *release, "--set=maxRunners=7")
    runner_set = await env.rest.request(
        "GET",
        f"/apis/actions.github.com/v1alpha1/namespaces/arc-runners/autoscalingrunnersets/{name}",
    )
    assert runner_set["spec"]["maxRunners"] == 7


@pytest.mark.parametrize("mode", MODES)
async def test_the_pod_of_a_rendered_set_is_one_that_the_server_runs(
    env: Envtest, tmp_path: Path, mode: str
) -> None:
    """The schema of a template says what types are; only a pod is checked for what it means."""
    manifest = await env.helm(
        "template",
        f"pod-{mode}",
        str(CHARTS / "gha-runner-scale-set"),
        "--namespace=arc-runners",
        "--show-only=templates/autoscalingrunnerset.yaml",
        "--set=controllerServiceAccount.name=x,controllerServiceAccount.namespace=y",
        values(tmp_path, MODES[mode]),
    )
    applied = await env.kubectl(
        "create", "-f", "-", "--dry-run=server", "-o", "json", stdin=manifest
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "runner"},
        "spec": json.loads(applied)["spec"]["template"]["spec"],
    }
    path = "/api/v1/namespaces/arc-runners/pods"
    answer = await env.rest.try_request("POST", path, pod, params={"dryRun": "All"})
    assert answer.status == 201, answer.message


async def test_the_manager_can_let_go_of_everything_that_a_release_made(
    env: Envtest, tmp_path: Path
) -> None:
    """In the controller's order: its own role last, when nothing but the cluster role is left."""
    await env.namespace("arc-leaving")
    release = ["gone", str(CHARTS / "gha-runner-scale-set"), "--namespace=arc-leaving"]
    await env.helm("install", *release, values(tmp_path, MODES["kubernetes"]))
    await env.helm("uninstall", "gone", "--namespace=arc-leaving")
    manager = await env.service_account("arc-systems", "arc-gha-rs-controller")
    core = "/api/v1/namespaces/arc-leaving"
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/arc-leaving"
    protected = [
        f"{rbac}/rolebindings/gone-gha-rs-kube-mode",
        f"{rbac}/roles/gone-gha-rs-kube-mode",
        f"{core}/serviceaccounts/gone-gha-rs-kube-mode",
        f"{core}/secrets/gone-gha-rs-github-secret",
        f"{rbac}/rolebindings/gone-gha-rs-manager",
        f"{rbac}/roles/gone-gha-rs-manager",
    ]
    let_go = {"metadata": {"finalizers": None}}
    async with Rest(manager) as rest:
        for path in protected:
            found = await env.rest.request("GET", path)
            assert found["metadata"]["deletionTimestamp"]
            await rest.request("PATCH", path, let_go, content_type=MERGE_PATCH)
            assert (await env.rest.try_request("GET", path)).status == 404


async def test_a_release_goes_from_several_managers_to_one_and_back(env: Envtest) -> None:
    """By helm, and by server-side apply as Argo CD does it: what the server once filled in must not
    be in the way."""
    path = "/apis/apps/v1/namespaces/arc-systems/deployments/arc-gha-rs-controller"
    release = ["arc", str(CHARTS / "gha-runner-scale-set-controller"), "--namespace=arc-systems"]
    for replicas in (1, 2):
        await env.helm("upgrade", *release, f"--set=replicaCount={replicas}")
        assert (await env.rest.request("GET", path))["spec"]["replicas"] == replicas
    manifest = await env.helm("template", *release, "--set=replicaCount=1")
    await env.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
    assert (await env.rest.request("GET", path))["spec"]["replicas"] == 1
