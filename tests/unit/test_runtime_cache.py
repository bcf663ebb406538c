"""The cache over the embedded API server: reading, indexes, scopes, handlers, mutations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from arc_controller.api import SCHEME
from arc_controller.api.core import ConfigMap, Secret
from arc_controller.runtime.cache import Cache, CachedObjectMutated, Scope
from arc_controller.runtime.client import ApiClient, CachingClient
from arc_controller.runtime.errors import TransportError
from arc_controller.runtime.objects import KubeObject, LabelSelector, NamespacedName, ObjectMeta
from arc_controller.runtime.store import Store
from arc_controller.testing.apiserver import ApiServer, messages
from arc_controller.testing.loop import now, simulated
from arc_controller.testing.mutations import mutations_detected
from arc_controller.testing.transport import InProcessTransport, Listener

NS = "default"


def config(name: str, namespace: str = NS, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels))


def key(name: str, namespace: str = NS) -> NamespacedName:
    return NamespacedName(namespace, name)


def names(objects: Any) -> list[str]:
    return sorted(obj.metadata.name for obj in objects)


class Cluster:
    """An API server in simulated time, and a client that bypasses every cache."""

    def __init__(self) -> None:
        self.server = ApiServer(now=now, random=Random(3), namespace_controller=False, history=20)
        self.transport = _BadNetwork(self, self.server, on_response=self._note)
        self.client = ApiClient(InProcessTransport(self.server), SCHEME)
        self.requests: list[tuple[str, str]] = []
        """What the cache asked for."""
        self.deaf = False
        """No event arrives any more, as if the network were slow."""
        self.cut = False
        """The cache does not reach the server."""
        for namespace in ("a", "b"):
            self.server._create("", "namespaces", "", {"metadata": {"name": namespace}})

    def _note(self, method: str, path: str, status: int) -> None:
        self.requests.append((method, path.rsplit("/", 1)[-1]))

    async def make(self, *objects: KubeObject) -> None:
        for obj in objects:
            await self.client.create(obj)

    def cache(self, *scopes: Scope) -> Cache:
        wanted = {ConfigMap: scopes} if scopes else None
        return Cache(self.transport, SCHEME, wanted, now=now, random=Random(5))


class _BadNetwork(InProcessTransport):
    def __init__(self, cluster: Cluster, server: ApiServer, *, on_response: Listener) -> None:
        super().__init__(server, on_response=on_response)
        self._cluster = cluster

    async def _handle(self, request: messages.Request) -> messages.Response:
        if self._cluster.cut:
            raise TransportError("the network is cut")
        return await super()._handle(request)

    async def _lines(self, frames: AsyncIterator[bytes], path: str) -> AsyncIterator[bytes]:
        async for line in super()._lines(frames, path):
            if self._cluster.deaf:
                await asyncio.get_running_loop().create_future()
            yield line


@asynccontextmanager
async def running(cache: Cache) -> AsyncIterator[None]:
    task = asyncio.create_task(cache.start())
    await asyncio.sleep(0)
    await cache.wait_for_sync()
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def settle() -> None:
    await asyncio.sleep(0.01)


@simulated
async def test_it_holds_what_is_there_and_follows_what_happens() -> None:
    cluster = Cluster()
    await cluster.make(config("one"))
    cache = cluster.cache()
    cache.informer(ConfigMap)
    async with running(cache):
        assert names(cache.list(ConfigMap)) == ["one"]

        await cluster.make(config("two"))
        await cluster.client.delete(ConfigMap, key("one"))
        await settle()

        assert names(cache.list(ConfigMap)) == ["two"]
        two = cache.get(ConfigMap, key("two"))
        assert two is cache.get(ConfigMap, key("two"))
        assert cache.get(ConfigMap, key("one")) is None


@simulated
async def test_it_covers_a_kind_only_once_all_of_it_was_seen() -> None:
    cluster = Cluster()
    cache = cluster.cache()
    covered = [cache.covers(ConfigMap)]
    cache.informer(ConfigMap)
    covered.append(cache.covers(ConfigMap))
    async with running(cache):
        covered.append(cache.covers(ConfigMap))
        assert not cache.covers(Secret)
        with pytest.raises(LookupError, match="Secret is not cached"):
            cache.list(Secret)
        assert cache.get(Secret, key("x")) is None
    assert covered == [False, False, True]


@simulated
async def test_an_informer_may_be_asked_for_while_the_cache_runs() -> None:
    cluster = Cluster()
    await cluster.make(config("one"))
    cache = cluster.cache()
    async with running(cache):
        await settle()
        assert cluster.requests == []

        cache.informer(ConfigMap)
        await cache.wait_for_sync([ConfigMap])

        assert names(cache.list(ConfigMap)) == ["one"]
        assert cache.informer(ConfigMap) is cache.informer(ConfigMap)
        assert cache.has_synced


@simulated
async def test_indexes_may_be_added_before_and_after_the_start() -> None:
    cluster = Cluster()
    await cluster.make(config("one", color="red"), config("two", color="blue"), config("three"))
    cache = cluster.cache()
    cache.add_index(ConfigMap, "color", lambda c: [c.metadata.labels.get("color", "none")])
    async with running(cache):
        cache.add_index(ConfigMap, "initial", lambda c: [c.metadata.name[0]])

        assert names(cache.list(ConfigMap, index=("color", "red"))) == ["one"]
        assert names(cache.list(ConfigMap, index=("initial", "t"))) == ["three", "two"]
        assert names(cache.list(ConfigMap, index=("initial", "x"))) == []
        with pytest.raises(LookupError, match=r"no index 'size' \(it has: color, initial\)"):
            cache.list(ConfigMap, index=("size", "x"))
        with pytest.raises(ValueError, match="has an index 'color' already"):
            cache.add_index(ConfigMap, "color", lambda c: [])

        await cluster.client.patch(
            ConfigMap, key("two"), {"metadata": {"labels": {"color": "red"}}}
        )
        await cluster.client.delete(ConfigMap, key("one"))
        await settle()
        assert names(cache.list(ConfigMap, index=("color", "red"))) == ["two"]
        assert names(cache.list(ConfigMap, index=("color", "blue"))) == []


@simulated
async def test_lists_are_narrowed_by_namespace_labels_and_index_together() -> None:
    cluster = Cluster()
    await cluster.make(config("1", "a", x="1"), config("2", "a", x="2"), config("3", "b", x="1"))
    cache = cluster.cache()
    cache.add_index(ConfigMap, "x", lambda c: [c.metadata.labels["x"]])
    one = LabelSelector({"x": "1"})
    async with running(cache):
        assert names(cache.list(ConfigMap, namespace="a")) == ["1", "2"]
        assert names(cache.list(ConfigMap, labels=one)) == ["1", "3"]
        assert names(cache.list(ConfigMap, namespace="a", labels=one)) == ["1"]
        assert names(cache.list(ConfigMap, namespace="b", index=("x", "1"))) == ["3"]
        assert names(cache.list(ConfigMap, labels=one, index=("x", "2"))) == []
        assert names(cache.list(ConfigMap, namespace="c")) == []


@simulated
async def test_only_what_is_in_a_scope_is_cached() -> None:
    cluster = Cluster()
    await cluster.make(config("1", "a", x="1"), config("2", "a"), config("3", "b"), config("4"))
    cache = cluster.cache(Scope("a", LabelSelector({"x": "1"})), Scope("b"))
    cache.informer(ConfigMap)
    async with running(cache):
        assert names(cache.list(ConfigMap)) == ["1", "3"]
        assert cache.covers(ConfigMap, "a")
        assert not cache.covers(ConfigMap, NS)

        await cluster.client.patch(ConfigMap, key("2", "a"), {"metadata": {"labels": {"x": "1"}}})
        await cluster.client.patch(ConfigMap, key("1", "a"), {"metadata": {"labels": {"x": None}}})
        await cluster.make(config("5"))
        await settle()
        assert names(cache.list(ConfigMap)) == ["2", "3"]


@simulated
async def test_the_default_scopes_are_for_kinds_without_their_own() -> None:
    cluster = Cluster()
    await cluster.make(config("1", "a"), config("2", "b"))
    cache = Cache(cluster.transport, SCHEME, {Secret: [Scope()]}, default_scopes=[Scope("b")])
    cache.informer(Secret)
    cache.informer(ConfigMap)
    async with running(cache):
        assert names(cache.list(ConfigMap)) == ["2"]
        assert (cache.covers(ConfigMap, "a"), cache.covers(Secret, "a")) == (False, True)


@simulated
async def test_a_reader_sees_its_own_writes() -> None:
    cluster = Cluster()
    cache = cluster.cache()
    cache.informer(ConfigMap)
    client = CachingClient(cluster.client, cache)
    async with running(cache):
        cluster.deaf = True
        await client.create(config("one"))
        assert names(await client.list(ConfigMap)) == ["one"]
        await client.patch(ConfigMap, key("one"), {"data": {"x": "1"}})
        assert (await client.get(ConfigMap, key("one"))).data == {"x": "1"}


@simulated
async def test_a_reader_sees_its_own_deletions() -> None:
    cluster = Cluster()
    cache = cluster.cache()
    cache.informer(ConfigMap)
    client = CachingClient(cluster.client, cache)
    async with running(cache):
        held = config("held")
        held.metadata.finalizers = ["example.com/hold"]
        await client.create(held)
        cluster.deaf = True
        assert await client.delete(ConfigMap, key("held"))
        assert (await client.get(ConfigMap, key("held"))).is_being_deleted
        await client.patch(ConfigMap, key("held"), {"metadata": {"finalizers": None}})
        assert await client.find(ConfigMap, key("held")) is None
        assert not await client.delete(ConfigMap, key("held"))


@simulated
async def test_it_survives_broken_watches_and_lost_history() -> None:
    cluster = Cluster()
    cache = cluster.cache()
    cache.informer(ConfigMap)
    async with running(cache):
        for turn in range(30):
            cluster.cut = True
            cluster.server.drop_watches()
            await asyncio.sleep(5)
            await cluster.make(config(f"c{turn}"))
            if turn % 5 == 0:  # More than the server remembers.
                for extra in range(30):
                    await cluster.client.patch(
                        ConfigMap, key(f"c{turn}"), {"data": {"x": str(extra)}}
                    )
            cluster.cut = False
            await asyncio.sleep(60)
        truth = {obj.key: obj for obj in await cluster.client.list(ConfigMap)}
        assert {obj.key: obj for obj in cache.list(ConfigMap)} == truth
        assert len(cache.list(ConfigMap)) == 30
    assert cluster.requests.count(("GET", "configmaps")) >= 6  # The history was gone.
    assert cluster.requests.count(("WATCH", "configmaps")) >= 31


@simulated
async def test_it_can_be_stopped_and_started_again() -> None:
    cluster = Cluster()
    cache = cluster.cache()
    cache.informer(ConfigMap)
    async with running(cache):
        with pytest.raises(RuntimeError, match="runs already"):
            await cache.start()
    await cluster.make(config("one"))
    async with running(cache):
        await asyncio.sleep(1)
        assert names(cache.list(ConfigMap)) == ["one"]


# --- mutations ------------------------------------------------------------------------------------


@simulated
async def test_a_changed_cached_object_is_found_at_the_next_read() -> None:
    cluster = Cluster()
    cache = cluster.cache()
    cache.detect_mutations = True
    cache.informer(ConfigMap)
    await cluster.make(config("one", x="1"))
    async with running(cache):
        cache.check_mutations()
        one = cache.get(ConfigMap, key("one"))
        assert one is not None
        one.metadata.labels["x"] = "2"

        with pytest.raises(CachedObjectMutated) as caught:
            cache.list(ConfigMap)

        assert str(caught.value) == (
            "cached ConfigMap default/one was changed in place: metadata.labels.x was '1' and is "
            "'2' now; change a LazyCopy of it instead"
        )
        cache.check_mutations()  # Told once.


@simulated
async def test_a_changed_cached_object_is_found_although_it_was_replaced_or_removed_since() -> None:
    cluster = Cluster()
    cache = cluster.cache()
    cache.informer(ConfigMap)
    cache.detect_mutations = True
    await cluster.make(config("one"), config("two"))
    async with running(cache):
        for obj in cache.list(ConfigMap):
            obj.data["smuggled"] = "x"
        await cluster.client.patch(ConfigMap, key("one"), {"data": {"x": "1"}})
        await cluster.client.delete(ConfigMap, key("two"))
        await settle()
        for name in ("one", "two"):
            with pytest.raises(CachedObjectMutated, match=name):
                cache.check_mutations()
        cache.check_mutations()
        assert names(cache.list(ConfigMap)) == ["one"]


def test_a_mutation_is_named_down_to_its_field() -> None:
    store = Store(ConfigMap)
    store.detect_mutations()
    obj = config("one")
    obj.metadata.finalizers = ["a", "b"]
    store.put(obj)
    obj.metadata.finalizers[1] = "c"
    with pytest.raises(CachedObjectMutated, match=r"metadata.finalizers\[1\] was 'b' and is 'c'"):
        store.check_mutations()
    obj.data["new"] = "x" * 100
    with pytest.raises(CachedObjectMutated, match="data was None and is dict of 1 now"):
        store.get(obj.key)


def test_without_the_detector_mutations_are_not_looked_for() -> None:
    store = Store(ConfigMap)
    obj = config("one")
    store.put(obj)
    obj.data["x"] = "1"
    store.check_mutations()
    assert store.get(obj.key) is obj


def test_every_cache_of_a_test_can_be_checked_at_its_end() -> None:
    def play(*, mutate: bool) -> None:
        with mutations_detected() as caches:
            cache = Cache(InProcessTransport(ApiServer()), SCHEME)
            assert caches == [cache]
            obj = config("one")
            cache.informer(ConfigMap).store.put(obj)
            if mutate:
                obj.data["x"] = "1"

    play(mutate=False)
    with pytest.raises(CachedObjectMutated, match="cached ConfigMap default/one"):
        play(mutate=True)


def test_the_detector_can_be_turned_off_for_a_measurement() -> None:
    cache = Cache(InProcessTransport(ApiServer()), SCHEME)
    cache.detect_mutations = True
    obj = config("one")
    cache.informer(ConfigMap).store.put(obj)
    obj.data["x"] = "1"
    cache.detect_mutations = False
    cache.check_mutations()
    assert cache.list(ConfigMap) == [obj]


# --- the store ------------------------------------------------------------------------------------


def test_an_index_that_fails_finds_nothing_and_stops_nobody() -> None:
    store = Store(ConfigMap)

    def value(obj: ConfigMap) -> list[str]:
        return [obj.data["must be there"]]

    store.add_index("broken", value)
    store.put(config("one"))
    good = config("two")
    good.data["must be there"] = "yes"
    store.put(good)

    assert len(store) == 2
    assert names(store.list(index=("broken", "yes"))) == ["two"]


def test_an_index_function_that_returns_one_string_is_a_mistake_and_logged() -> None:
    """A string is a sequence of strings, too: the object would be found under its letters."""
    store = Store(ConfigMap)
    store.add_index("name", lambda obj: obj.metadata.name)
    with capture_logs() as logs:
        store.put(config("ab"))

    assert store.list(index=("name", "a")) == []
    assert [line["event"] for line in logs] == ["index failed"]


def test_an_object_may_be_found_under_several_values_and_leaves_nothing_behind() -> None:
    store = Store(ConfigMap)
    store.add_index("label", lambda c: c.metadata.labels.values())
    store.put(config("one", x="1", y="2", z="1"))
    assert names(store.list(index=("label", "1"))) == ["one"]
    assert names(store.list(index=("label", "2"))) == ["one"]

    store.put(config("one", y="3"))
    assert names(store.list(index=("label", "1"))) == []
    assert names(store.list(index=("label", "3"))) == ["one"]
    store.remove(key("one"))
    store.remove(key("one"))

    assert len(store) == 0
    assert store.keys() == []
    assert store._namespaces == {}
    assert store._indexes["label"].buckets == {}
    assert store._indexes["label"]._values == {}
