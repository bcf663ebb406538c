"""What each call of the service does and answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from arc_controller.actions import (
    HttpRequest,
    HttpResponse,
    Label,
    MessageSession,
    Runner,
    RunnerScaleSetStatistic,
)
from arc_controller.actions.types import MESSAGE_TYPE

from .calls import (
    QUEUE_CALLS,
    SERVICE_PATH,
    Call,
    ConnectionReset,
    Refusal,
    json_response,
    list_response,
    queue_path,
)
from .jobs import Ledger
from .model import RunnerRecord, ScaleSetRecord, SessionRecord
from .tokens import TokenMint
from .wire import encode_jit_config

ADMIN = "admin"
QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the service, taken apart and let in."""

    call: Call
    path: dict[str, str]
    query: dict[str, str]
    request: HttpRequest
    origin: str
    claims: dict[str, Any]

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.request.body)
        except msgspec.DecodeError:
            raise Refusal(400, "VssPropertyValidationException", "the body is not JSON") from None


class Endpoints:
    """The service behind the admin token, and the message queues behind theirs."""

    def __init__(
        self,
        ledger: Ledger,
        mint: TokenMint,
        *,
        poll_timeout: float,
        queue_token_lifetime: timedelta,
        outage: Callable[[], int],
    ) -> None:
        self._ledger = ledger
        self._mint = mint
        self._poll_timeout = poll_timeout
        self._queue_token_lifetime = queue_token_lifetime
        self._outage = outage

    async def handle(self, call: Call, path: dict[str, str], request: HttpRequest) -> HttpResponse:
        parts = urlsplit(request.url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if "api-version" not in query and "api-version=" not in request.header("accept"):
            raise Refusal(400, "VssVersionNotSpecifiedException", "no api-version was given")
        kind = QUEUE if call in QUEUE_CALLS else ADMIN
        scheme, _, token = request.header("authorization").partition(" ")
        claims = self._mint.claims(kind, token) if scheme.lower() == "bearer" else None
        if claims is None:
            raise Refusal(401, "", "the token is missing, expired or not accepted")
        asked = Asked(call, path, query, request, f"{parts.scheme}://{parts.netloc}", claims)
        if call is Call.GET_MESSAGE:
            return await self._get_message(asked)
        handler: Callable[[Asked], HttpResponse] = getattr(self, f"_{call.value}")
        return handler(asked)

    # Scale sets

    def _find_scale_set(self, asked: Asked) -> HttpResponse:
        name, group = asked.query.get("name"), asked.query.get("runnerGroupId")
        return list_response(
            [
                self._wire(record)
                for record in self._ledger.scale_sets.values()
                if record.scope == asked.claims["scope"]
                and (name is None or record.name.lower() == name.lower())
                and (group is None or str(record.runner_group_id) == group)
            ]
        )

    def _get_scale_set(self, asked: Asked) -> HttpResponse:
        return json_response(200, self._wire(self._scale_set(asked)))

    def _create_scale_set(self, asked: Asked) -> HttpResponse:
        content = asked.json()
        name = str(content.get("name") or "")
        group = int(content.get("runnerGroupId") or 1)
        if not name:
            raise Refusal(400, "ArgumentException", "a runner scale set needs a name")
        self._check_group(group)
        self._check_free(asked.claims["scope"], name, group, None)
        record = self._ledger.add_scale_set(
            asked.claims["scope"], name, group, _labels(content), _disable_update(content, False)
        )
        return json_response(200, self._wire(record))

    def _update_scale_set(self, asked: Asked) -> HttpResponse:
        record, content = self._scale_set(asked), asked.json()
        name = str(content.get("name") or record.name)
        group = int(content.get("runnerGroupId") or record.runner_group_id)
        self._check_group(group)
        self._check_free(record.scope, name, group, record)
        record.name, record.runner_group_id = name, group
        record.labels = _labels(content) or record.labels
        record.disable_update = _disable_update(content, record.disable_update)
        self._ledger.relabel(record)
        return json_response(200, self._wire(record))

    def _delete_scale_set(self, asked: Asked) -> HttpResponse:
        self._ledger.remove_scale_set(self._scale_set(asked))
        return HttpResponse(204)

    def _runner_group(self, asked: Asked) -> HttpResponse:
        name = asked.query.get("groupName")
        return list_response(
            [
                group
                for group in self._ledger.groups.values()
                if name is None or group.name.lower() == name.lower()
            ]
        )

    # Runners

    def _generate_jit_config(self, asked: Asked) -> HttpResponse:
        record, content = self._scale_set(asked), asked.json()
        name = str(content.get("name") or "")
        if not name:
            raise Refusal(400, "ArgumentException", "a runner needs a name")
        if self._ledger.runner_named(name) is not None:
            raise Refusal(409, "AgentExistsException", f"Agent {name} already exists in pool 0.")
        runner = self._ledger.add_runner(record, name, str(content.get("workFolder") or ""))
        config = encode_jit_config(
            runner, f"{asked.origin}{SERVICE_PATH}/", f"{asked.origin}/{record.scope}"
        )
        return json_response(200, {"runner": _agent(runner), "encodedJITConfig": config})

    def _get_runner(self, asked: Asked) -> HttpResponse:
        runner_id = int(asked.path["runner"])
        runner = self._ledger.runners.get(runner_id)
        if runner is None:
            raise Refusal(
                404, "AgentNotFoundException", f"No agent with identifier {runner_id} in pool 0."
            )
        return json_response(200, _agent(runner))

    def _find_runner(self, asked: Asked) -> HttpResponse:
        name = asked.query.get("agentName")
        if name is None:
            return list_response([_agent(runner) for runner in self._ledger.runners.values()])
        runner = self._ledger.runner_named(name)
        return list_response([] if runner is None else [_agent(runner)])

    def _remove_runner(self, asked: Asked) -> HttpResponse:
        runner = self._ledger.runners.get(int(asked.path["runner"]))
        if runner is not None:
            if runner.is_busy:
                raise Refusal(
                    400,
                    "JobStillRunningException",
                    f"Agent {runner.name} is still running a job and cannot be removed.",
                )
            self._ledger.remove_runner(runner)
        return HttpResponse(204)

    # Sessions and messages

    def _create_session(self, asked: Asked) -> HttpResponse:
        record = self._scale_set(asked)
        owner = str(asked.json().get("ownerName") or "")
        session = self._ledger.open_session(record, owner)
        if session is None:
            holder = record.session.owner if record.session else ""
            raise Refusal(
                409,
                "RunnerScaleSetSessionConflictException",
                f"The runner scale set {record.name} already has an active session "
                f"for owner {holder}.",
            )
        return json_response(200, self._session_wire(asked, record, session))

    def _refresh_session(self, asked: Asked) -> HttpResponse:
        record = self._scale_set(asked)
        session = self._session(record, asked.path["session"])
        session.last_seen = self._ledger.loop_time()
        return json_response(200, self._session_wire(asked, record, session))

    def _delete_session(self, asked: Asked) -> HttpResponse:
        record = self._scale_set(asked)
        self._session(record, asked.path["session"])
        self._ledger.close_session(record)
        return HttpResponse(204)

    async def _get_message(self, asked: Asked) -> HttpResponse:
        record = self._scale_set(asked)
        session = self._session(record, asked.claims["session"])
        last_id = int(asked.query.get("lastMessageId") or 0)
        capacity = asked.request.header("x-scalesetmaxcapacity")
        session.capacity = int(capacity) if capacity else None
        token = asked.request.header("authorization").partition(" ")[2]
        outage, deadline = self._outage(), self._ledger.loop_time() + self._poll_timeout
        session.polls += 1
        try:
            while True:
                message = self._ledger.next_message(record, last_id)
                if message is not None:
                    return json_response(
                        200,
                        {
                            "messageId": message.id,
                            "messageType": MESSAGE_TYPE,
                            "body": message.body,
                            "statistics": _camel(message.statistics),
                        },
                    )
                left = deadline - self._ledger.loop_time()
                if left <= 0:
                    return HttpResponse(202)
                offer = self._ledger.next_offer(record)
                await record.wakeup.wait(left if offer is None else min(left, offer))
                if self._outage() != outage:
                    raise ConnectionReset
                if self._mint.claims(QUEUE, token) is None:
                    raise Refusal(401, "", "the token has expired")
                self._session(self._scale_set(asked), session.id)
        finally:
            session.polls -= 1
            session.last_seen = self._ledger.loop_time()

    def _delete_message(self, asked: Asked) -> HttpResponse:
        record = self._scale_set(asked)
        session = self._session(record, asked.claims["session"])
        session.last_seen = self._ledger.loop_time()
        record.messages.pop(int(asked.path["message"]), None)
        return HttpResponse(204)

    def _acquire_jobs(self, asked: Asked) -> HttpResponse:
        record = self._scale_set(asked)
        session = self._session(record, asked.claims["session"])
        session.last_seen = self._ledger.loop_time()
        return list_response(self._ledger.acquire(record, [int(i) for i in asked.json()]))

    # Looking things up

    def _scale_set(self, asked: Asked) -> ScaleSetRecord:
        scale_set_id = int(asked.path["scale_set"])
        record = self._ledger.scale_sets.get(scale_set_id)
        if record is None or record.scope != asked.claims["scope"]:
            raise Refusal(
                404,
                "RunnerScaleSetNotFoundException",
                f"No runner scale set found with identifier {scale_set_id}.",
            )
        return record

    def _session(self, record: ScaleSetRecord, session_id: str) -> SessionRecord:
        if record.session is None or record.session.id != session_id:
            raise Refusal(
                404,
                "RunnerScaleSetSessionNotFoundException",
                f"No session {session_id} is open for the runner scale set {record.name}.",
            )
        return record.session

    def _check_group(self, group_id: int) -> None:
        if group_id not in self._ledger.groups:
            raise Refusal(
                404, "RunnerGroupNotFoundException", f"No runner group found with id {group_id}."
            )

    def _check_free(self, scope: str, name: str, group_id: int, own: ScaleSetRecord | None) -> None:
        for record in self._ledger.scale_sets.values():
            taken = (record.scope, record.name.lower(), record.runner_group_id)
            if record is not own and taken == (scope, name.lower(), group_id):
                raise Refusal(
                    409,
                    "RunnerScaleSetExistsException",
                    f"Runner scale set with name {name} already exists.",
                )

    def _wire(self, record: ScaleSetRecord) -> dict[str, Any]:
        group = self._ledger.groups.get(record.runner_group_id)
        shown: dict[str, Any] = msgspec.to_builtins(record.wire(group.name if group else ""))
        shown["RunnerSetting"] = {"disableUpdate": record.disable_update}
        shown["statistics"] = _camel(record.statistics)
        shown["runnerJitConfigUrl"] = None
        shown["enabled"] = True
        return shown

    def _session_wire(
        self, asked: Asked, record: ScaleSetRecord, session: SessionRecord
    ) -> dict[str, Any]:
        token = self._mint.mint(
            QUEUE, self._queue_token_lifetime, scope=record.scope, session=session.id
        )
        shown: dict[str, Any] = msgspec.to_builtins(
            MessageSession(
                session_id=session.id,
                owner_name=session.owner,
                message_queue_url=f"{asked.origin}{queue_path(record.id)}?sessionId={session.id}",
                message_queue_access_token=token,
            )
        )
        shown["runnerScaleSet"] = self._wire(record)
        shown["statistics"] = _camel(record.statistics)
        return shown


def _camel(statistics: RunnerScaleSetStatistic) -> dict[str, int]:
    """Every count, also those that are zero."""
    values: tuple[int, ...] = msgspec.structs.astuple(statistics)
    return dict(zip(statistics.__struct_encode_fields__, values, strict=True))


def _agent(runner: RunnerRecord) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(
        Runner(id=runner.id, name=runner.name, runner_scale_set_id=runner.scale_set_id)
    )
    shown |= {"ephemeral": True, "enabled": True, "osDescription": None}
    shown["status"] = "online" if runner.online else "offline"
    return shown


def _labels(content: dict[str, Any]) -> list[Label]:
    return [
        Label(name=label["name"], type=label.get("type") or "System")
        for label in content.get("labels") or ()
    ]


def _disable_update(content: dict[str, Any], default: bool) -> bool:
    setting = content.get("RunnerSetting") or content.get("runnerSetting") or {}
    return bool(setting.get("disableUpdate", default))
