"""A GitHub Actions scale-set service in one object: deterministic, and without a socket."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from urllib.parse import urlsplit

from arc_controller.actions import HttpRequest, HttpResponse, RunnerGroup, RunnerScaleSetStatistic

from .calls import (
    REST_CALLS,
    Call,
    ConnectionReset,
    CutResponse,
    Refusal,
    RestRefusal,
    error_response,
    json_response,
    route,
)
from .endpoints import ADMIN, QUEUE, Endpoints
from .faults import Fault, Faults
from .jobs import Ledger
from .model import Job, JobState, RunnerRecord, ScaleSetRecord, SessionRecord
from .rest import RegisteredApp, Rest
from .runner import RunnerBusyElsewhere, RunnerConnection, RunnerRemoved, RunnerVersionRefused
from .tokens import TokenMint
from .wire import decode_jit_config

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request that was answered; ``status`` 0 when its connection broke. Never a token."""

    call: Call
    method: str
    path: str
    status: int
    user_agent: str
    started: float
    ended: float


class FakeActionsService:
    """GitHub and its Actions service, as far as runner scale sets go.

    :meth:`handle` answers requests; an :class:`InProcessTransport` or an
    :class:`HttpActionsService` bring them here. Any host will do, with ``/api/v3`` or without. All
    durations are seconds of the running loop's time; the wall clock and every random choice are
    injected, so that a seed repeats a run exactly.

    - ``poll_timeout``: how long a poll waits for a message;
    - ``session_timeout``: how long after its last poll a session still refuses a successor;
    - ``lost_after``: how long it takes to notice that a runner with a job vanished;
    - ``reoffer_after``: when a job that was offered and not acquired is offered again;
    - the lifetimes of admin and queue tokens.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        random: Random | None = None,
        poll_timeout: float = 50.0,
        session_timeout: float = 60.0,
        lost_after: float = 60.0,
        reoffer_after: float = 60.0,
        admin_token_lifetime: timedelta = timedelta(hours=1),
        queue_token_lifetime: timedelta = timedelta(hours=1),
        log_size: int = 10_000,
    ) -> None:
        self._random = random or Random(0)
        self._ledger = Ledger(
            now=now,
            random=self._random,
            lost_after=lost_after,
            reoffer_after=reoffer_after,
            session_timeout=session_timeout,
        )
        self._mint = TokenMint(self._random.randbytes(32), now)
        self._rest = Rest(self._mint, now=now, admin_token_lifetime=admin_token_lifetime)
        self._endpoints = Endpoints(
            self._ledger,
            self._mint,
            poll_timeout=poll_timeout,
            queue_token_lifetime=queue_token_lifetime,
            outage=lambda: self._outage,
        )
        self._now = now
        self._outage = 0
        self._down = False
        self.faults = Faults(self._random)
        self.calls: Counter[Call] = Counter()
        self.request_log: deque[RequestRecord] = deque(maxlen=log_size)
        self.runner_version_refused = False
        self._ledger.groups[1] = RunnerGroup(id=1, name="Default", is_default=True)

    # Answering

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one request.

        Raises :class:`ConnectionReset` where a network would break the connection. Cancelling it
        is the client hanging up.
        """
        path = urlsplit(request.url).path
        call, parts = route(request.method, path)
        self.calls[call] += 1
        started, status = self._ledger.loop_time(), 0
        try:
            response = await self._answer(call, parts, request)
            status = response.status
            return response
        finally:
            self.request_log.append(
                RequestRecord(
                    call=call,
                    method=request.method,
                    path=path,
                    status=status,
                    user_agent=request.header("user-agent"),
                    started=started,
                    ended=self._ledger.loop_time(),
                )
            )

    async def _answer(
        self, call: Call, parts: dict[str, str], request: HttpRequest
    ) -> HttpResponse:
        self._check_up()
        with_it, instead = self.faults.strike(call, request)
        for fault in with_it:
            if fault.kind == "delay" and not fault.after_effect:
                await asyncio.sleep(fault.after)
                self._check_up()
        if instead is not None and not instead.after_effect:
            response = await self._go_wrong(instead, None)
        else:
            response = await self._serve(call, parts, request)
            if instead is not None:
                response = await self._go_wrong(instead, response)
        for fault in with_it:
            if fault.kind == "delay" and fault.after_effect:
                await asyncio.sleep(fault.after)
                self._check_up()
            if fault.kind == "bom" and response.body:
                response.body = _BYTE_ORDER_MARK + response.body
        return response

    async def _serve(self, call: Call, parts: dict[str, str], request: HttpRequest) -> HttpResponse:
        try:
            if call in REST_CALLS:
                return self._rest.handle(call, parts, request)
            if call is Call.UNKNOWN:
                raise RestRefusal(404, "Not Found")
            return await self._endpoints.handle(call, parts, request)
        except Refusal as refusal:
            return self._error(refusal.status, refusal.type_name, refusal.message)
        except RestRefusal as refusal:
            return json_response(
                refusal.status,
                {"message": refusal.message, "documentation_url": "https://docs.github.com/rest"},
                {"x-github-request-id": self._ledger.uuid()},
            )
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            # A body of the wrong shape is the client's fault, and must not stop the server.
            return self._error(400, "ArgumentException", f"{type(error).__name__}: {error}")

    async def _go_wrong(self, fault: Fault, response: HttpResponse | None) -> HttpResponse:
        if fault.after:
            await asyncio.sleep(fault.after)
        match fault.kind:
            case "reset":
                raise ConnectionReset
            case "fail":
                return self._error(fault.status, fault.type_name, fault.message, fault.retry_after)
            case "ignore":
                return HttpResponse(204)
        assert response is not None
        if fault.kind == "empty":
            return HttpResponse(200, response.headers)
        keep = int(len(response.body) * fault.keep)
        if fault.kind == "cut":
            return CutResponse(response, keep)
        return HttpResponse(response.status, response.headers, response.body[:keep])

    def _error(
        self, status: int, type_name: str, message: str, retry_after: float | None = None
    ) -> HttpResponse:
        return error_response(
            status,
            type_name,
            message,
            activity_id=self._ledger.uuid(),
            request_id=self._ledger.uuid(),
            retry_after=retry_after,
        )

    def _check_up(self) -> None:
        if self._down:
            raise ConnectionReset

    # What is there

    @property
    def jobs(self) -> list[Job]:
        """Every job ever queued, in order."""
        return list(self._ledger.jobs.values())

    @property
    def runners(self) -> Mapping[int, RunnerRecord]:
        """Registered runners by id."""
        return self._ledger.runners

    @property
    def scale_sets(self) -> Mapping[int, ScaleSetRecord]:
        """Scale sets by id."""
        return self._ledger.scale_sets

    @property
    def sessions(self) -> dict[str, SessionRecord]:
        """Sessions that would refuse another one, by id."""
        sessions = (record.session for record in self._ledger.scale_sets.values())
        return {
            session.id: session
            for session in sessions
            if session is not None and self._ledger.session_alive(session)
        }

    def job_counts(self) -> Counter[JobState]:
        """How many jobs are in which state."""
        return Counter(job.state for job in self._ledger.jobs.values())

    def scale_set(self, which: str | int | ScaleSetRecord | None = None) -> ScaleSetRecord:
        """A scale set by name or id; None means the only one. Raises KeyError."""
        if isinstance(which, ScaleSetRecord):
            return which
        sets = self._ledger.scale_sets
        if which is None:
            if len(sets) != 1:
                raise KeyError(f"there are {len(sets)} scale sets: say which one")
            return next(iter(sets.values()))
        if isinstance(which, int):
            return sets[which]
        for record in sets.values():
            if record.name.lower() == which.lower():
                return record
        raise KeyError(f"no scale set is named {which!r}")

    def statistics(self, scale_set: str | int | None = None) -> RunnerScaleSetStatistic:
        """What the service would say of a scale set now."""
        return self.scale_set(scale_set).statistics

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is tried after every change of jobs, runners, scale
        sets and sessions. Waits for ever: put it under a timeout."""
        while not condition():
            await self._ledger.changed.wait()

    # Jobs and runners

    def queue_jobs(
        self,
        count: int = 1,
        *,
        scale_set: str | int | ScaleSetRecord | None = None,
        labels: tuple[str, ...] = (),
        repository: str = "acme/app",
        duration: float = 0.0,
        direct: bool = False,
        workflow: str = "ci.yml",
        ref: str = "refs/heads/main",
        event_name: str = "push",
        display_name: str = "build",
    ) -> list[Job]:
        """Queue jobs for a scale set (by name, also one that does not exist yet), or for whichever
        has all the ``labels``. ``direct`` jobs are assigned without being offered first."""
        if not labels:
            if isinstance(scale_set, str):
                labels = (scale_set,)
            else:
                labels = (self.scale_set(scale_set).name,)
        owner, _, name = repository.partition("/")
        run_id = self._ledger.next_id("workflow run")
        jobs = []
        for _ in range(count):
            job = Job(
                request_id=self._ledger.next_id("job"),
                job_id=self._ledger.uuid(),
                labels=labels,
                owner=owner,
                repository=name,
                display_name=display_name,
                workflow_ref=f"{repository}/.github/workflows/{workflow}@{ref}",
                workflow_run_id=run_id,
                event_name=event_name,
                queued=self._now(),
                duration=duration,
                direct=direct,
            )
            self._ledger.queue(job)
            jobs.append(job)
        return jobs

    def cancel_job(self, job: Job) -> None:
        """Cancel a job: at once while it waits; a running one has ``cancel_requested`` set."""
        self._ledger.cancel(job)

    def end_job(self, job: Job, result: str = "succeeded") -> None:
        """Let a running job be over now, whatever its duration."""
        if job.state is JobState.RUNNING:
            job.ending = result
            job.cancel_requested.set()

    def runner_online(self, jit_config: str) -> RunnerConnection:
        """A runner process started with this JIT configuration and connects.

        Raises :class:`RunnerRemoved` when it is not registered (any more),
        :class:`RunnerBusyElsewhere` while another process plays it, :class:`RunnerVersionRefused`
        while ``runner_version_refused`` is set, ValueError for a configuration that is none, and
        :class:`ConnectionReset` while the service is down.
        """
        runner_id, secret = decode_jit_config(jit_config)
        self._check_up()
        runner = self._ledger.runners.get(runner_id)
        if runner is None or runner.secret != secret:
            raise RunnerRemoved(f"no runner {runner_id} with these credentials is registered")
        if self.runner_version_refused:
            raise RunnerVersionRefused(f"the version of runner {runner.name} is too old")
        if runner.online:
            raise RunnerBusyElsewhere(f"runner {runner.name} is online already")
        self._ledger.runner_online(runner)
        return RunnerConnection(self._ledger, runner)

    # Whom it lets in

    def accept_tokens(self, *tokens: str) -> None:
        """From now on accept only these personal access tokens. At first any one is."""
        self._rest.accepted_tokens = set(tokens)

    def add_app(
        self, app_id: str, public_key: str, installation_id: int, client_id: str = ""
    ) -> None:
        """Make a GitHub App known by its public key in PEM, with one installation."""
        self._rest.apps.append(RegisteredApp(app_id, public_key, installation_id, client_id))

    def add_runner_group(self, name: str) -> RunnerGroup:
        """Add a runner group. Group 1, ``Default``, is there from the start."""
        group = RunnerGroup(id=max(self._ledger.groups) + 1, name=name)
        self._ledger.groups[group.id] = group
        return group

    # What may happen to it

    def expire_admin_tokens(self) -> None:
        """Every admin token given so far is refused from now on."""
        self._mint.expire(ADMIN)

    def expire_queue_tokens(self) -> None:
        """Every queue token given so far is refused from now on, also in polls that wait."""
        self._mint.expire(QUEUE)
        self._wake_polls()

    def expire_session(self, scale_set: str | int | None = None) -> None:
        """End the scale set's session as if its owner had closed it."""
        self._ledger.close_session(self.scale_set(scale_set))

    def forget_scale_set(self, scale_set: str | int) -> None:
        """Remove a scale set, as the service does with those that were offline for days."""
        self._ledger.remove_scale_set(self.scale_set(scale_set))

    def redeliver(self, scale_set: str | int | None = None) -> None:
        """Deliver the last message once more, under a new id."""
        self._ledger.redeliver(self.scale_set(scale_set))

    def lose_messages(self, scale_set: str | int | None = None) -> int:
        """Forget all messages not acknowledged; how many job messages that was."""
        return self._ledger.lose_messages(self.scale_set(scale_set))

    def reset_polls(self) -> None:
        """Break the connection of every poll that waits."""
        self._outage += 1
        self._wake_polls()

    def go_down(self) -> None:
        """Break every connection and accept none until :meth:`come_up`. State is kept."""
        self._down = True
        self.reset_polls()

    def come_up(self) -> None:
        self._down = False

    def _wake_polls(self) -> None:
        for record in self._ledger.scale_sets.values():
            record.wakeup.notify()

    async def aclose(self) -> None:
        """Stop timers and break polls."""
        self._ledger.stop_timers()
        self.go_down()
