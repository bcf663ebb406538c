"""How faithful the embedded server is: the same requests to it and to a real one, answers compared.

`generate` draws a sequence of requests from a seed, `compare` sends it to both sides and lists what
differs: status codes, bodies, warnings, and the events of watches opened before the first request.
Times, uids, resource versions, quoted objects and the diff that refuses a pod's change are not
compared. What is known to differ, and
why, is in `KNOWN`; `Report.unexplained` leaves it out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import aiohttp

from arc_controller.testing.apiserver.messages import ADMIN, JSON, Object, Request, UserInfo
from arc_controller.testing.apiserver.patch import APPLY, JSON_PATCH, MERGE, STRATEGIC
from arc_controller.testing.apiserver.server import ApiServer

WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.differential.example.com"},
    "spec": {
        "group": "differential.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer", "minimum": 0},
                                    "mode": {
                                        "type": "string",
                                        "enum": ["Fast", "Slow"],
                                        "default": "Fast",
                                    },
                                    "tags": {
                                        "type": "array",
                                        "items": {"type": "string"},
                                        "x-kubernetes-list-type": "set",
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}
"""The custom resource of generated sequences; install it on both sides."""

COLLECTIONS = {
    "widgets": "/apis/differential.example.com/v1/namespaces/{namespace}/widgets",
    "pods": "/api/v1/namespaces/{namespace}/pods",
    "configmaps": "/api/v1/namespaces/{namespace}/configmaps",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `{namespace}` in the path and in strings of the body is filled in."""

    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    query: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any
    warnings: str = ""


class Side(Protocol):
    """One of the two servers."""

    async def request(self, step: Step) -> Answer: ...

    async def watch(self, path: str, version: str, events: list[Object]) -> Callable[[], None]:
        """Collect the events of a watch from a version on; the result ends it."""


class EmbeddedSide:
    """An `ApiServer` in this process. Turn its controllers off: the other side has none."""

    def __init__(self, api: ApiServer, user: UserInfo = ADMIN) -> None:
        self._api = api
        self._user = user

    async def request(self, step: Step) -> Answer:
        response = await self._api.handle(self._request(step))
        assert isinstance(response.body, bytes)
        return Answer(response.status, _decoded(response.body), response.headers.get("Warning", ""))

    async def watch(self, path: str, version: str, events: list[Object]) -> Callable[[], None]:
        step = Step("GET", path, query=(("watch", "1"), ("resourceVersion", version)))
        response = await self._api.handle(self._request(step))
        body = response.body
        assert not isinstance(body, bytes)

        async def follow() -> None:
            async for frame in body:
                events.append(json.loads(frame))

        task = asyncio.get_running_loop().create_task(follow())
        return lambda: void(task.cancel())

    def _request(self, step: Step) -> Request:
        query = "&".join(f"{key}={value}" for key, value in step.query)
        headers = {"User-Agent": "differential/1"}
        data = b""
        if step.body is not None:
            headers["Content-Type"] = step.content_type
            data = json.dumps(step.body).encode()
        return Request(step.method, step.path, query, headers, data, self._user)


