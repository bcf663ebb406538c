"""Job messages and JIT configurations as they go over the wire."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec

from .model import Job, RunnerRecord

ZERO_TIME = "0001-01-01T00:00:00Z"


def job_message(job: Job, message_type: str) -> dict[str, Any]:
    """A job message as the service sends it; times that have not come are the zero time."""
    content: dict[str, Any] = {
        "messageType": message_type,
        "runnerRequestId": job.request_id,
        "repositoryName": job.repository,
        "ownerName": job.owner,
        "jobId": job.job_id,
        "jobWorkflowRef": job.workflow_ref,
        "jobDisplayName": job.display_name,
        "workflowRunId": job.workflow_run_id,
        "eventName": job.event_name,
        "requestLabels": list(job.labels),
        "queueTime": _time(job.queued),
        "scaleSetAssignTime": _time(job.scale_set_assigned),
        "runnerAssignTime": _time(job.runner_assigned),
        "finishTime": _time(job.finished),
    }
    if message_type == "JobAvailable":
        content["acquireJobUrl"] = f"https://acquire.invalid/{job.request_id}"
    if message_type in {"JobStarted", "JobCompleted"}:
        content["runnerId"], content["runnerName"] = job.runner_id, job.runner_name
    if message_type == "JobCompleted":
        content["result"] = job.result
    return content


def encode_jit_config(runner: RunnerRecord, server_url: str, config_url: str) -> str:
    """The JIT configuration of a runner: the files of a runner's directory, each in base64."""
    files = {
        ".runner": {
            "agentId": str(runner.id),
            "agentName": runner.name,
            "disableUpdate": True,
            "ephemeral": True,
            "poolId": "0",
            "serverUrl": server_url,
            "gitHubUrl": config_url,
            "workFolder": runner.work_folder,
        },
        ".credentials": {"scheme": "OAuth", "data": {"clientSecret": runner.secret}},
    }
    inner = {
        name: base64.b64encode(msgspec.json.encode(content)).decode()
        for name, content in files.items()
    }
    return base64.b64encode(msgspec.json.encode(inner)).decode()


def decode_jit_config(encoded: str) -> tuple[int, str]:
    """The runner's id and secret. Raises ValueError when this is no JIT configuration of ours."""
    try:
        inner = msgspec.json.decode(base64.b64decode(encoded, validate=True))
        runner = msgspec.json.decode(base64.b64decode(inner[".runner"]))
        credentials = msgspec.json.decode(base64.b64decode(inner[".credentials"]))
        return int(runner["agentId"]), str(credentials["data"]["clientSecret"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError):
        raise ValueError("this is not a JIT configuration of this service") from None


def _time(moment: datetime | None) -> str:
    if moment is None:
        return ZERO_TIME
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
