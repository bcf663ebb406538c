"""The embedded API server against a real one: generated requests, the same answers.

`DIFFERENTIAL_SEEDS=0-500` compares those seeds instead of the few that run by default. What differs
is shrunk to a short sequence and printed with both answers; the last line counts.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
from collections.abc import AsyncIterator, Sequence
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
    Side,
    Step,
    compare,
    describe,
    generate,
    shrink,
)
from arc_controller.testing.envtest import Envtest

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = 8
LENGTH = 60
CRDS = [WIDGETS, *custom_resource_definitions()]


FIRST = range(20)
FOUND = (
    *(2002, 2004, 2007, 2010, 2011, 2012, 2014, 2016, 2017, 2020, 2031, 2033, 2049, 2059),
    *(2100, 2101, 2117, 2125, 2137, 3003, 3008, 3024, 3030, 3055, 3057, 3067, 3076, 3105),
    *(4013, 4049, 4124, 4149, 5019, 5023, 5049, 5064, 5111, 5122, 6043, 6066, 6111, 6132),
)
"""Sequences that once showed a difference: one for each cause."""


def seeds() -> list[int]:
    chosen = os.environ.get("DIFFERENTIAL_SEEDS", "")
    if not chosen:
        return [*FIRST, *FOUND]
    first, _, last = chosen.partition("-")
    return list(range(int(first), int(last or first) + 1))


class Comparisons:
    """Sequences compared on both servers, each in a namespace that nobody else uses.

    Most of their time they wait for each other's answers, so a few run at once.
    """

    def __init__(self, real: Side, ours: Side, wanted: Sequence[int]) -> None:
        self.reports: list[Report] = []
        self._sides = (real, ours)
        self._namespaces = (f"differential-{number}" for number in itertools.count())
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks = {seed: asyncio.create_task(self._first(seed)) for seed in wanted}

    async def of(self, seed: int) -> Report:
        return await self._tasks[seed]

    async def run(self, steps: Sequence[Step]) -> Report:
        return await compare(*self._sides, steps, next(self._namespaces))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def __str__(self) -> str:
        requests, watches = (
            sum(getattr(each, what) for each in self.reports) for what in ("requests", "watches")
        )
        answers = sum(len(each.differences) for each in self.reports)
        unknown = sum(len(each.unexplained) for each in self.reports)
        return (
            f"{len(self.reports)} sequences, {requests} requests, {watches} watches: "
            f"{answers} answers differed, {unknown} of them for no known reason"
        )

    async def _first(self, seed: int) -> Report:
        async with self._room:
            self.reports.append(await self.run(generate(Random(seed), LENGTH)))
            return self.reports[-1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def comparisons(request: pytest.FixtureRequest) -> AsyncIterator[Comparisons]:
    here = [each for each in request.session.items if each.path == request.path]
    wanted = {each: f"[{each}]" for each in seeds()}
    chosen = [
        seed for seed, ending in wanted.items() if any(each.name.endswith(ending) for each in here)
    ]
    api = ApiServer(crds=CRDS, garbage_collection=False, namespace_controller=False)
    async with Envtest(crds=CRDS) as env:
        trust = ssl.create_default_context(cafile=str(env.admin.ca_file))
        async with aiohttp.ClientSession(
            env.admin.url,
            headers={"Authorization": f"Bearer {env.admin.token}"},
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:
            comparisons = Comparisons(HttpSide(session), EmbeddedSide(api), chosen)
            yield comparisons
            await comparisons.stop()
    await api.aclose()
    plugins = request.config.pluginmanager
    capture, terminal = map(plugins.get_plugin, ("capturemanager", "terminalreporter"))
    if capture is not None and terminal is not None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(f"\n{comparisons}")


@pytest.mark.parametrize("seed", seeds())
async def test_a_generated_sequence_is_answered_the_same_by_both_servers(
    comparisons: Comparisons, seed: int
) -> None:
    report = await comparisons.of(seed)
    assert report.requests + report.watches >= LENGTH
    if report.unexplained:
        steps = generate(Random(seed), LENGTH)
        shortest, difference = await shrink(comparisons.run, steps, report.unexplained[0])
        pytest.fail(
            f"seed {seed}: {len(report.unexplained)} differences, the first of them shrunk from "
            f"{len(steps)} to {len(shortest)} steps:\n{describe(shortest, difference)}",
            pytrace=False,
        )
