"""The manager: what starts when, what stops when, and what becomes of a failure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from arc_controller.api import SCHEME
from arc_controller.api.core import ConfigMap, Pod, Secret
from arc_controller.runtime.builder import ControllerBuilder
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import Conflict, Status, TransportError
from arc_controller.runtime.events import Event, event_scheme
from arc_controller.runtime.handlers import enqueue_mapped
from arc_controller.runtime.leader import LeaderElection, LeadershipLost, Lease, lease_scheme
from arc_controller.runtime.manager import Manager, ManagerOptions
from arc_controller.runtime.objects import NamespacedName, ObjectMeta
from arc_controller.runtime.ownership import set_controller_reference
from arc_controller.runtime.predicates import has_label
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.loop import now, run_simulated, simulated
from arc_controller.testing.transport import InProcessTransport

ELECTION = LeaderElection("controller", "default")


def time() -> float:
    return asyncio.get_running_loop().time()


class Recorder:
    """A reconciler that notes its keys and takes `seconds` for each."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.keys: list[str] = []
        self.running: list[str] = []
        self.finished: list[str] = []

    async def reconcile(self, key: NamespacedName) -> Result:
        self.keys.append(key.name)
        self.running.append(key.name)
        try:
            await asyncio.sleep(self.seconds)
            self.finished.append(key.name)
        finally:
            self.running.remove(key.name)
        return Result()