class HttpSide:
    """A server behind a session whose base URL and headers reach it as an administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(self, step: Step) -> Answer:
        headers = {"User-Agent": "differential/1"}
        data = None
        if step.body is not None:
            headers["Content-Type"] = step.content_type
            data = json.dumps(step.body).encode()
        async with self._session.request(
            step.method, step.path, data=data, params=list(step.query), headers=headers
        ) as response:
            warnings = ", ".join(response.headers.getall("Warning", []))
            return Answer(response.status, _decoded(await response.read()), warnings)

    async def watch(self, path: str, version: str, events: list[Object]) -> Callable[[], None]:
        parameters = {"watch": "1", "resourceVersion": version}
        response = await self._session.get(path, params=parameters)

        async def follow() -> None:
            async for line in response.content:
                events.append(json.loads(line))

        task = asyncio.get_running_loop().create_task(follow())

        def stop() -> None:
            task.cancel()
            response.close()

        return stop


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer (or a watch's events, `step` None) that is not the same on both sides."""

    step: Step | None
    real: Any
    ours: Any
    what: str

    def reason(self) -> str:
        """Why this difference is known and accepted; empty when it is not."""
        return next((why for why, holds in KNOWN if holds(self)), "")


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
    events: dict[str, tuple[list[Object], list[Object]]] = {
        path.format(namespace=namespace): ([], []) for path in COLLECTIONS.values()
    }
    stops: list[Callable[[], None]] = []
    try:
        for index, side in enumerate(sides):
            answer = await side.request(create)
            version = answer.body["metadata"]["resourceVersion"]
            for path, collected in events.items():
                stops.append(await side.watch(path, version, collected[index]))
        for step in steps:
            filled = _filled(step, namespace)
            answers = [await side.request(filled) for side in sides]
            report.requests += 1
            report.differences += _differences(filled, *answers)
        await asyncio.sleep(settle)
    finally:
        for stop in stops:
            stop()
    for path, (theirs, mine) in events.items():
        report.watches += 1
        lists = [
            [(each["type"], normal(each["object"])) for each in found] for found in (theirs, mine)
        ]
        if lists[0] != lists[1]:
            report.differences.append(Difference(None, lists[0], lists[1], f"watch of {path}"))
    return report


def generate(random: Random, count: int) -> list[Step]:
    """A sequence of requests about a handful of names, so that they meet each other."""
    return [_draw(random) for _ in range(count)]


def normal(value: Any, key: str = "") -> Any:
    """The value without what two runs never share."""
    if isinstance(value, dict):
        return {name: normal(each, name) for name, each in sorted(value.items())}
    if isinstance(value, list):
        items = [normal(each) for each in value]
        return sorted(items, key=str) if key in ("causes", "managedFields") else items
    if not isinstance(value, str):
        return value
    if key == "resourceVersion":
        return "VERSION" if value else ""
    text = _TIME.sub("TIME", _UID.sub("UID", value))
    text = _QUOTED_OBJECT.sub("Invalid value: OBJECT", text)
    text = _POD_DIFF.sub(r"\1", text)
    if key == "message":
        found = re.search(r" is invalid: \[(.*)\]$", text, re.DOTALL)
        if found is not None:
            parts = ", ".join(sorted(found.group(1).split(", ")))
            text = f"{text[: found.start()]} is invalid: [{parts}]"
    return text


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_QUOTED_OBJECT = re.compile(r'Invalid value: "\{.*\}"(?=: )', re.DOTALL)
_POD_DIFF = re.compile(
    r"(it was previously negative\)).*?(?=, spec\.|, metadata\.|\]\Z|\Z)", re.DOTALL
)


def _says(difference: Difference, text: str) -> bool:
    return text in json.dumps([difference.real, difference.ours])


