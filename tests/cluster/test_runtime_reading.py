"""Transport, client, reflector and cache against a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio

from arc_controller.api import SCHEME
from arc_controller.api.core import ConfigMap, Pod, PodManifest
from arc_controller.runtime import client as client_module
from arc_controller.runtime import reflector as reflector_module
from arc_controller.runtime.cache import Cache, Scope
from arc_controller.runtime.client import ApiClient, CachingClient
from arc_controller.runtime.errors import Conflict
from arc_controller.runtime.http import HttpTransport
from arc_controller.runtime.incluster import InClusterConnection
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import KubeObject, LabelSelector, NamespacedName, ObjectMeta
from arc_controller.testing.envtest import Envtest

pytestmark = pytest.mark.asyncio(loop_scope="session")
HOLD = "example.com/hold"


@pytest.fixture
def env(plain: Envtest) -> Envtest:
    return plain


@pytest_asyncio.fixture(loop_scope="session")
async def transport(env: Envtest) -> AsyncIterator[HttpTransport]:
    transport = await HttpTransport.from_environment(kubeconfig=str(env.admin.kubeconfig_file))
    yield transport
    await transport.close()


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(env: Envtest, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[:60].strip("-")
    await env.namespace(name)
    return str(name)


class Diary:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_add(self, obj: KubeObject, initial: bool) -> None:
        self.lines.append(f"add {obj.metadata.name}")

    def on_update(self, old: KubeObject, new: KubeObject) -> None:
        self.lines.append(f"update {new.metadata.name}")

    def on_delete(self, obj: KubeObject) -> None:
        self.lines.append(f"delete {obj.metadata.name}")


@asynccontextmanager
async def caching(
    transport: HttpTransport, kind: type[KubeObject], *scopes: Scope
) -> AsyncIterator[tuple[CachingClient, Diary]]:
    cache = Cache(transport, SCHEME, {kind: scopes})
    diary = Diary()
    cache.informer(kind).add_handler(diary)
    task = asyncio.create_task(cache.start())
    await asyncio.wait_for(cache.wait_for_sync(), 30)
    yield CachingClient(ApiClient(transport, SCHEME), cache), diary
    task.cancel()
    await asyncio.wait([task])


def config(name: str, namespace: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))


async def test_own_writes_are_read_and_told_once(transport: HttpTransport, namespace: str) -> None:
    key = NamespacedName(namespace, "a")
    async with caching(transport, ConfigMap, Scope(namespace)) as (client, diary):
        held = config("a", namespace)
        held.metadata.finalizers = [HOLD]
        made = await client.create(held)
        assert await client.get(ConfigMap, key) == made
        lazy = LazyCopy(made)
        lazy.mutate().data["k"] = "v"
        await lazy.patch(client)
        assert (await client.get(ConfigMap, key)).data == {"k": "v"}
        stale = LazyCopy(made)
        stale.mutate().data["k"] = "w"
        with pytest.raises(Conflict):
            await stale.patch(client)
        assert await client.delete(ConfigMap, key, uid=made.uid)
        ending = await client.get(ConfigMap, key)
        assert ending.is_being_deleted
        last = LazyCopy(ending)
        last.mutate().metadata.finalizers.clear()
        await last.patch(client)
        assert await client.find(ConfigMap, key) is None

        await client.create(config("end", namespace))
        await asyncio.sleep(0.5)  # All events have come by now; none of them brings it back.
        told = [line for line in diary.lines if "kube-root-ca" not in line]
        assert told == ["add a", "update a", "update a", "delete a", "add end"]


async def test_a_pod_that_nobody_runs_ends_at_once(
    transport: HttpTransport, namespace: str
) -> None:
    key = NamespacedName(namespace, "p")
    spec = {"containers": [{"name": "c", "image": "i"}]}
    api = ApiClient(transport, SCHEME)
    account = {"metadata": {"name": "default", "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await transport.request("POST", path, body=msgspec.json.encode(account))
    async with caching(transport, Pod, Scope(namespace)) as (client, diary):
        await client.create(
            PodManifest(metadata=ObjectMeta(name="p", namespace=namespace), spec=spec)
        )
        assert await client.find(Pod, key) is not None
        assert await client.delete(Pod, key)
        assert await client.find(Pod, key) is None
        assert await api.find(Pod, key) is None
        await asyncio.sleep(0.5)
        assert (diary.lines[0], diary.lines[-1]) == ("add p", "delete p")
        assert diary.lines.count("add p") == diary.lines.count("delete p") == 1


async def test_long_collections_are_read_in_pages(
    transport: HttpTransport, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "PAGE", 2)
    monkeypatch.setattr(client_module, "PAGE", 2)
    api = ApiClient(transport, SCHEME)
    for number in range(7):
        await api.create(config(f"c{number}", namespace, mine="yes"))
    mine = LabelSelector({"mine": "yes"})
    assert len(await api.list(ConfigMap, namespace=namespace, labels=mine)) == 7
    async with caching(transport, ConfigMap, Scope(namespace, mine)) as (client, _):
        assert len(await client.list(ConfigMap, namespace=namespace)) == 7


async def test_a_version_that_the_server_refuses_leads_to_a_new_list(
    transport: HttpTransport, namespace: str
) -> None:
    class Sink(Diary):
        def replaced(self, objects: object, unreadable: object, version: str) -> None:
            self.lines.append("list")

        def changed(self, obj: KubeObject) -> None: ...
        def deleted(self, last: KubeObject) -> None: ...
        def reached(self, version: str) -> None: ...

    sink = Sink()
    reflector = reflector_module.Reflector(ConfigMap, sink, transport, SCHEME, namespace=namespace)
    task = asyncio.create_task(reflector.run())
    while reflector.state is not reflector_module.State.WATCHING:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    reflector.version = "of another server"

    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(30):
        while sink.lines != ["list", "list"]:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert int(reflector.version) > 0


async def test_a_pods_own_token_is_enough(env: Envtest, namespace: str, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"]}]
    user = await env.user(f"pod-{namespace}"[:60], rules=rules, namespace=namespace)
    (tmp_path / "token").write_text(user.token)
    (tmp_path / "ca.crt").write_bytes(user.ca_file.read_bytes())
    server = urlsplit(user.url)
    environment = {
        "KUBERNETES_SERVICE_HOST": server.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }
    transport = HttpTransport(InClusterConnection(environment, tmp_path))
    client = ApiClient(transport, SCHEME)
    await client.create(config("a", namespace))
    assert "a" in [obj.metadata.name for obj in await client.list(ConfigMap, namespace=namespace)]
    await transport.close()
