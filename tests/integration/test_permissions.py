"""A permission that is missing is nobody's fault but the administrator's, and may come back."""

from __future__ import annotations

import msgspec
import pytest

from arc_controller.api.core import Pod
from arc_controller.runtime.errors import Forbidden, error_from_response
from arc_controller.testing.loop import simulated
from tests.integration.runners import RUNNER, cluster

NO_RIGHT = (
    'pods is forbidden: User "system:serviceaccount:arc-systems:arc-controller" cannot create '
    'resource "pods" in API group "" in the namespace "runners"'
)


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        (NO_RIGHT, True),
        (
            'pods "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a '
            "resource you can't set finalizers on: , <nil>",
            True,
        ),
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot', False),
        ('pods "a" is forbidden: exceeded quota: few, requested: pods=1', False),
        ('pods "a" is forbidden: error looking up service account a/b: not found', False),
    ],
)
def test_a_missing_permission_is_told_from_a_refused_object(message: str, missing: bool) -> None:
    status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
    error = error_from_response(403, msgspec.json.encode(status))
    assert isinstance(error, Forbidden)
    assert error.is_permission_missing is missing


@simulated
async def test_a_pod_that_we_may_not_create_for_a_moment_does_not_condemn_its_runner() -> None:
    """As while an API server that has just started reads its roles."""
    async with cluster() as here:
        here.refuse("create", "pods", 403, "Forbidden", NO_RIGHT, times=5)
        here.add_runner()
        await here.settle(10)
        assert await here.exists(Pod)
        runner = await here.runner()
        assert runner.status.phase != "Failed"
        assert list(here.registered()) == [RUNNER.name]
