"""The listener's metrics: counts of the scale set and times of its jobs.

Names, types and labels are fixed by the dashboards in the field (design 03); which of them are on,
with which labels and buckets, is ``listenerMetrics`` in the custom resource. Numbers are kept here,
in plain dicts and arrays, and written out when somebody asks. Doing without `prometheus_client`
saves a listener a megabyte of imports, and of ten kilobytes for each series of a histogram nine.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from typing import Final, Literal

import structlog

from arc_controller.actions import ConfigUrl, JobCompleted, JobStarted, RunnerScaleSetStatistic
from arc_controller.api.v1alpha1 import HistogramMetric, ListenerMetrics, Metric
from arc_controller.listener.workflow_ref import parse_workflow_ref

SCALE_SET_LABELS: Final = ("enterprise", "organization", "repository", "name", "namespace")
JOB_LABELS: Final = ("enterprise", "organization", "repository", "job_name", "event_name")
COMPLETED_JOB_LABELS: Final = (*JOB_LABELS, "job_result")
WORKFLOW_LABELS: Final = ("job_workflow_ref", "job_workflow_name", "job_workflow_target")

# fmt: off
DEFAULT_BUCKETS: Final = (
    .01, .05, .1, .5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 30, 40, 50, 60, 70, 80, 90,
    100, 110, 120, 150, 180, 210, 240, 300, 360, 420, 480, 540, 600, 900, 1200, 1800, 2400, 3000,
    3600,
)
# fmt: on

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Kind = Literal["gauge", "counter", "histogram"]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric that exists: what it may be labelled with, and is if nobody says otherwise."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    more_labels: tuple[str, ...] = ()


def _of_job(name: str, kind: Kind, help_: str, labels: tuple[str, ...]) -> Definition:
    return Definition(name, kind, help_, labels, ("name", "namespace", *WORKFLOW_LABELS))


ASSIGNED_JOBS: Final = "gha_assigned_jobs"
RUNNING_JOBS: Final = "gha_running_jobs"
REGISTERED_RUNNERS: Final = "gha_registered_runners"
BUSY_RUNNERS: Final = "gha_busy_runners"
MIN_RUNNERS: Final = "gha_min_runners"
MAX_RUNNERS: Final = "gha_max_runners"
DESIRED_RUNNERS: Final = "gha_desired_runners"
IDLE_RUNNERS: Final = "gha_idle_runners"
STARTED_JOBS: Final = "gha_started_jobs_total"
COMPLETED_JOBS: Final = "gha_completed_jobs_total"
STARTUP_DURATION: Final = "gha_job_startup_duration_seconds"
EXECUTION_DURATION: Final = "gha_job_execution_duration_seconds"
QUEUE_DURATION: Final = "gha_job_queue_duration_seconds"

_DEFINITIONS = (
    *(
        Definition(name, "gauge", help_, SCALE_SET_LABELS)
        for name, help_ in (
            (ASSIGNED_JOBS, "Number of jobs assigned to this scale set, waiting or running."),
            (RUNNING_JOBS, "Number of jobs running on this scale set's runners."),
            (REGISTERED_RUNNERS, "Number of runners registered by the scale set."),
            (BUSY_RUNNERS, "Number of registered runners running a job."),
            (MIN_RUNNERS, "Minimum number of runners."),
            (MAX_RUNNERS, "Maximum number of runners."),
            (DESIRED_RUNNERS, "Number of runners that the scale set should have."),
            (IDLE_RUNNERS, "Number of registered runners not running a job."),
        )
    ),
    _of_job(STARTED_JOBS, "counter", "Total number of jobs started.", JOB_LABELS),
    _of_job(COMPLETED_JOBS, "counter", "Total number of jobs completed.", COMPLETED_JOB_LABELS),
    _of_job(
        STARTUP_DURATION,
        "histogram",
        "Time from the job being assigned to the scale set to a runner taking it (in seconds).",
        JOB_LABELS,
    ),
    _of_job(
        EXECUTION_DURATION,
        "histogram",
        "Time the job ran on its runner (in seconds).",
        COMPLETED_JOB_LABELS,
    ),
    _of_job(
        QUEUE_DURATION,
        "histogram",
        "Time from the job being queued to a runner taking it (in seconds).",
        JOB_LABELS,
    ),
)
DEFINITIONS: Final[Mapping[str, Definition]] = {each.name: each for each in _DEFINITIONS}


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose metrics these are: the values of the labels that never change."""

    name: str
    namespace: str
    enterprise: str = ""
    organization: str = ""
    repository: str = ""

    @classmethod
    def of(cls, url: ConfigUrl, name: str, namespace: str) -> Identity:
        return cls(name, namespace, url.enterprise, url.organization, url.repository)

    def labels(self) -> dict[str, str]:
        return {label: getattr(self, label) for label in SCALE_SET_LABELS}


