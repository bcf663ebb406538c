"""Listeners under adversity, each with the real client and the whole fake service, simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from arc_controller.actions import ActionsClient, PersonalAccessToken, RunnerScaleSet
from arc_controller.api import SCHEME
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet, Phase
from arc_controller.listener import (
    JobMetrics,
    ListenerConfig,
    ScaleSetGone,
    ServiceRefused,
    SessionNeverReleased,
    assemble,
)
from arc_controller.listener.assembly import job_metrics
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import (
    Call,
    FakeActionsService,
    JobState,
    RunnerConnection,
)
from arc_controller.testing.actions import (
    InProcessTransport as ServiceTransport,
)
from arc_controller.testing.apiserver import (
    ApiServer,
    Request,
    RequestInfo,
    Response,
    json_response,
)
from arc_controller.testing.cluster import Cluster
from arc_controller.testing.loop import now, simulated
from arc_controller.testing.transport import InProcessTransport
from tests.integration.waiting import until

SET = NamespacedName("ci", "linux")
RUNNER_SPEC = {
    "githubConfigUrl": "https://github.com/acme",
    "githubConfigSecret": "github",
    "runnerScaleSetId": 1,
    "spec": {"containers": [{"name": "runner", "image": "runner:1"}]},
}


class Stage:
    """A service with one scale set, an API server with its set of runners, and listeners."""

    def __init__(self) -> None:
        self.service = FakeActionsService(now=now)
        self.api = ApiServer(crds=custom_resource_definitions(), now=now, random=Random(3))
        self.client = ApiClient(InProcessTransport(self.api, user_agent="listener"), SCHEME)
        self.actions = ActionsClient(
            "https://github.com/acme",
            PersonalAccessToken("ghp_planted"),
            transport=ServiceTransport(self.service),
            now=now,
            random=Random(1),
        )
        self.metrics: JobMetrics | None = None
        self.config = ListenerConfig()
        self.tasks: list[asyncio.Task[None]] = []
        self.connections: list[RunnerConnection] = []

    def listen(self, owner: str = "one", **config: Any) -> asyncio.Task[None]:
        self.config = ListenerConfig(
            **{
                "configure_url": "https://github.com/acme",
                "ephemeral_runner_set_namespace": SET.namespace,
                "ephemeral_runner_set_name": SET.name,
                "runner_scale_set_id": 1,
                "max_runners": 10,
                **config,
            }
        )
        self.metrics = job_metrics(self.config)
        listener = assemble(
            self.config,
            self.client,
            self.actions,
            owner=owner,
            metrics=self.metrics,
            random=Random(2),
        )
        task = asyncio.create_task(listener.run())
        self.tasks.append(task)
        return task

    def add_runner(self, name: str, **metadata: Any) -> None:
        self.api.install(
            {
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunner",
                "metadata": {"name": name, "namespace": SET.namespace, **metadata},
                "spec": RUNNER_SPEC,
            }
        )

    async def runner_takes_a_job(self, name: str) -> None:
        """A runner registers, connects and is given a job, which then starts."""
        answer = await self.actions.generate_jit_config(1, name, "")
        self.connections.append(self.service.runner_online(answer.encoded_jit_config))

    async def spec(self) -> Any:
        return (await self.client.get(EphemeralRunnerSet, SET)).spec

    async def status(self, name: str) -> Any:
        return (await self.client.get(EphemeralRunner, SET._replace(name=name))).status

    async def until(self, condition: Callable[[], Any], seconds: float = 120.0) -> None:
        await until(condition, seconds)

    async def until_scaled(self, replicas: int, seconds: float = 120.0) -> None:
        async def scaled() -> bool:
            return bool((await self.spec()).replicas == replicas)

        await self.until(scaled, seconds)

    def count(self, name: str) -> float:
        assert self.metrics is not None
        (series,) = [s for s in self.metrics.series() if s.definition.name == name]
        return sum(series.values.values())


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    here = Stage()
    await here.actions.create_runner_scale_set(RunnerScaleSet(name="linux"))
    here.api.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SET.namespace}})
    here.api.install(
        {
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "EphemeralRunnerSet",
            "metadata": {"name": SET.name, "namespace": SET.namespace},
            "spec": {"replicas": 0, "patchID": 0, "ephemeralRunnerSpec": RUNNER_SPEC},
        }
    )
    try:
        yield here
    finally:
        for task in here.tasks:
            task.cancel()
        await asyncio.gather(*here.tasks, return_exceptions=True)
        await here.actions.aclose()
        await here.api.aclose()
        await here.service.aclose()


async def stopped(task: asyncio.Task[None], within: float) -> None:
    """SIGTERM; it has ended in so many seconds."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=within)
    assert done, "it still runs"


