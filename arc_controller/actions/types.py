"""What the service says and is told. Unknown fields are ignored; null, absent and zero are one."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import msgspec

from .http import REDACTED

MESSAGE_TYPE = "RunnerScaleSetJobMessages"
DEFAULT_RUNNER_GROUP_ID = 1

_ZERO_TIME = "0001-01-01T00:00:00"

S = TypeVar("S", bound=msgspec.Struct)


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """camelCase outside, snake_case inside, defaults left out."""


class Label(_Wire, frozen=True, kw_only=True, omit_defaults=False):
    """A label of a scale set; jobs ask for runners by these."""

    name: str
    type: str = "System"


class RunnerSetting(_Wire, frozen=True, kw_only=True):
    """How the runners of a scale set behave."""

    disable_update: bool = False


class RunnerScaleSetStatistic(_Wire, frozen=True, kw_only=True):
    """Counts of a scale set's jobs and runners. ``total_assigned_jobs`` drives scaling: everything
    assigned to the scale set, waiting or running."""

    total_available_jobs: int = 0
    total_acquired_jobs: int = 0
    total_assigned_jobs: int = 0
    total_running_jobs: int = 0
    total_registered_runners: int = 0
    total_busy_runners: int = 0
    total_idle_runners: int = 0


class RunnerScaleSet(_Wire, frozen=True, kw_only=True):
    """A runner scale set. ``id`` is 0 until the service has given one."""

    id: int = 0
    name: str = ""
    runner_group_id: int = 0
    runner_group_name: str = ""
    labels: list[Label] = []
    runner_setting: RunnerSetting = msgspec.field(name="RunnerSetting", default=RunnerSetting())
    created_on: datetime | None = None
    runner_jit_config_url: str = ""
    statistics: RunnerScaleSetStatistic | None = None


class RunnerGroup(_Wire, frozen=True, kw_only=True):
    """A runner group: who may use the runners in it."""

    id: int
    name: str = ""
    size: int = 0
    is_default: bool = msgspec.field(name="isDefaultGroup", default=False)


class Runner(_Wire, frozen=True, kw_only=True):
    """A registered runner."""

    id: int
    name: str = ""
    runner_scale_set_id: int = 0


class JitRunnerConfig(_Wire, frozen=True, kw_only=True):
    """A registered runner and what its process needs to be that runner: a secret."""

    runner: Runner
    encoded_jit_config: str = msgspec.field(name="encodedJITConfig")

    def __repr__(self) -> str:
        return f"JitRunnerConfig(runner={self.runner!r}, encoded_jit_config={REDACTED!r})"


class MessageSession(_Wire, frozen=True, kw_only=True):
    """The right to read a scale set's messages. The queue's address and token are secrets."""

    session_id: str
    owner_name: str = ""
    runner_scale_set: RunnerScaleSet | None = None
    message_queue_url: str
    message_queue_access_token: str
    statistics: RunnerScaleSetStatistic | None = None

    def __repr__(self) -> str:
        scale_set = self.runner_scale_set.id if self.runner_scale_set else 0
        return (
            f"MessageSession(session_id={self.session_id!r}, owner_name={self.owner_name!r}, "
            f"scale set {scale_set}, statistics={self.statistics!r})"
        )


class JobMessage(_Wire, frozen=True, kw_only=True):
    """What all job messages have in common. A time that has not come yet is None."""

    message_type: ClassVar[str] = ""

    runner_request_id: int = 0
    repository_name: str = ""
    owner_name: str = ""
    job_id: str = ""
    job_workflow_ref: str = ""
    job_display_name: str = ""
    workflow_run_id: int = 0
    event_name: str = ""
    request_labels: list[str] = []
    queue_time: datetime | None = None
    scale_set_assign_time: datetime | None = None
    runner_assign_time: datetime | None = None
    finish_time: datetime | None = None


class JobAvailable(JobMessage, frozen=True, kw_only=True):
    """A job that this scale set may acquire."""

    message_type: ClassVar[str] = "JobAvailable"

    acquire_job_url: str = ""


class JobAssigned(JobMessage, frozen=True, kw_only=True):
    """A job that belongs to this scale set now and waits for one of its runners."""

    message_type: ClassVar[str] = "JobAssigned"


class JobStarted(JobMessage, frozen=True, kw_only=True):
    """A runner took the job."""

    message_type: ClassVar[str] = "JobStarted"

    runner_id: int = 0
    runner_name: str = ""


class JobCompleted(JobMessage, frozen=True, kw_only=True):
    """The job is over. Without ``runner_assign_time`` no runner ever had it."""

    message_type: ClassVar[str] = "JobCompleted"

    result: str = ""
    runner_id: int = 0
    runner_name: str = ""


AnyJobMessage = JobAvailable | JobAssigned | JobStarted | JobCompleted
_KINDS: dict[str, type[AnyJobMessage]] = {
    kind.message_type: kind for kind in (JobAvailable, JobAssigned, JobStarted, JobCompleted)
}


class _Envelope(_Wire, frozen=True, kw_only=True):
    message_id: int
    message_type: str = MESSAGE_TYPE
    statistics: RunnerScaleSetStatistic | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a queue, its job messages already taken apart and unknown ones left out."""

    message_id: int
    message_type: str = MESSAGE_TYPE
    statistics: RunnerScaleSetStatistic | None = None
    jobs: list[AnyJobMessage] = []

    @property
    def available(self) -> list[JobAvailable]:
        return [job for job in self.jobs if isinstance(job, JobAvailable)]

    @property
    def assigned(self) -> list[JobAssigned]:
        return [job for job in self.jobs if isinstance(job, JobAssigned)]

    @property
    def started(self) -> list[JobStarted]:
        return [job for job in self.jobs if isinstance(job, JobStarted)]

    @property
    def completed(self) -> list[JobCompleted]:
        return [job for job in self.jobs if isinstance(job, JobCompleted)]


