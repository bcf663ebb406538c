"""Errors by name, retries, renewals, redaction: the client in simulated time, without sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from random import Random

import pytest

from arc_controller.actions import (
    ActionsApiError,
    ActionsClient,
    ActionsError,
    AgentExists,
    AgentNotFound,
    CallTimeout,
    ClientClosed,
    Conflict,
    ConnectionFailed,
    Forbidden,
    GitHubApp,
    HttpRequest,
    HttpResponse,
    JobStillRunning,
    MalformedResponse,
    MessageQueueTokenExpired,
    MessageSession,
    NotFound,
    PersonalAccessToken,
    ProxySettings,
    RetryPolicy,
    Runner,
    ScaleSetNotFound,
    ServerError,
    SessionConflict,
    SessionNotFound,
    TooManyRequests,
    Unauthorized,
    UnexpectedResult,
    UserAgent,
    is_transient,
)
from arc_controller.actions.registration import AdminConnection, token_expiry
from arc_controller.actions.renewal import SharedCall
from arc_controller.testing.actions.tokens import TokenMint
from arc_controller.testing.loop import now, run_simulated, simulated

Reply = HttpResponse | Exception | Callable[[HttpRequest], HttpResponse]

SERVICE = "https://pipelines.example/tenant/"
PLANTED = {
    "personal": "ghp_planted_personal",
    "registration": "planted_registration",
    "queue": "planted_queue",
    "jit": "planted_jit",
    "signature": "planted_signature",
}


def ok(content: object) -> HttpResponse:
    return HttpResponse(200, {}, json.dumps(content).encode())


class Script:
    """A network that signs in by itself and answers service calls from a list, the last for ever.

    Remembers when each call came. ``lifetime`` is that of the admin tokens it gives.
    """

    def __init__(self, *replies: Reply, lifetime: timedelta = timedelta(hours=1)) -> None:
        self.replies = list(replies)
        self.requests: list[HttpRequest] = []
        self.times: list[float] = []
        self.registrations = 0
        self.registration_replies: list[Reply] = []
        self.registering = 0.0
        self._lifetime = lifetime

    async def send(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        if request.url.endswith(("registration-token", "/access_tokens")):
            return HttpResponse(201, {}, json.dumps({"token": PLANTED["registration"]}).encode())
        if request.url.endswith("/actions/runner-registration"):
            self.registrations += 1
            await asyncio.sleep(self.registering)
            if self.registration_replies:
                return self._give(self.registration_replies.pop(0), request)
            token = TokenMint(b"key", now).mint("admin", self._lifetime, n=self.registrations)
            return ok({"url": SERVICE, "token": token})
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return self._give(reply, request)

    def _give(self, reply: Reply, request: HttpRequest) -> HttpResponse:
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, HttpResponse):
            return HttpResponse(reply.status, reply.headers, reply.body)
        return reply(request)

    async def aclose(self) -> None:
        """Nothing is open."""


def client(script: Script, policy: RetryPolicy | None = None) -> ActionsClient:
    return ActionsClient(
        "https://github.com/acme",
        PersonalAccessToken(PLANTED["personal"]),
        transport=script,
        retries=policy,
        now=now,
        random=Random(0),
    )


def refusal(status: int, type_name: str = "", **headers: str) -> HttpResponse:
    body = json.dumps({"typeName": f"GitHub.X.{type_name}, GitHub.X", "message": "no\r\nway"})
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status, names, b"\xef\xbb\xbf" + body.encode())


@pytest.mark.parametrize(
    ("status", "type_name", "kind"),
    [
        (409, "AgentExistsException", AgentExists),
        (404, "AgentNotFoundException", AgentNotFound),
        (400, "JobStillRunningException", JobStillRunning),
        (404, "RunnerScaleSetNotFoundException", ScaleSetNotFound),
        (409, "RunnerScaleSetSessionConflictException", SessionConflict),
        (401, "", Unauthorized),
        (403, "", Forbidden),
        (409, "", Conflict),
    ],
)
def test_a_refusal_becomes_the_named_error(
    status: int, type_name: str, kind: type[ActionsApiError]
) -> None:
    async def go() -> None:
        script = Script(refusal(status, type_name, activityid="act-1", x_github_request_id="req-1"))
        with pytest.raises(ActionsApiError) as caught:
            await client(script).generate_jit_config(7, "runner", "_work")
        error = caught.value
        assert type(error) is kind
        assert error.method == "POST"
        assert error.url.startswith(
            "https://pipelines.example/tenant/_apis/runtime/runnerscalesets/7/generatejitconfig"
        )
        assert (error.status, error.activity_id, error.request_id) == (status, "act-1", "req-1")
        assert error.message == "no way"
        assert "act-1" in str(error)
        assert "req-1" in str(error)
        assert not is_transient(error)

    run_simulated(go())


@simulated
async def test_a_named_refusal_is_not_retried_even_with_status_500() -> None:
    script = Script(refusal(500, "AgentExistsException"))
    with pytest.raises(AgentExists):
        await client(script).generate_jit_config(7, "runner", "_work")
    assert len(script.requests) == 1


@simulated
async def test_a_bare_404_never_says_that_something_is_gone() -> None:
    calls = client(Script(HttpResponse(404, {}, b"<html>gateway</html>")))
    for call in (
        calls.get_runner(1),
        calls.remove_runner(1),
        calls.get_runner_scale_set_by_id(1),
        calls.delete_runner_scale_set(1),
    ):
        with pytest.raises(NotFound):
            await call


@simulated
async def test_any_409_on_opening_a_session_means_that_another_one_is_open() -> None:
    script = Script(HttpResponse(409, {}, b"held by somebody"))
    with pytest.raises(SessionConflict, match="held by somebody"):
        await client(script).create_message_session(1, "me")
    assert len(script.requests) == 1


@simulated
async def test_a_message_with_a_job_that_cannot_be_read_is_not_asked_for_for_ever() -> None:
    good = {"messageType": "JobStarted", "runnerId": 5}
    bad = {"messageType": "JobStarted", "runnerId": "five"}
    envelope = {"messageId": 9, "messageType": "RunnerScaleSetJobMessages"}
    script = Script(ok({**envelope, "body": json.dumps([bad, good])}))
    message = await client(script).get_message(SESSION, 0, 1)
    assert message is not None
    assert (message.message_id, [job.runner_id for job in message.started]) == (9, [5])
    assert len(script.requests) == 1


@simulated
async def test_several_of_one_name_are_an_error_that_names_them() -> None:
    two = ok({"count": 2, "value": [{"id": 5, "name": "x"}, {"id": 6, "name": "x"}]})
    calls = client(Script(two))
    for call, words in (
        (calls.get_runner_scale_set("x", 1), "2 scale sets are named 'x' in runner group 1"),
        (calls.get_runner_group("x"), "2 runner groups are named 'x'"),
        (calls.get_runner_by_name("x"), "2 runners are named 'x'"),
    ):
        with pytest.raises(UnexpectedResult) as caught:
            await call
        assert words in str(caught.value)
        assert not is_transient(caught.value)


@simulated
async def test_plain_text_and_html_errors_are_readable() -> None:
    script = Script(
        HttpResponse(400, {}, b"  plain\n words "), HttpResponse(403, {}, b"<html>x</html>")
    )
    for words in ("plain words", "an HTML page"):
        with pytest.raises(ActionsApiError) as caught:
            await client(script).delete_runner_scale_set(1)
        assert words in str(caught.value)
        script.replies = script.replies[-1:]


@pytest.mark.parametrize(
    "reply",
    [
        HttpResponse(500),
        HttpResponse(503, {}, b"busy"),
        HttpResponse(429),
        HttpResponse(403, {"retry-after": "1"}),
        ConnectionFailed("GET", "https://x", "reset"),
    ],
)
def test_what_may_pass_is_retried_four_times_from_one_second_up(reply: Reply) -> None:
    async def go() -> None:
        script = Script(reply)
        with pytest.raises(ActionsError) as caught:
            await client(script).delete_runner_scale_set(1)
        assert is_transient(caught.value)
        assert len(script.times) == 5
        waits = [b - a for a, b in zip(script.times, script.times[1:], strict=False)]
        assert all(1 <= wait <= 30 for wait in waits)
        assert waits == sorted(waits)

    run_simulated(go())


@simulated
async def test_a_call_that_succeeds_in_the_end_succeeds() -> None:
    script = Script(HttpResponse(502), ConnectionFailed("GET", "x", "reset"), ok({"id": 3}))
    assert await client(script).get_runner(3) == Runner(id=3)


@simulated
async def test_retry_after_in_seconds_is_honoured_beyond_our_own_limit() -> None:
    script = Script(HttpResponse(429, {"retry-after": "45"}), HttpResponse(204))
    await client(script).delete_runner_scale_set(1)
    assert script.times[1] - script.times[0] == pytest.approx(45)


@simulated
async def test_retry_after_as_a_date_is_honoured() -> None:
    def later(_: HttpRequest) -> HttpResponse:
        when = format_datetime(now() + timedelta(seconds=20), usegmt=True)
        return HttpResponse(503, {"retry-after": when})

    script = Script(later, HttpResponse(204))
    await client(script).delete_runner_scale_set(1)
    assert script.times[1] - script.times[0] == pytest.approx(20, abs=1)


@simulated
async def test_a_retry_after_beyond_the_total_timeout_is_told_at_once() -> None:
    script = Script(HttpResponse(429, {"retry-after": "3600"}))
    with pytest.raises(TooManyRequests) as caught:
        await client(script).delete_runner_scale_set(1)
    assert caught.value.retry_after == 3600
    assert len(script.requests) == 1


@simulated
async def test_a_call_ends_after_five_minutes_whatever_happens() -> None:
    class Silent(Script):
        async def send(self, request: HttpRequest) -> HttpResponse:
            await asyncio.sleep(1e9)
            return await super().send(request)

    started = asyncio.get_running_loop().time()
    with pytest.raises(CallTimeout, match="300 s") as caught:
        await client(Silent(HttpResponse(200))).get_runner_by_name("r")
    assert is_transient(caught.value)
    assert asyncio.get_running_loop().time() - started == pytest.approx(300)


@simulated
async def test_a_timeout_around_the_call_is_the_callers_own() -> None:
    script = Script(HttpResponse(500))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await client(script).get_runner_by_name("r")


@pytest.mark.parametrize("body", [b"", b"  ", b'{"id": 3, "na', b"[]", b'{"id": "x"}', b"\xff"])
def test_a_body_that_is_no_answer_is_retried_when_reading(body: bytes) -> None:
    async def go() -> None:
        script = Script(HttpResponse(200, {}, body), ok({"id": 3}))
        assert await client(script).get_runner(3) == Runner(id=3)
        assert len(script.requests) == 2

    run_simulated(go())


@simulated
async def test_a_body_that_is_no_answer_is_told_when_writing() -> None:
    script = Script(HttpResponse(200, {}, b""))
    with pytest.raises(MalformedResponse, match="the body is empty") as caught:
        await client(script).generate_jit_config(1, "r", "_work")
    assert is_transient(caught.value)
    assert len(script.requests) == 1


@simulated
async def test_answers_may_begin_with_a_byte_order_mark() -> None:
    script = Script(HttpResponse(200, {}, b'\xef\xbb\xbf{"id": 3, "name": "r", "new": 1}'))
    assert await client(script).get_runner(3) == Runner(id=3, name="r")


@simulated
async def test_a_redirect_to_the_same_host_is_followed_with_the_same_call() -> None:
    moved = HttpResponse(307, {"location": "/tenant2/agents"})
    script = Script(moved, ok({"runner": {"id": 1}, "encodedJITConfig": "x"}))
    await client(script).generate_jit_config(1, "r", "_work")
    first, second = script.requests
    assert second.url == "https://pipelines.example/tenant2/agents"
    assert (second.method, second.body) == (first.method, first.body)


@simulated
async def test_a_redirect_to_another_host_never_gets_the_token() -> None:
    script = Script(HttpResponse(307, {"location": "https://evil.example/x"}))
    with pytest.raises(ActionsApiError):
        await client(script).generate_jit_config(1, "r", "_work")
    assert len(script.requests) == 1


@simulated
async def test_every_service_call_carries_token_version_and_user_agent() -> None:
    script = Script(HttpResponse(204))
    agent = UserAgent(scale_set_id=7, subsystem="listener", commit_sha="abc")
    calls = ActionsClient(
        "https://github.com/acme",
        PersonalAccessToken("t"),
        transport=script,
        user_agent=agent,
        now=now,
    )
    await calls.remove_runner(4)
    [request] = script.requests
    assert request.url == (
        "https://pipelines.example/tenant/_apis/distributedtask/pools/0/agents/4"
        "?api-version=6.0-preview"
    )
    assert request.header("authorization").startswith("Bearer ey")
    shown = json.loads(request.header("user-agent"))
    assert set(shown) == {
        *("system", "version", "commit_sha", "scale_set_id", "subsystem"),
        *("build_version", "build_commit_sha", "kind"),
    }
    assert (shown["kind"], shown["scale_set_id"], shown["subsystem"]) == (
        "scaleset",
        7,
        "listener",
    )


# Tokens


@simulated
async def test_an_admin_token_is_used_until_a_minute_before_its_end() -> None:
    script = Script(HttpResponse(204), lifetime=timedelta(minutes=10))
    calls = client(script)
    await calls.remove_runner(1)
    await asyncio.sleep(8.9 * 60)
    await calls.remove_runner(1)
    assert script.registrations == 1
    await asyncio.sleep(0.2 * 60)
    await calls.remove_runner(1)
    assert script.registrations == 2


@simulated(seeds=range(5))
async def test_many_callers_at_once_cause_one_renewal() -> None:
    script = Script(HttpResponse(204))
    script.registering = 1.0
    calls = client(script)
    await asyncio.gather(*(calls.remove_runner(n) for n in range(50)))
    assert script.registrations == 1
    assert len(script.requests) == 50


@simulated(seeds=range(5))
async def test_a_cancelled_caller_does_not_break_the_others() -> None:
    script = Script(HttpResponse(204))
    script.registering = 1.0
    calls = client(script)
    tasks = [asyncio.create_task(calls.remove_runner(n)) for n in range(5)]
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [
        *(True, False, False, True, False)
    ]
    assert script.registrations == 1


@simulated
async def test_a_refused_admin_token_is_renewed_once_for_all_and_the_calls_repeated() -> None:
    refused: set[str] = set()

    def answer(request: HttpRequest) -> HttpResponse:
        token = request.header("authorization")
        return HttpResponse(401 if token in refused else 204)

    script = Script(answer)
    calls = client(script)
    await calls.remove_runner(1)
    refused.add(script.requests[0].header("authorization"))
    await asyncio.sleep(2)  # another second, another token
    await asyncio.gather(*(calls.remove_runner(n) for n in range(20)))
    assert script.registrations == 2


@simulated
async def test_a_token_that_is_refused_again_after_its_renewal_is_the_callers_problem() -> None:
    script = Script(HttpResponse(401))
    with pytest.raises(Unauthorized):
        await client(script).remove_runner(1)
    assert script.registrations == 2
    assert len(script.requests) == 2


@pytest.mark.parametrize("status", [401, 403])
def test_a_registration_that_is_refused_at_first_is_tried_again(status: int) -> None:
    async def go() -> None:
        script = Script(HttpResponse(204))
        script.registration_replies = [HttpResponse(status)] * 3
        await client(script).remove_runner(1)
        assert script.registrations == 4
        assert asyncio.get_running_loop().time() > 3

    run_simulated(go())


@simulated
async def test_a_registration_that_stays_refused_is_told() -> None:
    script = Script(HttpResponse(204))
    script.registration_replies = [HttpResponse(403)] * 5
    with pytest.raises(Forbidden, match="runner-registration"):
        await client(script).remove_runner(1)


@simulated
async def test_closing_the_client_ends_who_waits_for_a_token() -> None:
    script = Script(HttpResponse(204))
    script.registering = 60.0
    calls = client(script)
    waiting = asyncio.create_task(calls.remove_runner(1))
    await asyncio.sleep(1)
    await calls.aclose()
    with pytest.raises(ClientClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await calls.remove_runner(1)


def test_the_end_of_a_token_is_read_without_checking_it() -> None:
    async def go() -> None:
        token = TokenMint(b"key", now).mint("admin", timedelta(minutes=5))
        assert token_expiry(token) == now() + timedelta(minutes=5)

    run_simulated(go())


@pytest.mark.parametrize(
    "token", ["", "opaque", "a.b", "a.!!.c", "e30.e30.x", "e30.bnVsbA.x", "e30.eyJleHAiOiJ4In0.x"]
)
def test_a_token_that_does_not_say_when_it_ends_has_no_end(token: str) -> None:
    assert token_expiry(token) is None


@simulated
async def test_an_error_of_a_shared_call_reaches_everybody_and_the_next_starts_anew() -> None:
    runs = 0

    async def call() -> int:
        nonlocal runs
        runs += 1
        await asyncio.sleep(1)
        if runs == 1:
            raise ConnectionFailed("GET", "https://x", "reset")
        return runs

    shared = SharedCall(call)
    results = await asyncio.gather(*(shared() for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionFailed] * 3
    assert await shared() == 2


@simulated
async def test_a_shared_call_goes_on_when_all_its_callers_are_gone() -> None:
    done = asyncio.Event()

    async def call() -> None:
        await asyncio.sleep(1)
        done.set()

    shared = SharedCall(call)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await shared()
    await done.wait()


# Messages

SESSION = MessageSession(
    session_id="s1",
    message_queue_url=f"https://queue.example/messages?sig={PLANTED['signature']}",
    message_queue_access_token=PLANTED["queue"],
)


@simulated
async def test_a_poll_carries_the_queue_token_the_last_message_and_the_capacity() -> None:
    script = Script(HttpResponse(202))
    calls = client(script)
    assert await calls.get_message(SESSION, 0, 5) is None
    assert await calls.get_message(SESSION, 17, 0) is None
    first, second = script.requests
    assert first.url == SESSION.message_queue_url
    assert second.url == f"{SESSION.message_queue_url}&lastMessageId=17"
    assert first.header("authorization") == f"Bearer {PLANTED['queue']}"
    assert first.header("accept") == "application/json; api-version=6.0-preview"
    assert [r.header("X-ScaleSetMaxCapacity") for r in script.requests] == ["5", "0"]
    assert script.registrations == 0
    with pytest.raises(ValueError, match="max_capacity is -1"):
        await calls.get_message(SESSION, 0, -1)


@simulated
async def test_a_message_is_acknowledged_below_the_path_of_its_queue() -> None:
    script = Script(HttpResponse(204))
    await client(script).delete_message(SESSION, 17)
    [request] = script.requests
    assert request.method == "DELETE"
    assert request.url.startswith("https://queue.example/messages/17?")


@simulated
async def test_jobs_are_acquired_with_the_queue_token() -> None:
    script = Script(ok({"count": 1, "value": [4]}))
    calls = client(script)
    assert await calls.acquire_jobs(7, SESSION, [3, 4]) == [4]
    [request] = script.requests
    assert request.url == (
        "https://pipelines.example/tenant/_apis/runtime/runnerscalesets/7/acquirejobs"
        "?api-version=6.0-preview"
    )
    assert json.loads(request.body) == [3, 4]
    assert request.header("authorization") == f"Bearer {PLANTED['queue']}"
    assert await calls.acquire_jobs(7, SESSION, []) == []
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (HttpResponse(401), MessageQueueTokenExpired),
        (HttpResponse(404), SessionNotFound),
        (refusal(404, "RunnerScaleSetNotFoundException"), ScaleSetNotFound),
        (HttpResponse(500), ServerError),
    ],
)
def test_what_ends_a_poll_has_a_name(reply: HttpResponse, kind: type[ActionsError]) -> None:
    async def go() -> None:
        calls = client(Script(reply))
        for call in (
            calls.get_message(SESSION, 0, 1),
            calls.delete_message(SESSION, 1),
            calls.acquire_jobs(1, SESSION, [1]),
        ):
            with pytest.raises(ActionsError) as caught:
                await call
            assert type(caught.value) is kind

    run_simulated(go())


# Secrets


@simulated
async def test_no_error_repr_or_log_shows_a_secret() -> None:
    shown: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("arc_controller.actions")
    logger.addHandler(handler)
    secrets = [*PLANTED.values(), "proxy-planted"]

    status = 200

    def echo(request: HttpRequest) -> HttpResponse:
        """A service so careless that it repeats everything it was told."""
        words = f"you sent {request.headers} {request.body.decode()}"
        body = json.dumps({"typeName": words, "message": words}).encode()
        headers = {"activityid": request.header("authorization")}
        return HttpResponse(status, headers, body)

    proxy = ProxySettings("http://user:proxy-planted@p:1", "http://user:proxy-planted@p:1")
    session = MessageSession(
        session_id="s",
        message_queue_url=f"https://u:{PLANTED['queue']}@q.example/m?sig={PLANTED['signature']}",
        message_queue_access_token=PLANTED["queue"],
    )
    for answered in (200, 400, 401, 403, 404, 409, 429, 500, 502):
        status = answered
        script = Script(echo)
        calls = client(script)
        attempts = [
            calls.get_runner_scale_set("n", 1),
            calls.get_runner_scale_set_by_id(1),
            calls.generate_jit_config(1, "n", "w"),
            calls.create_message_session(1, "me"),
            calls.refresh_message_session(1, "s"),
            calls.get_message(session, 1, 1),
            calls.delete_message(session, 1),
            calls.acquire_jobs(1, session, [1]),
        ]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        assert len(errors) >= len(results) - 1  # a DELETE is content with any 200
        for error in errors:
            chain: BaseException | None = error
            while chain is not None:
                shown += [str(chain), repr(chain), *map(str, vars(chain).values())]
                chain = chain.__cause__ or (
                    None if chain.__suppress_context__ else chain.__context__
                )
        tokens = {r.header("authorization").partition(" ")[2] for r in script.requests}
        secrets += tokens
        shown += [repr(request) for request in script.requests]
        script.registration_replies = [echo] * 5
        with pytest.raises(ActionsError) as caught:
            await client(script).remove_runner(1)
        shown += [str(caught.value), repr(caught.value)]
    shown += [
        repr(client(Script(HttpResponse(204)))),
        repr(proxy),
        repr(session),
        repr(PersonalAccessToken(PLANTED["personal"])),
        repr(GitHubApp("1", 2, PLANTED["jit"])),
        repr(AdminConnection("https://s/?x=planted_signature", PLANTED["queue"], None)),
        repr(HttpResponse(200, {}, PLANTED["jit"].encode())),
        repr(ConnectionFailed("GET", session.message_queue_url, "reset")),
    ]
    logger.removeHandler(handler)
    text = "\n".join(shown)
    assert "trying again" in text
    for secret in secrets:
        assert secret not in text
