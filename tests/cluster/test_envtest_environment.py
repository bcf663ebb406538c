"""The launcher of a real API server: what it starts, whom it lets in and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from arc_controller.testing.envtest import (
    AssetsMissing,
    ClientConfig,
    Envtest,
    EnvtestError,
    ProcessFailed,
    Rest,
    find_assets,
    refusals,
    unused_rules,
)
from tests.scenarios.runs import Servers
from tests.scenarios.servers import RealServer

READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


# Tests about its life start their own.
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def env(plain: Envtest) -> Envtest:
    return plain


@pytest_asyncio.fixture(loop_scope="session")
async def managed(servers: Servers) -> AsyncIterator[tuple[Envtest, str]]:
    """With the controller manager; and a namespace there."""
    async with servers.stage() as stage:
        assert isinstance(stage.server, RealServer)
        yield stage.server.env, stage.namespace


async def status(config: ClientConfig, path: str) -> int:
    async with Rest(config) as rest:
        return (await rest.try_request("GET", path)).status


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_server_says_the_version_that_tools_go_mod_names(env: Envtest) -> None:
    version = await env.rest.request("GET", "/version")
    go_mod = (Path(__file__).parents[2] / "tools" / "go.mod").read_text()
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        assert f"k8s.io/kubernetes {version['gitVersion']}" in go_mod
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")


async def test_a_user_may_do_what_the_rules_say_and_no_more(env: Envtest) -> None:
    await env.namespace("one")
    reader = await env.user("one-reader", rules=[READ_PODS], namespace="one")
    assert await status(reader, "/api/v1/namespaces/one/pods") == 200
    assert await status(reader, "/api/v1/namespaces/default/pods") == 403
    assert await status(reader, "/api/v1/namespaces/one/secrets") == 403
    await env.grant("one-reader", [READ_PODS])
    assert await status(reader, "/api/v1/namespaces/default/pods") == 200


async def test_the_same_name_asked_for_twice_is_the_same_user(env: Envtest) -> None:
    first = await env.user("twice", rules=[READ_PODS])
    await env.user("twice", rules=[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}])
    assert await status(first, "/api/v1/pods") == 200
    assert await status(first, "/api/v1/nodes") == 200


async def test_a_service_account_is_who_role_bindings_say_it_is(env: Envtest) -> None:
    await env.namespace("operators")
    config = await env.service_account("operators", "manager", rules=[READ_PODS])
    async with Rest(config) as rest:
        review = await rest.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )
        info = review["status"]["userInfo"]
        assert info["username"] == "system:serviceaccount:operators:manager"
        assert "system:serviceaccounts:operators" in info["groups"]
        assert "system:authenticated" in info["groups"]
    assert await status(config, "/api/v1/namespaces/operators/pods") == 200


async def test_a_stranger_is_not_let_in(env: Envtest) -> None:
    trust = ssl.create_default_context(cafile=str(env.admin.ca_file))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        stranger = {"Authorization": "Bearer made-up"}
        async with session.get(f"{env.admin.url}/api/v1/pods", headers=stranger) as response:
            assert response.status == 401
        async with session.get(f"{env.admin.url}/api/v1/pods") as response:
            assert response.status == 403


async def test_stock_kubectl_uses_the_kubeconfig_of_a_user(env: Envtest) -> None:
    reader = await env.user("kubectl-reader", rules=[READ_PODS])
    assert "No resources found" not in await env.kubectl("get", "namespaces", "-o", "name")
    assert await env.kubectl("auth", "can-i", "list", "pods", user=reader) == "yes\n"
    with pytest.raises(EnvtestError, match="forbidden"):
        await env.kubectl("get", "secrets", user=reader)
    applied = await env.kubectl(
        "apply", "-f", "-", stdin='{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}'
    )
    assert applied == "configmap/a created\n"


async def test_the_audit_log_tells_refusals_and_rules_that_nobody_used(env: Envtest) -> None:
    rules = [READ_PODS, {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
    reader = await env.user("audited", rules=rules)
    await status(reader, "/api/v1/pods")
    await status(reader, "/api/v1/namespaces/default/pods/absent")
    await status(reader, "/api/v1/secrets")
    events = env.audit_events()
    refused = refusals(events, "audited")
    assert [(e.verb, e.resource, e.code) for e in refused] == [("list", "secrets", 403)]
    unused = unused_rules(rules, events, "audited")
    assert [str(rule) for rule in unused] == ["watch pods", "patch pods/status"]


async def test_a_restarted_server_keeps_its_address_its_users_and_its_state(env: Envtest) -> None:
    reader = await env.user("patient-reader", rules=[READ_PODS])
    await env.rest.request("POST", CONFIG_MAPS, {"metadata": {"name": "kept"}})
    await env.restart_api_server(kill=True)
    assert await status(reader, "/api/v1/pods") == 200
    assert await status(env.admin, f"{CONFIG_MAPS}/kept") == 200


async def test_in_cluster_files_are_laid_out_as_in_a_pod(env: Envtest, tmp_path: Path) -> None:
    environ = env.admin.write_in_cluster(tmp_path / "sa", "arc-systems")
    url = f"https://{environ['KUBERNETES_SERVICE_HOST']}:{environ['KUBERNETES_SERVICE_PORT']}"
    assert url == env.admin.url
    assert (tmp_path / "sa" / "namespace").read_text() == "arc-systems"
    assert (tmp_path / "sa" / "token").stat().st_mode & 0o077 == 0


async def test_with_always_allow_nobody_is_refused() -> None:
    async with Envtest(authorization="AlwaysAllow") as env:
        assert await status(await env.user("anybody"), "/api/v1/secrets") == 200


async def test_nothing_is_left_when_the_block_ends() -> None:
    async with Envtest() as env:
        folder = env.folder
        pids = [process.pid for process in env.processes.values()]
    assert len(pids) == 2
    assert not any(pid is not None and is_running(pid) for pid in pids)
    assert not folder.exists()


async def test_nothing_is_left_when_the_block_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Envtest() as env:
            folder = env.folder
            pids = [process.pid for process in env.processes.values()]
            raise ZeroDivisionError
    assert not any(pid is not None and is_running(pid) for pid in pids)
    assert not folder.exists()


@pytest.mark.parametrize("moment", ["etcd", "kube-apiserver"])
async def test_nothing_is_left_when_starting_is_cancelled(moment: str) -> None:
    env = Envtest()

    async def start() -> None:
        async with env:
            await asyncio.Event().wait()

    starting = asyncio.create_task(start())
    while moment not in env.processes or env.processes[moment].pid is None:
        await asyncio.sleep(0.01)
    folder = env.folder
    starting.cancel()
    await asyncio.sleep(0)
    starting.cancel()  # twice: the second one arrives while the first is being cleaned up
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not any(p.pid is not None and is_running(p.pid) for p in env.processes.values())
    assert not folder.exists()


async def test_a_program_that_does_not_start_shows_the_end_of_its_log() -> None:
    with pytest.raises(ProcessFailed, match=r"kube-apiserver ended with status 1") as failure:
        async with Envtest(api_server_arguments=["--no-such-flag"]):
            pass
    assert "unknown flag: --no-such-flag" in str(failure.value)
    assert "kube-apiserver.log" in str(failure.value)


async def test_a_work_folder_that_was_given_is_kept(tmp_path: Path) -> None:
    async with Envtest(work_dir=tmp_path / "kept"):
        pass
    assert (tmp_path / "kept" / "kube-apiserver.log").stat().st_size > 0


async def test_missing_programs_are_told_with_the_way_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(AssetsMissing, match="run `make envtest` or set KUBEBUILDER_ASSETS"):
        find_assets()
    with pytest.raises(AssetsMissing, match="no program etcd"):
        async with Envtest():
            pass


async def test_using_it_outside_of_the_block_is_refused_by_name() -> None:
    with pytest.raises(EnvtestError, match="outside of `async with`"):
        Envtest().admin.environ()


async def test_the_controller_manager_collects_what_lost_its_owner(
    managed: tuple[Envtest, str],
) -> None:
    env, namespace = managed
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = await env.rest.request("POST", config_maps, {"metadata": {"name": "owner"}})
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    owned = {"metadata": {"name": "owned", "ownerReferences": [reference]}}
    await env.rest.request("POST", config_maps, owned)
    await env.rest.request("DELETE", f"{config_maps}/owner")
    await gone(env, f"{config_maps}/owned")


async def test_the_controller_manager_empties_a_deleted_namespace(
    managed: tuple[Envtest, str],
) -> None:
    env, _ = managed
    await env.namespace("emptied")
    await env.rest.request("DELETE", "/api/v1/namespaces/emptied")
    await gone(env, "/api/v1/namespaces/emptied")


async def test_the_controller_manager_counts_against_a_quota(
    managed: tuple[Envtest, str],
) -> None:
    env, namespace = managed
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    await env.rest.request("POST", quotas, quota)
    async with asyncio.timeout(30):
        while "hard" not in (await env.rest.request("GET", f"{quotas}/few"))["status"]:
            await asyncio.sleep(0.05)
    pod = {
        "metadata": {"name": "refused"},
        "spec": {"containers": [{"name": "runner", "image": "runner"}]},
    }
    answer = await env.rest.try_request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    assert answer.status == 403
    assert "exceeded quota" in answer.message


async def gone(env: Envtest, path: str) -> None:
    async with asyncio.timeout(60):
        while (await env.rest.try_request("GET", path)).status != 404:
            await asyncio.sleep(0.05)