KNOWN: tuple[tuple[str, Callable[[Difference], bool]], ...] = (
    (
        "an apply that leaves a struct of a custom resource empty makes it null on the real "
        "server, which its schema then refuses",
        lambda each: _says(each, r"in body must be of type object: \"null\""),
    ),
    (
        "strategic patches with a value of the wrong type are worded by another Go library",
        lambda each: _says(each, "cannot convert int64 to string"),
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


def _filled(step: Step, namespace: str) -> Step:
    return Step(
        step.method,
        step.path.format(namespace=namespace),
        step.body,
        step.content_type,
        step.query,
    )


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def void(_: object) -> None:
    """Throw a result away."""


_OPERATIONS = (
    ["create"] * 4
    + ["merge"] * 4
    + ["status"] * 3
    + ["apply"] * 3
    + ["delete"] * 3
    + ["get", "list", "put", "json", "strategic", "hold", "release", "collection", "dry run"]
)


def _draw(random: Random) -> Step:
    kind = random.choice(list(COLLECTIONS))
    name = random.choice("abc")
    collection = COLLECTIONS[kind]
    one = f"{collection}/{name}"
    operation = random.choice(_OPERATIONS)
    if operation == "create":
        return Step("POST", collection, _object(random, kind, name))
    if operation == "dry run":
        body = _object(random, kind, name)
        return Step("POST", collection, body, query=(("dryRun", "All"),))
    if operation == "put":
        return Step("PUT", one, _object(random, kind, name))
    if operation == "merge":
        return Step("PATCH", one, _merge(random, kind), MERGE)
    if operation == "status" and kind != "configmaps":
        status = {"phase": random.choice(["Running", "Pending", "Succeeded"])}
        body = {"status": status, "metadata": {"annotations": {"x": random.choice("12")}}}
        return Step("PATCH", f"{one}/status", body, MERGE)
    if operation == "apply":
        manager = ("fieldManager", random.choice(["m1", "m2"]))
        force = (("force", "true"),) if random.random() < 0.5 else ()
        return Step("PATCH", one, _object(random, kind, name), APPLY, (manager, *force))
    if operation == "delete":
        return Step("DELETE", one, _delete_options(random))
    if operation == "json":
        path = random.choice(["/metadata/labels", "/metadata/annotations/x", "/metadata/labels/l"])
        change = {
            "op": random.choice(["add", "replace", "remove", "test"]),
            "path": path,
            "value": random.choice(["1", {"l": "2"}]),
        }
        return Step("PATCH", one, [change], JSON_PATCH)
    if operation == "strategic":
        body = {"metadata": {"labels": {"l": random.choice("12")}}}
        return Step("PATCH", one, body, STRATEGIC)
    if operation == "hold":
        return Step("PATCH", one, {"metadata": {"finalizers": ["x.io/f"]}}, MERGE)
    if operation == "release":
        return Step("PATCH", one, {"metadata": {"finalizers": None}}, MERGE)
    if operation == "collection" and random.random() < 0.3:
        return Step("DELETE", collection, query=(("labelSelector", "l=1"),))
    if operation == "list":
        selectors = [(), (("labelSelector", "l=1"),), (("labelSelector", "!l"),)]
        return Step("GET", collection, query=random.choice(selectors))
    return Step("GET", one)


def _object(random: Random, kind: str, name: str) -> Object:
    meta: Object = {"name": name}
    if random.random() < 0.4:
        meta["labels"] = {"l": random.choice("12")}
    if random.random() < 0.2:
        meta["finalizers"] = ["x.io/f"]
    if kind == "configmaps":
        data = {random.choice("pqr"): random.choice("12") for _ in range(random.randint(0, 2))}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    spec: Object = {}
    if kind == "pods":
        spec["containers"] = [{"name": "c", "image": random.choice(["i", "i:1"])}]
        if random.random() < 0.5:
            spec["nodeName"] = "n1"
        if random.random() < 0.3:
            spec["terminationGracePeriodSeconds"] = random.choice([0, 1, 30])
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    spec["replicas"] = random.choice([0, 1, 2, -1, "x"])
    if random.random() < 0.4:
        spec["tags"] = random.sample(["x", "y", "z"], random.randint(0, 3))
    if random.random() < 0.3:
        spec["mode"] = random.choice(["Slow", "Medium"])
    return {
        "apiVersion": "differential.example.com/v1",
        "kind": "Widget",
        "metadata": meta,
        "spec": spec,
    }


def _merge(random: Random, kind: str) -> Object:
    if random.random() < 0.4:
        return {"metadata": {"labels": {"l": random.choice(["1", "2", None])}}}
    if kind == "configmaps":
        return {"data": {"p": random.choice(["1", None])}}
    if kind == "pods":
        return {"spec": {"activeDeadlineSeconds": random.choice([5, 6])}}
    return {"spec": {"replicas": random.choice([1, 2, None, "x"]), "nope": 1}}


def _delete_options(random: Random) -> Object:
    options: Object = {}
    if random.random() < 0.3:
        options["gracePeriodSeconds"] = random.choice([0, 1, 5])
    if random.random() < 0.3:
        options["propagationPolicy"] = random.choice(["Background", "Foreground", "Orphan"])
    return options
