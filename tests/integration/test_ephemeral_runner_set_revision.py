"""Recording a revision: `patch_applied_actionable_revision_status`, from both sides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from arc_controller.api import SCHEME
from arc_controller.api.v1alpha1 import EphemeralRunnerSet, Phase, SetPhase
from arc_controller.controllers.revision import patch_applied_actionable_revision_status
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.errors import Conflict
from arc_controller.testing.loop import simulated
from arc_controller.testing.transport import InProcessTransport
from tests.integration.runners import MANAGER, SET, Cluster, cluster, is_locked


@asynccontextmanager
async def with_set(revision: int = 9, **status: Any) -> AsyncIterator[Cluster]:
    """A set that nobody reconciles, with this status."""
    async with cluster(manager=False) as here:
        here.add_set(3, 1, actionableRevision=revision)
        await here.set_status(**status)
        yield here


async def record(here: Cluster, target: int) -> bool:
    client = ApiClient(InProcessTransport(here.api, user_agent=MANAGER), SCHEME)
    return await patch_applied_actionable_revision_status(client, client, SET, target)


@simulated
@pytest.mark.parametrize(
    "live, target, applied",
    [(0, 1, 1), (3, 4, 4), (4, 4, 4), (5, 4, 5), (0, 0, 0)],
    ids=["first", "ahead", "equal", "behind", "never advanced"],
)
async def test_the_applied_revision_is_the_larger_one(live: int, target: int, applied: int) -> None:
    async with with_set(appliedActionableRevision=live, phase="Running") as here:
        sent = await record(here, target)
        assert (await here.runner_set()).status.applied_actionable_revision == applied
        assert sent == (applied != live)


@simulated
@pytest.mark.parametrize(
    "runner, live, target, phase",
    [
        (3, 3, 4, SetPhase.RUNNING),  # stale by what is recorded
        (4, 3, 4, SetPhase.OUTDATED),
        (4, 4, 4, SetPhase.OUTDATED),
        (4, 5, 4, SetPhase.RUNNING),  # a lagging caller does not condemn a set that moved on
        (5, 5, 4, SetPhase.OUTDATED),
        (None, 0, 0, SetPhase.OUTDATED),
        (None, 0, 1, SetPhase.RUNNING),
        ("garbage", 0, 0, SetPhase.OUTDATED),
        ("garbage", 0, 1, SetPhase.RUNNING),
    ],
)
@pytest.mark.parametrize("before", [SetPhase.RUNNING, SetPhase.OUTDATED])
async def test_the_phase_is_judged_both_ways_by_the_recorded_revision(
    runner: int | str | None, live: int, target: int, phase: str, before: str
) -> None:
    async with with_set(appliedActionableRevision=live, phase=before) as here:
        await here.add_runner_of_set("r", revision=runner, phase=Phase.OUTDATED)
        await record(here, target)
        assert (await here.runner_set()).status.phase == phase


@simulated
async def test_nothing_is_sent_if_nothing_differs() -> None:
    async with with_set(appliedActionableRevision=4, phase="Running") as here:
        assert not await record(here, 4)
        assert here.writes() == []


@simulated
async def test_set_and_runners_are_read_and_the_patch_is_locked() -> None:
    async with with_set() as here:
        assert await record(here, 1)
        assert here.calls() == [
            "get ephemeralrunnersets",
            "list ephemeralrunners",
            "patch ephemeralrunnersets/status",
        ]
        (patch,) = here.patches("ephemeralrunnersets", "status")
        assert is_locked(patch)


@simulated
@pytest.mark.parametrize("target, marker", [(5, 0), (4, 7), (3, 7)])
async def test_the_marker_is_cleared_only_if_the_revision_advanced(
    target: int, marker: int
) -> None:
    async with with_set(
        appliedActionableRevision=4, phase="Outdated", finishedRunnerCleanupPatchID=7
    ) as here:
        await record(here, target)
        status = (await here.runner_set()).status
        assert status.finished_runner_cleanup_patch_id == marker
        assert status.phase == SetPhase.RUNNING


@simulated
async def test_runners_of_others_do_not_count() -> None:
    async with with_set(phase="Running") as here:
        here.add_runner("stranger")
        await here.runner_status("stranger", phase=Phase.OUTDATED)
        await record(here, 1)
        assert (await here.runner_set()).status.phase == SetPhase.RUNNING


@simulated
async def test_on_a_conflict_everything_is_read_again() -> None:
    async with with_set(phase="Running") as here:
        here.refuse("patch", "ephemeralrunnersets/status", 409, "Conflict", times=2)
        assert await record(here, 2)
        assert here.calls().count("get ephemeralrunnersets") == 3
        assert here.calls().count("list ephemeralrunners") == 3
        assert (await here.runner_set()).status.applied_actionable_revision == 2


@simulated
async def test_conflicts_without_end_are_raised() -> None:
    async with with_set(phase="Running") as here:
        here.refuse("patch", "ephemeralrunnersets/status", 409, "Conflict")
        with pytest.raises(Conflict):
            await record(here, 2)


@simulated
async def test_a_set_that_is_gone_is_left_alone() -> None:
    async with cluster(manager=False) as here:
        assert not await record(here, 2)
        assert await here.admin.find(EphemeralRunnerSet, SET) is None
