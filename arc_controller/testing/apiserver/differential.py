"""How faithful the embedded server is: the same requests to it and to a real one, answers compared.

`generate` (in `sequences`) draws a sequence of requests from a seed, `compare` sends it to both
sides and lists what differs: status codes, bodies, warnings, and the events of watches opened
before the first request and in between; `shrink` looks for the shortest that still differs.
Times, uids, resource versions, quoted objects and the diff that refuses a pod's change are not
compared. What is known to differ, and why, is in `KNOWN`; `Report.unexplained` leaves it out.
"""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp

from arc_controller.testing.apiserver.messages import ADMIN, Object, Request, UserInfo
from arc_controller.testing.apiserver.sequences import (
    COLLECTIONS,
    WATCH,
    WIDGETS,
    Step,
    collections_of,
    generate,
)
from arc_controller.testing.apiserver.server import ApiServer

__all__ = [
    "COLLECTIONS",
    "KNOWN",
    "WIDGETS",
    "Answer",
    "Difference",
    "EmbeddedSide",
    "HttpSide",
    "Memory",
    "Report",
    "Side",
    "Step",
    "compare",
    "describe",
    "generate",
    "normal",
    "shrink",
]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any
    warnings: str = ""


class Side(Protocol):
    """One of the two servers."""

    async def request(self, step: Step) -> Answer: ...

    async def watch(self, step: Step, events: list[Object]) -> tuple[Answer, Callable[[], None]]:
        """Collect the events of a watch; what is called at its end ends it."""


class EmbeddedSide:
    """An `ApiServer` in this process. Turn its controllers off: the other side has none."""

    def __init__(self, api: ApiServer, user: UserInfo = ADMIN) -> None:
        self._api = api
        self._user = user

    async def request(self, step: Step) -> Answer:
        try:
            response = await self._api.handle(self._request(step))
        except Exception as error:
            return _crashed(error)
        assert isinstance(response.body, bytes)
        return Answer(response.status, _decoded(response.body), response.headers.get("Warning", ""))

    async def watch(self, step: Step, events: list[Object]) -> tuple[Answer, Callable[[], None]]:
        try:
            response = await self._api.handle(self._request(_as_watch(step)))
        except Exception as error:
            return _crashed(error), _nothing
        body = response.body
        if isinstance(body, bytes):
            return Answer(response.status, _decoded(body)), _nothing

        async def follow() -> None:
            async for frame in body:
                events.append(json.loads(frame))

        task = asyncio.get_running_loop().create_task(follow())
        return Answer(response.status, None), lambda: void(task.cancel())

    def _request(self, step: Step) -> Request:
        return Request(
            step.method, step.path, urlencode(step.query), _headers(step), _data(step), self._user
        )


class HttpSide:
    """A server behind a session whose base URL and headers reach it as an administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(self, step: Step) -> Answer:
        async with self._session.request(
            step.method,
            step.path,
            data=_data(step),
            params=list(step.query),
            headers=_headers(step),
            skip_auto_headers=["Content-Type"],
        ) as response:
            warnings = ", ".join(response.headers.getall("Warning", []))
            return Answer(response.status, _decoded(await response.read()), warnings)

    async def watch(self, step: Step, events: list[Object]) -> tuple[Answer, Callable[[], None]]:
        step = _as_watch(step)
        response = await self._session.get(
            step.path, params=list(step.query), headers=_headers(step)
        )
        if response.status != 200:
            answer = Answer(response.status, _decoded(await response.read()))
            response.close()
            return answer, _nothing

        async def follow() -> None:
            async for line in response.content:
                events.append(json.loads(line))

        task = asyncio.get_running_loop().create_task(follow())

        def stop() -> None:
            task.cancel()
            response.close()

        return Answer(response.status, None), stop


class Memory:
    """What one side has answered, for the placeholders of later steps.

    `${start}` is the version of the namespace, `${version:pods/a}` the last seen of an object,
    `${first:pods/a}` the first, `${uid:pods/a}` its uid, `${list:pods}` the version of the last
    list, `${continue:pods}` its token.
    """

    def __init__(self, start: str) -> None:
        self._start = start
        self._known: dict[str, str] = {}

    def fill(self, step: Step) -> Step:
        query = tuple((key, self._filled(value)) for key, value in step.query)
        kept = tuple(each for each in query if each != ("continue", ""))
        return replace(step, body=self._filled(step.body), query=kept)

    def learn(self, step: Step, answer: Answer) -> None:
        body = answer.body
        if answer.status >= 300 or not isinstance(body, dict) or _is_dry(step):
            return
        meta = body.get("metadata") or {}
        plural = _plural(step.path)
        if "items" in body:
            self._known[f"list:{plural}"] = meta.get("resourceVersion", "")
            self._known[f"continue:{plural}"] = meta.get("continue", "")
        elif meta.get("name") and meta.get("uid"):
            one = f"{plural}/{meta['name']}"
            self._known[f"version:{one}"] = meta["resourceVersion"]
            self._known.setdefault(f"first:{one}", meta["resourceVersion"])
            self._known[f"uid:{one}"] = meta["uid"]

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, str) and value.startswith("${"):
            return self._value(value[2:-1])
        return value

    def _value(self, name: str) -> str:
        otherwise = {"uid": "00000000-0000-0000-0000-000000000000", "continue": ""}
        return self._known.get(name, otherwise.get(name.partition(":")[0], self._start))


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer (or a watch's events, `what` says so) that is not the same on both sides."""

    step: Step
    real: Any
    ours: Any
    what: str

    def reason(self) -> str:
        """Why this difference is known and accepted; empty when it is not."""
        return next((why for why, holds in KNOWN if holds(self)), "")

    @property
    def kind(self) -> tuple[str, ...]:
        """Two differences of one kind probably have one cause."""
        codes = [str(each[0]) for each in (self.real, self.ours)] if self.what == "status" else []
        name = self.step.path.rpartition("/")[2]
        subresource = name if len(name) > 1 and name not in COLLECTIONS else ""
        shape = (self.step.method, _plural(self.step.path), subresource, self.step.content_type)
        return (self.what, *shape, *codes)


