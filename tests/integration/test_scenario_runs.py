"""Scenarios that run at once are judged one by one, and their permissions all together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.scenarios.runs import Runs, Servers
from tests.scenarios.servers import embedded_server
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def nothing_happens(stage: Stage) -> None:
    assert stage.namespace


async def something_is_wrong(stage: Stage) -> None:
    raise ZeroDivisionError(stage.namespace)


async def something_is_left(stage: Stage) -> None:
    pod = {"metadata": {"name": "left"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    await stage.ask("POST", f"/api/v1/namespaces/{stage.namespace}/pods", pod)


async def the_manager_looks_at_nodes(stage: Stage) -> None:
    await as_manager(stage, "/api/v1/nodes")


async def the_manager_looks_at_pods(stage: Stage) -> None:
    await as_manager(stage, "/api/v1/pods")


async def as_manager(stage: Stage, path: str) -> None:
    transport = stage.server.access.manager()
    await transport.request("GET", path)
    await transport.close()


@pytest_asyncio.fixture(loop_scope="module")
async def servers() -> AsyncIterator[Servers]:
    async with Servers(embedded_server, 2) as servers:
        yield servers


async def test_one_that_fails_fails_alone_and_with_its_own_error(servers: Servers) -> None:
    wanted = [something_is_wrong, nothing_happens, something_is_left]
    async with Runs(servers, wanted, wanted) as runs:
        await runs.end_of(nothing_happens)
        with pytest.raises(ZeroDivisionError) as failure:
            await runs.end_of(something_is_wrong)
        assert failure.traceback[-1].name == "something_is_wrong"
        with pytest.raises(AssertionError, match="pods/left"):
            await runs.end_of(something_is_left)
    assert len(servers.all) == 2


async def test_a_refusal_is_found_whichever_server_it_was_on(servers: Servers) -> None:
    wanted = [nothing_happens, the_manager_looks_at_nodes, the_manager_looks_at_pods]
    async with Runs(servers, wanted, wanted) as runs:
        for scenario in wanted:
            await runs.end_of(scenario)
        assert runs.refusals() == [
            "system:serviceaccount:arc-systems:arc-controller list nodes in the cluster"
        ]


async def test_a_rule_that_nobody_used_is_found_once_all_have_ended(servers: Servers) -> None:
    wanted = [the_manager_looks_at_pods]
    async with Runs(servers, wanted, wanted) as runs:
        await runs.end_of(the_manager_looks_at_pods)
        unused = runs.unused()
        assert "arc-controller: watch pods" in unused
        assert "arc-controller: list pods" not in unused


async def test_rules_are_not_judged_when_one_was_not_selected(servers: Servers) -> None:
    scenarios = [nothing_happens, the_manager_looks_at_pods]
    async with Runs(servers, [nothing_happens], scenarios) as runs:
        await runs.end_of(nothing_happens)
        with pytest.raises(pytest.skip.Exception):
            runs.unused()


async def test_rules_are_not_judged_when_one_has_failed(servers: Servers) -> None:
    scenarios = [nothing_happens, something_is_wrong]
    async with Runs(servers, scenarios, scenarios) as runs:
        await runs.end_of(nothing_happens)
        with pytest.raises(ZeroDivisionError):
            await runs.end_of(something_is_wrong)
        with pytest.raises(pytest.skip.Exception):
            runs.unused()
