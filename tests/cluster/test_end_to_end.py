"""The same run on the embedded API server and on a real one: the same end, the same effort."""

from __future__ import annotations

import pytest

from tests.scenarios.end_to_end import run, table
from tests.scenarios.servers import embedded_server
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOBS = 50


async def test_fifty_jobs_end_alike_and_cost_alike_on_both_servers(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    real = await run(stage, JOBS)
    async with embedded_server() as api:
        twin = Stage(api, stage.number)
        await twin.prepare()
        embedded = await run(twin, JOBS)
        assert await twin.strike() == []
    with capsys.disabled():
        print(f"\n{table({'embedded': embedded, 'real': real})}")
    assert embedded.state == real.state
    assert embedded.runners == real.runners == JOBS
    for who in ("manager", "listener"):
        assert embedded.per_runner(who) == pytest.approx(real.per_runner(who), rel=0.05)