# --- stopping, whenever -------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize(
    "moment", ["opening", "refused", "polling", "acknowledging", "acquiring", "down", "patching"]
)
async def test_sigterm_at_any_moment_ends_it_within_the_grace_period_and_frees_the_session(
    moment: str,
) -> None:
    async with stage() as here:
        faults = here.service.faults
        if moment == "opening":
            faults.delay(Call.CREATE_SESSION, seconds=10.0)
        if moment == "refused":
            faults.fail(Call.CREATE_SESSION, status=409, times=None)
        if moment == "acknowledging":
            faults.delay(Call.DELETE_MESSAGE, seconds=10.0)
        if moment == "acquiring":
            faults.delay(Call.ACQUIRE_JOBS, seconds=10.0)
        if moment == "patching":
            here.api.faults = _slow_patches
        task = here.listen()
        await asyncio.sleep(5)
        here.service.queue_jobs(2, scale_set="linux", duration=60.0)
        if moment == "down":
            here.service.go_down()
        await asyncio.sleep(3)
        await stopped(task, within=60.0)
        faults.clear()
        here.service.come_up()
        if moment != "down":  # nobody can close a session at a service that is away
            assert not here.service.sessions
        here.api.faults = None
        here.listen("two")
        await here.until_scaled(2, seconds=200)


async def _slow_patches(request: Request, info: RequestInfo) -> Response | None:
    if info.phase == "before" and info.verb == "patch":
        await asyncio.sleep(10.0)
    return None


@simulated
async def test_a_session_whose_opening_got_no_answer_is_waited_out() -> None:
    """The first attempt took effect, so the next ones meet our own session."""
    async with stage() as here:
        here.service.faults.reset(Call.CREATE_SESSION, after_effect=True)
        task = here.listen()
        here.service.queue_jobs(2, scale_set="linux", duration=600.0)
        await here.until_scaled(2, seconds=200)
        assert not task.done()


@simulated
async def test_a_409_without_a_name_is_waited_for_and_then_told() -> None:
    async with stage() as here:
        fault = here.service.faults.fail(Call.CREATE_SESSION, status=409, times=None)
        task = here.listen()
        await asyncio.sleep(120)
        assert not task.done()
        fault.stop()
        await here.until(lambda: here.service.sessions)
        here.service.faults.fail(Call.CREATE_SESSION, status=409, times=None)
        other = here.listen("two")
        await asyncio.wait({other}, timeout=600)
        assert isinstance(other.exception(), SessionNeverReleased)


# --- started jobs -------------------------------------------------------------------------------


@simulated
async def test_a_started_job_of_a_runner_that_is_not_there_stops_nothing() -> None:
    async with stage() as here:
        task = here.listen()
        here.service.queue_jobs(1, scale_set="linux", duration=600.0)
        await here.until_scaled(1)
        await here.runner_takes_a_job("linux-runner-ghost")
        await here.until(lambda: here.count("gha_started_jobs_total") == 1)
        here.service.queue_jobs(2, scale_set="linux", duration=600.0)
        await here.until_scaled(3)
        assert not task.done()
        asked = [r for r in here.api.request_log if r.resource == "ephemeralrunners"]
        assert [r.verb for r in asked] == ["get"], "it is gone: nobody asks again"


@simulated
async def test_a_started_job_is_recorded_although_the_api_server_was_away_when_it_came() -> None:
    async with stage() as here:
        here.listen()
        here.add_runner("linux-runner-a")
        here.service.queue_jobs(1, scale_set="linux", duration=600.0)
        await here.until_scaled(1)

        async def away(request: Request, info: RequestInfo) -> Response | None:
            return json_response(503, {"kind": "Status", "code": 503, "message": "away"})

        here.api.faults = away
        await here.runner_takes_a_job("linux-runner-a")
        await asyncio.sleep(60)
        here.api.faults = None

        async def running() -> bool:
            return bool((await here.status("linux-runner-a")).phase == Phase.RUNNING)

        await here.until(running)
        assert here.count("gha_started_jobs_total") == 1