def decode(body: bytes, kind: type[S]) -> S:
    """Read a struct from a JSON body.

    Raises ``msgspec.DecodeError`` (``ValidationError`` among them) when it is none.
    """
    return msgspec.convert(normalize(msgspec.json.decode(body)), kind, strict=False)


def decode_list(body: bytes, kind: type[S]) -> list[S]:
    """Read ``{"count": …, "value": […]}``; without values the count must be 0.

    Raises ``msgspec.DecodeError`` when it is none: "nothing found" makes people create things.
    """
    content = normalize(msgspec.json.decode(body))
    if not isinstance(content, dict):
        raise msgspec.ValidationError("Expected `object`")
    if "value" not in content and content.get("count") != 0:
        raise msgspec.ValidationError("Object missing required field `value`")
    return msgspec.convert(content.get("value", []), list[kind], strict=False)  # type: ignore[valid-type]


def decode_message(body: bytes) -> Message:
    """Read a message and the job messages in its body; unknown types of either are left out.

    Raises ``msgspec.DecodeError`` when it, or a job message of a known type, is malformed.
    """
    envelope, text = _envelope(body)
    jobs: list[AnyJobMessage] = []
    if envelope.message_type == MESSAGE_TYPE and text:
        jobs = [job for item in _items(text) if (job := _job_message(item)) is not None]
    return _message(envelope, jobs)


def readable_part(body: bytes) -> Message:
    """A message without those of its job messages that are malformed: otherwise it would come
    again, and fail again, for ever, and nothing that comes after it would arrive.

    Raises ``msgspec.DecodeError`` when the message itself is malformed or cut short.
    """
    envelope, text = _envelope(body)
    jobs: list[AnyJobMessage] = []
    with suppress(msgspec.DecodeError):
        for item in _items(text) if envelope.message_type == MESSAGE_TYPE else ():
            with suppress(msgspec.DecodeError):
                job = _job_message(item)
                jobs += [job] if job is not None else []
    return _message(envelope, jobs)


def _envelope(body: bytes) -> tuple[_Envelope, Any]:
    content = msgspec.json.decode(body)
    if not isinstance(content, dict):
        raise msgspec.ValidationError("Expected `object`")
    text = content.pop("body", None)
    return msgspec.convert(normalize(content), _Envelope, strict=False), text


def _message(envelope: _Envelope, jobs: list[AnyJobMessage]) -> Message:
    return Message(
        message_id=envelope.message_id,
        message_type=envelope.message_type,
        statistics=envelope.statistics,
        jobs=jobs,
    )


def _items(text: Any) -> list[Any]:
    if not isinstance(text, str):
        raise msgspec.ValidationError("Expected `str` - at `$.body`")
    items = msgspec.json.decode(text)
    if not isinstance(items, list):
        raise msgspec.ValidationError("Expected `array` - at `$.body`")
    return items


def _job_message(item: Any) -> AnyJobMessage | None:
    kind = _KINDS.get(str(item.get("messageType"))) if isinstance(item, dict) else None
    return None if kind is None else msgspec.convert(normalize(item), kind, strict=False)


def normalize(value: Any, key: str = "") -> Any:
    """JSON with nulls and zero times left out, times that name no zone taken for UTC, and
    ``RunnerSetting`` with its capital (the service answers with either)."""
    if isinstance(value, dict):
        clean = {}
        for name, item in value.items():
            item = normalize(item, name)
            if item is not None:
                clean["RunnerSetting" if name == "runnerSetting" else name] = item
        return clean
    if isinstance(value, list):
        return [normalize(item) for item in value if item is not None]
    if isinstance(value, str) and (key.endswith("Time") or key == "createdOn"):
        if not value or value.startswith(_ZERO_TIME):
            return None
        if "Z" not in value.upper() and "+" not in value and "-" not in value[10:]:
            return f"{value}Z"
    return value
