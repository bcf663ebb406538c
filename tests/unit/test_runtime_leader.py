"""Leader election: never two at once, soon one again, whatever the network and the clocks do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.errors import TransportError
from arc_controller.runtime.leader import (
    LeaderElection,
    LeaderElector,
    LeadershipLost,
    Lease,
    LeaseSpec,
    lease_scheme,
)
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import NamespacedName, ObjectMeta
from arc_controller.runtime.transport import Response
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.loop import SimulatedLoop, now, simulated
from arc_controller.testing.transport import InProcessTransport

KEY = NamespacedName("default", "controller")


def time() -> float:
    return asyncio.get_running_loop().time()


class Link(InProcessTransport):
    """A connection that can be cut, lag, and lose answers to what it has carried out."""

    is_down = False
    loses_answers = False
    forgets_versions = False
    lag_before = 0.0
    lag_after = 0.0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        if self.is_down:
            raise TransportError("the link is down")
        # A request that is on its way arrives, whether somebody waits for the answer or not.
        arriving = asyncio.create_task(self._arrive(method, path, query, body, content_type))
        response = await asyncio.shield(arriving)
        await asyncio.sleep(self.lag_after)
        if self.loses_answers:
            raise TransportError("the answer was lost")
        if self.forgets_versions:
            return replace(response, body=response.body.replace(b"resourceVersion", b"version"))
        return response

    async def _arrive(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: bytes | None,
        content_type: str,
    ) -> Response:
        await asyncio.sleep(self.lag_before)
        return await super().request(
            method, path, query=query, body=body, content_type=content_type
        )


class Candidate:
    """An elector that works while it leads, and notes when it does."""

    def __init__(self, server: ApiServer, name: str, seed: int = 0) -> None:
        self.name = name
        self.link = Link(server)
        self.client = ApiClient(self.link, lease_scheme())
        self.registry = CollectorRegistry()
        self.elector = LeaderElector(
            self.client,
            LeaderElection(KEY.name, KEY.namespace, identity=name),
            now=now,
            random=random.Random(seed),
            metrics=RuntimeMetrics(self.registry),
        )
        self.led: list[tuple[float, float | None]] = []
        self.lost_because = ""

    async def run(self) -> None:
        await self.elector.acquire()
        began = time()
        self.led.append((began, None))
        try:
            await self.elector.hold()
        except LeadershipLost as error:
            self.lost_because = str(error)
            raise
        finally:
            self.led[-1] = (began, time())

    async def run_again_and_again(self) -> None:
        while True:
            try:
                await self.run()
            except LeadershipLost:
                await asyncio.sleep(1)

    @property
    def leads(self) -> bool:
        return bool(self.led) and self.led[-1][1] is None


async def lease(server: ApiServer) -> LeaseSpec:
    return (await ApiClient(InProcessTransport(server), lease_scheme()).get(Lease, KEY)).spec


async def stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@simulated
async def test_the_first_candidate_leads_at_once_and_writes_what_others_understand() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(7)
    assert candidate.leads
    assert await lease(server) == LeaseSpec(
        holder_identity="a",
        lease_duration_seconds=15,
        acquire_time="2025-01-01T00:00:00.000000Z",
        renew_time="2025-01-01T00:00:06.000000Z",
        lease_transitions=0,
    )
    await stop(task)


@simulated
async def test_a_renewal_is_one_write_and_no_read() -> None:
    server = ApiServer(now=now)
    task = asyncio.create_task(Candidate(server, "a").run())
    await asyncio.sleep(1)
    before = len(list(server.request_log))
    await asyncio.sleep(60)
    verbs = [record.verb for record in list(server.request_log)[before:]]
    assert verbs == ["patch"] * 30
    await stop(task)


@simulated
async def test_a_second_candidate_waits_while_the_first_renews() -> None:
    server = ApiServer(now=now)
    first, second = Candidate(server, "a"), Candidate(server, "b")
    tasks = [asyncio.create_task(first.run()), asyncio.create_task(second.run())]
    await asyncio.sleep(600)
    assert sorted([first.leads, second.leads]) == [False, True]
    await stop(*tasks)


@simulated
async def test_when_the_leader_dies_another_takes_over_after_the_lease() -> None:
    server = ApiServer(now=now)
    first, second = Candidate(server, "a"), Candidate(server, "b")
    dying = asyncio.create_task(first.run())
    await asyncio.sleep(1)
    waiting = asyncio.create_task(second.run())
    await asyncio.sleep(100)
    await stop(dying)
    died = time()
    await asyncio.sleep(60)
    assert second.leads
    assert 15 - 2.4 <= second.led[0][0] - died <= 15 + 2.4
    spec = await lease(server)
    assert (spec.holder_identity, spec.lease_transitions) == ("b", 1)
    assert spec.acquire_time > "2025-01-01T00:01:"
    await stop(waiting)


@simulated
async def test_a_released_lease_is_taken_at_the_next_try() -> None:
    server = ApiServer(now=now)
    first, second = Candidate(server, "a"), Candidate(server, "b")
    leaving = asyncio.create_task(first.run())
    await asyncio.sleep(1)
    waiting = asyncio.create_task(second.run())
    await asyncio.sleep(100)
    await stop(leaving)
    await first.elector.release()
    assert (await lease(server)).holder_identity == ""
    released = time()
    await asyncio.sleep(10)
    assert second.led[0][0] - released <= 2.4
    await stop(waiting)


@simulated
async def test_a_lease_that_is_not_ours_is_not_released() -> None:
    server = ApiServer(now=now)
    first, second = Candidate(server, "a"), Candidate(server, "b")
    await second.elector.release()  # there is none yet
    task = asyncio.create_task(first.run())
    await asyncio.sleep(1)
    await second.elector.release()
    assert (await lease(server)).holder_identity == "a"
    await stop(task)


@simulated
async def test_a_leader_that_is_cut_off_gives_up_before_another_may_start() -> None:
    server = ApiServer(now=now)
    first, second = Candidate(server, "a"), Candidate(server, "b")
    tasks = [asyncio.create_task(first.run())]
    await asyncio.sleep(1)
    tasks.append(asyncio.create_task(second.run()))
    await asyncio.sleep(99)
    first.link.is_down = True
    await asyncio.sleep(100)
    assert first.lost_because == "lease default/controller could not be renewed for 10 s"
    stopped = first.led[0][1]
    assert stopped is not None
    assert 100 <= stopped <= 110
    assert second.led[0][0] - stopped >= 15 - 10 - 0.1
    await stop(*tasks)


@simulated
async def test_a_hanging_request_does_not_cost_the_lease() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    candidate.link.lag_before = 1000
    await asyncio.sleep(4)
    candidate.link.lag_before = 0  # the one request hangs, later ones pass
    await asyncio.sleep(600)
    assert candidate.leads
    await stop(task)


@simulated
async def test_slow_answers_do_not_cost_the_lease() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    candidate.link.lag_before = candidate.link.lag_after = 2
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(600)
    assert candidate.leads
    await stop(task)


@simulated
async def test_the_deadline_counts_from_when_the_renewal_was_sent() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    candidate.link.lag_after = 4  # sent at 2, answered at 6
    await asyncio.sleep(4.5)
    candidate.link.is_down = True
    await asyncio.wait([task])
    assert time() == 12
    assert isinstance(task.exception(), LeadershipLost)


@simulated
async def test_lost_answers_to_renewals_do_not_confuse_the_leader() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    candidate.link.loses_answers = True
    await asyncio.sleep(6)
    candidate.link.loses_answers = False
    await asyncio.sleep(600)
    assert candidate.leads
    assert (await lease(server)).lease_transitions == 0
    await stop(task)


@simulated
async def test_an_acquisition_whose_answer_was_lost_is_recognised() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    candidate.link.loses_answers = True
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    assert candidate.led == []
    candidate.link.loses_answers = False
    await asyncio.sleep(5)
    assert candidate.leads
    await stop(task)


@simulated
async def test_a_lease_taken_by_force_is_given_up_at_the_next_renewal() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    usurper = ApiClient(InProcessTransport(server), lease_scheme())
    await usurper.patch(Lease, KEY, {"spec": {"holderIdentity": "usurper"}})
    await asyncio.wait([task])
    assert time() <= 3
    assert candidate.lost_because == "lease default/controller is held by usurper now"


@simulated
async def test_a_deleted_lease_is_made_again() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    await ApiClient(InProcessTransport(server), lease_scheme()).delete(Lease, KEY)
    await asyncio.sleep(10)
    assert candidate.leads
    assert (await lease(server)).holder_identity == "a"
    await stop(task)


@simulated
async def test_a_lease_that_cannot_be_locked_is_neither_taken_nor_the_end() -> None:
    server = ApiServer()
    first, second = Candidate(server, "first"), Candidate(server, "second")
    await first.elector.acquire()
    await first.elector.release()
    second.link.forgets_versions = True

    with capture_logs() as logs:
        task = asyncio.create_task(second.run())
        await asyncio.sleep(60)
    assert not second.led
    assert not task.done()
    assert any("no resourceVersion" in entry.get("error", "") for entry in logs)

    second.link.forgets_versions = False
    await asyncio.sleep(60)
    assert second.leads
    task.cancel()


@simulated
async def test_a_lease_of_a_stranger_with_a_longer_duration_is_respected() -> None:
    server = ApiServer(now=now)
    await ApiClient(InProcessTransport(server), lease_scheme()).create(
        Lease(
            metadata=ObjectMeta(namespace=KEY.namespace, name=KEY.name),
            spec=LeaseSpec(
                holder_identity="stranger",
                lease_duration_seconds=60,
                renew_time="2001-01-01T00:00:00.000000Z",  # their clock; ours counts
            ),
        )
    )
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(100)
    assert 60 <= candidate.led[0][0] <= 62.4
    await stop(task)


@simulated
async def test_cancelled_in_the_middle_of_a_renewal_it_can_still_be_released() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1.5)
    candidate.link.lag_after = 1
    await asyncio.sleep(1)  # the write took effect, the answer is on its way
    await stop(task)
    assert not candidate.elector.is_leader
    candidate.link.lag_after = 0
    await candidate.elector.release()
    assert (await lease(server)).holder_identity == ""


@simulated
async def test_the_metric_says_who_leads() -> None:
    server = ApiServer(now=now)
    candidate = Candidate(server, "a")

    def metric() -> float | None:
        name = "leader_election_master_status"
        return candidate.registry.get_sample_value(name, {"name": KEY.name})

    assert metric() == 0
    task = asyncio.create_task(candidate.run())
    await asyncio.sleep(1)
    assert metric() == 1
    await stop(task)
    assert metric() == 0


@pytest.mark.parametrize("part", range(4))
@simulated
async def test_never_two_leaders_under_any_fault(part: int) -> None:
    for seed in range(part * 8, part * 8 + 8):
        await election_under_faults(seed)


async def election_under_faults(seed: int) -> None:
    chance = random.Random(seed)
    server = ApiServer(now=now)
    candidates = [Candidate(server, name, seed + index) for index, name in enumerate("abc")]
    tasks = [asyncio.create_task(each.run_again_and_again()) for each in candidates]
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    for _ in range(60):
        link = chance.choice(candidates).link
        match chance.randrange(6):
            case 0:
                link.is_down = not link.is_down
            case 1:
                link.loses_answers = not link.loses_answers
            case 2:
                link.lag_before = chance.choice([0, 0, 1, 4, 9, 20])
            case 3:
                link.lag_after = chance.choice([0, 0, 1, 4, 9, 20])
            case 4:
                loop.jump_wall_clock(timedelta(seconds=chance.uniform(-3600, 3600)))
            case 5:
                index = chance.randrange(len(candidates))
                await stop(tasks[index])
                if chance.random() < 0.5 and not candidates[index].link.is_down:
                    try:
                        async with asyncio.timeout(3):
                            await candidates[index].elector.release()
                    except (TransportError, TimeoutError):
                        pass
                tasks[index] = asyncio.create_task(candidates[index].run_again_and_again())
        await asyncio.sleep(chance.uniform(0, 12))
        check_that_no_two_led_at_once(candidates, seed)
    for candidate in candidates:
        link = candidate.link
        link.is_down = link.loses_answers = False
        link.lag_before = link.lag_after = 0
    await asyncio.sleep(60)
    check_that_no_two_led_at_once(candidates, seed)
    assert sum(candidate.leads for candidate in candidates) == 1, f"seed {seed}: nobody leads"
    await stop(*tasks)


def check_that_no_two_led_at_once(candidates: list[Candidate], seed: int) -> None:
    spans = sorted(
        (began, ended if ended is not None else time(), each.name)
        for each in candidates
        for began, ended in each.led
    )
    for (_, ended, one), (began, _, other) in pairwise(spans):
        assert ended <= began, f"seed {seed}: {one} until {ended}, {other} from {began}"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"name": ""}, "needs a lease name and a namespace"),
        ({"renew_deadline": 15.0}, r"lease_duration \(15.0 s\) must exceed renew_deadline"),
        ({"retry_period": 9.0}, "by a fifth at least"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    settings: dict[str, float | str], message: str
) -> None:
    arguments: dict[str, object] = {"name": "n", "namespace": "ns", **settings}
    with pytest.raises(ValueError, match=message):
        LeaderElection(**arguments)  # type: ignore[arg-type]
