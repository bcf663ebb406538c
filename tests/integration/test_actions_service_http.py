"""Every row of the service's calls, its sign-in and its misbehaviour, on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import cache

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from arc_controller.actions import (
    ActionsClient,
    AgentExists,
    ConnectionFailed,
    Credentials,
    GitHubApp,
    JobStillRunning,
    Label,
    MalformedResponse,
    MessageQueue,
    NotFound,
    PersonalAccessToken,
    RetryPolicy,
    RunnerGroupNotFound,
    RunnerScaleSet,
    RunnerSetting,
    ScaleSetNotFound,
    SessionConflict,
    Unauthorized,
    is_transient,
)
from arc_controller.testing.actions import Call, FakeActionsService, HttpActionsService

FAST = RetryPolicy(min_wait=0.01, max_wait=0.05)
PAT = PersonalAccessToken("ghp_example_token")


@pytest.fixture
async def service() -> AsyncIterator[FakeActionsService]:
    fake = FakeActionsService(poll_timeout=0.3)
    yield fake
    await fake.aclose()


@pytest.fixture
async def server(service: FakeActionsService) -> AsyncIterator[HttpActionsService]:
    async with HttpActionsService(service) as running:
        yield running


@pytest.fixture
async def client(server: HttpActionsService) -> AsyncIterator[ActionsClient]:
    async with ActionsClient(server.config_url("acme"), PAT, retries=FAST) as calls:
        yield calls


@pytest.fixture
async def scale_set(client: ActionsClient) -> RunnerScaleSet:
    return await client.create_runner_scale_set(RunnerScaleSet(name="set"))


@pytest.fixture
async def queue(client: ActionsClient, scale_set: RunnerScaleSet) -> MessageQueue:
    return await MessageQueue.open(client, scale_set.id, "host")


# Getting in


@pytest.mark.parametrize("path", ["acme", "acme/app", "enterprises/big"])
async def test_every_kind_of_config_url_gets_in(server: HttpActionsService, path: str) -> None:
    async with ActionsClient(server.config_url(path), PAT, retries=FAST) as client:
        created = await client.create_runner_scale_set(RunnerScaleSet(name="set"))
    assert server.service.scale_sets[created.id].scope == path


async def test_hosted_paths_are_served_too(server: HttpActionsService) -> None:
    bearer = {"Authorization": "Bearer ghp_example_token"}
    async with aiohttp.ClientSession(server.url) as session:
        async with session.post(
            "/orgs/acme/actions/runners/registration-token", headers=bearer
        ) as response:
            assert response.status == 201
            token = (await response.json())["token"]
        async with session.post(
            "/actions/runner-registration",
            headers={"Authorization": f"RemoteAuth {token}"},
            json={"url": "https://github.com/acme", "runner_event": "register"},
        ) as response:
            assert response.status == 200
            assert set(await response.json()) >= {"url", "token"}


@cache
def app_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_key(key: rsa.RSAPrivateKey) -> str:
    encoded = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return encoded.decode()


@pytest.mark.parametrize("form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
@pytest.mark.parametrize("issuer", ["7", "Iv1.client"])
async def test_a_github_app_gets_in(
    server: HttpActionsService, form: PrivateFormat, issuer: str
) -> None:
    server.service.accept_tokens()
    server.service.add_app("7", public_key(app_key()), 42, client_id="Iv1.client")
    pem = app_key().private_bytes(Encoding.PEM, form, NoEncryption()).decode()
    app = GitHubApp(issuer, 42, pem)
    async with ActionsClient(server.config_url("acme"), app, retries=FAST) as client:
        assert await client.get_runner_scale_set("set", 1) is None
    assert server.service.calls[Call.INSTALLATION_TOKEN] == 1


def _app(installation: int, key: rsa.RSAPrivateKey) -> GitHubApp:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return GitHubApp("7", installation, pem)


@pytest.mark.parametrize(
    ("credentials", "kind", "path"),
    [
        (PersonalAccessToken("ghp_somebody_else"), Unauthorized, "registration-token"),
        (
            _app(42, rsa.generate_private_key(public_exponent=65537, key_size=2048)),
            Unauthorized,
            "installations/42",
        ),
        (_app(43, app_key()), NotFound, "installations/43"),
    ],
)
async def test_wrong_credentials_are_refused_with_the_place_and_without_the_secret(
    server: HttpActionsService, credentials: Credentials, kind: type[Exception], path: str
) -> None:
    server.service.accept_tokens("another")
    server.service.add_app("7", public_key(app_key()), 42)
    async with ActionsClient(server.config_url("acme"), credentials, retries=FAST) as client:
        with pytest.raises(kind, match=path) as caught:
            await client.get_runner(1)
    assert "somebody_else" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_registration_refused_at_first_succeeds_later(
    service: FakeActionsService, client: ActionsClient, status: int
) -> None:
    service.faults.fail("register", status=status, times=3)
    assert await client.get_runner(1) is None
    assert service.calls[Call.REGISTER] == 4


async def test_many_callers_at_once_register_once(
    service: FakeActionsService, client: ActionsClient
) -> None:
    service.faults.delay("register", seconds=0.05)
    await asyncio.gather(*(client.get_runner(n) for n in range(40)))
    assert service.calls[Call.REGISTER] == 1
    service.expire_admin_tokens()
    await asyncio.gather(*(client.get_runner(n) for n in range(40)))
    assert service.calls[Call.REGISTER] == 2


async def test_an_admin_token_about_to_end_is_renewed_before_the_call() -> None:
    moment = datetime(2025, 6, 1, tzinfo=UTC)
    service = FakeActionsService(now=lambda: moment, admin_token_lifetime=timedelta(minutes=10))
    async with (
        HttpActionsService(service) as server,
        ActionsClient(server.config_url(), PAT, retries=FAST, now=lambda: moment) as client,
    ):
        await client.get_runner(1)
        moment += timedelta(minutes=8)
        await client.get_runner(1)
        assert service.calls[Call.REGISTER] == 1
        moment += timedelta(minutes=1, seconds=1)
        await client.get_runner(1)
        assert service.calls[Call.REGISTER] == 2
        assert [record.status for record in service.request_log if record.status == 401] == []


# The calls


async def test_a_scale_set_is_created_found_read_updated_and_deleted(
    service: FakeActionsService, client: ActionsClient
) -> None:
    group = service.add_runner_group("big runners & more")
    created = await client.create_runner_scale_set(
        RunnerScaleSet(
            name="my set/ä",
            runner_group_id=1,
            labels=[Label(name="linux"), Label(name="own", type="User")],
            runner_setting=RunnerSetting(disable_update=True),
        )
    )
    assert created.id > 0
    assert created.runner_setting.disable_update
    assert created.created_on is not None
    assert [label.type for label in created.labels] == ["System", "User"]
    found = await client.get_runner_scale_set("my set/ä", 1)
    assert found == created == await client.get_runner_scale_set_by_id(created.id)
    changed = await client.update_runner_scale_set(
        created.id, RunnerScaleSet(name="other", runner_group_id=group.id)
    )
    assert (changed.name, changed.runner_group_name) == ("other", "big runners & more")
    assert changed.runner_setting.disable_update
    assert await client.get_runner_scale_set("my set/ä", 1) is None
    await client.delete_runner_scale_set(created.id)
    for call in (
        client.delete_runner_scale_set(created.id),
        client.get_runner_scale_set_by_id(created.id),
        client.update_runner_scale_set(created.id, changed),
        client.generate_jit_config(created.id, "one", "_work"),
        client.create_message_session(created.id, "host"),
    ):
        with pytest.raises(ScaleSetNotFound):
            await call


async def test_a_runner_group_is_found_by_name_or_clearly_not(
    service: FakeActionsService, client: ActionsClient
) -> None:
    group = service.add_runner_group("big")
    assert (await client.get_runner_group("Default")).id == 1
    assert (await client.get_runner_group("big")).id == group.id
    with pytest.raises(RunnerGroupNotFound, match="no runner group is named 'none'"):
        await client.get_runner_group("none")


async def test_a_runner_is_registered_found_and_removed(
    service: FakeActionsService, client: ActionsClient, scale_set: RunnerScaleSet
) -> None:
    config = await client.generate_jit_config(scale_set.id, "one", "_work")
    assert config.runner.runner_scale_set_id == scale_set.id
    with pytest.raises(AgentExists) as caught:
        await client.generate_jit_config(scale_set.id, "one", "_work")
    assert caught.value.activity_id
    assert caught.value.request_id
    assert await client.get_runner(config.runner.id) == config.runner
    assert await client.get_runner_by_name("one") == config.runner
    service.runner_online(config.encoded_jit_config)
    await client.remove_runner(config.runner.id)
    await client.remove_runner(config.runner.id)
    assert await client.get_runner(config.runner.id) is None
    assert await client.get_runner_by_name("one") is None


async def test_a_runner_with_a_job_is_not_removed(
    service: FakeActionsService, client: ActionsClient, scale_set: RunnerScaleSet
) -> None:
    queue = await MessageQueue.open(client, scale_set.id, "host")
    config = await client.generate_jit_config(scale_set.id, "one", "_work")
    runner = service.runner_online(config.encoded_jit_config)
    [job] = service.queue_jobs(scale_set="set")
    assert await queue.get_message(0, 1) is not None
    assert await queue.acquire_jobs([job.request_id]) == [job.request_id]
    with pytest.raises(JobStillRunning):
        await client.remove_runner(config.runner.id)
    runner.finish(job)
    await client.remove_runner(config.runner.id)


async def test_a_session_is_exclusive_renewable_and_closable(
    client: ActionsClient, scale_set: RunnerScaleSet
) -> None:
    session = await client.create_message_session(scale_set.id, "host")
    assert session.runner_scale_set is not None
    assert session.runner_scale_set.name == "set"
    assert session.statistics is not None
    with pytest.raises(SessionConflict):
        await client.create_message_session(scale_set.id, "other")
    renewed = await client.refresh_message_session(scale_set.id, session.session_id)
    assert renewed.session_id == session.session_id
    assert renewed.message_queue_access_token != session.message_queue_access_token
    await client.delete_message_session(scale_set.id, session.session_id)
    await client.delete_message_session(scale_set.id, session.session_id)
    await client.create_message_session(scale_set.id, "other")


async def test_messages_flow_from_poll_to_acknowledgement(
    service: FakeActionsService, queue: MessageQueue
) -> None:
    assert await queue.get_message(0, 10) is None
    poll = asyncio.create_task(queue.get_message(0, 10))
    await _polling(service, 2)
    jobs = service.queue_jobs(3, scale_set="set")
    message = await poll
    assert message is not None
    ids = [job.runner_request_id for job in message.available]
    assert ids == [job.request_id for job in jobs]
    again = await queue.get_message(0, 10)
    assert again == message
    await queue.delete_message(message.message_id)
    assert await queue.acquire_jobs([*ids, 999]) == ids
    following = await queue.get_message(message.message_id, 10)
    assert following is not None
    assert len(following.assigned) == 3


# Misbehaviour


async def test_a_queue_token_that_expires_in_mid_poll_is_renewed(
    service: FakeActionsService, queue: MessageQueue
) -> None:
    before = queue.session.message_queue_access_token
    poll = asyncio.create_task(queue.get_message(0, 10))
    await _polling(service, 1)
    service.expire_queue_tokens()
    service.queue_jobs(1, scale_set="set")
    assert await poll is not None
    assert queue.session.message_queue_access_token != before
    assert service.calls[Call.REFRESH_SESSION] == 1


async def test_admin_and_queue_tokens_may_expire_together(
    service: FakeActionsService, queue: MessageQueue
) -> None:
    poll = asyncio.create_task(queue.get_message(0, 10))
    await _polling(service, 1)
    service.expire_admin_tokens()
    service.expire_queue_tokens()
    [job] = service.queue_jobs(1, scale_set="set")
    assert await poll is not None
    service.expire_queue_tokens()
    assert await queue.acquire_jobs([job.request_id]) == [job.request_id]
    assert service.calls[Call.REGISTER] == 2


async def test_a_connection_reset_in_mid_poll_is_retried(
    service: FakeActionsService, queue: MessageQueue
) -> None:
    poll = asyncio.create_task(queue.get_message(0, 10))
    await _polling(service, 1)
    service.reset_polls()
    await _polling(service, 2)
    service.queue_jobs(1, scale_set="set")
    assert await poll is not None


@pytest.mark.parametrize("fault", ["truncate", "cut", "empty", "500", "429", "reset"])
async def test_a_poll_whose_answer_is_spoiled_is_retried_and_loses_nothing(
    service: FakeActionsService, queue: MessageQueue, fault: str
) -> None:
    match fault:
        case "truncate":
            service.faults.truncate("get_message", times=2)
        case "cut":
            service.faults.truncate("get_message", times=2, connection=True)
        case "empty":
            service.faults.empty("get_message", times=2)
        case "500":
            service.faults.fail("get_message", times=2, after_effect=True)
        case "429":
            service.faults.fail("get_message", status=429, times=2)
        case _:
            service.faults.reset("get_message", times=2, after_effect=True)
    [job] = service.queue_jobs(1, scale_set="set")
    message = await queue.get_message(0, 10)
    assert message is not None
    assert [offer.runner_request_id for offer in message.available] == [job.request_id]
    assert service.calls[Call.GET_MESSAGE] == 3


async def test_a_call_that_keeps_failing_ends_with_a_transient_error(
    service: FakeActionsService, client: ActionsClient
) -> None:
    service.faults.truncate("runner_group", times=None)
    service.faults.reset("find_runner", times=None)
    with pytest.raises(MalformedResponse) as malformed:
        await client.get_runner_group("Default")
    with pytest.raises(ConnectionFailed) as reset:
        await client.get_runner_by_name("one")
    assert is_transient(malformed.value)
    assert is_transient(reset.value)


async def test_a_write_that_broke_after_its_effect_shows_as_runner_exists(
    service: FakeActionsService, client: ActionsClient, scale_set: RunnerScaleSet
) -> None:
    service.faults.reset("generate_jit_config", after_effect=True)
    with pytest.raises(AgentExists):
        await client.generate_jit_config(scale_set.id, "one", "_work")


async def test_byte_order_marks_are_understood_everywhere(
    service: FakeActionsService, client: ActionsClient
) -> None:
    service.faults.byte_order_mark("*")
    created = await client.create_runner_scale_set(RunnerScaleSet(name="set"))
    queue = await MessageQueue.open(client, created.id, "host")
    service.queue_jobs(1, scale_set="set")
    message = await queue.get_message(0, 10)
    assert message is not None
    assert len(message.available) == 1
    with pytest.raises(ScaleSetNotFound, match="No runner scale set found"):
        await client.get_runner_scale_set_by_id(999)


async def test_an_outage_is_survived_by_whoever_tries_again(
    service: FakeActionsService, client: ActionsClient, queue: MessageQueue
) -> None:
    poll = asyncio.create_task(queue.get_message(0, 10))
    await _polling(service, 1)
    service.go_down()
    with pytest.raises(ConnectionFailed):
        await poll
    service.come_up()
    service.queue_jobs(1, scale_set="set")
    assert await queue.get_message(0, 10) is not None


async def test_a_listener_that_hangs_up_stops_polling(
    service: FakeActionsService, queue: MessageQueue
) -> None:
    [session] = service.sessions.values()
    poll = asyncio.create_task(queue.get_message(0, 10))
    await _polling(service, 1)
    assert session.polls == 1
    poll.cancel()
    async with asyncio.timeout(10):
        while session.polls:
            await asyncio.sleep(0.01)


async def test_nobody_listening_is_told_with_the_address(server: HttpActionsService) -> None:
    url = server.config_url()
    await server.stop()
    async with ActionsClient(url, PAT, retries=FAST) as client:
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:\d+ cannot be reached"):
            await client.get_runner(1)


# Strangers


async def test_a_stranger_that_forgets_the_version_or_the_token_is_refused(
    server: HttpActionsService,
) -> None:
    path = "/_services/pipelines/_apis/runtime/runnerscalesets"
    async with aiohttp.ClientSession(server.url) as session:
        async with session.get(path) as response:
            assert response.status == 400
            assert "VssVersionNotSpecifiedException" in (await response.json())["typeName"]
        async with session.get(f"{path}?api-version=6.0-preview") as response:
            assert response.status == 401
            assert response.headers["ActivityId"]
        async with session.get("/somewhere") as response:
            assert response.status == 404


async def test_what_goes_over_the_wire_has_the_real_shapes(
    server: HttpActionsService, client: ActionsClient, scale_set: RunnerScaleSet
) -> None:
    """Field by field, so that clients that are not ours find what they expect."""
    session = await client.create_message_session(scale_set.id, "host")
    server.service.queue_jobs(1, scale_set="set")
    headers = {
        "Authorization": f"Bearer {session.message_queue_access_token}",
        "Accept": "application/json; api-version=6.0-preview",
        "X-ScaleSetMaxCapacity": "3",
    }
    async with (
        aiohttp.ClientSession() as http,
        http.get(session.message_queue_url, headers=headers) as response,
    ):
        assert response.status == 200
        message = await response.json()
    assert set(message) == {"messageId", "messageType", "body", "statistics"}
    assert message["messageType"] == "RunnerScaleSetJobMessages"
    assert set(message["statistics"]) == {
        *("totalAvailableJobs", "totalAcquiredJobs", "totalAssignedJobs", "totalRunningJobs"),
        *("totalRegisteredRunners", "totalBusyRunners", "totalIdleRunners"),
    }
    [job] = json.loads(message["body"])
    assert set(job) == {
        *("messageType", "runnerRequestId", "repositoryName", "ownerName", "jobId"),
        *("jobWorkflowRef", "jobDisplayName", "workflowRunId", "eventName", "requestLabels"),
        *("queueTime", "scaleSetAssignTime", "runnerAssignTime", "finishTime", "acquireJobUrl"),
    }
    assert job["runnerAssignTime"] == "0001-01-01T00:00:00Z"


async def _polling(service: FakeActionsService, polls: int) -> None:
    """Wait until that many polls have arrived and one of them is waiting."""
    async with asyncio.timeout(10):
        while service.calls[Call.GET_MESSAGE] < polls or not any(
            session.polls for session in service.sessions.values()
        ):
            await asyncio.sleep(0.002)
