"""The controller in simulated time, on an API server that lives in the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from arc_controller.api.core import ConfigMap
from arc_controller.runtime import ApiClient, LazyCopy, Manager, NamespacedName, ObjectMeta
from arc_controller.runtime.events import Event, event_scheme
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.loop import now, simulated
from arc_controller.testing.transport import InProcessTransport
from examples.mirror.controller import MIRROR, add_mirror_controller
from examples.mirror.kind import SCHEME, Mirror, MirrorSpec

HERE = Path(__file__).parent
SOURCE = NamespacedName("default", "settings")
COPY = NamespacedName("kube-public", "settings")


class Cluster:
    """An API server with the CRD, the controller, and a client as a user has one."""

    def __init__(self) -> None:
        crd = yaml.safe_load((HERE / "crd.yaml").read_text())
        self.server = ApiServer(crds=[crd], now=now)
        self.user = ApiClient(InProcessTransport(self.server), SCHEME)
        self.manager = Manager(InProcessTransport(self.server), SCHEME, now=now)
        self.manager.cache.detect_mutations = True
        add_mirror_controller(self.manager)

    async def create_source(self, **data: str) -> None:
        meta = ObjectMeta(namespace=SOURCE.namespace, name=SOURCE.name)
        await self.user.create(ConfigMap(metadata=meta, data=data))

    async def create_mirror(self, *namespaces: str) -> None:
        meta = ObjectMeta(namespace="default", name="mirror")
        spec = MirrorSpec(source=SOURCE.name, namespaces=list(namespaces))
        await self.user.create(Mirror(metadata=meta, spec=spec))

    async def mirror(self) -> Mirror:
        await asyncio.sleep(1)
        return await self.user.get(Mirror, NamespacedName("default", "mirror"))

    async def copies(self) -> dict[str, dict[str, str]]:
        """What the copies hold, by namespace, when the controller has had a second to work."""
        await asyncio.sleep(1)
        found = await self.user.list(ConfigMap)
        return {m.metadata.namespace: m.data for m in found if MIRROR in m.metadata.labels}


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    task = asyncio.create_task(cluster.manager.run())
    yield cluster
    cluster.manager.cache.check_mutations()
    cluster.manager.stop()
    await task
    await cluster.server.aclose()


@simulated
async def test_every_namespace_gets_a_copy() -> None:
    async with running() as cluster:
        await cluster.create_source(greeting="hello")
        await cluster.create_mirror("kube-public", "kube-system")
        expected = {"kube-public": {"greeting": "hello"}, "kube-system": {"greeting": "hello"}}
        assert await cluster.copies() == expected
        mirror = await cluster.mirror()
        assert mirror.status.copies == 2
        assert mirror.status.conditions[0].status == "True"


@simulated
async def test_a_change_of_the_source_reaches_the_copies() -> None:
    async with running() as cluster:
        await cluster.create_source(greeting="hello")
        await cluster.create_mirror("kube-public")
        await cluster.copies()
        await cluster.user.patch(ConfigMap, SOURCE, {"data": {"greeting": "bye"}})
        assert await cluster.copies() == {"kube-public": {"greeting": "bye"}}


@simulated
async def test_a_copy_that_was_changed_or_deleted_is_restored() -> None:
    async with running() as cluster:
        await cluster.create_source(greeting="hello")
        await cluster.create_mirror("kube-public")
        await cluster.copies()
        await cluster.user.patch(ConfigMap, COPY, {"data": {"greeting": "tampered"}})
        assert await cluster.copies() == {"kube-public": {"greeting": "hello"}}
        await cluster.user.delete(ConfigMap, COPY)
        assert await cluster.copies() == {"kube-public": {"greeting": "hello"}}


@simulated
async def test_a_missing_source_is_reported_and_waited_for() -> None:
    async with running() as cluster:
        await cluster.create_mirror("kube-public")
        condition = (await cluster.mirror()).status.conditions[0]
        assert (condition.reason, condition.status) == ("SourceMissing", "False")
        events = ApiClient(InProcessTransport(cluster.server), event_scheme())
        assert [e.message for e in await events.list(Event)] == ["There is no ConfigMap settings."]
        await cluster.create_source(greeting="hello")
        assert await cluster.copies() == {"kube-public": {"greeting": "hello"}}


@simulated
async def test_what_is_no_longer_wanted_goes() -> None:
    async with running() as cluster:
        await cluster.create_source(greeting="hello")
        await cluster.create_mirror("kube-public", "kube-system")
        mirror = LazyCopy(await cluster.mirror())
        mirror.mutate().spec.namespaces.remove("kube-system")
        await mirror.patch(cluster.user)
        assert list(await cluster.copies()) == ["kube-public"]
        await cluster.user.delete(Mirror, mirror.obj.key)
        assert await cluster.copies() == {}
        assert await cluster.user.list(Mirror) == []
        assert await cluster.user.find(ConfigMap, SOURCE) is not None


@simulated
async def test_somebody_elses_config_map_is_left_alone() -> None:
    async with running() as cluster:
        meta = ObjectMeta(namespace=COPY.namespace, name=COPY.name)
        await cluster.user.create(ConfigMap(metadata=meta, data={"mine": "yes"}))
        await cluster.create_source(greeting="hello")
        await cluster.create_mirror("kube-public")
        assert await cluster.copies() == {}
        assert (await cluster.user.get(ConfigMap, COPY)).data == {"mine": "yes"}
        assert (await cluster.mirror()).status.copies == 0


@simulated
async def test_then_it_is_quiet() -> None:
    async with running() as cluster:
        await cluster.create_source(greeting="hello")
        await cluster.create_mirror("kube-public")
        await cluster.copies()
        before = len(list(cluster.server.request_log))
        await asyncio.sleep(3600)
        assert {r.verb for r in list(cluster.server.request_log)[before:]} <= {"watch"}
