"""The fake service keeps the real one's promises: jobs, runners, messages and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from random import Random
from typing import Concatenate, ParamSpec

import pytest

from arc_controller.actions import (
    ActionsClient,
    AgentExists,
    Conflict,
    ConnectionFailed,
    JobCompleted,
    JobStillRunning,
    Label,
    MalformedResponse,
    Message,
    MessageQueue,
    PersonalAccessToken,
    RetryPolicy,
    RunnerScaleSet,
    ScaleSetNotFound,
    ServerError,
    SessionConflict,
    SessionNotFound,
    Unauthorized,
)
from arc_controller.testing.actions import (
    Call,
    FakeActionsService,
    InProcessTransport,
    Job,
    JobState,
    RunnerBusyElsewhere,
    RunnerConnection,
    RunnerRemoved,
    RunnerVersionRefused,
)
from arc_controller.testing.loop import now, simulated

P = ParamSpec("P")


class World:
    """A service, a client that does not retry, and one scale set."""

    def __init__(self, service: FakeActionsService, client: ActionsClient) -> None:
        self.service = service
        self.client = client
        self.scale_set_id = 0

    async def open(self, owner: str = "listener") -> MessageQueue:
        return await MessageQueue.open(self.client, self.scale_set_id, owner)

    async def take(self, queue: MessageQueue, last: int = 0, capacity: int = 100) -> Message:
        """The next message, acknowledged, its available jobs acquired."""
        message = await queue.get_message(last, capacity)
        assert message is not None
        await queue.delete_message(message.message_id)
        await queue.acquire_jobs([job.runner_request_id for job in message.available])
        return message

    async def runner(self, name: str) -> RunnerConnection:
        config = await self.client.generate_jit_config(self.scale_set_id, name, "_work")
        return self.service.runner_online(config.encoded_jit_config)


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    service = FakeActionsService(now=now, random=Random(1))
    client = ActionsClient(
        "https://github.com/acme",
        PersonalAccessToken("t"),
        transport=InProcessTransport(service),
        retries=RetryPolicy(retries=0),
        now=now,
        random=Random(1),
    )
    async with client:
        world = World(service, client)
        created = await client.create_runner_scale_set(RunnerScaleSet(name="set"))
        world.scale_set_id = created.id
        yield world
        await service.aclose()


def in_a_world(
    test: Callable[Concatenate[World, P], Awaitable[None]],
) -> Callable[P, None]:
    async def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async with a_world() as world:
            await test(world, *args, **kwargs)

    decorated = simulated(seeds=range(3))(run)

    @wraps(decorated)
    def plain(*args: P.args, **kwargs: P.kwargs) -> None:
        decorated(*args, **kwargs)

    plain.__name__ = test.__name__
    del plain.__wrapped__
    return plain


def states(jobs: list[Job]) -> list[str]:
    return [job.state.value for job in jobs]


@in_a_world
async def test_a_job_lives_from_the_queue_to_its_end(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set", duration=30)
    assert job.state is JobState.QUEUED
    first = await queue.get_message(0, 10)
    assert first is not None
    assert [offer.runner_request_id for offer in first.available] == [job.request_id]
    assert first.statistics is not None
    assert first.statistics.total_available_jobs == 1
    assert states([job]) == ["available"]
    await queue.delete_message(first.message_id)
    assert await queue.acquire_jobs([job.request_id]) == [job.request_id]
    assert states([job]) == ["assigned"]
    second = await world.take(queue, first.message_id)
    assert len(second.assigned) == 1
    assert second.statistics is not None
    assert second.statistics.total_assigned_jobs == 1

    runner = await world.runner("one")
    assert await runner.wait_for_job() is job
    third = await world.take(queue, second.message_id)
    [started] = third.started
    assert (started.runner_id, started.runner_name) == (runner.id, "one")
    assert started.runner_assign_time is not None
    assert world.service.statistics().total_running_jobs == 1
    assert world.service.statistics().total_busy_runners == 1

    await runner.run(job)
    fourth = await world.take(queue, third.message_id)
    [completed] = fourth.completed
    assert completed.result == "succeeded"
    assert completed.finish_time is not None
    assert completed.runner_assign_time is not None
    assert (completed.finish_time - completed.runner_assign_time).total_seconds() == 30
    assert states([job]) == ["completed"]
    assert job.over.is_set()
    assert not world.service.runners
    assert set(vars_of(world.service.statistics())) == {0}


def vars_of(statistics: object) -> list[int]:
    return [getattr(statistics, name) for name in statistics.__struct_fields__]  # type: ignore[attr-defined]


@in_a_world
async def test_an_idle_runner_gets_a_job_as_soon_as_there_is_one(world: World) -> None:
    queue = await world.open()
    runner = await world.runner("one")
    assert world.service.statistics().total_idle_runners == 1
    waiting = asyncio.create_task(runner.wait_for_job())
    await asyncio.sleep(10)
    [job] = world.service.queue_jobs(scale_set="set")
    await world.take(queue)
    assert await waiting is job
    assert world.service.statistics().total_idle_runners == 0


@in_a_world
async def test_a_poll_waits_for_a_message_and_gives_up_after_fifty_seconds(world: World) -> None:
    queue = await world.open()
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await queue.get_message(0, 10) is None
    assert loop.time() - started == pytest.approx(50)
    poll = asyncio.create_task(queue.get_message(0, 10))
    await asyncio.sleep(20)
    world.service.queue_jobs(3, scale_set="set")
    message = await poll
    assert message is not None
    assert len(message.available) == 3
    assert loop.time() - started == pytest.approx(70)


@in_a_world
async def test_a_message_comes_again_until_it_is_acknowledged(world: World) -> None:
    queue = await world.open()
    world.service.queue_jobs(1, scale_set="set")
    first = await queue.get_message(0, 10)
    assert first is not None
    assert await queue.get_message(0, 10) == first
    world.service.queue_jobs(1, scale_set="set")
    second = await queue.get_message(first.message_id, 10)
    assert second is not None
    assert second.message_id > first.message_id
    await queue.delete_message(first.message_id)
    assert await queue.get_message(0, 10) == second


@in_a_world
async def test_unacknowledged_messages_survive_a_change_of_sessions(world: World) -> None:
    queue = await world.open()
    world.service.queue_jobs(1, scale_set="set")
    first = await queue.get_message(0, 10)
    await queue.close()
    assert await (await world.open("other")).get_message(0, 10) == first


@in_a_world
async def test_a_job_that_was_offered_and_never_acquired_is_offered_again(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set")
    message = await queue.get_message(0, 10)
    assert message is not None
    await queue.delete_message(message.message_id)
    assert await queue.get_message(message.message_id, 10) is None  # 50 s
    again = await queue.get_message(message.message_id, 10)
    assert again is not None
    assert [offer.runner_request_id for offer in again.available] == [job.request_id]


@in_a_world
async def test_a_new_session_is_offered_what_the_old_one_left(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set")
    message = await queue.get_message(0, 10)
    assert message is not None
    await queue.delete_message(message.message_id)  # and then the listener dies
    await queue.close()
    again = await (await world.open()).get_message(0, 10)
    assert again is not None
    assert [offer.runner_request_id for offer in again.available] == [job.request_id]


@in_a_world
async def test_capacity_limits_what_is_offered_and_acquired(world: World) -> None:
    queue = await world.open()
    jobs = world.service.queue_jobs(5, scale_set="set")
    message = await queue.get_message(0, 2)
    assert message is not None
    assert len(message.available) == 2
    everything = [job.request_id for job in jobs]
    assert await queue.acquire_jobs(everything) == everything[:2]
    assert world.service.statistics().total_assigned_jobs == 2
    assert world.service.statistics().total_available_jobs == 3


@in_a_world
async def test_capacity_zero_is_offered_nothing(world: World) -> None:
    queue = await world.open()
    world.service.queue_jobs(5, scale_set="set", direct=False)
    world.service.queue_jobs(5, scale_set="set", direct=True)
    assert await queue.get_message(0, 0) is None
    assert world.service.statistics().total_assigned_jobs == 0


@in_a_world
async def test_a_finished_job_makes_room_for_another(world: World) -> None:
    queue = await world.open()
    world.service.queue_jobs(2, scale_set="set", duration=5)
    first = await world.take(queue, capacity=1)
    runner = await world.runner("one")
    poll = asyncio.create_task(world.take(queue, first.message_id, capacity=1))
    await runner.run(await runner.wait_for_job())
    second = await poll
    offers = len(second.available)
    if not offers:
        offers = len((await world.take(queue, second.message_id, capacity=1)).available)
    assert offers == 1


@in_a_world
async def test_the_service_may_assign_a_job_without_offering_it(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set", direct=True)
    message = await queue.get_message(0, 10)
    assert message is not None
    assert [type(item).__name__ for item in message.jobs] == ["JobAssigned"]
    assert job.state is JobState.ASSIGNED


@in_a_world
async def test_a_job_for_a_scale_set_that_does_not_exist_yet_waits_for_it(world: World) -> None:
    [job] = world.service.queue_jobs(1, scale_set="later")
    assert job.scale_set_id is None
    created = await world.client.create_runner_scale_set(
        RunnerScaleSet(name="other", labels=[Label(name="LATER"), Label(name="gpu")])
    )
    assert job.scale_set_id == created.id


@in_a_world
async def test_jobs_choose_a_scale_set_by_labels(world: World) -> None:
    created = await world.client.create_runner_scale_set(
        RunnerScaleSet(name="gpus", labels=[Label(name="linux"), Label(name="gpu")])
    )
    [right] = world.service.queue_jobs(labels=("linux", "gpu"))
    [wrong] = world.service.queue_jobs(labels=("linux", "fpga"))
    assert right.scale_set_id == created.id
    assert wrong.scale_set_id is None


@pytest.mark.parametrize("when", ["queued", "available"])
def test_cancelling_a_job_nobody_has_is_silent(when: str) -> None:
    @in_a_world
    async def go(world: World) -> None:
        queue = await world.open()
        [job] = world.service.queue_jobs(1, scale_set="set")
        last = 0
        if when == "available":
            message = await queue.get_message(0, 10)
            assert message is not None
            await queue.delete_message(message.message_id)
            last = message.message_id
        world.service.cancel_job(job)
        assert (job.state, job.result) == (JobState.COMPLETED, "canceled")
        assert await queue.acquire_jobs([job.request_id]) == []
        assert await queue.get_message(last, 10) is None

    go()


@in_a_world
async def test_cancelling_an_assigned_job_completes_it_without_a_runner(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set")
    message = await world.take(queue)
    world.service.cancel_job(job)
    message = await world.take(queue, message.message_id)
    [completed] = message.completed
    assert (completed.result, completed.runner_id, completed.runner_assign_time) == (
        "canceled",
        0,
        None,
    )


@in_a_world
async def test_cancelling_a_running_job_asks_its_runner(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set", duration=3600)
    await world.take(queue)
    runner = await world.runner("one")
    running = asyncio.create_task(runner.run(await runner.wait_for_job()))
    await asyncio.sleep(5)
    world.service.cancel_job(job)
    assert job.state is JobState.RUNNING
    assert await running == "canceled"
    assert states([job]) == ["completed"]


@in_a_world
async def test_a_runner_that_vanishes_with_a_job_loses_it(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set", duration=3600)
    message = await world.take(queue)
    runner = await world.runner("one")
    assert await runner.wait_for_job() is job
    runner.go_offline()
    assert not runner.finish(job)
    with pytest.raises(ConnectionError):
        await runner.wait_for_job()
    with pytest.raises(JobStillRunning):
        await world.client.remove_runner(runner.id)
    await job.over.wait()
    assert (job.state, job.result) == (JobState.LOST, "failed")
    assert not world.service.runners
    await world.client.remove_runner(runner.id)
    completed: list[JobCompleted] = []
    while not completed:
        message = await world.take(queue, message.message_id)
        completed = message.completed
    assert completed[0].result == "failed"
    assert world.service.statistics().total_busy_runners == 0


@in_a_world
async def test_an_idle_runner_that_vanishes_stays_registered(world: World) -> None:
    runner = await world.runner("one")
    runner.go_offline()
    await asyncio.sleep(600)
    statistics = world.service.statistics()
    assert (statistics.total_registered_runners, statistics.total_idle_runners) == (1, 0)
    await world.client.remove_runner(runner.id)
    assert not world.service.runners


@in_a_world
async def test_a_runner_may_come_back_with_the_same_configuration(world: World) -> None:
    queue = await world.open()
    config = await world.client.generate_jit_config(world.scale_set_id, "one", "_work")
    first = world.service.runner_online(config.encoded_jit_config)
    with pytest.raises(RunnerBusyElsewhere):
        world.service.runner_online(config.encoded_jit_config)
    first.go_offline()
    second = world.service.runner_online(config.encoded_jit_config)
    [job] = world.service.queue_jobs(1, scale_set="set")
    await world.take(queue)
    assert await second.wait_for_job() is job
    first.go_offline()  # a ghost: it must not take the second one down
    assert second.finish(job)


@in_a_world
async def test_a_removed_runner_is_told_and_cannot_come_back(world: World) -> None:
    config = await world.client.generate_jit_config(world.scale_set_id, "one", "_work")
    runner = world.service.runner_online(config.encoded_jit_config)
    waiting = asyncio.create_task(runner.wait_for_job())
    await asyncio.sleep(1)
    await world.client.remove_runner(runner.id)
    with pytest.raises(RunnerRemoved):
        await waiting
    with pytest.raises(RunnerRemoved):
        world.service.runner_online(config.encoded_jit_config)
    with pytest.raises(ValueError, match="not a JIT configuration"):
        world.service.runner_online("bm9uc2Vuc2U=")


@in_a_world
async def test_an_old_runner_version_is_refused(world: World) -> None:
    config = await world.client.generate_jit_config(world.scale_set_id, "one", "_work")
    world.service.runner_version_refused = True
    with pytest.raises(RunnerVersionRefused):
        world.service.runner_online(config.encoded_jit_config)


@in_a_world
async def test_a_wait_for_a_job_that_is_cancelled_loses_nothing(world: World) -> None:
    queue = await world.open()
    runner = await world.runner("one")
    waiting = asyncio.create_task(runner.wait_for_job())
    await asyncio.sleep(1)
    [job] = world.service.queue_jobs(1, scale_set="set")
    await world.take(queue)
    waiting.cancel()
    assert await runner.wait_for_job() is job


@in_a_world
async def test_runner_names_are_taken_once(world: World) -> None:
    config = await world.client.generate_jit_config(world.scale_set_id, "one", "_work")
    with pytest.raises(AgentExists):
        await world.client.generate_jit_config(world.scale_set_id, "ONE", "_work")
    assert await world.client.get_runner_by_name("one") == config.runner
    assert await world.client.get_runner(config.runner.id) == config.runner
    await world.client.remove_runner(config.runner.id)
    assert await world.client.get_runner_by_name("one") is None
    assert await world.client.get_runner(config.runner.id) is None
    await world.client.remove_runner(config.runner.id)


@in_a_world
async def test_a_session_refuses_others_until_it_is_closed(world: World) -> None:
    queue = await world.open("first")
    with pytest.raises(SessionConflict, match="owner first"):
        await world.open("second")
    await queue.close()
    assert (await world.open("second")).session.owner_name == "second"
    with pytest.raises(SessionNotFound):
        await queue.get_message(0, 1)


@in_a_world
async def test_a_session_without_polls_gives_way_after_a_minute(world: World) -> None:
    queue = await world.open("first")
    poll = asyncio.create_task(queue.get_message(0, 1))
    await asyncio.sleep(45)
    poll.cancel()  # the listener is killed
    await asyncio.sleep(59)
    with pytest.raises(SessionConflict):
        await world.open("second")
    await asyncio.sleep(2)
    assert not world.service.sessions
    await world.open("second")


@in_a_world
async def test_a_session_that_polls_never_gives_way(world: World) -> None:
    queue = await world.open("first")
    for _ in range(10):
        poll = asyncio.create_task(queue.get_message(0, 1))
        await asyncio.sleep(30)
        with pytest.raises(SessionConflict):
            await world.open("second")
        await poll


@in_a_world
async def test_an_expired_queue_token_ends_the_poll_and_is_renewed_once(world: World) -> None:
    queue = await world.open()
    polls = [asyncio.create_task(queue.get_message(0, 10)) for _ in range(3)]
    await asyncio.sleep(10)
    world.service.expire_queue_tokens()
    await asyncio.sleep(1)
    world.service.queue_jobs(1, scale_set="set")
    messages = await asyncio.gather(*polls)
    assert all(message is not None for message in messages)
    assert world.service.calls[Call.REFRESH_SESSION] == 1


@in_a_world
async def test_a_forgotten_scale_set_is_not_found_in_mid_poll(world: World) -> None:
    queue = await world.open()
    poll = asyncio.create_task(queue.get_message(0, 10))
    await asyncio.sleep(10)
    world.service.forget_scale_set("set")
    with pytest.raises(ScaleSetNotFound):
        await poll
    with pytest.raises(ScaleSetNotFound):
        await world.open()
    with pytest.raises(ScaleSetNotFound):
        await world.client.generate_jit_config(world.scale_set_id, "one", "_work")
    await queue.close()


@in_a_world
async def test_deleting_a_scale_set_sends_its_waiting_jobs_elsewhere(world: World) -> None:
    queue = await world.open()
    [job] = world.service.queue_jobs(1, scale_set="set")
    await world.take(queue)
    await world.runner("busy")
    [waiting] = world.service.queue_jobs(1, scale_set="set")
    await world.client.delete_runner_scale_set(world.scale_set_id)
    assert job.state is JobState.RUNNING
    assert (waiting.state, waiting.scale_set_id) == (JobState.QUEUED, None)
    created = await world.client.create_runner_scale_set(RunnerScaleSet(name="set"))
    assert created.id != world.scale_set_id
    assert waiting.scale_set_id == created.id


@in_a_world
async def test_scale_sets_are_found_updated_and_unique(world: World) -> None:
    group = world.service.add_runner_group("big")
    assert await world.client.get_runner_group("BIG") == group
    with pytest.raises(Conflict):
        await world.client.create_runner_scale_set(RunnerScaleSet(name="SET", runner_group_id=1))
    found = await world.client.get_runner_scale_set("set", 1)
    assert found is not None
    assert found.labels == [Label(name="set", type="System")]
    changed = await world.client.update_runner_scale_set(
        found.id, RunnerScaleSet(name="renamed", runner_group_id=group.id)
    )
    assert (changed.name, changed.runner_group_name) == ("renamed", "big")
    assert changed.labels == found.labels
    assert await world.client.get_runner_scale_set("set", 1) is None
    assert await world.client.get_runner_scale_set_by_id(found.id) == changed


@in_a_world
async def test_config_urls_do_not_see_each_others_scale_sets(world: World) -> None:
    stranger = ActionsClient(
        "https://github.com/other/repo",
        PersonalAccessToken("t"),
        transport=InProcessTransport(world.service),
        now=now,
    )
    assert await stranger.get_runner_scale_set("set", 1) is None
    with pytest.raises(ScaleSetNotFound):
        await stranger.get_runner_scale_set_by_id(world.scale_set_id)


@in_a_world
async def test_only_accepted_tokens_get_in(world: World) -> None:
    world.service.accept_tokens("rotated")
    world.service.expire_admin_tokens()
    with pytest.raises(Unauthorized, match="Bad credentials"):
        await world.client.get_runner(1)
    world.service.accept_tokens("rotated", "t")
    assert await world.client.get_runner(1) is None


@in_a_world
async def test_faults_strike_the_calls_they_name_as_often_as_they_should(world: World) -> None:
    faults = world.service.faults
    fault = faults.fail("get_runner", status=503, times=2)
    for _ in range(2):
        with pytest.raises(ServerError):
            await world.client.get_runner(1)
    assert await world.client.get_runner(1) is None
    assert fault.hits == 2
    always = faults.fail("*", times=None)
    for _ in range(4):
        with pytest.raises(ServerError):
            await world.client.get_runner(1)
    always.stop()
    assert await world.client.get_runner(1) is None
    with pytest.raises(ValueError, match="not a valid Call"):
        faults.fail("get_runer")


@in_a_world
async def test_faults_may_depend_on_the_request_and_on_chance(world: World) -> None:
    world.service.faults.fail("find_runner", when=lambda r: "agentName=bad" in r.url, times=None)
    assert await world.client.get_runner_by_name("good") is None
    with pytest.raises(ServerError):
        await world.client.get_runner_by_name("bad")
    fault = world.service.faults.fail("get_runner", probability=0.5, times=None)
    failed = 0
    for _ in range(100):
        try:
            await world.client.get_runner(1)
        except ServerError:
            failed += 1
    assert failed == fault.hits
    assert 25 < failed < 75


@in_a_world
async def test_a_fault_after_the_effect_leaves_the_effect(world: World) -> None:
    world.service.faults.reset("generate_jit_config", after_effect=True)
    with pytest.raises(ConnectionFailed):
        await world.client.generate_jit_config(world.scale_set_id, "one", "_work")
    assert len(world.service.runners) == 1
    world.service.faults.reset("generate_jit_config")
    with pytest.raises(ConnectionFailed):
        await world.client.generate_jit_config(world.scale_set_id, "two", "_work")
    assert len(world.service.runners) == 1


@in_a_world
async def test_a_lost_acknowledgement_delivers_the_message_again(world: World) -> None:
    queue = await world.open()
    world.service.queue_jobs(1, scale_set="set")
    message = await queue.get_message(0, 10)
    assert message is not None
    world.service.faults.ignore("delete_message")
    await queue.delete_message(message.message_id)
    assert await queue.get_message(0, 10) == message


@in_a_world
async def test_messages_may_be_doubled_and_lost(world: World) -> None:
    queue = await world.open()
    world.service.queue_jobs(1, scale_set="set")
    first = await world.take(queue)
    world.service.redeliver()
    second = await queue.get_message(first.message_id, 10)
    assert second is not None
    assert second.jobs == first.jobs
    assert world.service.lose_messages() == 2  # the double, and JobAssigned
    assert await queue.get_message(first.message_id, 10) is None


@in_a_world
async def test_a_service_that_is_down_answers_nobody_and_forgets_nothing(world: World) -> None:
    queue = await world.open()
    poll = asyncio.create_task(queue.get_message(0, 10))
    await asyncio.sleep(1)
    world.service.go_down()
    with pytest.raises(ConnectionFailed):
        await poll
    with pytest.raises(ConnectionFailed):
        await world.client.get_runner(1)
    world.service.come_up()
    world.service.queue_jobs(1, scale_set="set")
    assert await queue.get_message(0, 10) is not None


@in_a_world
async def test_truncated_empty_and_marked_answers(world: World) -> None:
    world.service.faults.truncate("get_scale_set")
    world.service.faults.empty("get_scale_set")
    for _ in range(2):
        with pytest.raises(MalformedResponse):
            await world.client.get_runner_scale_set_by_id(world.scale_set_id)
    world.service.faults.truncate("get_scale_set", connection=True)
    with pytest.raises(ConnectionFailed):
        await world.client.get_runner_scale_set_by_id(world.scale_set_id)
    world.service.faults.byte_order_mark("*")
    await world.client.get_runner_scale_set_by_id(world.scale_set_id)
    with pytest.raises(ScaleSetNotFound):
        await world.client.get_runner_scale_set_by_id(999)


@in_a_world
async def test_a_delay_takes_its_time(world: World) -> None:
    world.service.faults.delay("get_runner", seconds=7)
    started = asyncio.get_running_loop().time()
    await world.client.get_runner(1)
    assert asyncio.get_running_loop().time() - started == pytest.approx(7)


@in_a_world
async def test_the_log_counts_calls_and_holds_no_token(world: World) -> None:
    await world.client.get_runner(1)
    assert world.service.calls[Call.GET_RUNNER] == 1
    last = world.service.request_log[-1]
    assert (last.call, last.method, last.status) == (Call.GET_RUNNER, "GET", 404)
    assert "ey" not in str([record.path for record in world.service.request_log])


@in_a_world
async def test_a_thousand_jobs_all_run(world: World) -> None:
    queue = await world.open()
    jobs = world.service.queue_jobs(1000, scale_set="set", duration=60)

    async def play(name: str) -> None:
        runner = await world.runner(name)
        await runner.run(await runner.wait_for_job())

    async def listen() -> None:
        last = 0
        while True:
            message = await queue.get_message(last, 2000)
            if message is None:
                continue
            last = message.message_id
            await queue.delete_message(last)
            await queue.acquire_jobs([job.runner_request_id for job in message.available])

    listener = asyncio.create_task(listen())
    await asyncio.gather(*(play(f"runner-{n}") for n in range(1000)))
    listener.cancel()
    assert all(job.result == "succeeded" for job in jobs)
    assert not world.service.runners
