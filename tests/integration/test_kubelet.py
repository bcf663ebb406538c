"""The fake kubelet plays pods of the embedded API server the way a node does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from random import Random
from typing import Any

import pytest

from arc_controller.actions import ActionsClient, PersonalAccessToken, RunnerScaleSet
from arc_controller.testing.actions import FakeActionsService, JobState
from arc_controller.testing.actions import InProcessTransport as ActionsTransport
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.kubelet import (
    Disruption,
    DisruptionKind,
    FakeKubelet,
    PodBehaviour,
    troubled,
)
from arc_controller.testing.loop import now, simulated
from arc_controller.testing.transport import InProcessTransport

NAMESPACE = "default"
JIT = "ACTIONS_RUNNER_INPUT_JITCONFIG"


class Node:
    """An API server, an Actions service with one scale set, and a kubelet."""

    def __init__(self, api: ApiServer, service: FakeActionsService, kubelet: FakeKubelet) -> None:
        self.api = api
        self.service = service
        self.kubelet = kubelet
        self.scale_set = 0
        self._client = ActionsClient(
            "https://github.com/acme",
            PersonalAccessToken("token"),
            transport=ActionsTransport(service),
        )

    async def register(self) -> None:
        created = await self._client.create_runner_scale_set(RunnerScaleSet(name="linux"))
        self.scale_set = created.id

    async def add_runner(self, name: str = "runner", **spec: Any) -> None:
        """A runner as the controllers would make it: a secret and a pod."""
        jit = await self._client.generate_jit_config(self.scale_set, name, "_work")
        self.api.install(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "data": {"jitToken": _base64(jit.encoded_jit_config)},
            }
        )
        reference = {"secretKeyRef": {"name": name, "key": "jitToken"}}
        container = {
            "name": "runner",
            "image": "runner:1",
            "env": [{"name": JIT, "valueFrom": reference}],
        }
        self.add_pod(name, container, **spec)

    def add_pod(self, name: str, *containers: dict[str, Any], **spec: Any) -> None:
        self.api.install(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"restartPolicy": "Never", "containers": list(containers), **spec},
            }
        )

    def pod(self, name: str = "runner") -> dict[str, Any] | None:
        stored = self.api.store.get("", "pods", NAMESPACE, name)
        return None if stored is None else dict(stored)

    def status(self, name: str = "runner") -> dict[str, Any]:
        pod = self.pod(name)
        assert pod is not None
        status: dict[str, Any] = pod["status"]
        return status

    def state(self, container: str = "runner", pod: str = "runner") -> dict[str, Any]:
        for each in self.status(pod)["containerStatuses"]:
            if each["name"] == container:
                state: dict[str, Any] = each["state"]
                return state
        raise AssertionError(f"no status of container {container}")

    def is_ready(self, name: str = "runner") -> bool:
        conditions = self.status(name).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    async def delete(self, name: str = "runner", **options: Any) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        query = [(key, str(value)) for key, value in options.items()]
        response = await self.kubelet.transport.request("DELETE", path, query=query)
        assert response.status == 200

    async def run_a_job(self, duration: float = 10.0) -> None:
        """Open a session so that direct jobs are assigned."""
        self.service.queue_jobs(1, duration=duration, direct=True)
        client = self._client
        session = await client.create_message_session(self.scale_set, "test")

        async def poll() -> None:
            last = 0
            while True:
                message = await client.get_message(session, last, 10)
                if message is not None:
                    last = message.message_id
                    await client.delete_message(session, last)

        self._poll = asyncio.create_task(poll())

    async def until(self, condition: Callable[[], bool], within: float = 300.0) -> None:
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(0.05)


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    clock: Callable[[], datetime] = now
    api = ApiServer(now=clock, random=Random(1))
    service = FakeActionsService(now=clock, random=Random(2))
    kubelet = FakeKubelet(InProcessTransport(api), service=service, now=clock, random=Random(3))
    api.pod_logs = kubelet.logs
    running = asyncio.create_task(kubelet.start())
    try:
        await kubelet.wait_for_sync()
        made = Node(api, service, kubelet)
        await made.register()
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.aclose()


@simulated
async def test_a_runner_connects_takes_a_job_and_succeeds() -> None:
    async with node() as it:
        await it.add_runner()
        await it.until(lambda: len(it.service.scale_set().idle) == 1)
        assert it.status()["phase"] == "Running"
        assert it.is_ready()
        await it.run_a_job(duration=30)
        await it.until(lambda: it.status()["phase"] == "Succeeded")
        assert it.state()["terminated"]["exitCode"] == 0
        assert not it.is_ready()
        assert it.service.job_counts() == {JobState.COMPLETED: 1}
        assert it.service.runners == {}
        log = it.kubelet.logs(NAMESPACE, "runner", "runner", {}).decode()
        assert "completed with result: succeeded" in log


@simulated
async def test_pulling_and_starting_take_their_time() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(schedule=1, pull=20, start=5))
        await it.add_runner()
        await asyncio.sleep(25)
        assert it.status()["phase"] == "Pending"
        await asyncio.sleep(2)
        assert it.status()["phase"] == "Running"


@simulated
async def test_a_deleted_runner_gets_its_grace_and_is_then_removed() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(terminates_in=8))
        await it.add_runner()
        await it.until(it.is_ready)
        await it.delete()
        await asyncio.sleep(7)
        assert it.pod() is not None
        assert it.service.scale_set().idle != {}
        await asyncio.sleep(2)
        assert it.pod() is None
        assert it.service.scale_set().idle == {}


@simulated
async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(terminates_in=1000))
        await it.add_runner(terminationGracePeriodSeconds=12)
        await it.until(it.is_ready)
        await it.delete()
        await asyncio.sleep(11)
        assert it.pod() is not None
        await asyncio.sleep(2)
        assert it.pod() is None


@simulated
async def test_a_forced_deletion_kills_at_once() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(terminates_in=1000))
        await it.add_runner()
        await it.until(it.is_ready)
        await it.delete(gracePeriodSeconds=0)
        await asyncio.sleep(1)
        assert it.pod() is None
        assert it.service.scale_set().idle == {}
        assert it.kubelet.pods == {}


@simulated
async def test_a_pod_that_is_never_scheduled_goes_when_it_is_deleted() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(never_scheduled=True))
        await it.add_runner()
        await asyncio.sleep(100)
        assert it.status()["conditions"][0]["reason"] == "Unschedulable"
        await it.delete()
        await asyncio.sleep(1)
        assert it.pod() is None
        assert it.kubelet.pods == {}


@simulated
async def test_an_image_that_cannot_be_pulled_waits_with_its_reason() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(image_pull_back_off=True))
        await it.add_runner()
        await asyncio.sleep(100)
        assert it.status()["phase"] == "Pending"
        assert it.state()["waiting"]["reason"] == "ImagePullBackOff"
        await it.delete()
        await asyncio.sleep(1)
        assert it.pod() is None


@simulated
async def test_an_init_container_that_fails_takes_the_pod_with_it() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(init_exit_code=3))
        await it.add_runner(initContainers=[{"name": "setup", "image": "setup:1"}])
        await asyncio.sleep(1)
        assert it.status()["phase"] == "Failed"
        init = it.status()["initContainerStatuses"][0]["state"]
        assert init["terminated"]["exitCode"] == 3
        assert "terminated" not in it.state()


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_a_runner_may_exit_with_any_code(code: int) -> None:
    @simulated
    async def scenario() -> None:
        async with node() as it:
            it.kubelet.next_pods(PodBehaviour(connects=False, exit_code=code))
            await it.add_runner()
            await asyncio.sleep(1)
            assert it.status()["phase"] == ("Failed" if code else "Succeeded")
            assert it.state()["terminated"]["exitCode"] == code

    scenario()


@simulated
async def test_a_version_that_the_service_refuses_exits_with_seven() -> None:
    async with node() as it:
        it.service.runner_version_refused = True
        await it.add_runner()
        await asyncio.sleep(1)
        assert it.state()["terminated"]["exitCode"] == 7


@simulated
async def test_a_runner_that_finds_itself_removed_exits_with_zero() -> None:
    async with node() as it:
        await it.add_runner()
        await it.until(it.is_ready)
        (runner_id,) = it.service.runners
        await it._client.remove_runner(runner_id)
        await asyncio.sleep(1)
        assert it.state()["terminated"]["exitCode"] == 0


@simulated
async def test_the_runner_waits_for_a_service_that_is_down() -> None:
    async with node() as it:
        await it.add_runner("other")
        await it.until(lambda: it.is_ready("other"))
        it.kubelet.next_pods(PodBehaviour(start=1))
        await it.add_runner()
        it.service.go_down()
        await asyncio.sleep(60)
        assert it.status()["phase"] == "Running"
        it.service.come_up()
        await asyncio.sleep(6)
        assert len(it.service.scale_set().idle) == 2


@pytest.mark.parametrize(
    ("kind", "reason", "container"),
    [
        (DisruptionKind.EVICTED, "Evicted", "Error"),
        (DisruptionKind.NODE_SHUTDOWN, "Terminated", "Error"),
        (DisruptionKind.OUT_OF_MEMORY, None, "OOMKilled"),
    ],
)
def test_what_kills_a_pod_leaves_its_reason(
    kind: DisruptionKind, reason: str | None, container: str
) -> None:
    @simulated
    async def scenario() -> None:
        async with node() as it:
            it.kubelet.next_pods(PodBehaviour(disruption=Disruption(kind, after=10)))
            await it.add_runner()
            await it.run_a_job(duration=100)
            await asyncio.sleep(11)
            assert it.status()["phase"] == "Failed"
            assert it.status().get("reason") == reason
            assert it.state()["terminated"]["exitCode"] == 137
            assert it.state()["terminated"]["reason"] == container
            await asyncio.sleep(120)
            assert it.service.job_counts() == {JobState.LOST: 1}

    scenario()


@simulated
async def test_a_preempted_pod_is_deleted_with_its_grace() -> None:
    async with node() as it:
        disruption = Disruption(DisruptionKind.PREEMPTED, after=5)
        it.kubelet.next_pods(PodBehaviour(disruption=disruption, terminates_in=3))
        await it.add_runner()
        await asyncio.sleep(6)
        pod = it.pod()
        assert pod is not None
        assert pod["metadata"]["deletionTimestamp"]
        await asyncio.sleep(3)
        assert it.pod() is None


@simulated
async def test_a_pod_on_a_lost_node_hangs_in_deletion_until_it_is_forced() -> None:
    async with node() as it:
        it.kubelet.next_pods(PodBehaviour(disruption=Disruption(DisruptionKind.NODE_LOST, 5)))
        await it.add_runner()
        await asyncio.sleep(50)
        pod = it.pod()
        assert pod is not None
        assert pod["metadata"]["deletionTimestamp"]
        assert pod["status"]["reason"] == "NodeLost"
        assert it.service.scale_set().idle == {}
        await asyncio.sleep(30)
        assert it.pod() is None


@simulated
async def test_a_side_car_keeps_the_pod_running_after_the_runner() -> None:
    async with node() as it:
        side_car = {"name": "dind", "image": "dind:1"}
        container = {
            "name": "runner",
            "image": "runner:1",
            "env": [
                {"name": JIT, "valueFrom": {"secretKeyRef": {"name": "two", "key": "jitToken"}}}
            ],
        }
        it.kubelet.next_pods(PodBehaviour(connects=False, exit_code=0))
        it.api.install(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "two", "namespace": NAMESPACE},
                "data": {"jitToken": ""},
            }
        )
        it.add_pod("two", container, side_car)
        await asyncio.sleep(1)
        assert it.status("two")["phase"] == "Running"
        assert it.state("runner", "two")["terminated"]["exitCode"] == 0
        assert "running" in it.state("dind", "two")
        await it.delete("two")
        await asyncio.sleep(31)
        assert it.pod("two") is None


@simulated
async def test_a_secret_that_comes_late_is_waited_for() -> None:
    async with node() as it:
        reference = {"secretKeyRef": {"name": "late", "key": "jitToken"}}
        env = [{"name": JIT, "valueFrom": reference}]
        it.add_pod("late", {"name": "runner", "image": "runner:1", "env": env})
        await asyncio.sleep(1)
        assert it.state("runner", "late")["waiting"]["reason"] == "CreateContainerConfigError"


@simulated
async def test_other_pods_run_until_they_are_deleted() -> None:
    async with node() as it:
        it.add_pod("web", {"name": "web", "image": "web:1"})
        await asyncio.sleep(1)
        assert it.status("web")["phase"] == "Running"
        await it.delete("web")
        await asyncio.sleep(31)
        assert it.pod("web") is None


@simulated(seeds=range(5))
async def test_pods_in_trouble_all_come_to_an_end_when_deleted() -> None:
    async with node() as it:
        it.kubelet.behave = troubled(Random(7), trouble=0.5, forever=0.2)
        for number in range(30):
            await it.add_runner(f"runner-{number}")
        await asyncio.sleep(60)
        for number in range(30):
            if it.pod(f"runner-{number}") is not None:
                await it.delete(f"runner-{number}")
        await asyncio.sleep(120)
        assert [it.pod(f"runner-{number}") for number in range(30)] == [None] * 30
        assert it.kubelet.pods == {}


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()
