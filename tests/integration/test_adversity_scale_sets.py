"""Scale sets and listeners under adversity: odd names and secrets, hands that edit, bad moments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arc_controller.api.core import Pod, Role, RoleBinding, Secret, ServiceAccount
from arc_controller.api.v1alpha1 import (
    Annotation,
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunner,
    EphemeralRunnerSet,
    Label,
)
from arc_controller.runtime.objects import KubeObject, NamespacedName
from arc_controller.testing.actions import JobState
from arc_controller.testing.apiserver import Request, RequestInfo, Response, json_response
from arc_controller.testing.cluster import Cluster
from arc_controller.testing.cluster import scale_set as manifest
from arc_controller.testing.loop import simulated
from tests.integration.scale_sets import CONTROLLER, KEY, NAME, RUNNERS, World, scale_set, world


async def installed(here: World, **spec: Any) -> None:
    here.install(scale_set(**spec))
    await here.settle()
    assert (await here.condition("Ready")).status == "True"
    here.api.request_log.clear()


# --- odd names and odd secrets ------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("name", ["x" * 63, "a." * 60 + "b", "n-" * 40 + "n", "9-to-5"])
async def test_a_scale_set_of_a_very_long_or_odd_name_runs_jobs_and_goes(name: str) -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set(name, max_runners=3, min_runners=1)
        await cluster.until(listeners=1, registrations=1)
        cluster.queue_jobs(3, scale_set=name, duration=5.0)
        await cluster.until(completed=3, within=120)
        for runner in cluster.runners:
            assert len(runner.metadata.name) <= 63
        await cluster.delete(AutoscalingRunnerSet, name)
        await cluster.until_gone()


@simulated
async def test_two_names_that_are_cut_alike_do_not_share_anything() -> None:
    async with Cluster() as cluster:
        names = ["x" * 70 + "-one", "x" * 70 + "-two"]
        for name in names:
            await cluster.add_scale_set(name, max_runners=3, min_runners=1)
        await cluster.until(listeners=2, registrations=2)
        for name in names:
            cluster.queue_jobs(2, scale_set=name, duration=5.0)
        await cluster.until(completed=4, within=120)
        for name in names:
            await cluster.delete(AutoscalingRunnerSet, name)
        await cluster.until_gone()


@simulated
async def test_labels_and_a_name_that_are_not_ascii_reach_the_service_as_they_are() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set(
            "linux",
            max_runners=2,
            runner_scale_set_name="Größe 🚀",
            runner_scale_set_labels=["größe", "日本語", "with space"],
        )
        await cluster.until(listeners=1)
        record = cluster.service.scale_set("Größe 🚀")
        assert [label.name for label in record.labels] == [
            "Größe 🚀",
            "größe",
            "日本語",
            "with space",
        ]
        cluster.queue_jobs(2, labels=("größe", "日本語"), duration=5.0)
        await cluster.until(completed=2, within=120)
        await cluster.restart_manager()
        await asyncio.sleep(60)
        assert len(cluster.service.scale_sets) == 1
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone()


@simulated
@pytest.mark.parametrize(
    ("url", "organization", "repository"),
    [
        ("https://GitHub.com/ACME", "ACME", ""),
        ("https://github.com/ACME/App/", "ACME", "App"),
        ("https://ghes.example.com:8443/ACME/_app_", "ACME", "app"),
        ("HTTPS://ghes.example.com:8443/acme", "acme", ""),
        (f"https://github.com/acme/{'r' * 100}", "acme", "r" * 58 + "-trim"),
    ],
)
async def test_config_urls_with_capitals_ports_and_long_names_work(
    url: str, organization: str, repository: str
) -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=2, github_config_url=url)
        await cluster.until(listeners=1)
        cluster.queue_jobs(2, duration=5.0)
        await cluster.until(lambda: bool(cluster.runners))
        (runner, *_) = cluster.runners
        assert runner.metadata.labels.get(Label.ORGANIZATION, "") == organization
        assert runner.metadata.labels.get(Label.REPOSITORY, "") == repository
        await cluster.until(completed=2, within=120)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone()


@simulated
async def test_a_url_that_only_changes_its_case_keeps_the_registration() -> None:
    async with world() as here:
        await installed(here)
        before = dict(here.service.scale_sets)
        await here.edit(githubConfigUrl="https://github.com/ACME")
        await here.settle(120)
        assert dict(here.service.scale_sets) == before
        assert (await here.condition("Ready")).status == "True"
        assert (await here.scale_set()).metadata.labels[Label.ORGANIZATION] == "ACME"
        assert (await here.config_file())["configure_url"] == "https://github.com/ACME"


@simulated
async def test_a_name_in_the_url_that_is_no_label_value_is_made_one() -> None:
    async with world() as here:
        here.install(scale_set(githubConfigUrl="https://ghes.example.com/enterprises/größe"))
        await here.settle(30)
        assert (await here.condition("Ready")).status == "True"
        assert (await here.scale_set()).metadata.labels[Label.ENTERPRISE] == "gr--e"
        here.api.request_log.clear()
        await here.settle(600)
        assert here.writes() == []


@simulated
@pytest.mark.parametrize("token", ["ghp_token\n", "  ghp_token\r\n", "\tghp_token"])
async def test_a_token_with_white_space_around_it_works_everywhere(token: str) -> None:
    async with Cluster() as cluster:
        cluster.service.accept_tokens("ghp_token")
        await cluster.set_credentials(token)
        await cluster.apply(manifest("linux", cluster.runner_namespace, max_runners=3))
        await cluster.until(listeners=1)
        cluster.queue_jobs(2, duration=5.0)
        await cluster.until(completed=2, within=120)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone()


# --- limits -------------------------------------------------------------------------------------


@simulated
async def test_a_minimum_above_the_maximum_is_one_clear_error_and_disturbs_nothing() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=3)
        await cluster.until(listeners=1, registrations=1)
        cluster.queue_jobs(1, duration=300.0)
        await cluster.until(running=1)
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"minRunners": 4}})
        await asyncio.sleep(60)
        found = cluster.get(AutoscalingRunnerSet, "linux")
        assert found is not None
        (ready,) = [c for c in found.status.conditions if c.type == "Ready"]
        assert (ready.status, ready.reason) == ("False", "InvalidSpec")
        assert "minRunners is 4 and maxRunners is 3" in ready.message
        cluster.queue_jobs(2, duration=5.0)
        await cluster.until(completed=2, within=120)
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"maxRunners": 5}})
        await cluster.until(listeners=1, runners=5, within=120)
        await cluster.until(completed=3, within=400)


@simulated
async def test_a_maximum_below_the_running_jobs_ends_none_of_them_and_is_obeyed_afterwards() -> (
    None
):
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=6)
        await cluster.until(listeners=1)
        cluster.queue_jobs(6, duration=100.0)
        await cluster.until(running=6)
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"maxRunners": 2}})
        cluster.queue_jobs(6, duration=20.0)
        await asyncio.sleep(60)
        assert cluster.service.job_counts()[JobState.RUNNING] == 6
        await cluster.until(completed=6, within=120)
        while cluster.service.job_counts()[JobState.COMPLETED] < 12:
            assert len(cluster.service.runners) <= 2 + 1  # one may be on its way out
            await asyncio.sleep(0.5)
        await cluster.until(runners=0, registrations=0)


@simulated
async def test_a_maximum_of_zero_under_running_jobs_lets_them_finish() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=3, min_runners=2)
        await cluster.until(listeners=1, registrations=2)
        cluster.queue_jobs(1, duration=100.0)
        await cluster.until(running=1)
        zero = {"spec": {"maxRunners": 0, "minRunners": 0}}
        await cluster.patch(AutoscalingRunnerSet, "linux", zero)
        await cluster.until(completed=1, runners=0, registrations=0, within=300)


# --- made anew ----------------------------------------------------------------------------------


async def create_as_soon_as_possible(cluster: Cluster, **spec: Any) -> None:
    """As a pipeline does that deletes and installs again."""
    document = manifest("linux", cluster.runner_namespace, **spec)
    while True:
        found = await cluster.client.find(
            AutoscalingRunnerSet, NamespacedName(cluster.runner_namespace, "linux")
        )
        if found is None:
            await cluster.apply(document)
            return
        await asyncio.sleep(0.05)


@simulated
@pytest.mark.parametrize("busy", [False, True])
async def test_a_scale_set_made_anew_at_once_works_and_leaves_nothing_of_the_old_one(
    busy: bool,
) -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=1)
        await cluster.until(listeners=1, registrations=1)
        if busy:
            cluster.queue_jobs(2, duration=90.0)
            await cluster.until(running=2)
        old = {runner.metadata.name for runner in cluster.runners}
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await create_as_soon_as_possible(cluster, max_runners=4, min_runners=2)
        await cluster.until(listeners=1, registrations=2, within=300)
        assert not old & {runner.metadata.name for runner in cluster.runners}
        cluster.queue_jobs(3, duration=5.0)
        await cluster.until(completed=5 if busy else 3, within=200)
        assert len(cluster.service.scale_sets) == 1
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone()


@simulated
async def test_a_scale_set_whose_finalizer_was_taken_off_by_hand_and_made_anew_recovers() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=1)
        await cluster.until(listeners=1, registrations=1)
        await cluster.manager.stop()
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.patch(AutoscalingRunnerSet, "linux", {"metadata": {"finalizers": None}})
        await create_as_soon_as_possible(cluster, max_runners=4, min_runners=2)
        cluster.manager.start()
        await cluster.until(listeners=1, registrations=2, runners=2, within=600)
        cluster.queue_jobs(3, duration=5.0)
        await cluster.until(completed=3, within=200)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone(within=600)


@simulated
async def test_a_listener_whose_scale_set_is_gone_goes_too() -> None:
    async with world() as here:
        await installed(here)
        await here.stop_manager()
        await here.admin.patch(AutoscalingRunnerSet, KEY, {"metadata": {"finalizers": None}})
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        here.start_manager()
        await here.settle(120)
        assert await here.listeners() == []
        assert list(await here.admin.list(Pod, namespace=CONTROLLER)) == []
        assert list(await here.admin.list(Role, namespace=RUNNERS)) == []


@simulated
async def test_everything_that_one_deletes_by_hand_at_once_comes_back() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=2)
        await cluster.until(listeners=1, registrations=2)
        (listener,) = cluster.all(AutoscalingListener)
        before = {listener.uid, *(s.uid for s in cluster.all(EphemeralRunnerSet))}
        await asyncio.gather(
            cluster.client.delete(AutoscalingListener, listener.key),
            cluster.client.delete(Pod, listener.key),
            cluster.delete(EphemeralRunnerSet, "linux"),
            *(cluster.client.delete(EphemeralRunner, r.key) for r in cluster.runners),
            *(cluster.client.delete(Pod, r.key) for r in cluster.runners),
        )

        def anew() -> bool:
            objects = [*cluster.all(AutoscalingListener), *cluster.all(EphemeralRunnerSet)]
            return len(objects) == 2 and not before & {obj.uid for obj in objects}

        await cluster.until(anew, listeners=1, registrations=2, runners=2, within=200)
        cluster.queue_jobs(3, duration=5.0)
        await cluster.until(completed=3, within=120)


@simulated
async def test_a_scale_set_deleted_before_it_was_registered_leaves_nothing() -> None:
    async with Cluster() as cluster:
        cluster.service.faults.delay("create_scale_set", seconds=5.0)
        await cluster.add_scale_set("linux", max_runners=4)
        await asyncio.sleep(2)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone()


# --- hands on metadata and secrets --------------------------------------------------------------


@simulated
async def test_annotations_taken_off_a_scale_set_come_back_and_nothing_is_registered_twice() -> (
    None
):
    async with world() as here:
        await installed(here)
        before, pod = await here.scale_set(), await here.pod()
        await here.admin.patch(AutoscalingRunnerSet, KEY, {"metadata": {"annotations": None}})
        await here.settle(60)
        after = await here.scale_set()
        for name in (
            Annotation.RUNNER_SCALE_SET_ID,
            Annotation.RUNNER_GROUP_NAME,
            Annotation.RUNNER_SCALE_SET_NAME,
        ):
            assert after.metadata.annotations[name] == before.metadata.annotations[name]
        assert len(here.service.scale_sets) == 1
        assert (await here.pod()).uid == pod.uid, "the listener had no reason to stop"
        assert "patch ephemeralrunnersets" not in here.writes(), "nor had the runners"


@simulated
async def test_a_scale_set_id_changed_by_hand_to_nonsense_is_put_right() -> None:
    async with world() as here:
        await installed(here)
        (right,) = here.service.scale_sets
        for nonsense in ("-1", "none", "", "1.0"):
            change = {"metadata": {"annotations": {Annotation.RUNNER_SCALE_SET_ID: nonsense}}}
            await here.admin.patch(AutoscalingRunnerSet, KEY, change)
            await here.settle(120)
            annotations = (await here.scale_set()).metadata.annotations
            assert annotations[Annotation.RUNNER_SCALE_SET_ID] == str(right), nonsense
            assert (await here.listener()).spec.runner_scale_set_id == right
            assert list(here.service.scale_sets) == [right]


@simulated
async def test_a_scale_set_id_changed_by_hand_to_one_that_is_not_there_is_put_right() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=1)
        await cluster.until(listeners=1, registrations=1)
        (right,) = cluster.service.scale_sets
        change = {"metadata": {"annotations": {Annotation.RUNNER_SCALE_SET_ID: "999"}}}
        await cluster.patch(AutoscalingRunnerSet, "linux", change)
        await asyncio.sleep(5)
        await cluster.until(listeners=1, registrations=1, within=300)
        (listener,) = cluster.all(AutoscalingListener)
        assert listener.spec.runner_scale_set_id == right
        cluster.queue_jobs(2, duration=5.0)
        await cluster.until(completed=2, within=120)


@simulated
async def test_labels_and_annotations_taken_off_what_we_own_come_back() -> None:
    async with world() as here:
        await installed(here)
        bare = {"metadata": {"labels": None, "annotations": None}}
        await here.admin.patch(EphemeralRunnerSet, KEY, bare)
        key = (await here.listener()).key
        await here.admin.patch(AutoscalingListener, key, bare)
        await here.settle(120)
        runner_set, listener = await here.runner_set(), await here.listener()
        for metadata in (runner_set.metadata, listener.metadata, (await here.pod()).metadata):
            assert metadata.labels[Label.PART_OF] == "gha-runner-scale-set"
            assert Annotation.INTEGRITY_HASH in metadata.annotations
        assert (await here.condition("Ready")).status == "True"
        here.api.request_log.clear()
        await here.settle(120)
        assert here.writes() == []


@simulated
async def test_a_config_secret_that_was_tampered_with_is_right_before_the_next_pod_reads_it() -> (
    None
):
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4)
        await cluster.until(listeners=1)
        await asyncio.sleep(60)
        (listener,) = cluster.all(AutoscalingListener)
        namespace, name = listener.key
        key = NamespacedName(namespace, f"{name}-config")
        await cluster.client.patch(Secret, key, {"stringData": {"config.json": '{"evil": 1}'}})
        assert cluster.kill_listeners() == 1
        cluster.queue_jobs(2, duration=5.0)
        await cluster.until(completed=2, within=200)
        assert b"evil" not in (await cluster.client.get(Secret, key)).data["config.json"]


@simulated
async def test_a_config_secret_emptied_under_a_running_listener_is_put_right_within_minutes() -> (
    None
):
    async with world() as here:
        await installed(here)
        name = (await here.listener()).metadata.name
        pod = await here.pod()
        key = NamespacedName(CONTROLLER, f"{name}-config")
        await here.admin.patch(Secret, key, {"data": {"config.json": None}})
        await here.settle(720)
        assert (await here.config_file())["runner_scale_set_name"] == NAME
        assert (await here.pod()).uid == pod.uid


@simulated
@pytest.mark.parametrize("kind", [Role, RoleBinding, ServiceAccount, Secret])
async def test_a_part_of_the_listener_deleted_while_another_is_edited_is_made_again(
    kind: type[KubeObject],
) -> None:
    async with world() as here:
        await installed(here)
        name = (await here.listener()).metadata.name
        keys: dict[type[KubeObject], NamespacedName] = {
            Role: NamespacedName(RUNNERS, name),
            RoleBinding: NamespacedName(RUNNERS, name),
            ServiceAccount: NamespacedName(CONTROLLER, name),
            Secret: NamespacedName(CONTROLLER, f"{name}-config"),
        }
        await asyncio.gather(
            here.admin.delete(kind, keys[kind]),
            here.edit(maxRunners=7),
        )
        await here.settle(120)
        for each, key in keys.items():
            assert await here.admin.find(each, key) is not None
        assert (await here.config_file())["max_runners"] == 7
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_credentials_deleted_and_made_anew_with_another_kind_of_key_are_followed() -> None:
    async with world() as here:
        await installed(here)
        await here.admin.delete(Secret, NamespacedName(RUNNERS, "github"))
        await here.settle(90)
        here.secret("github", github_token="token-9\n")
        await here.settle(180)
        assert (await here.config_file())["github_token"] == "token-9"


# --- bad moments --------------------------------------------------------------------------------


@simulated
async def test_edits_in_quick_succession_end_in_the_last_one() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=1)
        await cluster.until(listeners=1, registrations=1)
        for number in range(2, 12):
            container = {"name": "runner", "image": f"runner:{number}"}
            template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
            change = {"spec": {"template": template, "maxRunners": number, "minRunners": 2}}
            await cluster.patch(AutoscalingRunnerSet, "linux", change)
            await asyncio.sleep(0.3)

        def settled() -> bool:
            images = [r.spec.spec["containers"][0]["image"] for r in cluster.runners]
            listeners = cluster.all(AutoscalingListener)
            return images == ["runner:11"] * 2 and [x.spec.max_runners for x in listeners] == [11]

        await cluster.until(settled, listeners=1, registrations=2, within=200)


@simulated
async def test_a_manager_that_restarts_while_a_listener_is_replaced_ends_with_one() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=1)
        await cluster.until(listeners=1, registrations=1)
        for number in range(5, 9):
            await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"maxRunners": number}})
            await asyncio.sleep(0.4 * (number - 4))
            await cluster.kill_manager()
        await cluster.until(
            lambda: [x.spec.max_runners for x in cluster.all(AutoscalingListener)] == [8],
            listeners=1,
            within=200,
        )
        cluster.queue_jobs(3, duration=5.0)
        await cluster.until(completed=3, within=120)


@simulated
async def test_a_namespace_that_ends_under_running_jobs_ends_with_everything_in_it() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=1)
        cluster.queue_jobs(2, duration=30.0)
        await cluster.until(running=2)
        path = f"/api/v1/namespaces/{cluster.runner_namespace}"
        response = await cluster.transport.request("DELETE", path)
        assert response.status in (200, 202)
        await cluster.until(objects=0, within=1500)
        await cluster.until(listeners=0, within=120)


@simulated
async def test_a_role_that_the_user_may_not_grant_is_told_and_healed_later() -> None:
    """As on a cluster where the chart's role binding comes a minute late."""
    async with world(start=False) as here:
        here.install(scale_set())
        refused = [True]

        async def faults(request: Request, info: RequestInfo) -> Response | None:
            if refused and info.plural == "roles" and info.verb == "create":
                return json_response(
                    403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
                )
            return None

        here.api.faults = faults
        here.start_manager()
        await here.settle(30)
        ready = await here.condition("Ready")
        assert ready.status == "False"
        refused.clear()
        await here.settle(120)
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_an_outdated_scale_set_that_is_deleted_leaves_nothing() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=4, min_runners=1)
        await cluster.until(listeners=1, registrations=1)
        cluster.service.runner_version_refused = True
        await cluster.kill_manager()
        for runner in cluster.runners:
            await cluster.client.delete(EphemeralRunner, runner.key)

        def parked() -> bool:
            found = cluster.get(AutoscalingRunnerSet, "linux")
            return found is not None and found.status.phase == "Outdated"

        await cluster.until(parked, within=200)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone()


