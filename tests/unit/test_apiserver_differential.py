"""The comparison with a real API server: that it finds what differs, and nothing else.

tests/cluster runs it against a real one; here both sides are embedded.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from random import Random

import aiohttp
import pytest

from arc_controller.api.crd import custom_resource_definitions
from arc_controller.testing.apiserver import ApiServer, HttpApiServer
from arc_controller.testing.apiserver.differential import (
    WATCH,
    WIDGETS,
    Difference,
    EmbeddedSide,
    HttpSide,
    Report,
    Step,
    compare,
    describe,
    generate,
    normal,
    shrink,
)


def server(*, quotas: bool = True) -> ApiServer:
    crds = [WIDGETS, *custom_resource_definitions()]
    return ApiServer(crds=crds, garbage_collection=False, quotas=quotas)


@pytest.fixture
async def over_http() -> AsyncIterator[HttpSide]:
    async with (
        HttpApiServer(server()) as http,
        aiohttp.ClientSession(http.url) as session,
    ):
        yield HttpSide(session)


@pytest.mark.parametrize("seed", range(5))
async def test_the_server_is_the_same_with_and_without_a_socket(
    over_http: HttpSide, seed: int
) -> None:
    steps = generate(Random(seed), 60)
    report = await compare(over_http, EmbeddedSide(server()), steps, "same", settle=0.1)
    assert report.differences == []
    asked = sum(step.method == WATCH for step in steps)
    assert report.requests == 60 - asked
    assert report.watches > asked


async def test_what_differs_is_found(over_http: HttpSide) -> None:
    collection = "/api/v1/namespaces/{namespace}/configmaps"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "0"}}}
    steps = [
        Step("POST", "/api/v1/namespaces/{namespace}/resourcequotas", quota),
        Step("POST", collection, {"metadata": {"name": "a"}}),
    ]
    report = await compare(
        over_http, EmbeddedSide(server(quotas=False)), steps, "other", settle=0.1
    )
    assert [each.what for each in report.unexplained] == [
        "status",
        "events",
    ]


async def test_a_difference_is_shrunk_to_the_requests_that_it_needs() -> None:
    real, ours = EmbeddedSide(server()), EmbeddedSide(server(quotas=False))
    names = (f"try-{number}" for number in itertools.count())
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "0"}}}
    needed = [
        Step("POST", "/api/v1/namespaces/{namespace}/resourcequotas", quota),
        Step("POST", "/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "x"}}),
    ]
    noise = generate(Random(1), 20, ("widgets", "secrets"))
    steps = [*noise[:9], needed[0], *noise[9:], needed[1]]
    tried = 0

    async def run(tried_steps: Sequence[Step]) -> Report:
        nonlocal tried
        tried += 1
        return await compare(real, ours, tried_steps, next(names), settle=0)

    first = (await run(steps)).unexplained[0]
    shortest, difference = await shrink(run, steps, first)
    assert shortest == needed
    assert tried <= 1 + 60
    told = describe(shortest, difference)
    assert "exceeded quota" in told
    assert '"name": "x"' in told


async def test_shrinking_ends_when_its_tries_are_used_up() -> None:
    steps = generate(Random(1), 30, ("configmaps",))
    difference = Difference(steps[0], [200, None], [404, None], "status")
    runs: list[int] = []

    async def run(tried_steps: Sequence[Step]) -> Report:
        runs.append(len(tried_steps))
        return Report()

    assert await shrink(run, steps, difference, tries=7) == (steps, difference)
    assert len(runs) == 7


async def test_each_side_gets_its_own_versions_uids_and_tokens() -> None:
    ahead = server()
    await EmbeddedSide(ahead).request(
        Step("POST", "/api/v1/namespaces", {"metadata": {"name": "before"}})
    )
    path = "/api/v1/namespaces/{namespace}/configmaps"
    lock = {"metadata": {"resourceVersion": "${version:configmaps/a}"}, "data": {"p": "1"}}
    gone = {"preconditions": {"uid": "${uid:configmaps/b}"}}
    more = (("limit", "1"), ("continue", "${continue:configmaps}"))
    steps = [
        Step("POST", path, {"metadata": {"name": "a"}}),
        Step("POST", path, {"metadata": {"name": "b"}}),
        Step("PATCH", f"{path}/a", lock, "application/merge-patch+json"),
        Step("GET", path, query=(("limit", "1"),)),
        Step("GET", path, query=more),
        Step(WATCH, path, query=(("resourceVersion", "${first:configmaps/b}"),)),
        Step("DELETE", f"{path}/b", gone),
    ]
    report = await compare(EmbeddedSide(server()), EmbeddedSide(ahead), steps, "own", settle=0.05)
    assert report.differences == []
    assert (report.requests, report.watches) == (6, 2)


def test_a_seed_always_draws_the_same_requests() -> None:
    assert generate(Random(3), 50) == generate(Random(3), 50)
    assert generate(Random(3), 50) != generate(Random(4), 50)


def test_times_uids_and_versions_are_not_compared() -> None:
    one = {
        "uid": "6ea303a3-a890-4921-9363-982c19c67287",
        "resourceVersion": "4",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    assert normal(one) == {
        "uid": "UID",
        "resourceVersion": "VERSION",
        "creationTimestamp": "TIME",
    }