@dataclass(slots=True)
class _Distribution:
    """One histogram series. ``counts`` are per bucket, not cumulative; the last one is +Inf."""

    counts: array[int]
    sum: float = 0.0


@dataclass(slots=True)
class _Series:
    """One metric that is on, with a value for each combination of its label values."""

    definition: Definition
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    distributions: dict[tuple[str, ...], _Distribution] = field(default_factory=dict)

    def set(self, labels: Labels, value: float) -> None:
        self.values[self._key(labels)] = value

    def add(self, labels: Labels) -> None:
        key = self._key(labels)
        self.values[key] = self.values.get(key, 0) + 1

    def observe(self, labels: Labels, seconds: float) -> None:
        key = self._key(labels)
        found = self.distributions.get(key)
        if found is None:
            found = _Distribution(array("Q", bytes(8 * (len(self.buckets) + 1))))
            self.distributions[key] = found
        found.counts[bisect_left(self.buckets, seconds)] += 1
        found.sum += seconds

    def _key(self, labels: Labels) -> tuple[str, ...]:
        return tuple(labels.get(label, "") for label in self.labels)


class JobMetrics:
    """One listener's metrics. Recording never fails and never blocks."""

    def __init__(
        self,
        identity: Identity,
        *,
        min_runners: int = 0,
        max_runners: int = 0,
        selection: ListenerMetrics | None = None,
    ) -> None:
        """``selection`` None turns everything on; otherwise only what it names is on, with exactly
        the labels that it lists. What it names that does not exist is logged and skipped."""
        self._identity = identity.labels()
        self._log = structlog.get_logger(__name__).bind(
            namespace=identity.namespace, name=identity.name
        )
        self._series = {
            series.definition.name: series
            for series in (self._everything() if selection is None else self._selected(selection))
        }
        self._set(MIN_RUNNERS, min_runners)
        self._set(MAX_RUNNERS, max_runners)

    @property
    def names(self) -> list[str]:
        """The metrics that are on."""
        return list(self._series)

    def statistics(self, statistics: RunnerScaleSetStatistic) -> None:
        self._set(ASSIGNED_JOBS, statistics.total_assigned_jobs)
        self._set(RUNNING_JOBS, statistics.total_running_jobs)
        self._set(REGISTERED_RUNNERS, statistics.total_registered_runners)
        self._set(BUSY_RUNNERS, statistics.total_busy_runners)
        self._set(IDLE_RUNNERS, statistics.total_idle_runners)

    def desired(self, runners: int) -> None:
        self._set(DESIRED_RUNNERS, runners)

    def job_started(self, job: JobStarted) -> None:
        labels = self._job_labels(job)
        self._add(STARTED_JOBS, labels)
        self._observe(STARTUP_DURATION, labels, job.scale_set_assign_time, job.runner_assign_time)
        self._observe(QUEUE_DURATION, labels, job.queue_time, job.runner_assign_time)

    def job_completed(self, job: JobCompleted) -> None:
        labels = {**self._job_labels(job), "job_result": job.result}
        self._add(COMPLETED_JOBS, labels)
        # Without a time of assignment it was cancelled before it started: no duration.
        self._observe(EXECUTION_DURATION, labels, job.runner_assign_time, job.finish_time)

    def series(self) -> Iterable[_Series]:
        return self._series.values()

    def _job_labels(self, job: JobStarted | JobCompleted) -> dict[str, str]:
        reference = parse_workflow_ref(job.job_workflow_ref)
        return {
            **self._identity,
            "organization": job.owner_name,
            "repository": job.repository_name,
            "job_name": job.job_display_name,
            "event_name": job.event_name,
            "job_workflow_ref": job.job_workflow_ref,
            "job_workflow_name": reference.name,
            "job_workflow_target": reference.target,
        }

    def _set(self, name: str, value: float) -> None:
        if series := self._series.get(name):
            series.set(self._identity, value)

    def _add(self, name: str, labels: Labels) -> None:
        if series := self._series.get(name):
            series.add(labels)

    def _observe(
        self, name: str, labels: Labels, start: datetime | None, end: datetime | None
    ) -> None:
        series = self._series.get(name)
        if series is not None and start is not None and end is not None:
            # Two machines' clocks: a job never takes less than no time.
            series.observe(labels, max(0.0, (end - start).total_seconds()))

    # --- which are on

    def _everything(self) -> Iterator[_Series]:
        for definition in DEFINITIONS.values():
            buckets = DEFAULT_BUCKETS if definition.kind == "histogram" else ()
            yield _Series(definition, definition.labels, buckets)

    def _selected(self, selection: ListenerMetrics) -> Iterator[_Series]:
        chosen: tuple[tuple[Kind, Mapping[str, Metric]], ...] = (
            ("gauge", selection.gauges),
            ("counter", selection.counters),
            ("histogram", selection.histograms),
        )
        for kind, metrics in chosen:
            for name, metric in metrics.items():
                definition = DEFINITIONS.get(name)
                if definition is None or definition.kind != kind:
                    known = [each.name for each in DEFINITIONS.values() if each.kind == kind]
                    self._log.warning(
                        f"listenerMetrics.{kind}s names an unknown metric; it is skipped",
                        metric=name,
                        known=known,
                    )
                    continue
                labels = tuple(self._known_labels(definition, metric.labels))
                wanted = metric.buckets if isinstance(metric, HistogramMetric) else []
                buckets = self._usable_buckets(name, wanted) if kind == "histogram" else ()
                yield _Series(definition, labels, buckets)

    def _known_labels(self, definition: Definition, labels: Iterable[str]) -> Iterator[str]:
        allowed = (*definition.labels, *definition.more_labels)
        for label in dict.fromkeys(labels):
            if label in allowed:
                yield label
            else:
                self._log.warning(
                    "listenerMetrics names an unknown label; it is skipped",
                    metric=definition.name,
                    label=label,
                    known=list(allowed),
                )

    def _usable_buckets(self, name: str, buckets: Sequence[float]) -> tuple[float, ...]:
        if not buckets:
            return DEFAULT_BUCKETS
        usable = tuple(sorted({float(bucket) for bucket in buckets if isfinite(bucket)}))
        if usable != tuple(buckets):
            self._log.warning(
                "listenerMetrics has buckets that are not finite, unique and ascending; put right",
                metric=name,
                buckets=list(usable),
            )
        return usable or DEFAULT_BUCKETS


