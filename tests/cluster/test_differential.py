"""The embedded API server against a real one: generated requests, the same answers.

`DIFFERENTIAL_SEEDS=0-500` compares those seeds instead of the few that run by default. What differs
is shrunk to a short sequence and printed with both answers.
"""

from __future__ import annotations

import itertools
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random

import aiohttp
import pytest
import pytest_asyncio

from arc_controller.api.crd import custom_resource_definitions
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.apiserver.differential import (
    WIDGETS,
    EmbeddedSide,
    HttpSide,
    Report,
    Step,
    compare,
    describe,
    generate,
    shrink,
)
from arc_controller.testing.envtest import Envtest

pytestmark = pytest.mark.asyncio(loop_scope="module")

Run = Callable[[Sequence[Step]], Awaitable[Report]]

CRDS = [WIDGETS, *custom_resource_definitions()]


def seeds() -> list[int]:
    first, _, last = os.environ.get("DIFFERENTIAL_SEEDS", "0-8").partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[Run]:
    """Compares a sequence on both servers, in a namespace that nobody else uses."""
    namespaces = (f"differential-{number}" for number in itertools.count())
    api = ApiServer(crds=CRDS, garbage_collection=False, namespace_controller=False)
    async with Envtest(crds=CRDS) as env:
        trust = ssl.create_default_context(cafile=str(env.admin.ca_file))
        async with aiohttp.ClientSession(
            env.admin.url,
            headers={"Authorization": f"Bearer {env.admin.token}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:
            real, ours = HttpSide(session), EmbeddedSide(api)

            async def compared(steps: Sequence[Step]) -> Report:
                return await compare(real, ours, steps, next(namespaces))

            yield compared
    await api.aclose()


@pytest.mark.parametrize("seed", seeds())
async def test_a_generated_sequence_is_answered_the_same_by_both_servers(
    run: Run, seed: int
) -> None:
    steps = generate(Random(seed), 60)
    report = await run(steps)
    assert report.requests + report.watches >= 60
    if report.unexplained:
        shortest, difference = await shrink(run, steps, report.unexplained[0])
        pytest.fail(
            f"seed {seed}: {len(report.unexplained)} differences, the first of them shrunk from "
            f"{len(steps)} to {len(shortest)} steps:\n{describe(shortest, difference)}",
            pytrace=False,
        )
