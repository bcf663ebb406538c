"""Specs and names: what the API server refuses, and what is odd and works."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.testing.cluster import scale_set
from tests.scenarios.stage import Stage, scenario

LONGEST = 253
ODD_NAMES = ("x" * 63, "a." * 60 + "b", "n-" * 40 + "n", "9-to-5")
WRONG: dict[str, Any] = {
    "spec.minRunners": -1,
    "spec.maxRunners": "many",
    "spec.githubConfigUrl": None,
    "spec.githubConfigSecret": "",
    "spec.template.spec.containers": None,
    "spec.runnerScaleSetLabels": "linux",
    "spec.proxy.http.url": "",
    "spec.listenerMetrics.counters.gha_jobs.labels": [1],
    "spec.ephemeralRunnerMetadata.labels": {"a": 1},
    "spec.vaultConfig.azureKeyVault.url": 5,
    "metadata.name": "Linux",
    "metadata.labels": {"a": "not a value"},
}


def with_field(manifest: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    """A copy whose field has another value, or is missing when that is None."""
    changed = deepcopy(manifest)
    *parents, last = field.split(".")
    place = changed
    for part in parents:
        place = place.setdefault(part, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return changed


@scenario
async def what_cannot_be_is_refused_with_the_name_of_the_field(stage: Stage) -> None:
    path = f"/apis/actions.github.com/v1alpha1/namespaces/{stage.namespace}/autoscalingrunnersets"
    right = scale_set("linux", stage.namespace)
    for field, value in WRONG.items():
        status, answer = await stage.ask("POST", path, with_field(right, field, value))
        assert (status, answer["reason"]) == (422, "Invalid"), (field, answer)
        assert field in answer["message"], answer
        causes = answer["details"]["causes"]
        assert any(cause["field"].startswith(field) for cause in causes), (field, causes)
    too_long = with_field(right, "metadata.name", "x" * (LONGEST + 1))
    status, answer = await stage.ask("POST", path, too_long)
    assert status == 422
    assert f"must be no more than {LONGEST} characters" in answer["message"], answer
    unknown = with_field(right, "spec.maxRuners", 1)
    status, answer = await stage.ask("POST", f"{path}?fieldValidation=Strict", unknown)
    assert status == 400
    assert 'unknown field "spec.maxRuners"' in answer["message"]


@scenario
async def scale_sets_of_long_and_odd_names_run_jobs_and_go(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        for name in ODD_NAMES:
            await cluster.add_scale_set(name, max_runners=3, min_runners=1)
        count = len(ODD_NAMES)
        await cluster.until(listeners=count, registrations=count)
        for name in ODD_NAMES:
            cluster.queue_jobs(2, scale_set=name, duration=1)
        await cluster.until(completed=2 * count, running=0, within=120)
        assert all(len(runner.metadata.name) <= 63 for runner in cluster.runners)
        for name in ODD_NAMES:
            await cluster.delete(AutoscalingRunnerSet, name)
        await cluster.until_gone(within=120)