def exposition(metrics: Iterable[JobMetrics]) -> str:
    """Prometheus' text format (`CONTENT_TYPE`): the metrics of any number of listeners.

    Each family comes once, with the series of all listeners in it, as the format demands.
    """
    by_name: dict[str, list[_Series]] = {}
    for each in metrics:
        for series in each.series():
            by_name.setdefault(series.definition.name, []).append(series)
    lines: list[str] = []
    for name, definition in DEFINITIONS.items():
        if name not in by_name:
            continue
        lines.append(f"# HELP {name} {definition.help}")
        lines.append(f"# TYPE {name} {definition.kind}")
        for series in by_name[name]:
            lines += _lines(series)
    return "".join(f"{line}\n" for line in lines)


def _lines(series: _Series) -> Iterator[str]:
    name = series.definition.name
    for key, value in series.values.items():
        yield f"{name}{_labels(series.labels, key)} {_number(value)}"
    for key, found in series.distributions.items():
        total = 0
        for limit, count in zip((*series.buckets, float("inf")), found.counts, strict=True):
            total += count
            labels = _labels((*series.labels, "le"), (*key, _number(limit)))
            yield f"{name}_bucket{labels} {total}"
        yield f"{name}_sum{_labels(series.labels, key)} {_number(found.sum)}"
        yield f"{name}_count{_labels(series.labels, key)} {total}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = sorted(zip(names, values, strict=True))
    shown = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
    return f"{{{shown}}}" if shown else ""


def _number(value: float) -> str:
    """As Go programs write it (``1``, not ``1.0``): what queries on ``le`` were written for."""
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