@simulated
async def test_the_counts_of_a_parked_scale_set_are_published_too() -> None:
    async with world() as here:
        await installed(here)
        await here.runner_set_status(currentReplicas=2, pendingEphemeralRunners=2)
        await here.settle()
        await here.condemn()
        await here.runner_set_status(currentReplicas=1, pendingEphemeralRunners=0)
        await here.runner_set_status(runningEphemeralRunners=1)
        await here.settle()
        assert (await here.scale_set()).status.phase == "Outdated"
        assert here.manager is not None
        registry = here.manager.metrics.registry
        labels = {"name": NAME, "namespace": RUNNERS, "organization": "acme"}
        labels |= {"repository": "", "enterprise": ""}
        for state, count in (("pending", 0), ("running", 1)):
            name = f"gha_controller_{state}_ephemeral_runners"
            assert registry.get_sample_value(name, labels) == count


@simulated
async def test_credentials_that_are_no_text_are_one_clear_error() -> None:
    async with world() as here:
        await here.admin.patch(
            Secret, NamespacedName(RUNNERS, "github"), {"data": {"github_token": "/w=="}}
        )
        here.install(scale_set())
        await here.settle()
        ready = await here.condition("Ready")
        assert ready.reason == "InvalidCredentials"
        assert "github_token" in ready.message


@simulated
async def test_a_token_with_a_line_break_inside_is_one_clear_error() -> None:
    async with world() as here:
        await here.admin.patch(
            Secret, NamespacedName(RUNNERS, "github"), {"stringData": {"github_token": "a\nb"}}
        )
        here.install(scale_set())
        await here.settle()
        ready = await here.condition("Ready")
        assert (ready.status, ready.reason) == ("False", "InvalidCredentials")
        assert ready.message == (
            f"the secret {RUNNERS}/github (githubConfigSecret) has a github_token with a "
            "line break as character 2 of 3: expected letters, digits and signs alone, on one line"
        )


@simulated
async def test_the_api_server_refuses_a_negative_limit_with_the_field() -> None:
    async with Cluster() as cluster:
        await cluster.set_credentials("t")
        with pytest.raises(AssertionError, match=r"spec\.minRunners"):
            await cluster.apply(manifest("linux", cluster.runner_namespace, min_runners=-1))
