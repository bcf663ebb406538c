"""Every call of the Actions scale-set service, typed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from .config_url import ConfigUrl, parse_config_url
from .credentials import Credentials
from .errors import (
    ActionsApiError,
    AgentNotFound,
    Conflict,
    MessageQueueTokenExpired,
    NotFound,
    RunnerGroupNotFound,
    ScaleSetNotFound,
    SessionConflict,
    SessionNotFound,
    Unauthorized,
    UnexpectedResult,
)
from .exchange import Exchange
from .http import HttpResponse, HttpTransport
from .proxy import ProxySettings
from .registration import Registration
from .retries import RetryPolicy
from .types import (
    JitRunnerConfig,
    Label,
    Message,
    MessageSession,
    Runner,
    RunnerGroup,
    RunnerScaleSet,
    decode,
    decode_list,
    decode_message,
    readable_part,
)
from .user_agent import UserAgent

log = logging.getLogger("arc_controller.actions")

API_VERSION = "6.0-preview"
CAPACITY_HEADER = "X-ScaleSetMaxCapacity"

_SCALE_SETS = "_apis/runtime/runnerscalesets"
_GROUPS = "_apis/runtime/runnergroups/"
_AGENTS = "_apis/distributedtask/pools/0/agents"
_QUEUE_ERRORS: dict[int, type[ActionsApiError]] = {
    401: MessageQueueTokenExpired,
    404: SessionNotFound,
    410: SessionNotFound,
}

T = TypeVar("T")


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class ActionsClient:
    """A client of the scale-set service for one config URL and one set of credentials.

    Signs in by itself on the first call and renews its admin token when it has less than a minute
    left or was refused. 5xx, 429 and connection errors are retried up to four times within five
    minutes (``retries``); ``Retry-After`` is honoured. Safe to use from many tasks of one loop.

    ``proxy`` None means a direct connection: the environment is not looked at (see
    :meth:`ProxySettings.from_environment`). ``root_cas`` are PEM texts trusted beside the system's.
    ``transport`` replaces the network, and with it ``proxy`` and ``root_cas``; it is not closed by
    :meth:`aclose`, so that many clients may share one.

    Every call raises :class:`ActionsApiError` in one of its kinds when the service says no,
    :class:`ConnectionFailed`, :class:`CallTimeout` or :class:`MalformedResponse` when there was no
    usable answer (:func:`is_transient` tells them from final ones), and may be cancelled at any
    point; the request may then have taken effect or not. Use as ``async with`` or call
    :meth:`aclose`.

    Raises :class:`InvalidConfigUrl` and :class:`InvalidCertificates` at once.
    """

    def __init__(
        self,
        config_url: str | ConfigUrl,
        credentials: Credentials,
        *,
        proxy: ProxySettings | None = None,
        root_cas: Sequence[str] = (),
        user_agent: UserAgent | None = None,
        transport: HttpTransport | None = None,
        retries: RetryPolicy | None = None,
        now: Callable[[], datetime] = utc_now,
        random: Random | None = None,
    ) -> None:
        config = parse_config_url(config_url) if isinstance(config_url, str) else config_url
        self.config_url = config
        self._own_transport: HttpTransport | None = None
        if transport is None:
            # aiohttp is most of this package's memory; a simulation does without.
            from .network import AiohttpTransport

            transport = self._own_transport = AiohttpTransport(proxy=proxy, root_cas=root_cas)
        self._exchange = Exchange(
            transport,
            user_agent=(user_agent or UserAgent()).header(),
            policy=retries or RetryPolicy(),
            now=now,
            random=random or Random(),
            secrets=(*credentials.secrets, *(proxy.secrets if proxy else ())),
        )
        self._registration = Registration(config, credentials, self._exchange, now)

    async def __aenter__(self) -> ActionsClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"ActionsClient({self.config_url.url!r})"

    async def aclose(self) -> None:
        """Close connections; calls in flight fail. May be called more than once."""
        await self._registration.aclose()
        if self._own_transport is not None:
            await self._own_transport.aclose()

    # Scale sets

    async def get_runner_scale_set(self, name: str, group_id: int) -> RunnerScaleSet | None:
        """The scale set of that name in that group; None when there is none.

        Raises :class:`UnexpectedResult` when there are several.
        """
        query = {"runnerGroupId": str(group_id), "name": name}
        found = await self._call("GET", _SCALE_SETS, query=query, read=_list_of(RunnerScaleSet))
        if len(found) > 1:
            ids = ", ".join(str(scale_set.id) for scale_set in found)
            raise UnexpectedResult(
                "GET",
                _SCALE_SETS,
                f"{len(found)} scale sets are named {name!r} in runner group {group_id} "
                f"(ids {ids}), expected at most one",
            )
        return found[0] if found else None

    async def get_runner_scale_set_by_id(self, scale_set_id: int) -> RunnerScaleSet:
        """The scale set of that id. Raises :class:`ScaleSetNotFound`."""
        return await self._call(
            "GET",
            f"{_SCALE_SETS}/{scale_set_id}",
            read=_scale_set,
        )

    async def create_runner_scale_set(self, scale_set: RunnerScaleSet) -> RunnerScaleSet:
        """Create a scale set. Without labels it gets its own name as its label."""
        if not scale_set.labels:
            scale_set = msgspec.structs.replace(scale_set, labels=[Label(name=scale_set.name)])
        return await self._call("POST", _SCALE_SETS, body=scale_set, read=_scale_set)

    async def update_runner_scale_set(
        self, scale_set_id: int, changes: RunnerScaleSet
    ) -> RunnerScaleSet:
        """Change what ``changes`` sets (zero values are not sent); the whole scale set comes back.

        Raises :class:`ScaleSetNotFound`.
        """
        return await self._call(
            "PATCH",
            f"{_SCALE_SETS}/{scale_set_id}",
            body=changes,
            read=_scale_set,
        )

    async def delete_runner_scale_set(self, scale_set_id: int) -> None:
        """Delete a scale set. Raises :class:`ScaleSetNotFound` when there is none."""
        await self._call("DELETE", f"{_SCALE_SETS}/{scale_set_id}", read=_nothing)

    async def get_runner_group(self, name: str) -> RunnerGroup:
        """The runner group of that name.

        Raises :class:`RunnerGroupNotFound` when there is none (or it is not visible to this config
        URL), :class:`UnexpectedResult` when there are several.
        """
        found = await self._call(
            "GET", _GROUPS, query={"groupName": name}, read=_list_of(RunnerGroup)
        )
        if not found:
            raise RunnerGroupNotFound(
                "GET", _GROUPS, f"no runner group is named {name!r} for {self.config_url}"
            )
        if len(found) > 1:
            raise UnexpectedResult(
                "GET", _GROUPS, f"{len(found)} runner groups are named {name!r}, expected one"
            )
        return found[0]

    # Runners

    async def generate_jit_config(
        self, scale_set_id: int, name: str, work_folder: str
    ) -> JitRunnerConfig:
        """Register a runner for one job and get its just-in-time configuration, a secret.

        Raises :class:`AgentExists` when a runner of that name is registered (also when an earlier
        attempt of this very call was lost on its way back) and :class:`ScaleSetNotFound`.
        """
        return await self._call(
            "POST",
            f"{_SCALE_SETS}/{scale_set_id}/generatejitconfig",
            body={"name": name, "workFolder": work_folder},
            read=_one(JitRunnerConfig),
        )

    async def get_runner(self, runner_id: int) -> Runner | None:
        """The runner of that id; None when it is not registered."""
        try:
            return await self._call("GET", f"{_AGENTS}/{runner_id}", read=_one(Runner))
        except AgentNotFound:
            return None

    async def get_runner_by_name(self, name: str) -> Runner | None:
        """The runner of that name; None when it is not registered.

        Raises :class:`UnexpectedResult` when there are several.
        """
        found = await self._call("GET", _AGENTS, query={"agentName": name}, read=_list_of(Runner))
        if len(found) > 1:
            raise UnexpectedResult(
                "GET", _AGENTS, f"{len(found)} runners are named {name!r}, expected at most one"
            )
        return found[0] if found else None

    async def remove_runner(self, runner_id: int) -> None:
        """Remove a runner's registration; one that is gone already is fine.

        Raises :class:`JobStillRunning` while the runner holds a job.
        """
        try:
            await self._call("DELETE", f"{_AGENTS}/{runner_id}", read=_nothing)
        except AgentNotFound:
            return

    # Messages

    async def create_message_session(self, scale_set_id: int, owner: str) -> MessageSession:
        """Open the scale set's message session.

        Raises :class:`SessionConflict` while another one is open, :class:`ScaleSetNotFound`.
        """
        return await self._call(
            "POST",
            f"{_SCALE_SETS}/{scale_set_id}/sessions",
            body={"ownerName": owner},
            conflict=SessionConflict,
            read=_one(MessageSession),
        )

    async def refresh_message_session(self, scale_set_id: int, session_id: str) -> MessageSession:
        """Renew the session's queue token.

        Raises :class:`SessionNotFound` when the session is over, :class:`ScaleSetNotFound`.
        """
        return await self._call(
            "PATCH",
            _session_path(scale_set_id, session_id),
            missing=SessionNotFound,
            read=_one(MessageSession),
        )

    async def delete_message_session(self, scale_set_id: int, session_id: str) -> None:
        """Close the session, so that a successor is not refused; one that is over is fine."""
        try:
            await self._call(
                "DELETE",
                _session_path(scale_set_id, session_id),
                missing=SessionNotFound,
                read=_nothing,
            )
        except (SessionNotFound, ScaleSetNotFound):
            return

    async def get_message(
        self, session: MessageSession, last_message_id: int, max_capacity: int
    ) -> Message | None:
        """The next message after ``last_message_id``; None when none came in about 50 s.

        ``max_capacity`` is how many jobs the scale set may have at once. A message comes again
        until :meth:`delete_message`.

        Raises :class:`MessageQueueTokenExpired`, :class:`SessionNotFound`,
        :class:`ScaleSetNotFound`.
        """
        if max_capacity < 0:
            raise ValueError(f"max_capacity is {max_capacity}, expected 0 or more")
        url = session.message_queue_url
        if last_message_id > 0:
            url += f"{'&' if '?' in url else '?'}lastMessageId={last_message_id}"
        return await self._queue_call(
            session, "GET", url, headers={CAPACITY_HEADER: str(max_capacity)}, read=_message
        )

    async def delete_message(self, session: MessageSession, message_id: int) -> None:
        """Acknowledge a message; one that is gone already is fine.

        Raises :class:`MessageQueueTokenExpired`, :class:`SessionNotFound`.
        """
        parts = urlsplit(session.message_queue_url)
        url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{message_id}"))
        await self._queue_call(session, "DELETE", url, read=_nothing)

    async def acquire_jobs(
        self, scale_set_id: int, session: MessageSession, request_ids: Sequence[int]
    ) -> list[int]:
        """Ask for jobs; the request ids of those we got come back.

        Raises :class:`MessageQueueTokenExpired`, :class:`ScaleSetNotFound`.
        """
        if not request_ids:
            return []
        connection = await self._registration.connection()
        url = _service_url(connection.url, f"{_SCALE_SETS}/{scale_set_id}/acquirejobs")
        return await self._queue_call(
            session, "POST", url, body=list(request_ids), read=_request_ids
        )

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: object = None,
        missing: type[ActionsApiError] = NotFound,
        conflict: type[ActionsApiError] = Conflict,
        read: Callable[[HttpResponse], T],
    ) -> T:
        """A call with the admin token, which is renewed once when it is refused.

        A bare 409 is ``conflict``, a bare 404 ``missing``. The latter may come from whatever stands
        before the service, so only the service's own word may say that a runner or a scale set is
        gone: people delete on it.
        """
        connection = await self._registration.connection()
        for last in (False, True):
            try:
                return await self._exchange.call(
                    method,
                    _service_url(connection.url, path, query),
                    authorization=f"Bearer {connection.token}",
                    body=body,
                    by_status={404: missing, 409: conflict},
                    read=read,
                )
            except Unauthorized:
                if last:
                    raise
                connection = await self._registration.connection(refused=connection)
        raise AssertionError("the second attempt returns or raises")

    async def _queue_call(
        self,
        session: MessageSession,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        body: object = None,
        read: Callable[[HttpResponse], T],
    ) -> T:
        """A call with the session's own token."""
        accept = f"application/json; api-version={API_VERSION}"
        return await self._exchange.call(
            method,
            url,
            authorization=f"Bearer {session.message_queue_access_token}",
            headers={"accept": accept, **(headers or {})},
            body=body,
            by_status=_QUEUE_ERRORS,
            read=read,
        )


