"""What listeners cost: one as its own process, and hundreds as tasks of one process.

``python -m benchmarks.listeners [--listeners 500] [--seconds 20] [--json FILE]``

The servers (an API server and an Actions service, both behind TLS) run in this process; what is
measured runs in children, the first one with a pod's service account, as in a cluster. Memory is
resident memory; CPU is that of the children while every listener polls and nothing happens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arc_controller.testing.actions import FakeActionsService

BUDGET_PROCESS = 40.0
BUDGET_TASK = 0.5
NAMESPACE = "runners"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a child is told: where things are, and how many listeners to run."""

    api_port: int
    account: str
    config: Mapping[str, Any]
    scale_sets: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """MiB and fractions of a core. ``baseline`` is the process with everything loaded, before the
    first listener."""

    listeners: int
    import_seconds: float
    baseline: float
    resident: float
    per_listener: float
    idle_cpu: float


# --- the child


def child(path: Path, *, metrics: bool) -> None:
    """Run the listeners and print a `Measurement` as JSON."""
    scene = Scene(**json.loads(path.read_text()))
    started = time.perf_counter()
    from arc_controller.cli.ghalistener import load

    process = load()
    import arc_controller.actions.network
    import arc_controller.runtime.incluster  # noqa: F401

    took = time.perf_counter() - started
    process.configure_logging("warn", "text")
    factory = None
    if len(scene.scale_sets) > 1:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_listen(scene, took, metrics))


async def _listen(scene: Scene, took: float, metrics: bool) -> None:
    from arc_controller.actions import ActionsClient, UserAgent
    from arc_controller.actions.network import AiohttpTransport
    from arc_controller.api import SCHEME
    from arc_controller.listener import assemble, parse_config
    from arc_controller.listener.assembly import job_metrics
    from arc_controller.runtime.client import ApiClient
    from arc_controller.runtime.http import HttpTransport
    from arc_controller.runtime.incluster import InClusterConnection

    place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(scene.api_port)}
    api = HttpTransport(InClusterConnection(place, Path(scene.account)))
    client = ApiClient(api, SCHEME)
    network = AiohttpTransport()
    async with AsyncExitStack() as stack:
        if metrics:
            from arc_controller.listener.server import serve_metrics

            await stack.enter_async_context(serve_metrics([], "127.0.0.1", 0))
        baseline = _resident()
        tasks = []
        for number, scale_set in enumerate(scene.scale_sets):
            config = parse_config(
                json.dumps(
                    {
                        **scene.config,
                        "runner_scale_set_id": scale_set,
                        "ephemeral_runner_set_name": f"set-{number}",
                    }
                ).encode()
            )
            actions = ActionsClient(
                config.config_url,
                config.credentials(),
                user_agent=UserAgent(subsystem="listener"),
                transport=network,
            )
            listener = assemble(config, client, actions, metrics=job_metrics(config))
            tasks.append(asyncio.create_task(listener.run()))
            if number % 20 == 19:
                await asyncio.sleep(0.2)
        await asyncio.sleep(max(5.0, len(tasks) / 25))
        before = _cpu()
        await asyncio.sleep(scene.seconds)
        idle = (_cpu() - before) / scene.seconds
        resident = _resident()
        count = len(tasks)
        measured = Measurement(count, took, baseline, resident, (resident - baseline) / count, idle)
        print(json.dumps(asdict(measured)), flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await network.aclose()
    await api.close()


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# --- the parent


async def measure(listeners: int, seconds: float, *, metrics: bool = False) -> Measurement:
    """Start the servers, run a child with that many listeners, and return what it measured."""
    most = 0

    async def most_polling() -> None:
        nonlocal most
        while True:
            most = max(most, sum(each.polls > 0 for each in service.sessions.values()))
            await asyncio.sleep(0.5)

    async with _servers(listeners, seconds) as (folder, service, scene):
        path = folder / "scene.json"
        path.write_text(json.dumps(asdict(scene)))
        arguments = ["-m", "benchmarks.listeners", "--child", str(path)]
        if metrics:
            arguments.append("--metrics")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            # As on any machine, where our servers' certificates would be among the many.
            env={**os.environ, "SSL_CERT_FILE": str(folder / "bundle.pem")},
            stdout=asyncio.subprocess.PIPE,
        )
        polling = asyncio.create_task(most_polling())
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        finally:
            polling.cancel()
        if process.returncode:
            raise SystemExit(f"the child ended with status {process.returncode}")
        if most < listeners:
            raise SystemExit(f"only {most} of {listeners} listeners ever polled")
        return Measurement(**json.loads(output))


