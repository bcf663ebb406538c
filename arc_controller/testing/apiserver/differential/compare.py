"""Send a sequence to both sides, and shorten one that shows a difference."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from arc_controller.testing.apiserver.differential.differences import (
    Difference,
    differences,
    events_of,
    plural_of,
)
from arc_controller.testing.apiserver.differential.sides import Answer, Side
from arc_controller.testing.apiserver.differential.steps import WATCH, Step, collections_of
from arc_controller.testing.apiserver.messages import Object


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

    `settle` is how many seconds watches get to deliver their last events, and ten times that while
    one side has fewer than the other.
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
        report.differences += differences(step, *answers)
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
            report.differences += differences(placed, *answers)
        for _ in range(10):
            await asyncio.sleep(settle)
            if all(len(theirs) == len(mine) for _, (theirs, mine) in watches):
                break
    finally:
        for stop in stops:
            stop()
    for step, (theirs, mine) in watches:
        lists = [events_of(found) for found in (theirs, mine)]
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
        plural = plural_of(step.path)
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


def _is_dry(step: Step) -> bool:
    body = step.body if step.method == "DELETE" and isinstance(step.body, dict) else {}
    return bool(body.get("dryRun")) or any(key == "dryRun" for key, _ in step.query)