@simulated
async def test_a_started_job_delivered_again_to_a_successor_is_recorded_once() -> None:
    async with stage() as here:
        first = here.listen()
        here.add_runner("linux-runner-a")
        here.service.queue_jobs(1, scale_set="linux", duration=600.0)
        await here.until_scaled(1)
        await here.runner_takes_a_job("linux-runner-a")
        await here.until(lambda: here.count("gha_started_jobs_total") == 1)
        await stopped(first, within=60)
        here.service.redeliver("linux")
        here.api.request_log.clear()
        here.listen("two")
        await asyncio.sleep(30)
        patched = [r for r in here.api.request_log if r.subresource == "status"]
        assert patched == [], "the status says it already"
        assert (await here.spec()).replicas == 1


@simulated
async def test_a_listener_that_dies_before_it_recorded_a_started_job_leaves_that_to_the_next() -> (
    None
):
    async with stage() as here:
        first = here.listen()
        here.add_runner("linux-runner-a")
        here.service.queue_jobs(1, scale_set="linux", duration=600.0)
        await here.until_scaled(1)

        async def hang(request: Request, info: RequestInfo) -> Response | None:
            if info.plural == "ephemeralrunners" and info.phase == "before":
                await asyncio.sleep(3600)
            return None

        here.api.faults = hang
        await here.runner_takes_a_job("linux-runner-a")
        await asyncio.sleep(5)
        here.api.faults = None
        first.cancel()
        await asyncio.sleep(0)
        first.cancel()  # dead: the message at hand is not finished
        await asyncio.wait({first})
        here.listen("two")
        await asyncio.sleep(30)
        assert (await here.status("linux-runner-a")).phase == Phase.RUNNING


@simulated
async def test_a_started_job_without_a_runners_name_stops_nothing() -> None:
    async with stage() as here:
        here.listen()
        here.service.queue_jobs(1, scale_set="linux", duration=600.0)
        await here.until_scaled(1)
        await here.runner_takes_a_job("linux-runner-x")
        for runner in here.service.runners.values():
            runner.name = ""
        here.service.redeliver("linux")
        here.service.queue_jobs(1, scale_set="linux", duration=600.0)
        await here.until_scaled(2)


# --- the service is not well --------------------------------------------------------------------


@simulated
async def test_both_tokens_expire_with_every_poll_and_no_job_is_lost() -> None:
    async with stage() as here:
        task = here.listen()
        for number in range(1, 6):
            await asyncio.sleep(7)
            here.service.expire_queue_tokens()
            here.service.expire_admin_tokens()
            here.service.queue_jobs(1, scale_set="linux", duration=3600.0)
            await here.until_scaled(number)
        assert not task.done()
        assert here.service.calls[Call.CREATE_SESSION] == 1, "the session was kept"


@simulated
async def test_the_queue_token_expires_between_the_acknowledgement_and_the_acquisition() -> None:
    async with stage() as here:
        here.service.faults.delay(Call.DELETE_MESSAGE, seconds=2.0, after_effect=True)
        here.listen()
        await asyncio.sleep(1)
        here.service.queue_jobs(3, scale_set="linux", duration=3600.0)
        await asyncio.sleep(1)
        here.service.expire_queue_tokens()
        await here.until_scaled(3)
        assert here.service.job_counts()[JobState.ASSIGNED] == 3


@simulated
async def test_a_session_that_ends_between_the_poll_and_the_acknowledgement_loses_no_job() -> None:
    async with stage() as here:
        here.service.faults.delay(Call.DELETE_MESSAGE, seconds=2.0)
        here.listen()
        await asyncio.sleep(1)
        here.service.queue_jobs(3, scale_set="linux", duration=3600.0)
        await asyncio.sleep(1)
        here.service.expire_session("linux")
        await here.until_scaled(3)


@simulated
async def test_every_second_answer_is_spoiled_for_ten_minutes_and_no_job_is_lost() -> None:
    async with stage() as here:
        spoil = [
            here.service.faults.truncate("*", times=None),
            here.service.faults.reset("*", times=None),
            here.service.faults.fail("*", status=502, times=None),
        ]
        for fault in spoil:
            fault.probability = 0.2
        task = here.listen()
        for number in range(1, 11):
            here.service.queue_jobs(1, scale_set="linux", duration=36000.0)
            await asyncio.sleep(60)
            assert not task.done(), number
        here.service.faults.clear()
        await here.until_scaled(10, seconds=200)


