"""The floor: the requests of a burst sent by a client that does nothing else.

A process of its own sends, for each of N runners, what manager and listener have to send, with the
same bodies, to the same server, and decodes no answer. What it needs is what Python, aiohttp and
the server cost; the rest of a burst is what the controllers cost.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

AT_ONCE = 32
CORE = "/api/v1/namespaces/{namespace}"
OURS = "/apis/actions.github.com/v1alpha1/namespaces/{namespace}"
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"
NAME = "{name}"


class Step(msgspec.Struct, frozen=True):
    """One request; ``{name}`` in its path and body is the runner's name."""

    method: str
    path: str
    body: Any = None
    content_type: str = JSON


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """``first`` for every runner, and then ``then`` for every runner."""

    url: str
    ca_pem: str = ""
    token: str
    runners: int
    first: list[Step]
    then: list[Step]


class Floor(msgspec.Struct, frozen=True):
    """What it took. Seconds are wall clock; ``client_cpu`` and ``server_cpu`` are CPU seconds."""

    requests: int
    first_seconds: float
    then_seconds: float
    client_cpu: float
    server_cpu: float = 0.0

    @property
    def seconds(self) -> float:
        return self.first_seconds + self.then_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One object of each kind, as a burst made it."""

    runner: Mapping[str, Any]
    secret: Mapping[str, Any]
    pod: Mapping[str, Any]


def steps(samples: Samples) -> tuple[list[Step], list[Step]]:
    """The requests of a runner's life, from its creation until its job has started, and from the
    end of the job until it is gone."""
    namespace = str(samples.runner["metadata"]["namespace"])
    core, ours = CORE.format(namespace=namespace), OURS.format(namespace=namespace)
    runner, pod, secret = (
        f"{ours}/ephemeralrunners/{NAME}",
        f"{core}/pods/{NAME}",
        f"{core}/secrets/{NAME}",
    )
    status = dict(samples.runner.get("status", {}))
    idle = {key: status.pop(key) for key in ("ready", "runnerId") if key in status}
    first = [
        Step("POST", f"{ours}/ephemeralrunners", _manifest(samples.runner)),
        Step("POST", f"{core}/secrets", _manifest(samples.secret)),
        Step("POST", f"{core}/pods", _manifest(samples.pod)),
        Step("PATCH", f"{runner}/status", {"status": {**idle, "phase": "Pending"}}, MERGE_PATCH),
        Step("GET", runner),
        Step("PATCH", f"{runner}/status", {"status": status}, MERGE_PATCH),
    ]
    now = {"gracePeriodSeconds": 0}  # no kubelet plays these pods
    then = [
        Step("DELETE", runner),
        Step("DELETE", pod, now),
        Step("DELETE", secret),
        Step("PATCH", runner, {"metadata": {"finalizers": None}}, MERGE_PATCH),
    ]
    return first, then


def _manifest(obj: Mapping[str, Any]) -> dict[str, Any]:
    """What was sent to create it: without what the server adds, and with the name left open."""
    meta = obj["metadata"]
    kept = ("namespace", "labels", "annotations", "finalizers")
    return {
        **{key: value for key, value in obj.items() if key not in ("metadata", "status")},
        "metadata": {"name": NAME, **{key: meta[key] for key in kept if key in meta}},
    }


def _encoded(body: Any) -> bytes:
    return msgspec.json.encode(body) if body is not None else b""


async def send(play: Play) -> Floor:
    """Send everything and measure this process."""
    headers = {"Authorization": f"Bearer {play.token}"}
    names = [f"floor-{number}" for number in range(play.runners)]
    loop = asyncio.get_running_loop()
    took = []
    before = _cpu()
    trust = ssl.create_default_context(cadata=play.ca_pem) if play.ca_pem else True
    async with aiohttp.ClientSession(
        play.url, headers=headers, connector=aiohttp.TCPConnector(ssl=trust)
    ) as session:
        for part in (play.first, play.then):
            encoded = [
                (each.method, each.path, _encoded(each.body), each.content_type) for each in part
            ]
            started = loop.time()
            await _send_part(session, encoded, names)
            took.append(loop.time() - started)
    count = len(names) * (len(play.first) + len(play.then))
    return Floor(count, took[0], took[1], _cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _send_part(
    session: aiohttp.ClientSession,
    part: list[tuple[str, str, bytes, str]],
    names: list[str],
) -> None:
    waiting = list(reversed(names))

    async def work() -> None:
        while waiting:
            name = waiting.pop()
            for method, path, body, content_type in part:
                async with session.request(
                    method,
                    path.replace(NAME, name),
                    data=body.replace(NAME.encode(), name.encode()) or None,
                    headers={"Content-Type": content_type},
                ) as response:
                    answer = await response.read()
                    if response.status >= 400:
                        raise SystemExit(f"{method} {path}: {response.status} {answer[:300]!r}")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())


async def measure(play: Play, folder: Path) -> Floor:
    """Run it in a process of its own. The server's CPU is for the caller to add."""
    path = folder / "floor.json"
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(play))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.floor", str(path), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError(f"the raw client ended with status {child.returncode}")
    return msgspec.json.decode(output, type=Floor)


def main() -> None:
    import uvloop

    play = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Play)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        floor = runner.run(send(play))
    sys.stdout.write(msgspec.json.encode(floor).decode())


if __name__ == "__main__":
    main()
