"""The reflector's state machine against a server that answers as it is told, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from arc_controller.api import SCHEME
from arc_controller.api.core import Pod
from arc_controller.runtime.errors import (
    ApiError,
    Gone,
    Status,
    StatusDetails,
    TooManyRequests,
    TransportError,
)
from arc_controller.runtime.errors import ServerError as Unavailable
from arc_controller.runtime.objects import KubeObject, LabelSelector, NamespacedName
from arc_controller.runtime.reflector import GRACE_SECONDS, Reflector, State
from arc_controller.runtime.transport import Response
from arc_controller.testing.loop import run_simulated, simulated

Wire = dict[str, Any]


def pod(name: str, version: int, **more: Any) -> Wire:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {"metadata": {**metadata, "resourceVersion": str(version)}, **more}


def page(version: int, *items: Wire, more: str = "") -> Response:
    metadata = {"resourceVersion": str(version), "continue": more}
    return Response(200, msgspec.json.encode({"metadata": metadata, "items": items}))


def refusal(code: int, reason: str = "", retry_after: int = 0) -> Response:
    details = {"retryAfterSeconds": retry_after}
    status = {"kind": "Status", "code": code, "reason": reason, "details": details}
    return Response(code, msgspec.json.encode(status))


def event(type_: str, obj: Wire) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj})


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def error_event(code: int, reason: str = "") -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "no"})


@dataclass(frozen=True)
class After:
    """Time passes in a watch."""

    seconds: float


class Silence:
    """A watch that never says anything again."""


Scene = bytes | After | Silence | Exception
Watch = Sequence[Scene] | Exception


@dataclass
class Call:
    at: float
    query: dict[str, str]

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query


@dataclass
class ScriptedServer:
    """A transport that plays `lists` and `watches`, one each per call; then it is silent."""

    lists: list[Response | Exception] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    open_watches: int = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        assert (method, path) == ("GET", "/api/v1/namespaces/ns/pods")
        self._record(query)
        await asyncio.sleep(0.001)
        answer = self.lists.pop(0) if self.lists else page(10_000)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._record(query)
        await asyncio.sleep(0.001)
        scenes = self.watches.pop(0) if self.watches else [Silence()]
        if isinstance(scenes, Exception):
            raise scenes
        self.open_watches += 1
        try:
            yield self._play(scenes)
        finally:
            self.open_watches -= 1

    async def close(self) -> None:
        pass

    async def _play(self, scenes: Sequence[Scene]) -> AsyncIterator[bytes]:
        for scene in scenes:
            match scene:
                case bytes():
                    yield scene
                case After(seconds):
                    await asyncio.sleep(seconds)
                case Silence():
                    await asyncio.get_running_loop().create_future()
                case Exception():
                    raise scene

    def _record(self, query: Sequence[tuple[str, str]]) -> None:
        self.calls.append(Call(asyncio.get_running_loop().time(), dict(query)))

    @property
    def list_calls(self) -> list[Call]:
        return [call for call in self.calls if not call.is_watch]

    @property
    def watch_calls(self) -> list[Call]:
        return [call for call in self.calls if call.is_watch]


class Notebook:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.unreadable: list[frozenset[NamespacedName]] = []

    def replaced(
        self, objects: Sequence[Pod], unreadable: frozenset[NamespacedName], version: str
    ) -> None:
        names = ",".join(f"{o.metadata.name}@{o.metadata.resource_version}" for o in objects)
        self.lines.append(f"list {version}: {names}")
        self.unreadable.append(unreadable)

    def changed(self, obj: Pod) -> None:
        self.lines.append(f"changed {obj.metadata.name}@{obj.metadata.resource_version}")

    def deleted(self, last: KubeObject) -> None:
        self.lines.append(f"deleted {last.metadata.name}@{last.metadata.resource_version}")

    def reached(self, version: str) -> None:
        self.lines.append(f"reached {version}")


def follow(server: ScriptedServer, labels: str = "") -> tuple[Reflector[Pod], Notebook]:
    notebook = Notebook()
    selector = LabelSelector.parse(labels) if labels else None
    reflector = Reflector(
        Pod, notebook, server, SCHEME, namespace="ns", labels=selector, random=Random(7)
    )
    return reflector, notebook


async def run_for(seconds: float, reflector: Reflector[Pod]) -> None:
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@simulated
async def test_it_lists_then_watches_from_the_version_of_the_list() -> None:
    server = ScriptedServer(
        lists=[page(5, pod("a", 3), pod("b", 4))],
        watches=[[event("ADDED", pod("c", 6)), event("DELETED", pod("a", 7)), Silence()]],
    )
    reflector, notebook = follow(server)

    await run_for(1, reflector)

    assert notebook.lines == ["list 5: a@3,b@4", "changed c@6", "deleted a@7"]
    [watch] = server.watch_calls
    assert watch.query["resourceVersion"] == "5"
    assert watch.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(watch.query["timeoutSeconds"]) <= 600
    assert reflector.version == "7"
    assert server.open_watches == 0  # Cancelling closed it.


@simulated
async def test_a_list_is_the_most_recent_state_in_pages() -> None:
    server = ScriptedServer(lists=[page(5, pod("a", 1), more="t1"), page(5, pod("b", 2))])
    reflector, notebook = follow(server)

    await run_for(1, reflector)

    assert notebook.lines == ["list 5: a@1,b@2"]
    first, second = server.list_calls
    assert first.query == {"limit": "500"}  # No resourceVersion: never older than what was seen.
    assert second.query == {"limit": "500", "continue": "t1"}


@simulated
async def test_the_label_selector_goes_into_lists_and_watches() -> None:
    server = ScriptedServer()
    reflector, _ = follow(server, labels="app=x,tier!=y")

    await run_for(1, reflector)

    assert {call.query["labelSelector"] for call in server.calls} == {"app=x,tier!=y"}
    assert len(server.calls) == 2


@simulated
async def test_pages_that_expire_are_thrown_away_and_the_list_comes_in_one_piece() -> None:
    server = ScriptedServer(
        lists=[
            page(5, pod("a", 1), more="t1"),
            refusal(410, "Expired"),
            page(9, pod("b", 8), pod("c", 9)),
        ]
    )
    reflector, notebook = follow(server)

    await run_for(5, reflector)

    assert notebook.lines == ["list 9: b@8,c@9"]
    assert server.list_calls[2].query == {}


@simulated
async def test_a_list_whose_pages_never_end_is_begun_again() -> None:
    server = ScriptedServer(
        lists=[
            page(5, pod("a", 1), more="t1"),
            page(5, pod("b", 2), more="t1"),
            page(5, pod("a", 1)),
        ]
    )
    reflector, notebook = follow(server)

    await run_for(5, reflector)

    assert notebook.lines == ["list 5: a@1"]
    assert [call.query.get("continue") for call in server.list_calls] == [None, "t1", None]


@simulated
async def test_a_page_that_fails_is_read_again() -> None:
    server = ScriptedServer(
        lists=[
            page(5, pod("a", 1), more="t1"),
            TransportError("broken"),
            refusal(500),
            page(5, pod("b", 2)),
        ]
    )
    reflector, notebook = follow(server)

    await run_for(5, reflector)

    assert notebook.lines == ["list 5: a@1,b@2"]
    assert [call.query.get("continue") for call in server.list_calls] == [None, "t1", "t1", "t1"]


@simulated
async def test_a_list_that_is_not_json_is_read_again() -> None:
    server = ScriptedServer(lists=[Response(200, b"<html>"), page(5)])
    reflector, notebook = follow(server)

    await run_for(5, reflector)

    assert notebook.lines == ["list 5: "]


@simulated
async def test_a_watch_that_breaks_is_resumed_from_the_last_version() -> None:
    server = ScriptedServer(
        lists=[page(5)],
        watches=[
            [event("ADDED", pod("a", 6)), TransportError("reset")],
            [event("ADDED", pod("b", 7)), bookmark(20), After(60)],
            [Silence()],
        ],
    )
    reflector, notebook = follow(server)

    await run_for(100, reflector)

    assert notebook.lines == ["list 5: ", "changed a@6", "changed b@7", "reached 20"]
    assert [call.query["resourceVersion"] for call in server.watch_calls] == ["5", "6", "20"]
    assert len(server.list_calls) == 1


@simulated
async def test_gone_as_an_answer_leads_to_a_new_list() -> None:
    server = ScriptedServer(
        lists=[page(5), page(50, pod("a", 49))],
        watches=[Gone(Status(code=410, reason="Expired")), [Silence()]],
    )
    reflector, notebook = follow(server)

    await run_for(5, reflector)

    assert notebook.lines == ["list 5: ", "list 50: a@49"]
    assert server.watch_calls[-1].query["resourceVersion"] == "50"


@pytest.mark.parametrize("reason", ["Expired", "Gone", ""])
def test_gone_as_an_event_leads_to_a_new_list(reason: str) -> None:
    @simulated
    async def play() -> None:
        server = ScriptedServer(
            lists=[page(5), page(50)],
            watches=[[event("ADDED", pod("a", 6)), error_event(410, reason)], [Silence()]],
        )
        reflector, notebook = follow(server)

        await run_for(5, reflector)

        assert notebook.lines == ["list 5: ", "changed a@6", "list 50: "]

    play()


@simulated
async def test_other_errors_in_the_stream_resume_the_watch() -> None:
    server = ScriptedServer(
        lists=[page(5)],
        watches=[[event("ADDED", pod("a", 6)), error_event(500, "InternalError")], [Silence()]],
    )
    reflector, _ = follow(server)

    await run_for(5, reflector)

    assert [call.query["resourceVersion"] for call in server.watch_calls] == ["5", "6"]
    assert len(server.list_calls) == 1


@simulated
async def test_a_version_the_server_does_not_understand_leads_to_a_new_list() -> None:
    server = ScriptedServer(lists=[page(5), page(50)], watches=[[error_event(400, "BadRequest")]])
    reflector, notebook = follow(server)

    await run_for(5, reflector)

    assert notebook.lines == ["list 5: ", "list 50: "]


@simulated
async def test_a_watch_that_cannot_be_resumed_ends_in_a_new_list() -> None:
    broken = Unavailable(Status(code=503))
    server = ScriptedServer(lists=[page(5), page(50)], watches=[broken] * 5)
    reflector, notebook = follow(server)

    await run_for(60, reflector)

    assert notebook.lines == ["list 5: ", "list 50: "]
    assert [call.query["resourceVersion"] for call in server.watch_calls] == ["5"] * 5 + ["50"]


@simulated
async def test_while_nobody_answers_nothing_is_listed_again() -> None:
    server = ScriptedServer(lists=[page(5)], watches=[TransportError("refused")] * 20)
    reflector, _ = follow(server)

    await run_for(900, reflector)

    assert len(server.watch_calls) >= 20
    assert {call.query["resourceVersion"] for call in server.watch_calls} == {"5"}
    assert len(server.list_calls) == 1


@simulated
async def test_failures_wait_longer_and_longer_with_jitter() -> None:
    server = ScriptedServer(lists=[TransportError("refused")] * 40)
    reflector, _ = follow(server)

    await run_for(600, reflector)

    times = [call.at for call in server.list_calls]
    waits = [later - earlier for earlier, later in pairwise(times)]
    for attempt, wait in enumerate(waits[:12]):
        longest = min(30.0, 0.2 * 2**attempt)
        assert longest / 2 <= wait <= longest + 0.01
    assert len({round(wait, 3) for wait in waits[8:]}) > 5


@simulated
async def test_the_server_is_left_alone_for_as_long_as_it_asks() -> None:
    busy = TooManyRequests(Status(code=429, details=StatusDetails(retry_after_seconds=17)))
    server = ScriptedServer(lists=[refusal(429, retry_after=9), page(5)], watches=[busy])
    reflector, _ = follow(server)

    await run_for(60, reflector)

    listed, listed_again = server.list_calls
    assert listed_again.at - listed.at >= 9
    watched, watched_again = server.watch_calls
    assert watched_again.at - watched.at >= 17


@simulated
async def test_an_event_ends_a_run_of_failures() -> None:
    server = ScriptedServer(
        lists=[page(5)],
        watches=[
            *[TransportError("reset")] * 4,
            [event("ADDED", pod("a", 6)), TransportError("reset")],
            [Silence()],
        ],
    )
    reflector, _ = follow(server)

    await run_for(30, reflector)

    *_, broken, resumed = server.watch_calls
    assert resumed.at - broken.at <= 0.21
    assert len(server.list_calls) == 1


@simulated
async def test_a_long_watch_without_events_ends_a_run_of_failures() -> None:
    server = ScriptedServer(
        lists=[page(5)],
        watches=[*[TransportError("reset")] * 3, [After(400), TransportError("reset")]],
    )
    reflector, _ = follow(server)

    await run_for(500, reflector)

    *_, broken, resumed = server.watch_calls
    assert resumed.at - broken.at <= 400.3


@simulated
async def test_watches_that_end_at_once_do_not_spin() -> None:
    server = ScriptedServer(lists=[page(5)], watches=[[]] * 10_000)
    reflector, _ = follow(server)

    await run_for(600, reflector)

    assert len(server.calls) < 50


@simulated
async def test_watches_that_bring_a_bookmark_and_end_do_not_spin() -> None:
    server = ScriptedServer(lists=[page(5)], watches=[[bookmark(6)]] * 10_000)
    reflector, _ = follow(server)

    await run_for(600, reflector)

    assert len(server.calls) < 50


@simulated
async def test_a_list_that_works_and_a_watch_that_does_not_do_not_spin() -> None:
    gone = Gone(Status(code=410, reason="Expired"))
    server = ScriptedServer(lists=[page(5)] * 10_000, watches=[gone] * 10_000)
    reflector, _ = follow(server)

    await run_for(600, reflector)

    assert len(server.calls) < 100


@simulated
async def test_a_watch_that_ends_after_its_time_is_resumed_at_once() -> None:
    server = ScriptedServer(lists=[page(5)], watches=[[After(310)], [Silence()]])
    reflector, _ = follow(server)

    await run_for(400, reflector)

    first, second = server.watch_calls
    assert second.at - first.at == pytest.approx(310.001)


@simulated
async def test_a_silent_connection_is_given_up() -> None:
    server = ScriptedServer(
        lists=[page(5)], watches=[[event("ADDED", pod("a", 6)), Silence()], [Silence()]]
    )
    reflector, _ = follow(server)

    await run_for(700, reflector)

    first, second = server.watch_calls
    asked_for = int(first.query["timeoutSeconds"])
    assert second.at - first.at == pytest.approx(asked_for + GRACE_SECONDS)
    assert second.query["resourceVersion"] == "6"
    assert server.open_watches == 0


UNREADABLE = {"status": {"phase": 7}}


@simulated
async def test_one_unreadable_object_in_a_list_is_left_out_and_named() -> None:
    server = ScriptedServer(lists=[page(5, pod("a", 1), pod("b", 2, **UNREADABLE), pod("c", 3))])
    reflector, notebook = follow(server)

    await run_for(5, reflector)

    assert notebook.lines == ["list 5: a@1,c@3"]
    assert notebook.unreadable == [{NamespacedName("ns", "b")}]


@simulated
async def test_one_unreadable_event_is_passed_over_and_the_collection_listed_again_later() -> None:
    server = ScriptedServer(
        lists=[page(5), page(50, pod("b", 49))],
        watches=[
            [
                event("ADDED", pod("a", 6)),
                event("MODIFIED", pod("b", 7, **UNREADABLE)),
                event("ADDED", pod("c", 8)),
                After(60),
            ],
            [Silence()],
        ],
    )
    reflector, notebook = follow(server)

    await run_for(100, reflector)

    assert notebook.lines == ["list 5: ", "changed a@6", "changed c@8", "list 50: b@49"]


@simulated
async def test_the_deletion_of_an_unreadable_object_is_told() -> None:
    server = ScriptedServer(
        lists=[page(5)], watches=[[event("DELETED", pod("b", 7, **UNREADABLE)), Silence()]]
    )
    reflector, notebook = follow(server)

    await run_for(1, reflector)

    assert notebook.lines == ["list 5: ", "deleted b@7"]
    assert reflector.version == "7"


@simulated
async def test_half_a_line_is_a_broken_stream() -> None:
    server = ScriptedServer(
        lists=[page(5)],
        watches=[[event("ADDED", pod("a", 6)), b'{"type": "ADDED", "obj'], [Silence()]],
    )
    reflector, _ = follow(server)

    await run_for(5, reflector)

    assert [call.query["resourceVersion"] for call in server.watch_calls] == ["5", "6"]


# Answers that are no answers: a proxy in between, a server of another version, a broken disk.


@simulated
async def test_an_answer_that_is_no_list_does_not_mean_that_everything_is_gone() -> None:
    """A Status has metadata and no items: read as a page it would empty the cache."""
    status = {"kind": "Status", "metadata": {}, "status": "Failure", "message": "try later"}
    nonsense = [
        Response(200, msgspec.json.encode(status)),
        Response(200, b'{"metadata":{"resourceVersion":"7"}}'),
        Response(302, b'{"metadata":{},"items":[]}'),
        Response(200, b"<html>please log in</html>"),
        Response(200, b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{'),
        Response(200, b""),
        Response(200, b"null"),
    ]
    server = ScriptedServer(lists=[page(5, pod("a", 3)), *nonsense, page(9, pod("a", 3))])
    server.watches = [[error_event(410, "Expired")]]
    reflector, notebook = follow(server)

    with capture_logs() as logs:
        await run_for(200, reflector)

    assert notebook.lines == ["list 5: a@3", "list 9: a@3"]
    assert any("try later" in str(line.get("error")) for line in logs)


@simulated
async def test_a_list_whose_items_are_null_is_empty() -> None:
    server = ScriptedServer(
        lists=[Response(200, b'{"metadata":{"resourceVersion":"7"},"items":null}')]
    )
    reflector, notebook = follow(server)

    await run_for(1, reflector)

    assert notebook.lines == ["list 7: "]


@pytest.mark.parametrize("depth", [2000, 9000])
@simulated
async def test_an_object_nested_too_deeply_hides_no_other(depth: int) -> None:
    """The API server takes 10,000 levels, where a schema leaves fields open; Python reads 1000."""
    deep = b'{"metadata":{"namespace":"ns","name":"deep"},"spec":' + b"[" * depth + b"]" * depth
    good = msgspec.json.encode(pod("a", 3))
    body = b'{"metadata":{"resourceVersion":"5"},"items":[' + deep + b"}," + good + b"]}"
    server = ScriptedServer(lists=[Response(200, body)])
    server.watches = [[b'{"type":"ADDED","object":' + deep + b"}}", After(20)]]
    reflector, notebook = follow(server)

    await run_for(15, reflector)

    assert notebook.lines == ["list 5: a@3"]
    assert notebook.unreadable == [{NamespacedName("ns", "deep")}]
    assert reflector.state is State.WATCHING


@pytest.mark.parametrize(
    "object_", [b'{"metadata":{"name":"\xff"}}', b"{}", b'{"metadata":{}}', b'{"kind":"Status"}']
)
@simulated
async def test_an_object_that_says_not_even_its_name_is_passed_over(object_: bytes) -> None:
    body = b'{"metadata":{"resourceVersion":"5"},"items":[' + object_ + b"]}"
    server = ScriptedServer(lists=[Response(200, body)])
    server.watches = [
        [b'{"type":"%s","object":%s}' % (type_, object_) for type_ in (b"ADDED", b"DELETED")]
        + [event("ADDED", pod("a", 6)), After(20)]
    ]
    reflector, notebook = follow(server)

    await run_for(15, reflector)

    assert notebook.lines == ["list 5: ", "changed a@6"]


@simulated
async def test_events_that_cannot_be_read_lead_to_a_new_list_in_the_end() -> None:
    """Whatever stands at this version in the stream would be sent again and again."""
    server = ScriptedServer(lists=[page(5), page(9)], watches=[[b'{"type":']] * 5)
    reflector, notebook = follow(server)

    await run_for(60, reflector)

    assert notebook.lines == ["list 5: ", "list 9: "]


@simulated
async def test_watches_that_always_end_at_once_are_warned_of_and_lead_to_a_new_list() -> None:
    """A proxy that ends every stream: without lists the cache would stay as it was."""
    server = ScriptedServer(lists=[page(5), page(9)], watches=[[]] * 5)
    reflector, notebook = follow(server)

    with capture_logs() as logs:
        await run_for(60, reflector)

    assert notebook.lines == ["list 5: ", "list 9: "]
    warnings = [line for line in logs if line["event"] == "watch ends as soon as it begins"]
    assert [line["failures"] for line in warnings] == [3, 4, 5]


@simulated
async def test_nobody_is_left_alone_for_years() -> None:
    server = ScriptedServer(lists=[refusal(429, retry_after=10**15), page(5)])
    reflector, notebook = follow(server)

    await run_for(301, reflector)

    assert notebook.lines == ["list 5: "]


@simulated
async def test_a_kind_the_server_does_not_know_is_asked_for_with_a_hint() -> None:
    reflector, _ = follow(ScriptedServer(lists=[refusal(404)]))
    with capture_logs() as logs:
        await run_for(0.01, reflector)
    assert "is its CustomResourceDefinition installed?" in logs[0]["error"]


@simulated
async def test_an_unknown_type_of_event_is_passed_over() -> None:
    server = ScriptedServer(
        lists=[page(5)],
        watches=[[event("RENAMED", pod("a", 6)), event("ADDED", pod("b", 7)), Silence()]],
    )
    reflector, notebook = follow(server)

    await run_for(1, reflector)

    assert notebook.lines == ["list 5: ", "changed b@7"]


@simulated
async def test_the_states_are_what_the_documentation_says() -> None:
    server = ScriptedServer(
        lists=[page(5, more="t"), page(5)],
        watches=[[After(20)], ApiError(Status(code=418)), Gone(Status(code=410))],
    )
    reflector, _ = follow(server)
    states = [reflector.state]

    for _ in range(6):
        await reflector.step()
        states.append(reflector.state)

    assert states == [
        State.EMPTY,
        State.LISTING,
        State.LISTING,
        State.WATCHING,
        State.WATCHING,
        State.WATCHING,
        State.EMPTY,
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_reflector_may_be_cancelled_and_run_again_at_any_moment(seed: int) -> None:
    random = Random(seed)

    async def play() -> None:
        server = ScriptedServer(
            lists=[page(5, pod("a", 1), more="t"), page(5, pod("b", 2))],
            watches=[[event("ADDED", pod("c", 6)), After(15)], [event("ADDED", pod("d", 7))]],
        )
        reflector, notebook = follow(server)
        for _ in range(30):
            task = asyncio.create_task(reflector.run())
            await asyncio.sleep(random.choice([0, 0.0005, 0.001, 0.0015, 0.3, 16]))
            task.cancel()
            await asyncio.wait([task])
        await run_for(30, reflector)

        told = [line for line in notebook.lines if line.startswith("list")]
        assert len(told) == 1  # However often it was interrupted, it was complete once.
        assert reflector.state is State.WATCHING
        assert server.open_watches == 0

    run_simulated(play(), seed=seed)