def _service_url(base: str, path: str, query: dict[str, str] | None = None) -> str:
    # The service's address may come with a query of its own.
    parts = urlsplit(base)
    pairs = "&".join(
        filter(None, [parts.query, urlencode({**(query or {}), "api-version": API_VERSION})])
    )
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}", query=pairs))


def _session_path(scale_set_id: int, session_id: str) -> str:
    return f"{_SCALE_SETS}/{scale_set_id}/sessions/{quote(session_id, safe='')}"


S = TypeVar("S", bound=msgspec.Struct)


def _one(kind: type[S]) -> Callable[[HttpResponse], S]:
    return lambda response: decode(response.body, kind)


def _list_of(kind: type[S]) -> Callable[[HttpResponse], list[S]]:
    return lambda response: decode_list(response.body, kind)


def _scale_set(response: HttpResponse) -> RunnerScaleSet:
    scale_set = decode(response.body, RunnerScaleSet)
    if scale_set.id == 0:
        raise msgspec.ValidationError("Object missing required field `id`")
    return scale_set


def _nothing(_: HttpResponse) -> None:
    return None


def _message(response: HttpResponse) -> Message | None:
    if response.status == 202:
        return None
    try:
        return decode_message(response.body)
    except msgspec.DecodeError as error:
        message = readable_part(response.body)
        log.warning(
            "message %d: a job message cannot be read and is left out: %s",
            message.message_id,
            error,
        )
        return message


class _RequestIds(msgspec.Struct):
    value: list[int] | None


def _request_ids(response: HttpResponse) -> list[int]:
    return msgspec.json.decode(response.body, type=_RequestIds, strict=False).value or []
