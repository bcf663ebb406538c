"""The rows of design 02, "AutoscalingRunnerSet", and the troubles of the field that concern it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from arc_controller.actions import ActionsClient, credentials_from_mapping
from arc_controller.api.core import Role, RoleBinding, Secret, ServiceAccount
from arc_controller.api.v1alpha1 import (
    Annotation,
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
    Finalizer,
    Label,
)
from arc_controller.controllers.scale_set import REGISTERED_FOR
from arc_controller.controllers.scale_set_departure import DEPARTED
from arc_controller.runtime.errors import NotFound
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import Call, InProcessTransport
from arc_controller.testing.loop import now, simulated
from tests.integration.scale_sets import (
    CONTROLLER,
    KEY,
    NAME,
    RUNNERS,
    URL,
    World,
    scale_set,
    scale_set_id,
    world,
)

NEWER_IMAGE = {"spec": {"containers": [{"name": "runner", "image": "runner:2"}]}}
PROTECTED = {
    "manager-role-binding": ("RoleBinding", "manager"),
    "manager-role-name": ("Role", "manager"),
    "kubernetes-mode-role-name": ("Role", "kube-mode"),
    "kubernetes-mode-role-binding-name": ("RoleBinding", "kube-mode"),
    "kubernetes-mode-service-account-name": ("ServiceAccount", "kube-mode"),
    "github-secret-name": ("Secret", "chart-secret"),
    "no-permission-service-account-name": ("ServiceAccount", "no-permission"),
}
KINDS: dict[str, Any] = {
    "Role": Role,
    "RoleBinding": RoleBinding,
    "ServiceAccount": ServiceAccount,
    "Secret": Secret,
}


def at_the_service(here: World) -> ActionsClient:
    """Somebody else who may manage runners of `URL`."""
    token = credentials_from_mapping({"github_token": "token-1"}, "the test")
    return ActionsClient(URL, token, transport=InProcessTransport(here.service), now=now)


async def installed(here: World, **spec: Any) -> None:
    here.install(scale_set(**spec))
    await here.settle()
    assert (await here.condition("Ready")).status == "True"
    here.api.request_log.clear()


# --- row 1: deleting


@simulated
async def test_row_1_a_scale_set_goes_after_its_listener_its_runners_and_its_registration() -> None:
    async with world() as here:
        await installed(here)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(10)

        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        assert not here.service.scale_sets
        deleted = [r for r in here.requests() if r.verb == "delete" or "finalizers" in str(r.patch)]
        assert [f"{r.verb} {r.resource}" for r in deleted] == [
            "delete autoscalinglisteners",
            "delete pods",
            "delete secrets",
            "delete rolebindings",
            "delete roles",
            "delete serviceaccounts",
            "patch autoscalinglisteners",
            "delete ephemeralrunnersets",
            "patch autoscalingrunnersets",
        ]
        assert deleted[-1].patch["metadata"]["resourceVersion"], "the finalizer goes under a lock"


@simulated
async def test_row_1_runners_that_still_have_jobs_keep_the_registration_alive() -> None:
    async with world() as here:
        await installed(here)
        busy = {"metadata": {"finalizers": ["example.com/busy"]}}
        await here.admin.patch(EphemeralRunnerSet, KEY, busy)
        await here.runner_set_status(currentReplicas=2, runningEphemeralRunners=1)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(300)

        assert here.service.scale_sets
        ready = await here.condition("Ready")
        assert (ready.reason, "hold a job" in ready.message) == ("Deleting", True)

        await here.admin.patch(EphemeralRunnerSet, KEY, {"metadata": {"finalizers": None}})
        await here.settle(10)
        assert not here.service.scale_sets
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None


@pytest.mark.parametrize("value", ["", "garbage", "0", "-3"])
def test_row_1_without_a_readable_id_nothing_is_unregistered(value: str) -> None:
    @simulated
    async def scenario() -> None:
        async with world() as here:
            await installed(here)
            await here.stop_manager()
            annotation = {"metadata": {"annotations": {Annotation.RUNNER_SCALE_SET_ID: value}}}
            await here.admin.patch(AutoscalingRunnerSet, KEY, annotation)
            await here.admin.delete(AutoscalingRunnerSet, KEY)
            here.start_manager()
            await here.settle(10)
            assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
            assert here.service.calls[Call.DELETE_SCALE_SET] == 0

    scenario()


@simulated
async def test_row_1_a_registration_that_is_gone_already_is_success() -> None:
    async with world() as here:
        await installed(here)
        here.service.forget_scale_set(scale_set_id(await here.scale_set()))
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(10)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None


@simulated
async def test_row_1_cleanup_protection_is_taken_off_what_the_annotations_name() -> None:
    async with world() as here:
        for kind, name in PROTECTED.values():
            here.install(_protected(kind, name))
        annotations = {
            Annotation.CLEANUP_PREFIX + suffix: name for suffix, (_, name) in PROTECTED.items()
        }
        here.install(scale_set(annotations=annotations))
        await here.settle()
        here.api.request_log.clear()
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(10)

        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        for kind, name in PROTECTED.values():
            thing = await here.admin.get(KINDS[kind], NamespacedName(RUNNERS, name))
            assert thing.metadata.finalizers == ["example.com/other"]
        patched = [
            (r.resource, r.name)
            for r in here.requests()
            if r.verb == "patch" and r.group != "actions.github.com"
        ]
        assert patched[-2:] == [("rolebindings", "manager"), ("roles", "manager")]
        assert len(patched) == len(PROTECTED)


@simulated
async def test_row_1_protected_things_that_are_missing_do_not_stop_the_cleanup() -> None:
    async with world() as here:
        names = {Annotation.CLEANUP_PREFIX + suffix: "gone" for suffix in PROTECTED}
        here.install(scale_set(annotations=names))
        await here.settle()
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(10)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None


@simulated
async def test_row_1_a_deletion_waits_for_lost_credentials_and_then_gives_up() -> None:
    async with world() as here:
        await installed(here)
        await here.admin.delete(Secret, NamespacedName(RUNNERS, "github"))
        await here.settle(60)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(300)
        ready = await here.condition("Ready")
        assert ready.reason == "CredentialsNotFound"
        assert "secret ci/github" in ready.message

        await here.settle(400)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        assert ("AutoscalingRunnerSet", "ScaleSetLeftBehind") in await here.events()


@simulated
async def test_row_1_credentials_that_come_back_unregister_it() -> None:
    async with world() as here:
        await installed(here)
        await here.admin.delete(Secret, NamespacedName(RUNNERS, "github"))
        await here.settle(60)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(120)
        here.secret("github", github_token="token-2")
        await here.settle(120)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        assert not here.service.scale_sets


@simulated
async def test_row_1_a_service_that_is_down_is_waited_for_however_long() -> None:
    async with world() as here:
        await installed(here)
        here.service.go_down()
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(3600)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is not None
        here.service.come_up()
        await here.settle(1000)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        assert not here.service.scale_sets


@simulated
async def test_row_1_without_our_finalizer_it_is_not_ours_any_more() -> None:
    async with world() as here:
        await installed(here)
        await here.stop_manager()
        others = {"metadata": {"finalizers": ["example.com/other"]}}
        await here.admin.patch(AutoscalingRunnerSet, KEY, others)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        here.api.request_log.clear()
        here.start_manager()
        await here.settle(120)
        assert not [w for w in here.writes() if "autoscalingrunnersets" in w]
        assert here.service.scale_sets


# --- row 2: version


@simulated
async def test_row_2_another_release_is_reported_and_nothing_is_deleted() -> None:
    async with world() as here:
        here.install(scale_set(labels={Label.VERSION: "0.12.1"}))
        await here.settle(120)
        matches = await here.condition("VersionMatches")
        assert (matches.status, matches.reason) == ("False", "OtherRelease")
        assert "0.12.1" in matches.message
        assert "0.14.0" in matches.message
        assert (await here.condition("Ready")).status == "True"
        assert ("AutoscalingRunnerSet", "OtherRelease") in await here.events()

        label = {"metadata": {"labels": {Label.VERSION: "0.14.3"}}}
        await here.admin.patch(AutoscalingRunnerSet, KEY, label)
        await here.settle()
        assert (await here.condition("VersionMatches")).status == "True"


@simulated
async def test_row_2_the_same_release_needs_no_condition() -> None:
    async with world() as here:
        await installed(here)
        conditions = (await here.scale_set()).status.conditions
        assert {c.type for c in conditions} == {"Ready", "Registered"}


# --- row 3: finalizer and phase Pending


@simulated
async def test_row_3_the_finalizer_comes_first_and_a_new_spec_is_pending() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        first, second = [r for r in here.requests() if r.resource == "autoscalingrunnersets"][1:3]
        assert first.patch["metadata"]["finalizers"] == [Finalizer.AUTOSCALING_RUNNER_SET]
        assert first.patch["metadata"]["resourceVersion"]
        assert second.subresource == "status"
        assert second.patch["status"]["phase"] == "Pending"


@simulated
async def test_row_3_a_changed_spec_is_pending_until_it_is_followed() -> None:
    async with world() as here:
        await installed(here)
        await here.edit(maxRunners=7)
        await here.settle()
        phases = [p["status"].get("phase") for p in here.patches("autoscalingrunnersets", "status")]
        assert [phase for phase in phases if phase] == ["Pending", "Running"]


# --- row 4: outdated


async def parked(here: World) -> None:
    await installed(here, minRunners=2)
    await here.admin.patch(EphemeralRunnerSet, KEY, {"spec": {"replicas": 3, "patchID": 9}})
    await here.settle()
    await here.condemn()
    await here.settle(10)
    assert (await here.scale_set()).status.phase == "Outdated"
    here.api.request_log.clear()


@simulated
async def test_row_4_outdated_stops_the_listener_and_puts_replicas_and_patch_id_to_zero() -> None:
    async with world() as here:
        await parked(here)
        assert await here.listeners() == []
        spec = (await here.runner_set()).spec
        assert (spec.replicas, spec.patch_id) == (0, 0)
        ready = await here.condition("Ready")
        assert (ready.status, ready.reason) == ("False", "Outdated")
        assert ("AutoscalingRunnerSet", "Outdated") in await here.events()


@simulated
async def test_row_4_the_last_words_of_the_listener_are_taken_back() -> None:
    async with world() as here:
        await parked(here)
        await here.admin.patch(EphemeralRunnerSet, KEY, {"spec": {"replicas": 5, "patchID": 10}})
        await here.settle()
        spec = (await here.runner_set()).spec
        assert (spec.replicas, spec.patch_id) == (0, 0)


@simulated
async def test_row_4_a_parked_set_writes_nothing() -> None:
    async with world() as here:
        await parked(here)
        await here.settle(1800)
        assert here.writes() == []


@simulated
async def test_row_4_a_controller_restart_does_not_revive_it() -> None:
    async with world() as here:
        await parked(here)
        await here.restart_manager()
        await here.settle(600)
        assert here.writes() == []
        assert await here.listeners() == []


@simulated
async def test_row_4_an_unrelated_edit_does_not_revive_it() -> None:
    async with world() as here:
        await parked(here)
        await here.edit(
            minRunners=4,
            maxRunners=8,
            runnerGroup="",
            listenerTemplate={"spec": {"containers": [{"name": "listener", "tty": True}]}},
            runnerScaleSetLabels=["gpu"],
            ephemeralRunnerSetMetadata={"labels": {"a": "b"}},
        )
        label = {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}}
        await here.admin.patch(AutoscalingRunnerSet, KEY, label)
        await here.settle(120)
        assert (await here.scale_set()).status.phase == "Outdated"
        assert await here.listeners() == []
        assert (await here.runner_set()).spec.actionable_revision == 0
        phases = [p["status"].get("phase") for p in here.patches("autoscalingrunnersets", "status")]
        assert not any(phases)


@pytest.mark.parametrize(
    "change",
    [
        {"template": NEWER_IMAGE},
        {"template": {"metadata": {"labels": {"a": "b"}}}},
        {"ephemeralRunnerMetadata": {"annotations": {"a": "b"}}},
    ],
    ids=["spec", "template metadata", "runner metadata"],
)
def test_row_4_a_runner_spec_or_metadata_edit_brings_everything_back(
    change: dict[str, Any],
) -> None:
    @simulated
    async def scenario() -> None:
        async with world() as here:
            await parked(here)
            await here.edit(**change)
            await here.settle(10)
            runner_set = await here.runner_set()
            assert runner_set.spec.actionable_revision == 1
            assert runner_set.status.phase == "Outdated", "its own controller has not judged yet"
            assert len(await here.listeners()) == 1, "and yet the listener is back"
            await here.apply_revision()
            await here.settle()
            assert (await here.scale_set()).status.phase == "Running"
            assert (await here.condition("Ready")).status == "True"

    scenario()


@simulated
async def test_row_4_an_edit_while_the_controller_is_away_revives_it_when_it_is_back() -> None:
    async with world() as here:
        await parked(here)
        await here.stop_manager()
        await here.edit(template=NEWER_IMAGE)
        here.start_manager()
        await here.settle(10)
        assert (await here.runner_set()).spec.actionable_revision == 1
        assert len(await here.listeners()) == 1


@simulated
async def test_row_4_a_new_revision_that_is_refused_too_parks_again_and_recovers_again() -> None:
    async with world() as here:
        await parked(here)
        for revision in (1, 2, 3):
            image = {"spec": {"containers": [{"name": "runner", "image": f"runner:r{revision}"}]}}
            await here.edit(template=image)
            await here.settle(10)
            assert (await here.runner_set()).spec.actionable_revision == revision
            assert len(await here.listeners()) == 1
            await here.condemn()
            await here.settle(10)
            assert (await here.scale_set()).status.phase == "Outdated"
            assert await here.listeners() == []


@simulated
async def test_row_4_going_back_to_the_refused_spec_is_a_change_too() -> None:
    async with world() as here:
        await parked(here)
        await here.edit(template=NEWER_IMAGE)
        await here.settle()
        await here.apply_revision()
        await here.edit(
            template={"spec": {"containers": [{"name": "runner", "image": "runner:1"}]}}
        )
        await here.settle()
        assert (await here.runner_set()).spec.actionable_revision == 2


@simulated
async def test_row_4_outdated_with_a_newer_revision_ahead_is_not_parked() -> None:
    async with world() as here:
        await installed(here)
        await here.edit(template=NEWER_IMAGE)
        await here.settle()
        await here.runner_set_status(phase="Outdated", appliedActionableRevision=0)
        await here.settle()
        assert len(await here.listeners()) == 1
        assert (await here.scale_set()).status.phase == "Running"


@simulated
async def test_row_4_a_set_that_stops_being_outdated_by_itself_comes_back() -> None:
    async with world() as here:
        await parked(here)
        await here.runner_set_status(phase="Running")
        await here.settle()
        assert len(await here.listeners()) == 1
        assert (await here.scale_set()).status.phase == "Running"


@simulated
async def test_row_4_losing_the_id_while_parked_does_not_revive_it() -> None:
    async with world() as here:
        await parked(here)
        gone = {"metadata": {"annotations": {Annotation.RUNNER_SCALE_SET_ID: None}}}
        await here.admin.patch(AutoscalingRunnerSet, KEY, gone)
        await here.settle(60)
        assert (await here.scale_set()).status.phase == "Outdated"
        assert (await here.runner_set()).spec.actionable_revision == 0


# --- row 5: the scale set at the service


@simulated
async def test_row_5_a_new_scale_set_is_registered_with_its_labels_and_remembered() -> None:
    async with world() as here:
        await installed(here, runnerScaleSetLabels=["gpu", "Linux", "gpu"])
        record = here.service.scale_set(NAME)
        assert (record.name, record.runner_group_id, record.disable_update) == (NAME, 1, True)
        assert [label.name for label in record.labels] == ["linux", "gpu"]
        metadata = (await here.scale_set()).metadata
        assert metadata.annotations == {
            Annotation.RUNNER_SCALE_SET_ID: str(record.id),
            Annotation.RUNNER_SCALE_SET_NAME: NAME,
            Annotation.RUNNER_GROUP_NAME: "Default",
            REGISTERED_FOR: metadata.uid,
        }
        assert metadata.labels[Label.ORGANIZATION] == "acme"
        assert Label.REPOSITORY not in metadata.labels


@simulated
async def test_row_5_one_that_exists_is_taken_over() -> None:
    async with world() as here:
        await installed(here)
        await here.stop_manager()
        id_ = scale_set_id(await here.scale_set())
        nothing = {"metadata": {"annotations": {Annotation.RUNNER_SCALE_SET_ID: None}}}
        await here.admin.patch(AutoscalingRunnerSet, KEY, nothing)
        here.start_manager()
        await here.settle()
        assert scale_set_id(await here.scale_set()) == id_
        assert here.service.calls[Call.CREATE_SCALE_SET] == 1


@simulated
async def test_row_5_a_named_group_is_looked_up() -> None:
    async with world() as here:
        group = here.service.add_runner_group("heavy")
        await installed(here, runnerGroup="heavy")
        assert here.service.scale_set(NAME).runner_group_id == group.id
        annotations = (await here.scale_set()).metadata.annotations
        assert annotations[Annotation.RUNNER_GROUP_NAME] == "heavy"


@simulated
async def test_row_5_a_group_that_does_not_exist_is_told_and_waited_for() -> None:
    async with world() as here:
        here.install(scale_set(runnerGroup="heavy"))
        await here.settle()
        ready = await here.condition("Ready")
        assert ready.reason == "RunnerGroupNotFound"
        assert "'heavy'" in ready.message
        assert ("AutoscalingRunnerSet", "RunnerGroupNotFound") in await here.events()
        here.api.request_log.clear()
        await here.settle(600)
        assert here.writes() == [], "the same trouble is not written twice"

        here.service.add_runner_group("heavy")
        await here.settle(90)
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_row_5_a_changed_group_or_name_is_updated_and_the_id_kept() -> None:
    async with world() as here:
        group = here.service.add_runner_group("heavy")
        await installed(here)
        id_ = scale_set_id(await here.scale_set())
        await here.edit(runnerGroup="heavy", runnerScaleSetName="big")
        await here.settle(10)
        record = here.service.scale_set(id_)
        assert (record.name, record.runner_group_id) == ("big", group.id)
        assert scale_set_id(await here.scale_set()) == id_
        assert (await here.listener()).spec.runner_scale_set_id == id_

        await here.edit(runnerGroup=None)
        await here.settle(10)
        assert here.service.scale_set(id_).runner_group_id == 1, "no group means the default group"


@simulated
async def test_row_5_another_case_of_group_or_name_is_no_change() -> None:
    async with world() as here:
        here.service.add_runner_group("heavy")
        await installed(here, runnerGroup="heavy", runnerScaleSetName="big")
        await here.edit(runnerGroup="HEAVY", runnerScaleSetName="Big")
        await here.settle(10)
        assert here.service.calls[Call.UPDATE_SCALE_SET] == 0


@simulated
async def test_row_5_changed_labels_reach_the_service() -> None:
    async with world() as here:
        await installed(here)
        await here.edit(runnerScaleSetLabels=["gpu"])
        await here.settle()
        labels = [label.name for label in here.service.scale_set(NAME).labels]
        assert labels == ["linux", "gpu"]


@simulated
async def test_row_5_a_service_that_refuses_new_labels_does_not_stop_anything() -> None:
    async with world() as here:
        await installed(here)
        here.service.faults.fail("update_scale_set", status=400, message="labels are fixed")
        await here.edit(runnerScaleSetLabels=["gpu"])
        await here.settle()
        assert (await here.condition("Ready")).status == "True"
        assert ("AutoscalingRunnerSet", "LabelsRefused") in await here.events()


@simulated
async def test_row_5_a_forgotten_scale_set_is_registered_again_and_everything_follows() -> None:
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        here.service.forget_scale_set(old)
        pod = await here.pod()
        here.kubelet.kill(*pod.key)  # the listener dies of it
        await here.settle(30)

        new = scale_set_id(await here.scale_set())
        assert new != old
        assert (await here.runner_set()).spec.ephemeral_runner_spec.runner_scale_set_id == new
        assert (await here.runner_set()).spec.actionable_revision == 1
        assert (await here.listener()).spec.runner_scale_set_id == new
        assert (await here.config_file())["runner_scale_set_id"] == new
        assert (await here.condition("Ready")).status == "True"
        events = await here.events()
        assert ("AutoscalingListener", "ScaleSetNotFound") in events
        assert ("AutoscalingRunnerSet", "RegisteredAgain") in events


@simulated
async def test_row_5_a_listener_that_dies_of_something_else_changes_no_registration() -> None:
    async with world() as here:
        await installed(here)
        here.kubelet.kill(*(await here.pod()).key)
        await here.settle(30)
        assert here.service.calls[Call.CREATE_SCALE_SET] == 1
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_row_5_another_config_url_is_another_registration() -> None:
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        await here.edit(githubConfigUrl=f"{URL}/app")
        await here.settle(20)
        obj = await here.scale_set()
        assert scale_set_id(obj) != old
        assert obj.metadata.labels[Label.REPOSITORY] == "app"
        assert (await here.listener()).spec.github_config_url == f"{URL}/app"
        assert (await here.config_file())["configure_url"] == f"{URL}/app"

        await here.edit(githubConfigUrl=URL)
        await here.settle(20)
        assert scale_set_id(await here.scale_set()) != scale_set_id(obj)
        assert Label.REPOSITORY not in (await here.scale_set()).metadata.labels


@simulated
async def test_row_5_the_registration_at_a_config_url_that_was_left_is_removed() -> None:
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        await here.edit(githubConfigUrl=f"{URL}/app")
        await here.settle(60)
        assert list(here.service.scale_sets) == [scale_set_id(await here.scale_set())] != [old]
        assert DEPARTED not in (await here.scale_set()).metadata.annotations
        assert ("AutoscalingRunnerSet", "DepartedScaleSetRemoved") in await here.events()


@simulated
async def test_row_5_a_place_that_is_only_renamed_keeps_its_registration() -> None:
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        await here.edit(githubConfigUrl="https://github.example.com/acme")  # the same service
        await here.settle(120)
        assert (await here.listener()).spec.github_config_url == "https://github.example.com/acme"
        assert (await here.condition("Ready")).status == "True"
        assert list(here.service.scale_sets) == [old] == [scale_set_id(await here.scale_set())]
        assert DEPARTED not in (await here.scale_set()).metadata.annotations


@simulated
async def test_row_5_another_server_where_the_id_means_nothing_gives_a_new_one() -> None:
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        here.service.forget_scale_set(old)  # as if the other server had never heard of it
        await here.edit(githubConfigUrl="https://github.example.com/acme")
        await here.settle(60)
        new = scale_set_id(await here.scale_set())
        assert list(here.service.scale_sets) == [new] != [old]
        assert (await here.listener()).spec.runner_scale_set_id == new
        assert (await here.runner_set()).spec.ephemeral_runner_spec.runner_scale_set_id == new


@simulated
async def test_row_5_a_registration_that_was_left_waits_for_its_runners_also_across_a_restart() -> (
    None
):
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        async with at_the_service(here) as client:
            busy = await client.generate_jit_config(old, "linux-runner-busy", "")
            await here.edit(githubConfigUrl=f"{URL}/app")
            await here.settle(120)
            assert (await here.condition("Ready")).status == "True"
            assert old in here.service.scale_sets
            await here.restart_manager()
            await here.settle(120)
            assert old in here.service.scale_sets
            await client.remove_runner(busy.runner.id)
        await here.settle(60)
        assert list(here.service.scale_sets) == [scale_set_id(await here.scale_set())]


@simulated
async def test_row_5_a_registration_that_cannot_be_removed_where_it_was_left_blocks_nothing() -> (
    None
):
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        here.secret("other", github_token="token-2")
        await here.admin.delete(Secret, NamespacedName(RUNNERS, "github"))
        await here.settle(60)
        await here.edit(githubConfigUrl=f"{URL}/app", githubConfigSecret="other")
        await here.settle(60)
        assert (await here.condition("Ready")).status == "True"
        await here.settle(900)
        assert old in here.service.scale_sets
        assert DEPARTED not in (await here.scale_set()).metadata.annotations
        assert ("AutoscalingRunnerSet", "ScaleSetLeftBehind") in await here.events()


@simulated
async def test_row_5_going_back_to_a_config_url_that_was_left_keeps_its_registration() -> None:
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        async with at_the_service(here) as client:
            await client.generate_jit_config(old, "linux-runner-busy", "")
            await here.edit(githubConfigUrl=f"{URL}/app")
            await here.settle(60)
            await here.edit(githubConfigUrl=URL)
            await here.settle(120)
        assert scale_set_id(await here.scale_set()) == old
        assert list(here.service.scale_sets) == [old]


@simulated
async def test_row_1_what_was_left_at_another_config_url_goes_with_the_scale_set() -> None:
    async with world() as here:
        await installed(here)
        old = scale_set_id(await here.scale_set())
        async with at_the_service(here) as client:
            busy = await client.generate_jit_config(old, "linux-runner-busy", "")
            await here.edit(githubConfigUrl=f"{URL}/app")
            await here.settle(70)
            await client.remove_runner(busy.runner.id)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(120)
        assert list(here.service.scale_sets) == []


@simulated
async def test_row_5_two_scale_sets_of_one_name_in_two_namespaces_do_not_share_a_listener() -> None:
    async with world() as here:
        here.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        here.secret("github", "other", github_token="token-2")
        here.install(scale_set())
        here.install(scale_set(namespace="other", githubConfigUrl="https://github.com/umbrella"))
        await here.settle(10)
        first, second = await here.listeners()
        assert first.metadata.name != second.metadata.name
        assert {first.spec.autoscaling_runner_set_namespace} | {
            second.spec.autoscaling_runner_set_namespace
        } == {RUNNERS, "other"}
        assert len(here.service.scale_sets) == 2
        for key in (KEY, NamespacedName("other", NAME)):
            assert (await here.condition("Ready", key)).status == "True"


@simulated
async def test_row_5_two_objects_for_one_registration_do_not_fight_over_it() -> None:
    async with world() as here:
        other = NamespacedName("other", NAME)
        here.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        here.secret("github", "other", github_token="token-1")
        await installed(here)
        here.install(scale_set(namespace="other"))
        await here.settle(10)
        ready = await here.condition("Ready", other)
        assert (ready.status, ready.reason) == ("False", "NameTaken")
        assert "ci/linux" in ready.message
        assert len(await here.listeners()) == 1

        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(120)
        assert (await here.condition("Ready", other)).status == "True", "now the name is free"
        assert len(here.service.scale_sets) == 1


@simulated
async def test_row_5_refused_credentials_are_told_without_showing_them() -> None:
    async with world() as here:
        here.service.accept_tokens("token-2")
        here.install(scale_set())
        await here.settle(60)
        ready = await here.condition("Ready")
        assert ready.reason == "Unauthorized"
        assert "token-1" not in ready.message

        await here.admin.patch(
            Secret, NamespacedName(RUNNERS, "github"), {"stringData": {"github_token": "token-2"}}
        )
        await here.settle(300)
        assert (await here.condition("Ready")).status == "True"


# --- row 6: the set of runners


@simulated
async def test_row_6_the_set_is_created_empty_and_owned() -> None:
    async with world() as here:
        template = {**NEWER_IMAGE, "metadata": {"labels": {"a": "b"}}}
        await installed(here, minRunners=3, template=template)
        runner_set = await here.runner_set()
        owner = await here.scale_set()
        (reference,) = runner_set.metadata.owner_references
        assert (reference.uid, reference.controller, reference.block_owner_deletion) == (
            owner.uid,
            True,
            True,
        )
        spec = runner_set.spec
        assert (spec.replicas, spec.patch_id, spec.actionable_revision) == (0, 0, 0)
        assert spec.ephemeral_runner_spec.runner_scale_set_id == scale_set_id(owner)
        assert spec.ephemeral_runner_spec.metadata == {"labels": {"a": "b"}}


@simulated
async def test_row_6_a_changed_template_is_patched_in_place_with_the_next_revision() -> None:
    async with world() as here:
        await installed(here, minRunners=1)
        await here.admin.patch(EphemeralRunnerSet, KEY, {"spec": {"replicas": 4, "patchID": 7}})
        await here.runner_set_status(appliedActionableRevision=5)
        uid, listener = (await here.runner_set()).uid, (await here.listener()).uid
        here.api.request_log.clear()
        await here.edit(template=NEWER_IMAGE)
        await here.settle()

        runner_set = await here.runner_set()
        assert runner_set.uid == uid
        assert runner_set.spec.actionable_revision == 6, "max(spec, applied) + 1"
        assert (runner_set.spec.replicas, runner_set.spec.patch_id) == (4, 7), "not ours"
        (patch,) = here.patches("ephemeralrunnersets")
        assert patch["metadata"]["resourceVersion"]
        assert set(patch["spec"]) == {"ephemeralRunnerSpec", "actionableRevision"}
        assert (await here.listener()).uid == listener, "jobs keep flowing"
        assert not [w for w in here.writes() if w.startswith("delete")]


@simulated
async def test_row_6_a_spec_edit_does_not_wait_for_a_service_that_is_down() -> None:
    async with world() as here:
        await installed(here)
        here.service.go_down()
        await here.edit(template=NEWER_IMAGE, maxRunners=9)
        await here.settle(10)
        assert (await here.runner_set()).spec.actionable_revision == 1
        assert (await here.listener()).spec.max_runners == 9
        await here.settle(600)
        assert (await here.condition("Ready")).reason == "ServiceUnavailable"
        here.service.come_up()
        await here.settle(600)
        assert (await here.condition("Ready")).status == "True"
        assert (await here.condition("Registered")).observed_generation == 2


@simulated
async def test_row_6_another_spelling_of_the_same_spec_is_no_change() -> None:
    async with world() as here:
        await installed(here)
        await here.edit(
            template={
                "metadata": {"labels": {}},
                "spec": {"containers": [{"name": "runner", "image": "runner:1", "env": []}]},
            }
        )
        await here.settle()
        assert here.patches("ephemeralrunnersets") == []


@simulated
async def test_row_6_a_hand_edit_of_the_sets_runner_spec_is_put_right() -> None:
    async with world() as here:
        await installed(here)
        hack = {"spec": {"ephemeralRunnerSpec": {"githubConfigSecret": "mine"}}}
        await here.admin.patch(EphemeralRunnerSet, KEY, hack)
        await here.settle()
        spec = (await here.runner_set()).spec
        assert spec.ephemeral_runner_spec.github_config_secret == "github"
        assert spec.actionable_revision == 1


@simulated
async def test_row_6_only_metadata_different_is_patched_without_a_new_revision() -> None:
    async with world() as here:
        await installed(here, ephemeralRunnerSetMetadata={"labels": {"a": "1", "b": "1"}})
        await here.edit(
            ephemeralRunnerSetMetadata={
                "labels": {"a": "2", "b": None, Label.COMPONENT: "mine"},
                "annotations": {"note": "x"},
            }
        )
        await here.settle()
        runner_set = await here.runner_set()
        assert runner_set.spec.actionable_revision == 0
        assert runner_set.metadata.labels["a"] == "2"
        assert "b" not in runner_set.metadata.labels
        assert runner_set.metadata.labels[Label.COMPONENT] == "runner-set", "never overridden"
        assert runner_set.metadata.annotations["note"] == "x"
        (patch,) = here.patches("ephemeralrunnersets")
        assert "spec" not in patch


@simulated
async def test_row_6_labels_flow_down_except_those_with_an_excluded_prefix() -> None:
    async with world(exclude_label_prefixes=("internal.example.com/",)) as here:
        here.install(scale_set(labels={"team": "x", "internal.example.com/cost": "1"}))
        await here.settle()
        for metadata in ((await here.runner_set()).metadata, (await here.listener()).metadata):
            assert metadata.labels["team"] == "x"
            assert "internal.example.com/cost" not in metadata.labels
            assert metadata.labels[Label.PART_OF] == "gha-runner-scale-set"
            assert metadata.labels[Label.SCALE_SET_NAME] == NAME
            assert metadata.labels[Label.SCALE_SET_NAMESPACE] == RUNNERS
            assert metadata.labels[Label.ORGANIZATION] == "acme"
            assert metadata.labels[Label.VERSION] == "0.14.0"


@simulated
async def test_row_6_a_deleted_set_is_made_again() -> None:
    async with world() as here:
        await installed(here)
        uid = (await here.runner_set()).uid
        await here.admin.delete(EphemeralRunnerSet, KEY)
        await here.settle(10)
        assert (await here.runner_set()).uid != uid
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_row_6_sets_that_another_controller_named_differently_are_removed() -> None:
    async with world() as here:
        await installed(here)
        await here.stop_manager()
        owner = await here.scale_set()
        here.install(
            {
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunnerSet",
                "metadata": {
                    "name": f"{NAME}-abcde",
                    "namespace": RUNNERS,
                    "ownerReferences": [
                        {
                            "apiVersion": "actions.github.com/v1alpha1",
                            "kind": "AutoscalingRunnerSet",
                            "name": NAME,
                            "uid": owner.uid,
                            "controller": True,
                        }
                    ],
                },
                "spec": msgspec.to_builtins((await here.runner_set()).spec),
            }
        )
        here.start_manager()
        await here.settle(10)
        with pytest.raises(NotFound):
            await here.runner_set(NamespacedName(RUNNERS, f"{NAME}-abcde"))


# --- row 7: the listener


@simulated
async def test_row_7_the_listener_is_made_from_the_scale_set() -> None:
    async with world(listener_pull_secrets=("registry",)) as here:
        await installed(here, minRunners=2, maxRunners=9)
        listener = await here.listener()
        assert listener.metadata.namespace == CONTROLLER
        assert listener.metadata.name.startswith(f"{NAME}-")
        assert listener.metadata.name.endswith("-listener")
        assert listener.metadata.owner_references == [], "an owner in another namespace is none"
        spec = listener.spec
        assert (spec.min_runners, spec.max_runners) == (2, 9)
        assert (spec.autoscaling_runner_set_namespace, spec.autoscaling_runner_set_name) == KEY
        assert spec.ephemeral_runner_set_name == NAME
        assert spec.image == "ghcr.io/acme/arc:0.14.0"
        assert [ref.name for ref in spec.image_pull_secrets] == ["registry"]


@simulated
async def test_row_7_a_listener_in_the_scale_sets_own_namespace_is_owned() -> None:
    async with world() as here:
        here.secret("github", CONTROLLER, github_token="token-1")
        here.install(scale_set(namespace=CONTROLLER))
        await here.settle()
        (reference,) = (await here.listener()).metadata.owner_references
        assert (reference.kind, reference.controller) == ("AutoscalingRunnerSet", True)


@pytest.mark.parametrize(
    "change",
    [
        {"maxRunners": 5},
        {"minRunners": 3},
        {"listenerTemplate": {"spec": {"containers": [{"name": "listener", "tty": True}]}}},
        {"autoscalingListener": {"labels": {"a": "b"}}},
        {"autoscalingListener": {"annotations": {"a": "b"}}},
    ],
    ids=["max", "min", "template", "labels", "annotations"],
)
def test_row_7_a_different_listener_is_deleted_and_made_again(change: dict[str, Any]) -> None:
    """With `minRunners` > 0 some controllers never bring it back: they wait for no runners."""

    @simulated
    async def scenario() -> None:
        async with world() as here:
            await installed(here, minRunners=2)
            await here.runner_set_status(currentReplicas=2, pendingEphemeralRunners=2)
            before = await here.listener()
            await here.edit(**change)
            await here.settle(10)
            after = await here.listener()
            assert after.uid != before.uid
            assert (await here.condition("Ready")).status == "True"
            assert (await here.pod()).metadata.owner_references[0].uid == after.uid
            assert ("AutoscalingRunnerSet", "ListenerReplaced") in await here.events()

    scenario()


@simulated
async def test_row_7_labels_that_others_put_on_a_listener_do_not_matter() -> None:
    async with world() as here:
        await installed(here)
        before = await here.listener()
        tracking = {"metadata": {"labels": {"argocd": "x"}, "annotations": {"tracking": "y"}}}
        await here.admin.patch(AutoscalingListener, before.key, tracking)
        await here.settle(120)
        assert (await here.listener()).uid == before.uid


@simulated
async def test_row_7_a_new_image_of_the_controller_replaces_the_listener() -> None:
    async with world() as here:
        await installed(here)
        await here.restart_manager(image="ghcr.io/acme/arc:0.14.1")
        await here.settle(10)
        (container,) = (await here.pod()).spec["containers"]
        assert container["image"] == "ghcr.io/acme/arc:0.14.1"


# --- row 8: phase and counts


@simulated
async def test_row_8_counts_are_copied_from_the_set_and_published() -> None:
    async with world() as here:
        await installed(here)
        await here.runner_set_status(
            currentReplicas=6,
            pendingEphemeralRunners=3,
            runningEphemeralRunners=2,
            failedEphemeralRunners=1,
        )
        await here.settle()
        status = (await here.scale_set()).status
        assert (status.phase, status.current_runners) == ("Running", 6)
        assert status.pending_ephemeral_runners == 3
        assert status.running_ephemeral_runners == 2
        assert status.failed_ephemeral_runners == 1
        assert _metric(here, "gha_controller_pending_ephemeral_runners") == 3
        assert _metric(here, "gha_controller_running_ephemeral_runners") == 2
        assert _metric(here, "gha_controller_failed_ephemeral_runners") == 1

        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(10)
        assert _metric(here, "gha_controller_pending_ephemeral_runners") is None


@simulated
async def test_row_8_counts_that_change_all_the_time_are_written_once_a_second() -> None:
    async with world() as here:
        await installed(here)
        for count in range(1, 41):
            await here.runner_set_status(currentReplicas=count, pendingEphemeralRunners=count)
            await here.settle(0.1)
        await here.settle()
        assert (await here.scale_set()).status.current_runners == 40
        assert len(here.patches("autoscalingrunnersets", "status")) <= 6


# --- what cannot work, and peace


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"githubConfigUrl": "https://github.com/a/b/c"}, "InvalidConfigUrl", "expected https"),
        ({"githubConfigSecret": "nope"}, "CredentialsNotFound", "ci/nope"),
        ({"minRunners": 5, "maxRunners": 3}, "InvalidSpec", "minRunners is 5 and maxRunners is 3"),
        ({"template": {"spec": {"containers": []}}}, "InvalidSpec", "template.spec.containers"),
        (
            {"proxy": {"http": {"url": "http://p:3128", "credentialSecretRef": "pw"}}},
            "ProxySecretNotFound",
            "proxy.http.credentialSecretRef",
        ),
        (
            {
                "githubServerTLS": {
                    "certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "x"}}
                }
            },
            "CertificateNotFound",
            "ci/ca",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(
    spec: dict[str, Any], reason: str, words: str
) -> None:
    @simulated
    async def scenario() -> None:
        async with world() as here:
            here.install(scale_set(**spec))
            await here.settle()
            ready = await here.condition("Ready")
            assert (ready.status, ready.reason) == ("False", reason)
            assert words in ready.message
            assert (await here.scale_set()).status.phase == "Pending"
            assert ("AutoscalingRunnerSet", reason) in await here.events()
            here.api.request_log.clear()
            await here.settle(600)
            assert here.writes() == []

    scenario()


@simulated
async def test_an_idle_scale_set_writes_nothing_and_reads_one_secret_a_minute() -> None:
    async with world() as here:
        await installed(here)
        await here.settle(60)
        here.api.request_log.clear()
        await here.settle(3600)
        assert here.writes() == []
        assert set(here.calls()) <= {"get secrets"}
        assert len(here.calls()) <= 75


@simulated
async def test_with_one_watched_namespace_nothing_is_looked_at_elsewhere() -> None:
    async with world(watch_namespaces=(RUNNERS,)) as here:
        here.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        here.install(scale_set(namespace="other"))
        here.install(scale_set())
        await here.settle()
        assert (await here.condition("Ready")).status == "True"
        assert (await here.scale_set(NamespacedName("other", NAME))).status.phase == ""
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(10)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        assert {record.namespace for record in here.requests()} <= {RUNNERS, CONTROLLER}


@simulated
async def test_a_restart_of_the_controller_changes_nothing() -> None:
    async with world() as here:
        await installed(here)
        await here.restart_manager()
        await here.settle(120)
        assert here.writes() == []


@simulated
async def test_a_write_that_lost_its_race_is_tried_again_and_not_an_error() -> None:
    async with world() as here:
        await installed(here)
        await here.edit(template=NEWER_IMAGE)
        for patch_id in range(1, 30):
            spec = {"spec": {"replicas": patch_id, "patchID": patch_id}}
            await here.admin.patch(EphemeralRunnerSet, KEY, spec)
        await here.settle()
        spec_ = (await here.runner_set()).spec
        assert (spec_.actionable_revision, spec_.patch_id) == (1, 29)


def _metric(here: World, name: str) -> float | None:
    assert here.manager is not None
    labels = {
        "name": NAME,
        "namespace": RUNNERS,
        "repository": "",
        "organization": "acme",
        "enterprise": "",
    }
    return here.manager.metrics.registry.get_sample_value(name, labels)


def _protected(kind: str, name: str) -> dict[str, Any]:
    rbac = "rbac.authorization.k8s.io"
    manifest: dict[str, Any] = {
        "apiVersion": f"{rbac}/v1" if kind.startswith("Role") else "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": RUNNERS,
            "finalizers": [Finalizer.CLEANUP_PROTECTION, "example.com/other"],
        },
    }
    if kind == "RoleBinding":
        manifest["roleRef"] = {"apiGroup": rbac, "kind": "Role", "name": name}
    return manifest
