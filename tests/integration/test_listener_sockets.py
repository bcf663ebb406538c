"""A listener on real sockets, against a service that misbehaves as design 03 lists."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from arc_controller.actions import (
    ActionsClient,
    HttpRequest,
    HttpResponse,
    PersonalAccessToken,
    RetryPolicy,
    RunnerScaleSet,
)
from arc_controller.api import SCHEME
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.api.v1alpha1 import EphemeralRunnerSet
from arc_controller.listener import (
    Identity,
    JobMetrics,
    ListenerConfig,
    ListenerError,
    Patience,
    ScaleSetGone,
    SessionNeverReleased,
    assemble,
)
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.logs import configure_logging
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import FakeActionsService, HttpActionsService
from arc_controller.testing.actions.calls import Call
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.transport import InProcessTransport

SET = NamespacedName("runners", "linux")
RUNNER_SPEC = {
    "githubConfigUrl": "https://github.com/acme",
    "githubConfigSecret": "github",
    "runnerScaleSetId": 1,
    "spec": {"containers": [{"name": "runner", "image": "runner:1"}]},
}
QUICK = RetryPolicy(retries=2, min_wait=0.01, max_wait=0.02)
PATIENCE = Patience(conflict=5.0, refusal=5.0, min_wait=0.02, max_wait=0.1, together=0.01)


class Stage:
    """An Actions service on a socket, an API server with one set, and listeners for it."""

    def __init__(self, service: FakeActionsService, url: str, api: ApiServer) -> None:
        self.service = service
        self.api = api
        self.actions = ActionsClient(
            url, PersonalAccessToken("secret"), retries=QUICK, random=Random(1)
        )
        self.client = ApiClient(InProcessTransport(api), SCHEME)
        self.url = url
        self.metrics = JobMetrics(Identity("linux", "runners"))
        self.scale_set = 0

    async def set_up(self) -> None:
        self.scale_set = (
            await self.actions.create_runner_scale_set(RunnerScaleSet(name="linux"))
        ).id
        self.api.install(
            {
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunnerSet",
                "metadata": {"name": SET.name, "namespace": SET.namespace},
                "spec": {
                    "replicas": 0,
                    "patchID": 0,
                    "ephemeralRunnerSpec": RUNNER_SPEC,
                },
            }
        )

    def listen(self, owner: str = "one", max_runners: int = 10) -> asyncio.Task[None]:
        config = ListenerConfig(
            configure_url=self.url,
            ephemeral_runner_set_namespace=SET.namespace,
            ephemeral_runner_set_name=SET.name,
            runner_scale_set_id=self.scale_set,
            max_runners=max_runners,
        )
        listener = assemble(
            config,
            self.client,
            self.actions,
            metrics=self.metrics,
            owner=owner,
            patience=PATIENCE,
            random=Random(1),
        )
        return asyncio.create_task(listener.run())

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_polling(self) -> None:
        await self.until(lambda: any(each.polls for each in self.service.sessions.values()))

    async def until_scaled(self, replicas: int) -> None:
        async with asyncio.timeout(20):
            while (await self.spec()).replicas != replicas:
                await asyncio.sleep(0.01)

    async def spec(self) -> Any:
        return (await self.client.get(EphemeralRunnerSet, SET)).spec

    def count(self, name: str) -> float:
        (series,) = [s for s in self.metrics.series() if s.definition.name == name]
        return sum(series.values.values())


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    service = FakeActionsService(random=Random(1), poll_timeout=0.5, session_timeout=2.0)
    api = ApiServer(crds=custom_resource_definitions(), random=Random(2))
    api.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SET.namespace}})
    async with HttpActionsService(service) as http:
        made = Stage(service, http.config_url("acme"), api)
        await made.set_up()
        try:
            yield made
        finally:
            await made.actions.aclose()
            await api.aclose()


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def failure(task: asyncio.Task[None]) -> BaseException | None:
    async with asyncio.timeout(30):
        await asyncio.wait([task])
    return task.exception()


async def test_jobs_are_acquired_and_the_set_is_scaled_up_and_down() -> None:
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        jobs = it.service.queue_jobs(3)
        await it.until_scaled(3)
        for job in jobs:
            it.service.cancel_job(job)
        await it.until_scaled(0)
        await stop(listener)
        assert it.service.sessions == {}


async def test_tokens_that_expire_in_mid_poll_are_renewed_under_the_same_session() -> None:
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        (session,) = it.service.sessions
        it.service.expire_admin_tokens()
        it.service.expire_queue_tokens()
        it.service.queue_jobs(2)
        await it.until_scaled(2)
        assert list(it.service.sessions) == [session]
        assert it.service.calls[Call.REFRESH_SESSION] >= 1
        await stop(listener)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_registration_that_is_refused_at_first_succeeds_later(status: int) -> None:
    async with stage() as it:
        it.service.faults.fail("register", status=status, times=2)
        it.service.expire_admin_tokens()
        listener = it.listen()
        await it.until_polling()
        await stop(listener)


def truncated(service: FakeActionsService) -> None:
    service.faults.truncate("get_message", times=3)


def truncated_connection(service: FakeActionsService) -> None:
    service.faults.truncate("get_message", times=3, connection=True)


def empty(service: FakeActionsService) -> None:
    service.faults.empty("get_message", times=3)


def reset(service: FakeActionsService) -> None:
    service.faults.reset("get_message", after=0.05, times=3)


def unavailable(service: FakeActionsService) -> None:
    service.faults.fail("get_message", status=503, times=7)


def marked(service: FakeActionsService) -> None:
    service.faults.byte_order_mark("*")


@pytest.mark.parametrize(
    "trouble", [truncated, truncated_connection, empty, reset, unavailable, marked]
)
async def test_the_session_outlives_trouble_on_the_way(
    trouble: Callable[[FakeActionsService], None],
) -> None:
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        (session,) = it.service.sessions
        trouble(it.service)
        it.service.reset_polls()
        it.service.queue_jobs(2)
        await it.until_scaled(2)
        assert list(it.service.sessions) == [session]
        await stop(listener)


async def test_a_service_that_went_down_is_found_again() -> None:
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        it.service.go_down()
        await asyncio.sleep(0.5)
        assert not listener.done()
        it.service.come_up()
        it.service.queue_jobs(1)
        await it.until_scaled(1)
        await stop(listener)


def rewritten(service: FakeActionsService, rewrite: Callable[[Any], None]) -> None:
    """Change what the service says before it goes over the wire."""
    handle = service.handle

    async def rewriting(request: HttpRequest) -> HttpResponse:
        response = await handle(request)
        if response.status == 200 and response.body[:1] == b"{":
            content = msgspec.json.decode(response.body)
            rewrite(content)
            response.body = msgspec.json.encode(content)
        return response

    service.handle = rewriting  # type: ignore[method-assign]


def add_unknown_messages(content: Any) -> None:
    if "messageId" in content:
        jobs = msgspec.json.decode(content["body"])
        jobs.insert(0, {"messageType": "JobReconsidered", "runnerRequestId": "not even a number"})
        jobs.append({"messageType": None})
        content["body"] = msgspec.json.encode(jobs).decode()


def zero_times(content: Any) -> None:
    if "messageId" in content:
        jobs = msgspec.json.decode(content["body"])
        for job in jobs:
            for name in ("queueTime", "scaleSetAssignTime", "runnerAssignTime", "finishTime"):
                job[name] = "0001-01-01T00:00:00Z"
        content["body"] = msgspec.json.encode(jobs).decode()


def add_unknown_fields(content: Any) -> None:
    content |= {"surprise": {"x": [1, None]}, "runnerScaleSetPoolId": 7}
    for value in list(content.values()):
        if isinstance(value, dict):
            value |= {"another": "surprise", "totalSomethingJobs": 3}
    if "messageId" in content:
        jobs = msgspec.json.decode(content["body"])
        for job in jobs:
            job["surprise"] = {"y": 1}
        content["body"] = msgspec.json.encode(jobs).decode()


@pytest.mark.parametrize("rewrite", [add_unknown_messages, zero_times, add_unknown_fields])
async def test_unknown_messages_zero_times_and_unknown_fields_change_nothing(
    rewrite: Callable[[Any], None],
) -> None:
    async with stage() as it:
        rewritten(it.service, rewrite)
        listener = it.listen()
        await it.until_polling()
        jobs = it.service.queue_jobs(3)
        await it.until_scaled(3)
        for job in jobs:
            it.service.cancel_job(job)
        await it.until(lambda: it.count("gha_completed_jobs_total") == 3)
        await it.until_scaled(0)
        assert it.count("gha_assigned_jobs") == 0
        await stop(listener)


async def test_a_message_delivered_twice_changes_and_counts_nothing_twice() -> None:
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        job = it.service.queue_jobs(1)[0]
        await it.until_scaled(1)
        it.service.cancel_job(job)
        await it.until(lambda: it.count("gha_completed_jobs_total") == 1)
        polls = it.service.calls[Call.DELETE_MESSAGE]
        it.service.redeliver()
        await it.until(lambda: it.service.calls[Call.DELETE_MESSAGE] > polls)
        await it.until_scaled(0)
        assert it.count("gha_completed_jobs_total") == 1
        await stop(listener)


async def test_an_acknowledgement_that_is_lost_brings_the_message_again() -> None:
    async with stage() as it:
        it.service.faults.ignore("delete_message", times=2)
        listener = it.listen()
        await it.until_polling()
        it.service.queue_jobs(2)
        await it.until_scaled(2)
        await stop(listener)


async def test_jobs_whose_acquisition_failed_are_acquired_later() -> None:
    async with stage() as it:
        it.service.faults.fail("acquire_jobs", status=503, times=9)
        listener = it.listen()
        await it.until_polling()
        it.service.queue_jobs(2)
        await it.until_scaled(2)
        await stop(listener)


async def test_with_a_maximum_of_zero_no_job_is_acquired() -> None:
    async with stage() as it:
        listener = it.listen(max_runners=0)
        await it.until_polling()
        it.service.queue_jobs(2)
        polls = it.service.calls[Call.GET_MESSAGE]
        await it.until(lambda: it.service.calls[Call.GET_MESSAGE] >= polls + 2)
        assert it.service.calls[Call.ACQUIRE_JOBS] == 0
        assert (await it.spec()).replicas == 0
        await stop(listener)


async def test_a_predecessor_that_closes_its_session_lets_the_successor_in() -> None:
    async with stage() as it:
        first = it.listen("first")
        await it.until_polling()
        second = it.listen("second")
        await it.until(lambda: it.service.calls[Call.CREATE_SESSION] >= 3)
        assert [each.owner for each in it.service.sessions.values()] == ["first"]
        await stop(first)
        await it.until(lambda: [each.owner for each in it.service.sessions.values()] == ["second"])
        await stop(second)


async def test_a_session_that_is_never_released_ends_the_listener() -> None:
    async with stage() as it:
        first = it.listen("first")
        await it.until_polling()
        error = await failure(it.listen("second"))
        assert isinstance(error, SessionNeverReleased)
        assert [each.owner for each in it.service.sessions.values()] == ["first"]
        await stop(first)


async def test_a_session_that_ended_is_replaced() -> None:
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        it.service.expire_session()
        it.service.queue_jobs(1)
        await it.until_scaled(1)
        await stop(listener)


async def test_a_scale_set_that_the_service_forgot_ends_the_listener() -> None:
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        it.service.forget_scale_set("linux")
        error = await failure(listener)
        assert isinstance(error, ScaleSetGone)
        assert isinstance(error, ListenerError)


async def test_no_secret_is_in_what_it_logs(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    configure_logging("debug", "text", stream=stream)
    async with stage() as it:
        listener = it.listen()
        await it.until_polling()
        it.service.faults.fail("get_message", status=500, times=7)
        it.service.reset_polls()
        await asyncio.sleep(0.3)
        await stop(listener)
    configure_logging("info", "text")
    output = stream.getvalue() + caplog.text
    assert "message session opened" in output
    assert "status 500" in output
    assert "secret" not in output
    assert "eyJ" not in output