@dataclass(slots=True)
class Report:
    requests: int = 0
    watches: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Difference]:
        return [each for each in self.differences if not each.reason()]


async def compare(
    real: Side, ours: Side, steps: Sequence[Step], namespace: str, *, settle: float = 0.5
) -> Report:
    """Send the steps to both sides, in a namespace of their own, and compare.

    `settle` is how many seconds the real side's watches get to deliver their last events.
    """
    report = Report()
    sides = (real, ours)
    create = Step("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    watches: list[tuple[Step, tuple[list[Object], list[Object]]]] = []
    stops: list[Callable[[], None]] = []
    answers: list[Answer]

    async def open_watch(step: Step) -> None:
        collected: tuple[list[Object], list[Object]] = ([], [])
        answers = []
        for memory, side, events in zip(memories, sides, collected, strict=True):
            answer, stop = await side.watch(memory.fill(step), events)
            stops.append(stop)
            answers.append(answer)
        report.watches += 1
        report.differences += _differences(step, *answers)
        watches.append((step, collected))

    try:
        answers = [await side.request(create) for side in sides]
        memories = [Memory(answer.body["metadata"]["resourceVersion"]) for answer in answers]
        for path in collections_of(steps):
            query = (("resourceVersion", "${start}"),)
            await open_watch(Step(WATCH, path.format(namespace=namespace), query=query))
        for step in steps:
            placed = replace(step, path=step.path.format(namespace=namespace))
            if step.method == WATCH:
                await open_watch(placed)
                continue
            answers = []
            for memory, side in zip(memories, sides, strict=True):
                answer = await side.request(memory.fill(placed))
                memory.learn(placed, answer)
                answers.append(answer)
            report.requests += 1
            report.differences += _differences(placed, *answers)
        await asyncio.sleep(settle)
    finally:
        for stop in stops:
            stop()
    for step, (theirs, mine) in watches:
        lists = [_events(found) for found in (theirs, mine)]
        if lists[0] != lists[1]:
            report.differences.append(Difference(step, lists[0], lists[1], "events"))
    return report


async def shrink(
    run: Callable[[Sequence[Step]], Awaitable[Report]],
    steps: Sequence[Step],
    wanted: Difference,
    *,
    tries: int = 60,
) -> tuple[list[Step], Difference]:
    """The shortest sequence found that still shows a difference of the kind, and that difference.

    `run` compares a sequence from scratch (in a namespace of its own) and is called `tries` times
    at most. Halves are left out first, single steps last; minimal unless the tries ran out.
    """
    kept = list(steps)
    size = max(len(kept) // 2, 1)
    while tries > 0:
        start, shorter = 0, False
        while start < len(kept) and tries > 0:
            candidate = kept[:start] + kept[start + size :]
            tries -= 1
            report = await run(candidate)
            found = [each for each in report.unexplained if each.kind == wanted.kind]
            if found:
                kept, wanted, shorter = candidate, found[0], True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(size // 2, 1)
    return kept, wanted


def describe(steps: Sequence[Step], difference: Difference) -> str:
    """A sequence and its difference, for a person to read."""
    lines = []
    for step in steps:
        query = "&".join("=".join(each) for each in step.query)
        body = step.raw if step.raw is not None else json.dumps(step.body)
        lines.append(f"{step.method} {step.path}?{query} {step.content_type} {body}")
    lines.append(f"differs in {difference.what}: {difference.step.method} {difference.step.path}")
    lines.append(f"  real: {json.dumps(difference.real)}")
    lines.append(f"  ours: {json.dumps(difference.ours)}")
    return "\n".join(lines)


def normal(value: Any, key: str = "") -> Any:
    """The value without what two runs never share."""
    if isinstance(value, dict):
        return {
            _UID.sub("UID", name): normal(each, name)
            for name, each in sorted(value.items())
            if name != "columnDefinitions"
        } | _columns(value)
    if isinstance(value, list):
        items = [normal(each, "cell" if key == "cells" else "") for each in value]
        if key == "causes":
            # Some of the real server's checks run two or three times; how often is its business.
            return [json.loads(each) for each in sorted({json.dumps(each) for each in items})]
        return sorted(items, key=str) if key == "managedFields" else items
    if not isinstance(value, str):
        return value
    if key == "resourceVersion":
        return "VERSION" if value else ""
    if key == "continue":
        return "TOKEN" if value else ""
    if key == "cell" and _AGE.fullmatch(value):
        return "AGE"
    text = _TIME.sub("TIME", _UID.sub("UID", value))
    text = _GENERATED.sub(r"\1XXXXX", text)
    text = _QUOTED_OBJECT.sub("Invalid value: OBJECT", text)
    text = _POD_DIFF.sub(r"\1", text)
    if key == "message":
        text = _VERSION.sub(r"\1VERSION", text)
        # Both servers walk maps in an order of their own.
        before, several, lines = text.partition("errors:\n")
        text = before + several + "\n".join(sorted(lines.split("\n")))
        found = re.search(r" is invalid: \[(.*)\]$", text, re.DOTALL)
        if found is not None:
            parts = ", ".join(sorted(found.group(1).split(", ")))
            text = f"{text[: found.start()]} is invalid: [{parts}]"
    return text


def _columns(value: Object) -> Object:
    """The columns of a table without their descriptions: those of built-in kinds are not kept."""
    if value.get("kind") != "Table":
        return {}
    return {
        "columnDefinitions": [
            {key: each for key, each in column.items() if key != "description"}
            for column in value.get("columnDefinitions") or ()
        ]
    }


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"\d+s|<invalid>")
_GENERATED = re.compile(r"\b(g\d+-)[a-z0-9]{5}\b")
_VERSION = re.compile(
    r"(resource version: |current: |\(|requested: |ResourceVersion in object meta: )\d+\b"
)
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_QUOTED_OBJECT = re.compile(r'Invalid value: ("\{.*\}"|\[?\{.*\}\]?)(?=: )', re.DOTALL)
_POD_DIFF = re.compile(
    r"(it was previously negative\)).*?(?=, spec\.|, metadata\.|\]\Z|\Z)", re.DOTALL
)


def _says(difference: Difference, text: str) -> bool:
    return text in json.dumps([difference.real, difference.ours])


def _sent(difference: Difference, key: str) -> Any:
    """A field of the metadata that the request carried."""
    body = difference.step.body
    meta = body.get("metadata") if isinstance(body, dict) else None
    return meta.get(key) if isinstance(meta, dict) else None


KNOWN: tuple[tuple[str, Callable[[Difference], bool]], ...] = (
    (
        "an apply that leaves a struct of a custom resource empty makes it null on the real "
        "server, which its schema then refuses",
        lambda each: _says(each, r"in body must be of type object: \"null\""),
    ),
    (
        "a pod's containers and its other fields are refused in another order",
        lambda each: _says(each, "pod updates may not add or remove containers"),
    ),
    (
        "malformed JSON is explained by another parser",
        lambda each: _says(each, "json parse error") or _says(each, "body as JSON"),
    ),
)
"""(why, whether it is this) of the differences that stay."""


def _differences(step: Step, real: Answer, ours: Answer) -> list[Difference]:
    if real.status != ours.status:
        return [Difference(step, [real.status, real.body], [ours.status, ours.body], "status")]
    theirs, mine = normal(real.body), normal(ours.body)
    if theirs != mine:
        return [Difference(step, theirs, mine, "body")]
    if real.warnings != ours.warnings:
        return [Difference(step, real.warnings, ours.warnings, "warnings")]
    return []


def _events(found: list[Object]) -> list[tuple[str, Any]]:
    """Without the bookmarks that come every minute or so, whenever that is."""
    return [
        (each["type"], normal(each["object"]))
        for each in found
        if each["type"] != "BOOKMARK" or "annotations" in each["object"]["metadata"]
    ]


def _plural(path: str) -> str:
    parts = path.split("/")
    at = parts.index("namespaces") + 2 if "namespaces" in parts else 0
    return parts[at] if 0 < at < len(parts) else parts[-1]


def _is_dry(step: Step) -> bool:
    body = step.body if step.method == "DELETE" and isinstance(step.body, dict) else {}
    return bool(body.get("dryRun")) or any(key == "dryRun" for key, _ in step.query)


def _as_watch(step: Step) -> Step:
    return replace(step, method="GET", query=(("watch", "1"), *step.query))


def _headers(step: Step) -> dict[str, str]:
    headers = {"User-Agent": "differential/1"}
    if step.accept:
        headers["Accept"] = step.accept
    if step.body is not None or step.raw is not None:
        headers["Content-Type"] = step.content_type
    return headers


def _data(step: Step) -> bytes:
    if step.raw is not None:
        return step.raw.encode()
    return b"" if step.body is None else json.dumps(step.body).encode()


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def _crashed(error: Exception) -> Answer:
    """`handle` never raises for what a client does, so that it did is a difference."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Answer(0, f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")


def _nothing() -> None:
    """The end of a watch that never began."""


def void(_: object) -> None:
    """Throw a result away."""
