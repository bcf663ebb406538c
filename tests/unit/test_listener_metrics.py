"""Names, types, labels and buckets are what dashboards in the field expect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from arc_controller.actions import (
    JobCompleted,
    JobStarted,
    RunnerScaleSetStatistic,
    parse_config_url,
)
from arc_controller.api.v1alpha1 import HistogramMetric, ListenerMetrics, Metric
from arc_controller.listener.metrics import (
    DEFAULT_BUCKETS,
    DEFINITIONS,
    Identity,
    JobMetrics,
    exposition,
)

QUEUED = datetime(2025, 1, 1, tzinfo=UTC)
IDENTITY = Identity.of(parse_config_url("https://github.com/octo/repo"), "linux-abc", "runners")
OF_SET = {
    "enterprise": "",
    "organization": "octo",
    "repository": "repo",
    "name": "linux-abc",
    "namespace": "runners",
}
OF_JOB = {
    "enterprise": "",
    "organization": "octo",
    "repository": "repo",
    "job_name": "build",
    "event_name": "push",
}


def started(**changes: object) -> JobStarted:
    values = {
        "runner_name": "linux-abc-runner-1",
        "owner_name": "octo",
        "repository_name": "repo",
        "job_display_name": "build",
        "job_workflow_ref": "octo/repo/.github/workflows/ci.yml@refs/heads/main",
        "event_name": "push",
        "queue_time": QUEUED,
        "scale_set_assign_time": QUEUED + timedelta(seconds=1),
        "runner_assign_time": QUEUED + timedelta(seconds=5.5),
    }
    return JobStarted(**{**values, **changes})  # type: ignore[arg-type]


def completed(**changes: object) -> JobCompleted:
    values = {
        "owner_name": "octo",
        "repository_name": "repo",
        "job_display_name": "build",
        "event_name": "push",
        "result": "succeeded",
        "runner_assign_time": QUEUED,
        "finish_time": QUEUED + timedelta(seconds=90),
    }
    return JobCompleted(**{**values, **changes})  # type: ignore[arg-type]


class Scraped:
    """What Prometheus makes of it."""

    def __init__(self, *metrics: JobMetrics) -> None:
        self.text = exposition(metrics)
        families = list(text_string_to_metric_families(self.text))
        self.types = {family.name: family.type for family in families}
        self.samples = [sample for family in families for sample in family.samples]

    def value(self, name: str, /, **labels: str) -> float | None:
        for sample in self.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
        return None

    def labels(self, name: str) -> list[dict[str, str]]:
        return [sample.labels for sample in self.samples if sample.name == name]


def test_the_gauges_show_the_statistics_and_the_limits() -> None:
    metrics = JobMetrics(IDENTITY, min_runners=1, max_runners=9)
    metrics.statistics(
        RunnerScaleSetStatistic(
            total_assigned_jobs=5,
            total_running_jobs=3,
            total_registered_runners=4,
            total_busy_runners=2,
            total_idle_runners=6,
        )
    )
    metrics.desired(7)
    scraped = Scraped(metrics)
    expected = {
        "gha_assigned_jobs": 5,
        "gha_running_jobs": 3,
        "gha_registered_runners": 4,
        "gha_busy_runners": 2,
        "gha_min_runners": 1,
        "gha_max_runners": 9,
        "gha_desired_runners": 7,
        "gha_idle_runners": 6,
    }
    assert {name: scraped.value(name, **OF_SET) for name in expected} == expected
    assert {scraped.types[name] for name in expected} == {"gauge"}


def test_started_jobs_are_counted_and_timed() -> None:
    metrics = JobMetrics(IDENTITY)
    metrics.job_started(started())
    scraped = Scraped(metrics)
    assert "# TYPE gha_started_jobs_total counter" in scraped.text
    assert "_created" not in scraped.text
    assert scraped.value("gha_started_jobs_total", **OF_JOB) == 1
    startup = "gha_job_startup_duration_seconds"
    assert scraped.value(f"{startup}_sum", **OF_JOB) == 4.5
    assert scraped.value(f"{startup}_bucket", le="4", **OF_JOB) == 0
    assert scraped.value(f"{startup}_bucket", le="5", **OF_JOB) == 1
    assert scraped.value(f"{startup}_bucket", le="+Inf", **OF_JOB) == 1
    assert scraped.value(f"{startup}_count", **OF_JOB) == 1
    assert scraped.value("gha_job_queue_duration_seconds_sum", **OF_JOB) == 5.5
    assert len(scraped.labels(f"{startup}_bucket")) == len(DEFAULT_BUCKETS) + 1


def test_completed_jobs_carry_their_result() -> None:
    metrics = JobMetrics(IDENTITY)
    metrics.job_completed(completed())
    scraped = Scraped(metrics)
    labels = {**OF_JOB, "job_result": "succeeded"}
    assert scraped.value("gha_completed_jobs_total", **labels) == 1
    assert scraped.value("gha_job_execution_duration_seconds_sum", **labels) == 90


def test_a_job_cancelled_before_it_started_counts_in_no_duration() -> None:
    metrics = JobMetrics(IDENTITY)
    metrics.job_completed(completed(runner_assign_time=None, result="canceled"))
    metrics.job_started(started(scale_set_assign_time=None, queue_time=None))
    scraped = Scraped(metrics)
    assert scraped.labels("gha_completed_jobs_total") == [{**OF_JOB, "job_result": "canceled"}]
    assert not [s for s in scraped.samples if s.name.endswith("_count")]


def test_clocks_that_disagree_give_no_negative_duration() -> None:
    metrics = JobMetrics(IDENTITY)
    metrics.job_completed(completed(finish_time=QUEUED - timedelta(seconds=3)))
    execution = "gha_job_execution_duration_seconds_sum"
    assert Scraped(metrics).value(execution, **OF_JOB, job_result="succeeded") == 0


def test_only_what_is_selected_is_on_with_the_labels_and_buckets_listed() -> None:
    selection = ListenerMetrics(
        counters={"gha_started_jobs_total": Metric(labels=["job_workflow_name", "name"])},
        gauges={"gha_busy_runners": Metric(labels=["name"])},
        histograms={
            "gha_job_startup_duration_seconds": HistogramMetric(
                labels=["job_workflow_target", "job_workflow_ref"], buckets=[1, 10]
            )
        },
    )
    metrics = JobMetrics(IDENTITY, selection=selection)
    metrics.statistics(RunnerScaleSetStatistic(total_busy_runners=2, total_running_jobs=3))
    metrics.job_started(started())
    metrics.job_completed(completed())
    scraped = Scraped(metrics)
    assert metrics.names == [
        "gha_busy_runners",
        "gha_started_jobs_total",
        "gha_job_startup_duration_seconds",
    ]
    assert scraped.value("gha_busy_runners", name="linux-abc") == 2
    assert scraped.labels("gha_started_jobs_total") == [
        {"job_workflow_name": "ci", "name": "linux-abc"}
    ]
    assert [
        (labels["le"], labels["job_workflow_target"])
        for labels in scraped.labels("gha_job_startup_duration_seconds_bucket")
    ] == [("1", "heads/main"), ("10", "heads/main"), ("+Inf", "heads/main")]


def test_unknown_names_and_labels_are_logged_and_skipped() -> None:
    selection = ListenerMetrics(
        counters={"gha_busy_runners": Metric(), "gha_lost_jobs_total": Metric()},
        gauges={"gha_busy_runners": Metric(labels=["name", "colour"])},
    )
    with capture_logs() as logs:
        metrics = JobMetrics(IDENTITY, selection=selection)
    assert metrics.names == ["gha_busy_runners"]
    assert [log.get("label") or log["metric"] for log in logs] == [
        "colour",
        "gha_busy_runners",
        "gha_lost_jobs_total",
    ]


@pytest.mark.parametrize(
    ("buckets", "used"),
    [([], DEFAULT_BUCKETS), ([5, 1, 1], (1.0, 5.0)), ([float("inf")], DEFAULT_BUCKETS)],
)
def test_buckets_are_put_right(buckets: list[float], used: tuple[float, ...]) -> None:
    name = "gha_job_startup_duration_seconds"
    selection = ListenerMetrics(histograms={name: HistogramMetric(buckets=buckets)})
    (series,) = JobMetrics(IDENTITY, selection=selection).series()
    assert series.buckets == tuple(map(float, used))


def test_many_listeners_share_one_page_with_each_family_once() -> None:
    other = Identity.of(parse_config_url("https://ghes.example/enterprises/big"), "mac", "runners")
    scraped = Scraped(JobMetrics(IDENTITY, min_runners=1), JobMetrics(other, min_runners=2))
    assert scraped.text.count("# TYPE gha_min_runners gauge") == 1
    assert scraped.value("gha_min_runners", **OF_SET) == 1
    labels = {
        "enterprise": "big",
        "organization": "",
        "repository": "",
        "name": "mac",
        "namespace": "runners",
    }
    assert scraped.value("gha_min_runners", **labels) == 2


def test_the_default_buckets_are_those_of_the_field() -> None:
    assert DEFAULT_BUCKETS[:14] == (0.01, 0.05, 0.1, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert DEFAULT_BUCKETS[14:29] == (12, 15, 18, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120)
    assert DEFAULT_BUCKETS[29:] == (
        *(150, 180, 210, 240, 300, 360, 420, 480, 540, 600),
        *(900, 1200, 1800, 2400, 3000, 3600),
    )


def test_every_definition_is_labelled_as_the_field_expects() -> None:
    job = ("enterprise", "organization", "repository", "job_name", "event_name")
    for definition in DEFINITIONS.values():
        if definition.kind == "gauge":
            expected: tuple[str, ...] = tuple(OF_SET)
        else:
            done = "completed" in definition.name or "execution" in definition.name
            expected = (*job, "job_result") if done else job
        assert definition.labels == expected


def test_label_values_are_escaped() -> None:
    metrics = JobMetrics(IDENTITY)
    name = 'say "hi"\\now\n'
    metrics.job_started(started(job_display_name=name))
    (labels,) = Scraped(metrics).labels("gha_started_jobs_total")
    assert labels["job_name"] == name
