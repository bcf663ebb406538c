"""Jobs that come and go, with runners that follow."""

from __future__ import annotations

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.testing.actions import JobState
from tests.scenarios.stage import Stage, clean_up, scenario


@scenario
async def a_job_is_run_by_a_runner_made_for_it_and_nothing_is_left(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        (job,) = cluster.queue_jobs(1, duration=3)
        await cluster.until(running=1, pods=1)
        # The listener may have told of the job before the manager told of the registration.
        await cluster.until(lambda: all(each.status.ready for each in cluster.runners))
        (runner,) = cluster.runners
        assert runner.status.job_id == job.job_id
        assert runner.status.job_repository_name == "acme/app"
        assert runner.status.runner_name == runner.metadata.name == job.runner_name
        assert runner.status.ready
        await cluster.until(completed=1, runners=0, pods=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_burst_gets_one_runner_a_job_and_no_more_than_the_maximum(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=8)
        await cluster.until(listeners=1)
        cluster.queue_jobs(16, duration=0.5)
        most = 0
        while cluster.service.job_counts()[JobState.COMPLETED] < 16:
            most = max(most, len(cluster.service.runners))
            await cluster.observer.changed(0.1)
        assert most <= 8
        await cluster.until(runners=0, pods=0, registrations=0)
        assert cluster.kubelet.started["runner"] == 16
        await clean_up(cluster)


@scenario
async def the_minimum_is_kept_idle_and_only_idle_runners_are_scaled_down(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=3, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 3, runners=3)
        await cluster.until(lambda: cluster.observer.phases() == {"Pending": 3})
        (job,) = cluster.queue_jobs(1, duration=600)
        await cluster.until(running=1, runners=4)
        (busy,) = (each.metadata.name for each in cluster.runners if each.status.has_job)
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"minRunners": 0}})
        await cluster.until(lambda: [each.metadata.name for each in cluster.runners] == [busy])
        cluster.service.end_job(job)
        await cluster.until(completed=1, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def cancelled_jobs_leave_no_runner_whether_they_wait_or_run(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=2)
        await cluster.until(listeners=1)
        jobs = cluster.queue_jobs(4, duration=60)
        await cluster.until(running=2)
        waiting = [job for job in jobs if job.state != JobState.RUNNING]
        assert len(waiting) == 2
        for job in [*waiting, *jobs]:
            cluster.service.cancel_job(job)
        await cluster.until(
            lambda: all(job.is_over for job in jobs), runners=0, pods=0, registrations=0
        )
        assert cluster.kubelet.started["runner"] == 2
        await clean_up(cluster)


@scenario
async def two_scale_sets_of_one_name_in_two_namespaces_mind_their_own_jobs(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        places = {stage.namespace: "acme/one", await stage.more_runners(): "acme/two"}
        for namespace, repository in places.items():
            await cluster.add_scale_set(
                "linux",
                namespace=namespace,
                github_config_url=f"https://github.com/{repository}",
                runner_scale_set_labels=[repository],
                max_runners=3,
            )
        await cluster.until(listeners=2)
        first, second = cluster.service.scale_sets.values()
        assert first.name == second.name == "linux"
        for count, repository in enumerate(places.values(), start=1):
            cluster.service.queue_jobs(
                count, labels=("linux", repository), repository=repository, duration=2
            )
        await cluster.until(running=3)
        repositories = {
            runner.metadata.namespace: runner.status.job_repository_name
            for runner in cluster.runners
        }
        assert repositories == places
        await cluster.until(completed=3, runners=0, registrations=0)
        for namespace in places:
            await cluster.delete(AutoscalingRunnerSet, "linux", namespace=namespace)
        await cluster.until_gone(within=60)