@asynccontextmanager
async def _servers(
    listeners: int, seconds: float
) -> AsyncIterator[tuple[Path, FakeActionsService, Scene]]:
    from arc_controller.actions import ActionsClient, PersonalAccessToken, RunnerScaleSet
    from arc_controller.api.crd import custom_resource_definitions
    from arc_controller.testing.actions import (
        FakeActionsService,
        HttpActionsService,
        InProcessTransport,
    )
    from arc_controller.testing.actions.certificates import LocalAuthority
    from arc_controller.testing.apiserver import ApiServer, HttpApiServer

    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = LocalAuthority()
        key = folder / "server.pem"
        key.touch(mode=0o600)
        key.write_text(authority.issue("127.0.0.1"))
        (folder / "bundle.pem").write_text(_system_bundle() + authority.pem)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(key)

        service = FakeActionsService(random=Random(1))
        actions = await stack.enter_async_context(HttpActionsService(service, ssl_context=tls))
        url = actions.config_url("acme")
        client = ActionsClient(
            url, PersonalAccessToken("token"), transport=InProcessTransport(service)
        )
        ids = []
        api = ApiServer(crds=custom_resource_definitions(), random=Random(2))
        stack.push_async_callback(api.aclose)
        api.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for number in range(listeners):
            created = await client.create_runner_scale_set(RunnerScaleSet(name=f"set-{number}"))
            ids.append(created.id)
            api.install(_runner_set(f"set-{number}", url, created.id))

        http = await stack.enter_async_context(HttpApiServer(api))
        port = await stack.enter_async_context(_tls_front(int(http.url.rpartition(":")[2]), tls))
        account = folder / "account"
        account.mkdir()
        (account / "ca.crt").write_text(authority.pem)
        (account / "token").write_text(http.token())
        config = {
            "configure_url": url,
            "github_token": "token",
            "ephemeral_runner_set_namespace": NAMESPACE,
            "max_runners": 10,
        }
        yield folder, service, Scene(port, str(account), config, tuple(ids), seconds)


def _system_bundle() -> str:
    path = ssl.get_default_verify_paths().cafile
    return Path(path).read_text() if path else ""


def _runner_set(name: str, url: str, scale_set: int) -> dict[str, Any]:
    runner = {"containers": [{"name": "runner", "image": "runner:1"}]}
    return {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "EphemeralRunnerSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 0,
            "patchID": 0,
            "ephemeralRunnerSpec": {
                "githubConfigUrl": url,
                "githubConfigSecret": "github",
                "runnerScaleSetId": scale_set,
                "spec": runner,
            },
        },
    }


@asynccontextmanager
async def _tls_front(port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """TLS in front of a plain server of this machine."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, inner_writer), pipe(inner_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def table(rows: Mapping[str, Measurement]) -> str:
    lines = [f"{'':34}{'listeners':>10}{'import s':>10}{'MiB':>8}{'MiB each':>10}{'CPU idle':>10}"]
    for name, row in rows.items():
        each = f"{row.per_listener:.2f}" if row.listeners > 1 else ""
        lines.append(
            f"{name:34}{row.listeners:>10}{row.import_seconds:>10.2f}{row.resident:>8.1f}"
            f"{each:>10}{row.idle_cpu:>9.1%} "
        )
    lines.append(f"budgets: a process {BUDGET_PROCESS:g} MiB, one of many {BUDGET_TASK:g} MiB")
    return "\n".join(lines)


async def _main(options: argparse.Namespace) -> None:
    rows = {
        "its own process": await measure(1, 5.0),
        "its own process, serving metrics": await measure(1, 5.0, metrics=True),
        "many in one process": await measure(options.listeners, options.seconds),
    }
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({name: asdict(row) for name, row in rows.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(prog="listeners", description=__doc__)
    parser.add_argument("--listeners", type=int, default=500, help="how many in one process")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to watch them idle")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--metrics", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, metrics=options.metrics)
    else:
        asyncio.run(_main(options))


if __name__ == "__main__":
    main()