@simulated
async def test_credentials_that_are_refused_for_a_moment_do_not_end_it() -> None:
    async with stage() as here:
        task = here.listen()
        await asyncio.sleep(1)
        here.service.accept_tokens()
        here.service.expire_admin_tokens()
        here.service.expire_queue_tokens()
        await asyncio.sleep(120)
        assert not task.done()
        here.service.accept_tokens("ghp_planted")
        here.service.queue_jobs(2, scale_set="linux", duration=600.0)
        await here.until_scaled(2)


@simulated
async def test_credentials_that_stay_refused_end_it_with_one_sentence() -> None:
    async with stage() as here:
        task = here.listen()
        await asyncio.sleep(1)
        here.service.accept_tokens()
        here.service.expire_admin_tokens()
        here.service.expire_queue_tokens()
        await asyncio.wait({task}, timeout=1200)
        error = task.exception()
        assert isinstance(error, ServiceRefused)
        assert "credentials" in str(error)
        assert "ghp_planted" not in str(error)


@simulated
async def test_a_scale_set_forgotten_while_nobody_listened_is_told_at_once() -> None:
    async with stage() as here:
        here.service.forget_scale_set("linux")
        task = here.listen()
        await asyncio.wait({task}, timeout=10)
        assert isinstance(task.exception(), ScaleSetGone)


@simulated
async def test_messages_of_a_kind_we_do_not_know_are_acknowledged_and_do_not_come_again() -> None:
    async with stage() as here:
        here.listen()
        await asyncio.sleep(1)
        _rename_messages(here.service, "SomethingNew")
        here.service.queue_jobs(1, scale_set="linux", duration=600.0, direct=True)
        await asyncio.sleep(10)
        assert here.service.calls[Call.DELETE_MESSAGE] >= 1
        await here.until_scaled(1)  # the statistics beside it count


def _rename_messages(service: FakeActionsService, kind: str) -> None:
    handle = service.handle

    async def renaming(request: Any) -> Any:
        response = await handle(request)
        response.body = response.body.replace(b"RunnerScaleSetJobMessages", kind.encode())
        return response

    service.handle = renaming  # type: ignore[method-assign]


# --- the API server is not well -----------------------------------------------------------------


@simulated
@pytest.mark.parametrize("code", [403, 404, 409, 422, 429, 500])
async def test_whatever_the_api_server_says_to_a_patch_the_target_is_written_in_the_end(
    code: int,
) -> None:
    async with stage() as here:
        refused = [True]

        async def refuse(request: Request, info: RequestInfo) -> Response | None:
            if refused and info.phase == "before" and info.plural == "ephemeralrunnersets":
                return json_response(code, {"kind": "Status", "code": code, "message": "no"})
            return None

        task = here.listen()
        await asyncio.sleep(1)
        here.api.faults = refuse
        here.service.queue_jobs(3, scale_set="linux", duration=3600.0)
        await asyncio.sleep(90)
        assert not task.done()
        refused.clear()
        await here.until_scaled(3)


@simulated
async def test_a_set_that_is_made_anew_gets_the_target_again() -> None:
    """With the whole system: the listener is replaced, since it would not write a second time."""
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        cluster.queue_jobs(2, duration=400.0)
        await cluster.until(running=2)
        await cluster.delete(EphemeralRunnerSet, "linux")
        await cluster.until(completed=2, within=600)
        cluster.queue_jobs(2, duration=10.0)
        await cluster.until(completed=4, runners=1, within=300)


# --- capacity -----------------------------------------------------------------------------------


@simulated
async def test_minimum_and_maximum_that_are_equal_are_never_left() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=3, max_runners=3)
        await cluster.until(registrations=3)
        cluster.queue_jobs(7, duration=10.0)
        while cluster.service.job_counts()[JobState.COMPLETED] < 7:
            await asyncio.sleep(0.5)
            assert len(cluster.service.runners) <= 3
        await cluster.until(runners=3, registrations=3)


@simulated
async def test_jobs_cancelled_in_every_state_leave_no_runner() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4)
        await cluster.until(listeners=1)
        jobs = cluster.queue_jobs(8, duration=300.0)
        for job in jobs[:2]:
            cluster.service.cancel_job(job)  # before anybody heard of them
        await cluster.until(running=4)
        for job in jobs[2:]:
            cluster.service.cancel_job(job)
        await cluster.until(runners=0, registrations=0, within=300)
