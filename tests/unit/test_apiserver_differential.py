"""The comparison with a real API server: that it finds what differs, and nothing else.

tests/cluster runs it against a real one; here both sides are embedded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import aiohttp
import pytest

from arc_controller.testing.apiserver import ApiServer, HttpApiServer
from arc_controller.testing.apiserver.differential import (
    WIDGETS,
    EmbeddedSide,
    HttpSide,
    Step,
    compare,
    generate,
    normal,
)


def server(*, quotas: bool = True) -> ApiServer:
    return ApiServer(crds=[WIDGETS], garbage_collection=False, quotas=quotas)


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
    assert (report.requests, report.watches) == (60, 3)


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
        "watch of /api/v1/namespaces/other/configmaps",
    ]


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
