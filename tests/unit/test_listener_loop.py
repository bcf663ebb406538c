"""The message loop against a service that does what it is told, in simulated time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest

from arc_controller.actions import (
    ActionsApiError,
    ActionsError,
    BadRequest,
    ConnectionFailed,
    Forbidden,
    JobAssigned,
    JobAvailable,
    JobCompleted,
    JobStarted,
    MalformedResponse,
    Message,
    MessageQueueTokenExpired,
    RunnerScaleSetStatistic,
    ScaleSetNotFound,
    ServerError,
    SessionConflict,
    SessionNotFound,
)
from arc_controller.api.v1alpha1 import EphemeralRunnerSet
from arc_controller.listener import (
    Identity,
    JobMetrics,
    Listener,
    Scaler,
    ScaleSetGone,
    ServiceRefused,
    SessionNeverReleased,
)
from arc_controller.runtime.client import Client
from arc_controller.runtime.errors import TransportError
from arc_controller.runtime.objects import K, NamespacedName
from arc_controller.testing.loop import simulated

POLL = 50.0


def gone(kind: type[ActionsApiError], status: int = 404) -> ActionsError:
    return kind("POST", "https://service/x", status)


RESET = ConnectionFailed("GET", "https://service/queue", "connection reset")
TRUNCATED = MalformedResponse("GET", "https://service/queue", "cut short")
UNAVAILABLE = ServerError("GET", "https://service/queue", 503)


class Service:
    """A scale set's queue. Errors are raised once each, in order, by the call they are for."""

    def __init__(self, assigned: int | None = 0) -> None:
        self.assigned = assigned
        self.messages: deque[Message] = deque()
        self.errors: dict[str, list[ActionsError]] = {}
        self.calls: list[str] = []
        self.acknowledged: list[int] = []
        self.asked: list[list[int]] = []
        self.polled: list[tuple[int, int]] = []
        self.unobtainable: set[int] = set()
        self.slow_acknowledge = 0.0
        self.slow_acquire = 0.0
        self.slow_open = 0.0
        self.open_sessions = 0
        self._arrival = asyncio.Event()
        self._next_id = 0

    @property
    def statistics(self) -> RunnerScaleSetStatistic | None:
        if self.assigned is None:
            return None
        return RunnerScaleSetStatistic(total_assigned_jobs=self.assigned)

    def send(self, *jobs: Any, assigned: int | None = None, message_id: int = 0) -> int:
        if assigned is not None:
            self.assigned = assigned
        self._next_id = message_id or self._next_id + 1
        message = Message(message_id=self._next_id, statistics=self.statistics, jobs=list(jobs))
        self.messages.append(message)
        self._arrival.set()
        return self._next_id

    def fail(self, call: str, *errors: ActionsError) -> None:
        self.errors.setdefault(call, []).extend(errors)

    async def open(self) -> Service:
        if self.slow_open:
            await asyncio.sleep(self.slow_open)
        self._maybe_fail("open")
        self.open_sessions += 1
        return self

    async def get_message(self, last_message_id: int, max_capacity: int) -> Message | None:
        self._maybe_fail("get")
        self.polled.append((last_message_id, max_capacity))
        try:
            async with asyncio.timeout(POLL):
                while not self.messages:
                    self._arrival.clear()
                    await self._arrival.wait()
                    self._maybe_fail("get")
        except TimeoutError:
            return None
        return self.messages[0]

    async def delete_message(self, message_id: int) -> None:
        self._maybe_fail("acknowledge")
        await asyncio.sleep(self.slow_acknowledge)
        self.acknowledged.append(message_id)
        if self.messages and self.messages[0].message_id == message_id:
            self.messages.popleft()

    async def acquire_jobs(self, request_ids: list[int]) -> list[int]:
        self._maybe_fail("acquire")
        await asyncio.sleep(self.slow_acquire)
        self.asked.append(request_ids)
        return [each for each in request_ids if each not in self.unobtainable]

    async def close(self) -> None:
        self._maybe_fail("close")
        self.open_sessions -= 1

    def _maybe_fail(self, call: str) -> None:
        self.calls.append(call)
        if self.errors.get(call):
            raise self.errors[call].pop(0)


