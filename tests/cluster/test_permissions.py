"""Why ``config/rbac`` grants ``update`` on ``…/finalizers``, which no request ever asks for.

Where the admission plugin ``OwnerReferencesPermissionEnforcement`` is on (as on OpenShift), whoever
sets ``blockOwnerDeletion`` must be allowed to update the owner's finalizers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from arc_controller.api.crd import CUSTOM_RESOURCES, custom_resource_definitions
from arc_controller.testing.envtest import Answer, Envtest, Rest
from arc_controller.testing.envtest.rest import MERGE_PATCH
from tests.scenarios.permissions import (
    CONTROLLER_NAMESPACE,
    MANAGER_ACCOUNT,
    controller_manifests,
    runner_manifests,
)
from tests.scenarios.servers import collection_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK_OWNERS = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
RUNNERS = "arc-runners"
ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{MANAGER_ACCOUNT}"
KINDS = [resource.kind.__name__ for resource in CUSTOM_RESOURCES]
# The plugin looks for new kinds every 30 s.
PATIENCE = 90.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env() -> AsyncIterator[Envtest]:
    async with Envtest(custom_resource_definitions(), api_server_arguments=[ASK_OWNERS]) as env:
        for namespace in (CONTROLLER_NAMESPACE, RUNNERS):
            await env.namespace(namespace)
        for manifest in (*controller_manifests(), *runner_manifests(RUNNERS)):
            await env.rest.request("POST", collection_path(manifest), manifest)
        yield env


async def owned_by(env: Envtest, kind: str) -> Answer:
    """The manager creates a secret that the controllers might, for an owner of this kind. A dry
    run: admission does not know that it is one."""
    namespace = CONTROLLER_NAMESPACE if kind == "AutoscalingListener" else RUNNERS
    owner = {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": kind,
        "name": "owner",
        "uid": "00000000-0000-0000-0000-000000000001",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    secret: dict[str, Any] = {"metadata": {"name": "owned", "ownerReferences": [owner]}}
    manager = await env.service_account(CONTROLLER_NAMESPACE, MANAGER_ACCOUNT)
    async with Rest(manager) as rest:
        path = f"/api/v1/namespaces/{namespace}/secrets"
        return await rest.try_request("POST", path, secret, params={"dryRun": "All"})


async def until(env: Envtest, kind: str, status: int) -> Answer:
    async with asyncio.timeout(PATIENCE):
        while (answer := await owned_by(env, kind)).status != status:
            await asyncio.sleep(0.25)
    return answer


async def test_the_shipped_permissions_let_every_kind_of_ours_own_something(env: Envtest) -> None:
    for kind in KINDS:
        await until(env, kind, 201)


async def test_without_the_finalizers_none_of_them_could(env: Envtest) -> None:
    role = await env.rest.request("GET", ROLE)
    rules = [
        rule
        for rule in role["rules"]
        if not any(resource.endswith("/finalizers") for resource in rule["resources"])
    ]
    assert len(rules) < len(role["rules"])
    await env.rest.request("PATCH", ROLE, {"rules": rules}, content_type=MERGE_PATCH)
    try:
        for kind in KINDS:
            refused = await until(env, kind, 403)
            assert "cannot set blockOwnerDeletion" in refused.message
    finally:
        await env.rest.request("PATCH", ROLE, {"rules": role["rules"]}, content_type=MERGE_PATCH)
