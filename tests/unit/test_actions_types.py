"""Reading what the service says, and writing what it is told."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest

from arc_controller.actions import (
    JitRunnerConfig,
    JobAssigned,
    JobAvailable,
    JobCompleted,
    JobStarted,
    Label,
    MessageSession,
    Runner,
    RunnerScaleSet,
    RunnerSetting,
)
from arc_controller.actions.types import decode, decode_list, decode_message, readable_part


def message(*jobs: object, **envelope: object) -> bytes:
    content = {
        "messageId": 3,
        "messageType": "RunnerScaleSetJobMessages",
        "body": json.dumps(jobs),
        "statistics": {"totalAssignedJobs": 2},
        **envelope,
    }
    return json.dumps(content).encode()


def test_each_kind_of_job_message_becomes_its_own_type() -> None:
    kinds = ["JobAvailable", "JobAssigned", "JobStarted", "JobCompleted"]
    read = decode_message(
        message(*({"messageType": kind, "runnerRequestId": n} for n, kind in enumerate(kinds)))
    )
    assert [type(job) for job in read.jobs] == [JobAvailable, JobAssigned, JobStarted, JobCompleted]
    assert [job.runner_request_id for job in read.jobs] == [0, 1, 2, 3]
    assert read.message_id == 3
    assert read.statistics is not None
    assert read.statistics.total_assigned_jobs == 2
    assert [*read.available, *read.assigned, *read.started, *read.completed] == read.jobs


def test_job_messages_of_an_unknown_type_are_skipped() -> None:
    read = decode_message(
        message({"messageType": "JobTeleported"}, {}, 7, None, {"messageType": "JobAssigned"})
    )
    assert [type(job) for job in read.jobs] == [JobAssigned]


def test_a_message_of_an_unknown_type_has_no_jobs() -> None:
    read = decode_message(message(messageType="SomethingNew", body="not even JSON"))
    assert (read.message_id, read.message_type, read.jobs) == (3, "SomethingNew", [])


@pytest.mark.parametrize("body", [None, "", "[]"])
def test_a_message_may_be_statistics_only(body: str | None) -> None:
    read = decode_message(message(body=body))
    assert read.jobs == []
    assert read.statistics is not None


def test_the_zero_time_is_no_time() -> None:
    [job] = decode_message(
        message(
            {
                "messageType": "JobCompleted",
                "queueTime": "2025-06-01T10:00:00.1234567Z",
                "scaleSetAssignTime": "2025-06-01T12:00:01+02:00",
                "runnerAssignTime": "0001-01-01T00:00:00Z",
                "finishTime": "0001-01-01T00:00:00",
            }
        )
    ).jobs
    assert job.queue_time == datetime(2025, 6, 1, 10, 0, 0, 123457, tzinfo=UTC)
    assert job.scale_set_assign_time == datetime(2025, 6, 1, 10, 0, 1, tzinfo=UTC)
    assert job.runner_assign_time is None
    assert job.finish_time is None


def test_a_time_without_a_zone_is_utc() -> None:
    [job] = decode_message(
        message({"messageType": "JobStarted", "queueTime": "2025-06-01T10:00:00"})
    ).jobs
    assert job.queue_time == datetime(2025, 6, 1, 10, tzinfo=UTC)


def test_unknown_fields_are_ignored_and_nulls_are_absent() -> None:
    [job] = decode_message(
        message(
            {
                "messageType": "JobStarted",
                "runnerId": 5,
                "runnerName": None,
                "requestLabels": None,
                "poolInformation": {"x": [1, {"y": None}]},
            },
            surprise=[1, 2],
        )
    ).jobs
    assert job == JobStarted(runner_id=5)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"messageId": 1',
        b'{"messageType": "RunnerScaleSetJobMessages"}',
        message(body="[{"),
        message(body="{}"),
        message(body=7),
        message({"messageType": "JobStarted", "runnerId": "five"}),
    ],
)
def test_a_malformed_message_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_message(body)


def test_what_can_be_read_of_a_message_with_a_malformed_job_is_kept() -> None:
    read = readable_part(
        message(
            {"messageType": "JobStarted", "runnerId": "five"},
            {"messageType": "JobStarted", "runnerId": 6},
            "no object",
        )
    )
    assert read.jobs == [JobStarted(runner_id=6)]
    for body in ("[{", "{}", 7):
        assert readable_part(message(body=body)).jobs == []
        assert readable_part(message(body=body)).message_id == read.message_id
    for cut in (b"", b"[]", b'{"messageId": 1', b'{"body": "[]"}'):
        with pytest.raises(msgspec.DecodeError):
            readable_part(cut)


@pytest.mark.parametrize("setting", ["RunnerSetting", "runnerSetting"])
def test_a_scale_set_is_read_with_either_spelling_of_its_setting(setting: str) -> None:
    read = decode(
        json.dumps(
            {
                "id": 9,
                "name": "set",
                "runnerGroupId": 1,
                "runnerGroupName": "Default",
                "labels": [{"name": "a"}, {"name": "b", "type": "User"}],
                setting: {"disableUpdate": True},
                "createdOn": "0001-01-01T00:00:00",
                "runnerJitConfigUrl": None,
                "statistics": None,
                "enabled": True,
            }
        ).encode(),
        RunnerScaleSet,
    )
    assert read == RunnerScaleSet(
        id=9,
        name="set",
        runner_group_id=1,
        runner_group_name="Default",
        labels=[Label(name="a"), Label(name="b", type="User")],
        runner_setting=RunnerSetting(disable_update=True),
    )


def test_a_scale_set_is_sent_without_what_was_not_said() -> None:
    sent = msgspec.json.encode(
        RunnerScaleSet(
            name="set", labels=[Label(name="a")], runner_setting=RunnerSetting(disable_update=True)
        )
    )
    assert json.loads(sent) == {
        "name": "set",
        "labels": [{"name": "a", "type": "System"}],
        "RunnerSetting": {"disableUpdate": True},
    }


def test_a_list_may_be_absent_or_null() -> None:
    assert decode_list(b'{"count": 0}', Runner) == []
    assert decode_list(b'{"count": 0, "value": []}', Runner) == []
    assert decode_list(b'{"count": 0, "value": null}', Runner) == []
    assert decode_list(b'{"count": 1, "value": [{"id": "4"}]}', Runner) == [Runner(id=4)]
    for body in (b"[]", b"{}", b'{"count": 1}', b'{"message": "hello"}'):
        with pytest.raises(msgspec.DecodeError):
            decode_list(body, Runner)


def test_jit_configurations_and_queue_tokens_are_not_shown() -> None:
    config = JitRunnerConfig(runner=Runner(id=1, name="r"), encoded_jit_config="planted-jit")
    session = MessageSession(
        session_id="s",
        message_queue_url="https://q/?sig=planted-sig",
        message_queue_access_token="planted-token",
    )
    assert "planted" not in f"{config!r} {config} {session!r} {session}"