class Kubernetes:
    """Counts the patches of the one EphemeralRunnerSet; ``away`` refuses them."""

    def __init__(self) -> None:
        self.targets: list[tuple[int, int]] = []
        self.away = False
        self.slow = 0.0
        self.looked_up: list[str] = []

    async def patch(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        if self.away:
            raise TransportError("connection refused")
        assert kind is EphemeralRunnerSet
        self.targets.append((patch["spec"]["replicas"], patch["spec"]["patchID"]))
        return kind()

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        if self.away:
            raise TransportError("connection refused")
        await asyncio.sleep(self.slow)
        self.looked_up.append(key.name)
        return None


class Running:
    """A listener that runs, and what it runs against."""

    def __init__(self, service: Service, max_runners: int, min_runners: int) -> None:
        self.service = service
        self.kubernetes = Kubernetes()
        self.metrics = JobMetrics(Identity("linux", "runners"))
        scaler = Scaler(
            cast("Client", self.kubernetes),
            NamespacedName("runners", "linux"),
            min_runners=min_runners,
            max_runners=max_runners,
        )
        self.listener = Listener(
            service.open,
            scaler,
            self.metrics,
            name="linux (7)",
            max_runners=max_runners,
            random=Random(1),
        )
        self.task: asyncio.Task[None] = asyncio.create_task(self.listener.run())

    @property
    def target(self) -> int:
        return self.kubernetes.targets[-1][0]

    def count(self, name: str) -> float:
        (series,) = [s for s in self.metrics.series() if s.definition.name == name]
        return sum(series.values.values())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def ended(self) -> BaseException | None:
        await asyncio.wait({self.task})
        return self.task.exception()


@asynccontextmanager
async def listening(
    service: Service, *, max_runners: int = 10, min_runners: int = 0
) -> AsyncIterator[Running]:
    running = Running(service, max_runners, min_runners)
    try:
        await asyncio.sleep(0.1)
        yield running
    finally:
        await running.stop()


def available(*request_ids: int) -> list[JobAvailable]:
    return [JobAvailable(runner_request_id=each) for each in request_ids]


def started(request_id: int) -> JobStarted:
    return JobStarted(runner_request_id=request_id, runner_name=f"runner-{request_id}")


def order(calls: Sequence[str], *names: str) -> list[str]:
    return [call for call in calls if call in names]


# --- the ordinary course


@simulated
async def test_the_sessions_statistics_are_applied_before_the_first_poll() -> None:
    service = Service(assigned=3)
    async with listening(service, min_runners=1) as running:
        assert running.kubernetes.targets == [(4, 0)]
        assert service.polled == [(0, 10)]


@simulated
async def test_a_message_is_acknowledged_then_its_jobs_acquired_then_the_set_scaled() -> None:
    service = Service()
    async with listening(service) as running:
        service.send(*available(1, 2), assigned=0)
        await asyncio.sleep(1)
        service.send(JobAssigned(runner_request_id=1), assigned=2)
        await asyncio.sleep(1)
        assert order(service.calls, "acknowledge", "acquire") == [
            "acknowledge",
            "acquire",
            "acknowledge",
        ]
        assert service.asked == [[1, 2]]
        assert running.target == 2
        assert [last for last, _ in service.polled] == [0, 1, 2]


@simulated
async def test_started_and_completed_jobs_are_counted_and_passed_on() -> None:
    service = Service()
    async with listening(service) as running:
        service.send(started(5), assigned=1)
        await asyncio.sleep(1)
        service.send(JobCompleted(runner_request_id=5, result="succeeded"), assigned=0)
        await asyncio.sleep(1)
        assert running.kubernetes.looked_up == ["runner-5"]
        assert running.count("gha_started_jobs_total") == 1
        assert running.count("gha_completed_jobs_total") == 1
        assert running.target == 0
        assert running.count("gha_desired_runners") == 0


@simulated
async def test_nothing_new_means_the_desired_count_again_and_no_write_at_rest() -> None:
    service = Service(assigned=2)
    async with listening(service) as running:
        await asyncio.sleep(2 * POLL + 1)
        assert running.kubernetes.targets == [(2, 0), (2, 1), (2, 2)]
        service.send(assigned=0)
        await asyncio.sleep(600)
        assert running.kubernetes.targets[3:] == [(0, 3), (0, 0)]


@simulated
async def test_more_runners_are_asked_for_at_once_and_fewer_a_little_later_together() -> None:
    service = Service()
    async with listening(service, max_runners=50) as running:
        for assigned in (10, 20):
            service.send(assigned=assigned)
            await asyncio.sleep(0.01)
            assert running.target == assigned
        for left in range(19, 9, -1):
            service.send(JobCompleted(runner_request_id=left), assigned=left)
            await asyncio.sleep(0.02)
        assert running.target == 20
        await asyncio.sleep(0.5)
        assert running.kubernetes.targets == [(0, 0), (10, 1), (20, 2), (10, 12)]


@simulated
async def test_a_moment_after_a_job_ended_the_count_is_decided_again_without_a_message() -> None:
    """The runner of the ended job may have passed for the one that the next job needs."""
    service = Service(assigned=1)
    async with listening(service) as running:
        service.send(JobCompleted(runner_request_id=5), assigned=1)  # one ended, another came
        await asyncio.sleep(1)
        assert running.kubernetes.targets == [(1, 0), (1, 1)]
        await asyncio.sleep(4)
        assert running.kubernetes.targets == [(1, 0), (1, 1), (1, 2)]
        await asyncio.sleep(POLL / 2)
        assert len(running.kubernetes.targets) == 3, "once is enough"


@simulated
async def test_what_was_put_off_is_written_before_stopping() -> None:
    service = Service(assigned=5)
    async with listening(service) as running:
        service.send(assigned=4)
        await asyncio.sleep(0.1)
        assert running.target == 5
        await running.stop()
        assert running.target == 4


@simulated
async def test_a_session_without_statistics_scales_nothing_until_some_come() -> None:
    service = Service(assigned=None)
    async with listening(service) as running:
        await asyncio.sleep(2 * POLL)
        assert running.kubernetes.targets == []
        service.send(assigned=1)
        await asyncio.sleep(1)
        assert running.target == 1


@simulated
async def test_a_message_without_statistics_keeps_the_last_ones() -> None:
    service = Service(assigned=4)
    async with listening(service) as running:
        service.assigned = None
        service.send(started(1))
        await asyncio.sleep(1)
        assert running.target == 4


# --- acquiring


@simulated
async def test_no_more_is_acquired_than_capacity_allows_and_the_rest_later() -> None:
    service = Service(assigned=1)
    async with listening(service, max_runners=3):
        service.send(*available(1, 2, 3, 4))
        await asyncio.sleep(1)
        assert service.asked == [[1, 2]]
        await asyncio.sleep(2 * POLL)
        assert service.asked == [[1, 2]]
        service.send(assigned=2)
        await asyncio.sleep(1)
        assert service.asked == [[1, 2], [3]]


@simulated
async def test_with_a_maximum_of_zero_nothing_is_acquired_and_nothing_remembered() -> None:
    service = Service()
    async with listening(service, max_runners=0) as running:
        service.send(*available(1, 2), assigned=0)
        await asyncio.sleep(5)
        assert service.asked == []
        assert service.acknowledged == [1]
        assert service.polled[0] == (0, 0)
        assert running.target == 0
        assert running.listener.is_settled


@simulated
async def test_jobs_that_somebody_else_got_are_not_asked_for_again() -> None:
    service = Service()
    service.unobtainable = {2}
    async with listening(service):
        service.send(*available(1, 2))
        await asyncio.sleep(3 * POLL)
        assert service.asked == [[1, 2]]


@simulated
async def test_acquiring_that_fails_after_the_acknowledgement_is_repeated() -> None:
    service = Service()
    async with listening(service) as running:
        service.fail("acquire", UNAVAILABLE, RESET)
        service.send(*available(1, 2))
        await asyncio.sleep(10)
        assert service.acknowledged == [1]
        assert service.asked == [[1, 2]]
        assert running.listener.is_settled


@simulated
async def test_a_cancelled_job_is_not_acquired_late() -> None:
    service = Service()
    async with listening(service):
        service.fail("acquire", UNAVAILABLE)
        service.send(*available(1))
        service.send(JobCompleted(runner_request_id=1, result="canceled"))
        await asyncio.sleep(POLL)
        assert service.asked == []


@simulated
async def test_one_job_that_cannot_be_acquired_does_not_spoil_the_others() -> None:
    service = Service()
    async with listening(service):
        service.fail("acquire", BadRequest("POST", "x", 400), BadRequest("POST", "x", 400))
        service.send(*available(1, 2, 3))
        await asyncio.sleep(POLL)
        assert sorted(service.asked) == [[1], [2]]


# --- what it survives


@simulated
async def test_a_message_delivered_twice_counts_once() -> None:
    service = Service()
    async with listening(service) as running:
        for message_id in (8, 8, 9):  # a service may well give it another id
            completed = JobCompleted(runner_request_id=4, result="succeeded")
            service.send(started(5), completed, *available(6), assigned=1, message_id=message_id)
            await asyncio.sleep(1)
        assert service.acknowledged == [8, 8, 9]
        assert running.count("gha_started_jobs_total") == 1
        assert running.count("gha_completed_jobs_total") == 1
        assert running.target == 1


@simulated
async def test_a_message_that_could_not_be_acknowledged_is_done_and_comes_again() -> None:
    service = Service()
    async with listening(service) as running:
        service.fail("acknowledge", UNAVAILABLE)
        service.send(started(1), *available(2), assigned=3)
        await asyncio.sleep(0.1)
        assert running.target == 3
        assert service.asked == [[2]]
        await asyncio.sleep(5)
        assert service.acknowledged == [1]
        assert running.count("gha_started_jobs_total") == 1
        assert service.polled[-1] == (1, 10)


@simulated
async def test_an_acknowledgement_whose_answer_was_lost_loses_no_message() -> None:
    service = Service()
    async with listening(service) as running:
        service.fail("acknowledge", RESET)
        service.send(started(1), *available(2), assigned=3)
        await asyncio.sleep(0.1)
        service.messages.clear()  # it did arrive
        await asyncio.sleep(60)
        assert service.acknowledged == []
        assert running.target == 3
        assert service.asked == [[2]]
        assert running.kubernetes.looked_up == ["runner-1"]


@simulated
async def test_acquiring_that_hangs_does_not_hold_up_the_desired_count() -> None:
    service = Service()
    async with listening(service) as running:
        service.slow_acquire = 1000
        service.send(started(1), *available(2), assigned=3)
        await asyncio.sleep(25)
        assert running.target == 3
        assert running.kubernetes.looked_up == ["runner-1"]
        service.slow_acquire = 0
        await asyncio.sleep(60)
        assert service.asked[-1] == [2]
        assert running.listener.is_settled


@pytest.mark.parametrize("error", [RESET, TRUNCATED, UNAVAILABLE])
def test_trouble_on_the_way_keeps_the_session(error: ActionsError) -> None:
    @simulated
    async def scenario() -> None:
        service = Service()
        async with listening(service) as running:
            service.fail("get", error, error)
            service._arrival.set()
            await asyncio.sleep(10)
            service.send(assigned=2)
            await asyncio.sleep(10)
            assert running.target == 2
            assert service.calls.count("open") == 1
            assert "close" not in service.calls

    scenario()


@simulated
async def test_a_service_that_is_gone_for_ten_minutes_is_waited_for() -> None:
    service = Service(assigned=1)
    async with listening(service) as running:
        start = asyncio.get_running_loop().time()
        service.fail("get", *[UNAVAILABLE] * 25)
        service._arrival.set()
        await asyncio.sleep(600)
        assert service.errors["get"] == []
        waited = asyncio.get_running_loop().time() - start
        assert waited / 25 >= 15  # no hammering
        service.send(assigned=2)
        await asyncio.sleep(31)
        assert running.target == 2
        assert service.calls.count("open") == 1


@simulated
async def test_a_session_that_is_over_is_opened_anew() -> None:
    service = Service()
    async with listening(service) as running:
        service.fail("get", gone(SessionNotFound))
        service.assigned = 5
        service._arrival.set()
        await asyncio.sleep(5)
        assert service.calls.count("open") == 2
        assert service.open_sessions == 1
        assert running.target == 5


@simulated
async def test_a_token_refused_even_after_renewal_means_a_new_session() -> None:
    service = Service()
    async with listening(service):
        service.fail("get", gone(MessageQueueTokenExpired, 401))
        service._arrival.set()
        await asyncio.sleep(5)
        assert service.calls.count("open") == 2
        assert service.open_sessions == 1


@simulated
async def test_acquirable_jobs_outlive_the_session() -> None:
    service = Service()
    async with listening(service):
        service.fail("acquire", gone(SessionNotFound))
        service.fail("get", gone(SessionNotFound))
        service.errors["get"].clear()
        service.send(*available(1))
        await asyncio.sleep(0.1)
        service.fail("get", gone(SessionNotFound))
        await asyncio.sleep(20)
        assert service.calls.count("open") == 2
        assert service.asked == [[1]]


@simulated
async def test_an_api_server_that_is_away_is_owed_the_target_and_the_started_jobs() -> None:
    service = Service()
    async with listening(service) as running:
        running.kubernetes.away = True
        service.send(started(1), assigned=2)
        await asyncio.sleep(300)
        assert service.acknowledged == [1]
        running.kubernetes.away = False
        await asyncio.sleep(31)
        assert running.target == 2
        assert running.kubernetes.looked_up == ["runner-1"]
        assert running.listener.is_settled


@simulated
async def test_messages_are_still_handled_while_the_api_server_is_away() -> None:
    service = Service()
    async with listening(service) as running:
        running.kubernetes.away = True
        for number in range(1, 6):
            service.send(*available(number), assigned=number - 1)
            await asyncio.sleep(20)
        assert service.asked == [[1], [2], [3], [4], [5]]


# --- the session of somebody else


@simulated
async def test_a_predecessor_that_drains_is_waited_for() -> None:
    service = Service(assigned=2)
    service.fail("open", *[gone(SessionConflict, 409)] * 5)
    async with listening(service) as running:
        assert service.calls == ["open"]
        await asyncio.sleep(60)
        assert running.target == 2
        assert service.calls.count("open") == 6


@simulated
async def test_a_session_that_is_never_released_ends_after_minutes_with_what_to_do() -> None:
    service = Service()
    service.fail("open", *[gone(SessionConflict, 409)] * 100)
    async with listening(service) as running:
        error = await running.ended()
        assert isinstance(error, SessionNeverReleased)
        assert "stop that listener" in str(error)
        assert 300 <= asyncio.get_running_loop().time() < 360
        assert service.calls.count("open") < 25


# --- what cannot heal


@pytest.mark.parametrize("call", ["open", "get"])
def test_a_scale_set_the_service_forgot_ends_it_with_what_to_do(call: str) -> None:
    @simulated
    async def scenario() -> None:
        service = Service()
        service.fail(call, gone(ScaleSetNotFound))
        async with listening(service) as running:
            error = await running.ended()
            assert isinstance(error, ScaleSetGone)
            assert "linux (7)" in str(error)
            assert "runner-scale-set-id" in str(error)
            assert service.open_sessions == 0

    scenario()


@simulated
async def test_a_refusal_that_lasts_ends_it_and_one_that_passes_does_not() -> None:
    service = Service()
    refusal = Forbidden("POST", "https://service/x", 403)
    service.fail("open", refusal, refusal, refusal)
    async with listening(service) as running:
        await asyncio.sleep(30)
        assert service.open_sessions == 1
        service.fail("get", *[refusal] * 100)
        service._arrival.set()
        error = await running.ended()
        assert isinstance(error, ServiceRefused)
        assert "credentials" in str(error)
        assert asyncio.get_running_loop().time() >= 300


# --- stopping


@simulated
async def test_stopping_closes_the_session() -> None:
    service = Service()
    async with listening(service) as running:
        await running.stop()
        assert running.task.cancelled()
        assert service.open_sessions == 0


@simulated
async def test_stopping_during_handling_finishes_the_message_first() -> None:
    service = Service()
    async with listening(service) as running:
        service.slow_acknowledge = 5
        service.send(started(1), *available(2), assigned=2)
        await asyncio.sleep(1)
        await running.stop()
        assert service.acknowledged == [1]
        assert service.asked == [[2]]
        assert running.target == 2
        assert order(service.calls, "acquire", "close") == ["acquire", "close"]


@simulated
async def test_stopping_is_bounded_even_if_handling_hangs() -> None:
    service = Service()
    async with listening(service) as running:
        service.slow_acknowledge = 1000
        service.send(assigned=2)
        await asyncio.sleep(1)
        await running.stop()
        assert asyncio.get_running_loop().time() < 60
        assert service.acknowledged == []
        assert service.open_sessions == 0


@simulated
async def test_a_second_stop_gives_the_message_up_at_once() -> None:
    service = Service()
    async with listening(service) as running:
        service.slow_acknowledge = 20
        service.send(assigned=2)
        await asyncio.sleep(1)
        running.task.cancel()
        await asyncio.sleep(1)
        await running.stop()
        assert asyncio.get_running_loop().time() < 10
        assert running.task.cancelled()
        assert service.open_sessions == 0


@simulated
async def test_a_session_opened_while_stopping_is_not_leaked() -> None:
    service = Service()
    service.slow_open = 5
    async with listening(service) as running:
        await running.stop()
        assert service.calls == ["open", "close"]
        assert service.open_sessions == 0


@simulated
async def test_a_close_that_fails_does_not_keep_the_process() -> None:
    service = Service()
    service.fail("close", UNAVAILABLE)
    async with listening(service) as running:
        await running.stop()
        assert running.task.cancelled()


@simulated
async def test_a_crash_between_acknowledge_and_patch_loses_nothing() -> None:
    service = Service()
    async with listening(service) as first:
        first.kubernetes.away = True  # it never gets to patch
        service.send(JobAssigned(runner_request_id=1), assigned=3)
        await asyncio.sleep(1)
        assert service.acknowledged == [1]
        assert first.kubernetes.targets == [(0, 0)]
    async with listening(service) as second:
        assert second.target == 3  # the new session's statistics say so again


@simulated
async def test_a_started_job_is_recorded_before_its_message_is_acknowledged() -> None:
    service = Service()
    async with listening(service) as running:
        running.kubernetes.slow = 3.0
        service.send(started(1), assigned=1)
        await asyncio.sleep(1)
        assert (running.kubernetes.looked_up, service.acknowledged) == ([], [])
        await asyncio.sleep(5)
        assert (running.kubernetes.looked_up, service.acknowledged) == (["runner-1"], [1])


@simulated
async def test_an_api_server_that_hangs_does_not_keep_messages_from_being_acknowledged() -> None:
    service = Service()
    async with listening(service) as running:
        running.kubernetes.slow = 1000.0
        service.send(started(1), *available(2), assigned=1)
        await asyncio.sleep(15)
        assert service.acknowledged == [1]
        assert service.asked == [[2]]
