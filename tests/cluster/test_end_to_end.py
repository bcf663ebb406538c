"""The same run on the embedded API server and on a real one: the same end, the same effort."""

from __future__ import annotations

import pytest

from tests.scenarios.end_to_end import run, table
from tests.scenarios.runs import Servers
from tests.scenarios.servers import embedded_server

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 50


async def test_fifty_jobs_end_alike_and_cost_alike_on_both_servers(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    async with servers.stage() as stage:
        real = await run(stage, JOBS)
    async with Servers(embedded_server, 1) as twin, twin.stage(stage.number) as stage:
        embedded = await run(stage, JOBS)
    with capsys.disabled():
        print(f"\n{table({'embedded': embedded, 'real': real})}")
    assert embedded.state == real.state
    assert embedded.runners == real.runners == JOBS
    for who in ("manager", "listener"):
        assert embedded.per_runner(who) == pytest.approx(real.per_runner(who), rel=0.05)