class Process:
    """One manager in the cluster."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.transport = InProcessTransport(cluster.server)
        self.manager = Manager(
            self.transport,
            SCHEME,
            options=ManagerOptions(**options),
            now=now,
            random=random.Random(1),
        )
        self.client = self.manager.client

    def start(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(self.manager.run())
        return self.task

    async def stop(self) -> None:
        self.manager.stop()
        await self.task


class Cluster:
    def __init__(self) -> None:
        self.server = ApiServer(now=now)
        self.admin = ApiClient(InProcessTransport(self.server), SCHEME)

    async def create(self, name: str, namespace: str = "default", **labels: str) -> ConfigMap:
        metadata = ObjectMeta(namespace=namespace, name=name, labels=labels)
        return await self.admin.create(ConfigMap(metadata=metadata))

    async def lease(self) -> Lease:
        client = ApiClient(InProcessTransport(self.server), lease_scheme())
        return await client.get(Lease, NamespacedName("default", "controller"))


@asynccontextmanager
async def cluster_of(*names: str) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    for name in names:
        await cluster.create(name)
    yield cluster
    await cluster.server.aclose()


# --- builder --------------------------------------------------------------------------------------


@simulated
async def test_a_controller_looks_at_all_that_is_there_and_at_all_that_comes() -> None:
    async with cluster_of("a", "b") as cluster:
        process, recorder = Process(cluster), Recorder()
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        process.start()
        await asyncio.sleep(1)
        assert sorted(recorder.keys) == ["a", "b"]
        await cluster.create("c")
        await cluster.admin.delete(ConfigMap, NamespacedName("default", "a"))
        await asyncio.sleep(1)
        assert sorted(recorder.keys) == ["a", "a", "b", "c"]
        await process.stop()


@simulated
async def test_what_an_object_owns_brings_its_owner_back() -> None:
    async with cluster_of("owner") as cluster:
        process, recorder = Process(cluster), Recorder()
        ControllerBuilder(process.manager).for_(ConfigMap).owns(Secret).build(recorder)
        process.start()
        await asyncio.sleep(1)
        recorder.keys.clear()
        owner = await cluster.admin.get(ConfigMap, NamespacedName("default", "owner"))
        for name in ("owned", "unrelated"):
            secret = Secret(metadata=ObjectMeta(namespace="default", name=name))
            if name == "owned":
                set_controller_reference(owner, secret, SCHEME)
            await cluster.admin.create(secret)
        await asyncio.sleep(1)
        assert recorder.keys == ["owner"]
        await process.stop()


@simulated
async def test_any_other_kind_can_be_mapped_and_filtered() -> None:
    async with cluster_of() as cluster:
        process, recorder = Process(cluster), Recorder()

        def users(secret: Secret) -> list[NamespacedName]:
            return [NamespacedName("default", f"user-of-{secret.metadata.name}")]

        controller = (
            ControllerBuilder(process.manager)
            .named("users")
            .for_(ConfigMap, predicates=[has_label("ours")])
            .watches(Secret, enqueue_mapped(users), predicates=[has_label("ours")])
            .with_options(max_concurrent_reconciles=4, reconcile_timeout=10)
            .build(recorder)
        )
        assert (controller.name, controller.max_concurrent_reconciles) == ("users", 4)
        process.start()
        await asyncio.sleep(1)
        await cluster.create("theirs")
        await cluster.create("mine", ours="")
        for labels in ({}, {"ours": ""}):
            name = "s" + "".join(labels)
            metadata = ObjectMeta(namespace="default", name=name, labels=labels)
            await cluster.admin.create(Secret(metadata=metadata))
        await asyncio.sleep(1)
        assert sorted(recorder.keys) == ["mine", "user-of-sours"]
        await process.stop()


@simulated
async def test_a_builder_says_what_is_missing() -> None:
    async with cluster_of() as cluster:
        manager = Process(cluster).manager
        with pytest.raises(ValueError, match=r"build: say for_\(Kind\) first"):
            ControllerBuilder(manager).build(Recorder())
        with pytest.raises(ValueError, match="this one already has ConfigMap"):
            ControllerBuilder(manager).for_(ConfigMap).for_(Secret)


@simulated
async def test_two_controllers_cannot_share_a_name() -> None:
    """They would share metrics: one queue's depth would be hidden by the other's."""
    async with cluster_of() as cluster:
        manager = Process(cluster).manager
        ControllerBuilder(manager).for_(Secret).build(Recorder())
        with pytest.raises(ValueError, match="there is a controller 'secret' already"):
            ControllerBuilder(manager).for_(Secret).build(Recorder())
        ControllerBuilder(manager).for_(Secret).named("another").build(Recorder())


@simulated
async def test_reads_come_from_the_cache_and_own_writes_are_read_back() -> None:
    async with cluster_of() as cluster:
        process = Process(cluster)
        process.manager.cache.informer(ConfigMap)
        process.start()
        await asyncio.sleep(1)
        before = len(list(cluster.server.request_log))
        made = await process.client.create(
            ConfigMap(metadata=ObjectMeta(namespace="default", name="mine"))
        )
        assert await process.client.get(ConfigMap, made.key) == made
        requests = [record.verb for record in list(cluster.server.request_log)[before:]]
        assert requests == ["create"]
        await process.stop()


@simulated
async def test_a_resync_asks_the_api_server_nothing() -> None:
    async with cluster_of("a", "b") as cluster:
        process, recorder = Process(cluster, sync_period=60), Recorder()
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        process.start()
        await asyncio.sleep(30)
        recorder.keys.clear()
        before = len(list(cluster.server.request_log))
        await asyncio.sleep(200)
        assert sorted(set(recorder.keys)) == ["a", "b"]
        assert len(recorder.keys) in (4, 6)
        verbs = {record.verb for record in list(cluster.server.request_log)[before:]}
        assert verbs <= {"watch"}
        await process.stop()


@simulated
async def test_what_came_and_went_leaves_nothing_behind() -> None:
    """Cache, indexes, tombstones, queue, backoffs: all as empty as before."""

    class Failing(Recorder):
        async def reconcile(self, key: NamespacedName) -> Result:
            result = await super().reconcile(key)
            if len(self.keys) % 3 == 0:
                raise TransportError("now and then")
            if len(self.keys) % 5 == 0:
                raise Conflict(Status(code=409))
            return result

    async with cluster_of() as cluster:
        process = Process(cluster)
        cache = process.manager.cache
        cache.add_index(ConfigMap, "letter", lambda obj: [obj.metadata.name[-1]])
        controller = ControllerBuilder(process.manager).for_(ConfigMap).build(Failing())
        process.start()
        await asyncio.sleep(1)
        for number in range(300):
            made = await process.client.create(
                ConfigMap(metadata=ObjectMeta(namespace="default", name=f"c{number}"))
            )
            process.manager.events.event(made, "Normal", "Made", f"number {number}")
            deleter = process.client if number % 2 else cluster.admin
            await deleter.delete(ConfigMap, made.key)
        await asyncio.sleep(7200)

        informer, queue = cache.informer(ConfigMap), controller.queue
        assert (len(informer.store), informer.store._indexes["letter"].buckets) == (0, {})
        assert (informer._gone, [f.held for f in informer._followers]) == ({}, [{}])
        assert (len(queue), queue.delayed, queue.active, queue._held) == (0, 0, 0, set())
        assert controller._conflicts._failures == {}
        assert not any(queue.num_requeues(NamespacedName("default", f"c{n}")) for n in range(300))
        await process.stop()


@simulated
async def test_an_idle_manager_does_nothing_at_all() -> None:
    async with cluster_of("a", "b") as cluster:
        process, recorder = Process(cluster), Recorder()
        ControllerBuilder(process.manager).for_(ConfigMap).owns(Secret).build(recorder)
        process.start()
        await asyncio.sleep(10)
        recorder.keys.clear()
        before = len(list(cluster.server.request_log))
        await asyncio.sleep(3600)
        assert recorder.keys == []
        assert {r.verb for r in list(cluster.server.request_log)[before:]} <= {"watch"}
        await process.stop()


# --- order ----------------------------------------------------------------------------------------


class Noting:
    """A runnable that writes down when it starts and stops."""

    def __init__(self, notes: list[str], name: str, needs_leader_election: bool = True) -> None:
        self.notes, self.name = notes, name
        self.needs_leader_election = needs_leader_election

    async def start(self) -> None:
        self.notes.append(f"+{self.name}")
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append(f"-{self.name}")


@simulated
async def test_runnables_start_after_the_caches_and_leaders_after_the_election() -> None:
    async with cluster_of() as cluster:
        leader = Process(cluster, leader_election=ELECTION)
        leader.start()
        await asyncio.sleep(1)
        process, notes = Process(cluster, leader_election=ELECTION), list[str]()
        process.manager.cache.informer(ConfigMap)
        process.manager.add(Noting(notes, "leader"))
        process.manager.add(Noting(notes, "always", needs_leader_election=False))
        process.start()
        await asyncio.sleep(60)
        assert notes == ["+always"]
        assert not process.manager.elected.is_set()
        await leader.stop()
        await asyncio.sleep(3)
        assert notes == ["+always", "+leader"]
        assert process.manager.elected.is_set()
        await process.stop()
        assert notes == ["+always", "+leader", "-leader", "-always"]


@simulated
async def test_a_runnable_that_is_added_late_starts_at_once() -> None:
    async with cluster_of("a") as cluster:
        process, notes, recorder = Process(cluster), list[str](), Recorder()
        process.start()
        await asyncio.sleep(1)
        process.manager.add(Noting(notes, "late"))
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        await asyncio.sleep(1)
        assert (notes, recorder.keys) == (["+late"], ["a"])
        await process.stop()


@simulated
async def test_a_standby_queues_nothing() -> None:
    async with cluster_of("a") as cluster:
        leader = Process(cluster, leader_election=ELECTION)
        leader.start()
        await asyncio.sleep(1)
        standby, recorder = Process(cluster, leader_election=ELECTION), Recorder()
        controller = ControllerBuilder(standby.manager).for_(ConfigMap).build(recorder)
        standby.start()
        await asyncio.sleep(10)
        await cluster.admin.delete(ConfigMap, NamespacedName("default", "a"))
        await cluster.create("b")
        await asyncio.sleep(10)
        assert len(controller.queue) == 0
        await leader.stop()
        await asyncio.sleep(10)
        assert recorder.keys == ["b"]
        await standby.stop()


# --- stopping -------------------------------------------------------------------------------------


@simulated
async def test_stopping_lets_reconciles_finish_then_releases_the_lease() -> None:
    async with cluster_of("a", "b") as cluster:
        process, recorder = Process(cluster, leader_election=ELECTION), Recorder(20)
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        process.start()
        await asyncio.sleep(5)
        assert len(recorder.running) == 1
        await process.stop()
        assert 20 <= time() <= 21
        assert len(recorder.finished) == 1
        assert len(recorder.keys) == 1
        assert (await cluster.lease()).spec.holder_identity == ""


@simulated
async def test_the_lease_is_renewed_while_reconciles_finish() -> None:
    async with cluster_of("a") as cluster:
        process, recorder = Process(cluster, leader_election=ELECTION), Recorder(25)
        other = Process(cluster, leader_election=ELECTION)
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        process.start()
        await asyncio.sleep(1)
        other.start()
        await asyncio.sleep(1)
        stopping = asyncio.create_task(process.stop())
        await asyncio.sleep(20)
        assert recorder.running == ["a"]
        assert not other.manager.elected.is_set()
        await stopping
        await asyncio.sleep(3)
        assert other.manager.elected.is_set()
        await other.stop()


@simulated
async def test_what_takes_longer_than_the_grace_period_is_cancelled() -> None:
    async with cluster_of("a") as cluster:
        process, recorder = Process(cluster, graceful_timeout=30), Recorder(3600)
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        process.start()
        await asyncio.sleep(5)
        await process.stop()
        assert 35 <= time() <= 36
        assert (recorder.running, recorder.finished) == ([], [])


@simulated
async def test_a_cancellation_stops_gracefully_and_a_second_one_at_once() -> None:
    async with cluster_of("a") as cluster:
        process, recorder = Process(cluster, leader_election=ELECTION), Recorder(3600)
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        task = process.start()
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.sleep(5)
        assert recorder.running == ["a"]
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert time() < 11
        assert recorder.running == []
        assert (await cluster.lease()).spec.holder_identity == ""


@simulated
async def test_the_last_events_are_written() -> None:
    async with cluster_of() as cluster:
        process = Process(cluster)
        process.start()
        await asyncio.sleep(1)
        pod = Pod(metadata=ObjectMeta(namespace="default", name="p", uid="u"))
        process.manager.events.event(pod, "Normal", "Stopping", "goodbye")
        await process.stop()
        events = await ApiClient(InProcessTransport(cluster.server), event_scheme()).list(Event)
        assert [event.message for event in events] == ["goodbye"]


@simulated
async def test_stopping_works_before_and_during_the_start() -> None:
    async with cluster_of("a") as cluster:
        early = Process(cluster)
        early.manager.stop()
        await early.start()
        waiting = Process(cluster)
        waiting.manager.cache.informer(ConfigMap)
        cluster.server.faults = _never_answer  # the cache is never filled
        with capture_logs() as logs:
            waiting.start()
            await asyncio.sleep(100)
        assert [line["kinds"] for line in logs if "kinds" in line] == [["ConfigMap"]] * 3
        assert waiting.manager.readyz.failures() == {"caches": "not filled yet"}
        await waiting.stop()
        with pytest.raises(RuntimeError, match="a manager runs only once"):
            await waiting.manager.run()


async def _never_answer(_request: object, info: Any) -> None:
    if info.phase != "after":
        await asyncio.sleep(1e9)


# --- failing --------------------------------------------------------------------------------------


class Fails:
    async def start(self) -> None:
        await asyncio.sleep(10)
        raise RuntimeError("out of order")


@simulated
async def test_a_runnable_that_fails_ends_the_manager_with_its_error() -> None:
    async with cluster_of() as cluster:
        process, notes = Process(cluster, leader_election=ELECTION), list[str]()
        process.manager.add(Fails())
        process.manager.add(Noting(notes, "other"))
        with pytest.raises(RuntimeError, match="out of order"):
            await process.start()
        assert notes == ["+other", "-other"]
        assert (await cluster.lease()).spec.holder_identity == ""


class Returns:
    async def start(self) -> None:
        await asyncio.sleep(10)


@simulated
async def test_a_runnable_that_is_done_ends_nothing() -> None:
    async with cluster_of() as cluster:
        process = Process(cluster)
        process.manager.add(Returns())
        task = process.start()
        await asyncio.sleep(100)
        assert not task.done()
        await process.stop()


@simulated
async def test_losing_the_leadership_cancels_reconciles_before_another_can_start() -> None:
    async with cluster_of("a") as cluster:
        first, recorder = Process(cluster, leader_election=ELECTION), Recorder(3600)
        second, successor = Process(cluster, leader_election=ELECTION), Recorder(3600)
        ControllerBuilder(first.manager).for_(ConfigMap).build(recorder)
        ControllerBuilder(second.manager).for_(ConfigMap).build(successor)
        task = first.start()
        await asyncio.sleep(1)
        second.start()
        await asyncio.sleep(10)
        assert (recorder.running, successor.running) == (["a"], [])
        await first.transport.close()
        with pytest.raises(LeadershipLost, match="could not be renewed for 10 s"):
            await task
        assert recorder.running == []
        assert time() <= 11 + 10
        assert successor.running == []
        await asyncio.sleep(15)
        assert successor.running == ["a"]
        await _stop_now(second)


async def _stop_now(process: Process) -> None:
    for _ in range(2):
        process.task.cancel()
        await asyncio.sleep(1)
    await asyncio.wait([process.task])


@simulated
async def test_losing_the_leadership_while_stopping_cuts_the_grace_short() -> None:
    async with cluster_of("a") as cluster:
        process, recorder = Process(cluster, leader_election=ELECTION), Recorder(3600)
        ControllerBuilder(process.manager).for_(ConfigMap).build(recorder)
        process.start()
        await asyncio.sleep(5)
        await process.transport.close()
        await process.stop()
        assert time() <= 5 + 10 + 0.1
        assert recorder.running == []


class Stubborn:
    async def start(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if time() > 100:
                    raise


def test_work_that_will_not_end_is_abandoned_and_keeps_the_lease() -> None:
    async def main() -> None:
        async with cluster_of() as cluster:
            process = Process(cluster, leader_election=ELECTION)
            process.manager.add(Stubborn())
            process.start()
            await asyncio.sleep(5)
            await process.stop()
            assert time() <= 9
            assert (await cluster.lease()).spec.holder_identity != ""
            await asyncio.sleep(100)

    run_simulated(main())


@pytest.mark.parametrize("seed", range(8))
@simulated
async def test_two_managers_never_reconcile_at_the_same_time(seed: int) -> None:
    chance = random.Random(seed)
    working: list[str] = []
    violations: list[tuple[float, str, str]] = []

    class Exclusive:
        def __init__(self, name: str) -> None:
            self.name = name

        async def reconcile(self, _key: NamespacedName) -> Result:
            violations.extend((time(), self.name, one) for one in working if one != self.name)
            working.append(self.name)
            try:
                await asyncio.sleep(chance.uniform(0, 3))
            finally:
                working.remove(self.name)
            return Result(requeue_after=chance.uniform(0, 2))

    async with cluster_of("a", "b", "c") as cluster:
        processes: list[Process] = []
        for round_ in range(12):
            process = Process(cluster, leader_election=ELECTION)
            controller = ControllerBuilder(process.manager).for_(ConfigMap)
            controller.with_options(max_concurrent_reconciles=2).build(Exclusive(str(round_)))
            process.start()
            processes.append(process)
            await asyncio.sleep(chance.uniform(0, 30))
            victim = chance.choice(processes)
            match chance.randrange(4):
                case 0:
                    await victim.transport.close()
                case 1:
                    victim.manager.stop()
                case 2:
                    victim.task.cancel()
        for process in processes:
            process.task.cancel()
        await asyncio.wait([process.task for process in processes])
        for process in processes:
            if not process.task.cancelled():
                error = process.task.exception()
                assert error is None or isinstance(error, LeadershipLost | TransportError)
        assert violations == []


# --- servers --------------------------------------------------------------------------------------


async def test_probes_metrics_and_diagnostics_are_served_while_it_runs() -> None:
    server = ApiServer()
    transport = InProcessTransport(server)
    manager = Manager(
        transport,
        SCHEME,
        options=ManagerOptions(
            metrics_address="127.0.0.1:0",
            health_address="127.0.0.1:0",
            diagnostics_address="127.0.0.1:0",
        ),
    )
    ControllerBuilder(manager).for_(ConfigMap).build(Recorder())
    task = asyncio.create_task(manager.run())
    await manager.elected.wait()

    async def get(server: str, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{manager.servers[server].port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    assert await get("health", "/healthz") == (200, "ok")
    assert await get("health", "/readyz") == (200, "ok")
    assert 'workqueue_depth{controller="configmap"' in (await get("metrics", "/metrics"))[1]
    assert "configmap" in (await get("diagnostics", "/queues"))[1]
    assert "reflector" in (await get("diagnostics", "/tasks"))[1]
    manager.stop()
    await task
    assert manager.readyz.failures() == {"caches": "stopping"}
    assert [server.port for server in manager.servers.values()] == [0, 0, 0]
    await server.aclose()


async def test_a_server_that_cannot_listen_ends_the_manager() -> None:
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    options = ManagerOptions(metrics_address=f"127.0.0.1:{port}")
    with pytest.raises(OSError, match="the metrics server cannot listen on"):
        await Manager(InProcessTransport(ApiServer()), SCHEME, options=options).run()
    taken.close()
    await taken.wait_closed()


def test_a_bad_address_is_refused_before_anything_starts() -> None:
    options = ManagerOptions(health_address="8081")
    with pytest.raises(ValueError, match="health address '8081': use host:port or :port"):
        Manager(InProcessTransport(ApiServer()), SCHEME, options=options)
