"""``kubectl apply -k config/…`` on a real API server, and what the permissions there amount to."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from arc_controller.testing.envtest import ClientConfig, Envtest, Rest

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG = Path(__file__).parents[2] / "config"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def env(plain: Envtest) -> Envtest:
    await plain.kubectl("apply", "-k", str(CONFIG / "default"))
    established = "--for=condition=Established"
    await plain.kubectl("wait", established, "crd", "--all", "--timeout=30s")
    await plain.kubectl("apply", "-k", str(CONFIG / "samples"))
    return plain


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def manager(env: Envtest) -> ClientConfig:
    return await env.service_account("arc-systems", "arc-controller")


async def allowed(manager: ClientConfig, *request: str) -> bool:
    verb, resource, *namespace = request
    async with Rest(manager) as rest:
        group, _, name = resource.rpartition("@")
        plural, _, subresource = name.partition("/")
        review = await rest.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {
                    "resourceAttributes": {
                        "group": group,
                        "resource": plural,
                        "subresource": subresource,
                        "verb": verb,
                        "namespace": namespace[0] if namespace else "",
                    }
                },
            },
        )
    return bool(review["status"]["allowed"])


async def test_the_sample_is_accepted_with_strict_validation(env: Envtest) -> None:
    said = await env.kubectl(
        "apply", "-k", str(CONFIG / "samples"), "--dry-run=server", "--validate=strict"
    )
    assert "autoscalingrunnerset.actions.github.com/sample-runners unchanged" in said


async def test_the_manager_starts_listeners_from_its_own_image(env: Envtest) -> None:
    deployment = await env.rest.request(
        "GET", "/apis/apps/v1/namespaces/arc-systems/deployments/arc-controller"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert container["image"].startswith("arc-controller:")
    assert variables["CONTROLLER_MANAGER_CONTAINER_IMAGE"] == container["image"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


@pytest.mark.parametrize(
    "request_",
    [
        ("watch", "actions.github.com@autoscalingrunnersets"),
        ("patch", "actions.github.com@ephemeralrunners/status"),
        ("watch", "pods"),
        ("create", "secrets", "arc-runners"),
        ("create", "pods", "arc-runners"),
        ("create", "rbac.authorization.k8s.io@roles", "arc-runners"),
        ("create", "serviceaccounts", "arc-systems"),
        ("create", "coordination.k8s.io@leases", "arc-systems"),
    ],
    ids=" ".join,
)
async def test_the_manager_may(
    env: Envtest, manager: ClientConfig, request_: tuple[str, ...]
) -> None:
    assert await allowed(manager, *request_)


@pytest.mark.parametrize(
    "request_",
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("get", "secrets", "default"),
        ("create", "pods", "default"),
        ("delete", "actions.github.com@autoscalingrunnersets"),
        ("create", "rbac.authorization.k8s.io@clusterroles"),
        ("create", "pods/exec", "arc-runners"),
        ("delete", "configmaps", "arc-runners"),
    ],
    ids=" ".join,
)
async def test_the_manager_may_not(
    env: Envtest, manager: ClientConfig, request_: tuple[str, ...]
) -> None:
    assert not await allowed(manager, *request_)


async def test_the_manager_may_make_the_role_of_a_listener(
    env: Envtest, manager: ClientConfig
) -> None:
    """A role may only grant what its maker has: the server checks that."""
    group = "actions.github.com"
    rules = [
        {
            "apiGroups": [group],
            "resources": ["ephemeralrunnersets"],
            "resourceNames": ["sample-runners"],
            "verbs": ["patch"],
        },
        {"apiGroups": [group], "resources": ["ephemeralrunners"], "verbs": ["get", "patch"]},
        {"apiGroups": [group], "resources": ["ephemeralrunners/status"], "verbs": ["patch"]},
    ]
    async with Rest(manager) as rest:
        await rest.request(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/arc-runners/roles",
            {"metadata": {"name": "listener"}, "rules": rules},
        )
