"""``ghalistener`` as a real process: exit status, signals, metrics, and what it loads."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from arc_controller import __version__
from arc_controller.actions import ActionsClient, PersonalAccessToken, RunnerScaleSet
from arc_controller.api import SCHEME
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.api.v1alpha1 import EphemeralRunnerSet
from arc_controller.listener import process
from arc_controller.listener.config import ListenerConfig
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import FakeActionsService, HttpActionsService
from arc_controller.testing.actions.calls import Call
from arc_controller.testing.apiserver import ApiServer, HttpApiServer
from arc_controller.testing.kubelet.listeners import die_with_parent
from arc_controller.testing.transport import InProcessTransport

SET = NamespacedName("runners", "linux")
RUNNER_SPEC = {
    "githubConfigUrl": "https://github.com/acme",
    "githubConfigSecret": "github",
    "runnerScaleSetId": 1,
    "spec": {"containers": [{"name": "runner", "image": "runner:1"}]},
}
PROGRAM = (sys.executable, "-m", "arc_controller.cli.ghalistener")

FORBIDDEN = (
    "arc_controller.controllers",
    "arc_controller.testing",
    "kubernetes",
    "rich",
    "prometheus_client",
    "cryptography",
    "jwt",
    "azure",
    "yaml",
    "aiohttp.web",
    "cachetools",
    "pydantic",
    "hypothesis",
)


class Stage:
    def __init__(self, api: ApiServer, service: FakeActionsService, folder: Path) -> None:
        self.api = api
        self.service = service
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.config: dict[str, Any] = {
            "github_token": "ghp_very_secret",
            "ephemeral_runner_set_namespace": SET.namespace,
            "ephemeral_runner_set_name": SET.name,
            "min_runners": 0,
            "max_runners": 5,
        }
        self.child: asyncio.subprocess.Process | None = None
        self.output = ""

    async def start(self, **changes: Any) -> None:
        path = self.folder / "config.json"
        path.write_text(json.dumps({**self.config, **changes}))
        self.child = await asyncio.create_subprocess_exec(
            *PROGRAM,
            env={"LISTENER_CONFIG_PATH": str(path), "KUBECONFIG": str(self.kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )

    async def exit_status(self) -> int:
        assert self.child is not None
        async with asyncio.timeout(60):
            self.output = (await self.child.communicate())[0].decode()
        assert "ghp_very_secret" not in self.output
        assert self.child.returncode is not None
        return self.child.returncode

    async def terminate(self) -> int:
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        return await self.exit_status()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                assert self.child is not None
                if self.child.returncode is not None:
                    raise AssertionError((await self.child.communicate())[0].decode())
                await asyncio.sleep(0.02)

    async def until_polling(self) -> None:
        await self.until(lambda: any(each.polls for each in self.service.sessions.values()))

    async def replicas(self) -> int:
        client = ApiClient(InProcessTransport(self.api), SCHEME)
        return (await client.get(EphemeralRunnerSet, SET)).spec.replicas

    async def until_scaled(self, replicas: int) -> None:
        async with asyncio.timeout(60):
            while await self.replicas() != replicas:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    service = FakeActionsService(random=Random(1), poll_timeout=5.0)
    api = ApiServer(crds=custom_resource_definitions(), random=Random(2))
    api.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SET.namespace}})
    api.install(
        {
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "EphemeralRunnerSet",
            "metadata": {"name": SET.name, "namespace": SET.namespace},
            "spec": {
                "replicas": 0,
                "patchID": 0,
                "ephemeralRunnerSpec": RUNNER_SPEC,
            },
        }
    )
    async with HttpActionsService(service) as actions, HttpApiServer(api) as http:
        made = Stage(api, service, folder)
        http.write_kubeconfig(made.kubeconfig)
        url = made.config["configure_url"] = actions.config_url("acme")
        async with ActionsClient(url, PersonalAccessToken("t")) as client:
            created = await client.create_runner_scale_set(RunnerScaleSet(name="linux"))
        made.config["runner_scale_set_id"] = created.id
        try:
            yield made
        finally:
            if made.child is not None and made.child.returncode is None:
                made.child.kill()
                await made.child.wait()
    await api.aclose()


async def test_it_listens_scales_and_closes_its_session_on_sigterm(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        await it.start()
        await it.until_polling()
        it.service.queue_jobs(2)
        await it.until_scaled(2)
        assert await it.terminate() == 0
        assert it.service.sessions == {}
        assert "stopped" in it.output


async def test_sigterm_during_handling_finishes_the_message(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        await it.start()
        await it.until_polling()
        it.service.faults.delay("delete_message", seconds=2)
        it.service.queue_jobs(3, direct=True)
        await it.until(lambda: it.service.calls[Call.DELETE_MESSAGE])
        assert await it.terminate() == 0
        assert await it.replicas() == 3
        assert it.service.sessions == {}


async def test_sigkill_between_acknowledge_and_patch_is_made_up_for_by_the_successor(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as it:
        await it.start()
        await it.until_polling()
        it.service.faults.delay("delete_message", seconds=30, after_effect=True)
        it.service.queue_jobs(3, direct=True)
        await it.until(lambda: it.service.calls[Call.DELETE_MESSAGE])
        assert it.child is not None
        it.child.kill()
        await it.exit_status()
        assert await it.replicas() == 0
        it.service.expire_session()
        await it.start()
        await it.until_scaled(3)
        assert await it.terminate() == 0


async def test_metrics_are_served_where_the_configuration_says(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        await it.start(metrics_addr="127.0.0.1:0", metrics_endpoint="/m", log_format="json")
        await it.until_polling()
        port = await _served_port(it)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/m") as response,
        ):
            text = await response.text()
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'gha_max_runners{enterprise="",name="linux",namespace="runners"' in text
        assert await it.terminate() == 0


async def _served_port(it: Stage) -> int:
    assert it.child is not None
    assert it.child.stdout is not None
    async for line in it.child.stdout:
        entry = json.loads(line)
        if entry["msg"] == "serving metrics":
            return int(entry["port"])
    raise AssertionError("no metrics are served")


async def test_a_forgotten_scale_set_is_exit_status_one_and_a_sentence(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        await it.start(runner_scale_set_id=77)
        assert await it.exit_status() == 1
        last = it.output.strip().splitlines()[-1]
        assert last.startswith("ghalistener: scale set linux (77) is unknown to the service")


async def test_a_wrong_configuration_is_exit_status_two_and_a_sentence(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        await it.start(max_runners=-1)
        assert await it.exit_status() == 2
        assert re.fullmatch(
            r"ghalistener: \S+config\.json: max_runners is -1, expected 0 to 2147483647",
            it.output.strip(),
        )


async def test_what_the_configuration_leads_to_is_exit_status_two_and_names_the_key(
    tmp_path: Path,
) -> None:
    damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    async with stage(tmp_path) as it:
        for changes, said in (
            ({"server_root_ca": damaged}, "server_root_ca: CA certificate 1 of 1 cannot be read"),
            ({"github_token": "ghp_very_secret\nx"}, "github_token with a line break"),
            ({"metrics_addr": "no.such.host.invalid:0"}, "no.such.host.invalid is no host here"),
        ):
            await it.start(**changes)
            assert await it.exit_status() == 2
            last = it.output.strip().splitlines()[-1]
            assert last.startswith("ghalistener: ")
            assert said in last
            assert "Traceback" not in it.output


async def test_a_metrics_address_that_is_taken_is_exit_status_one_and_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with stage(tmp_path) as it:
            await it.start(metrics_addr=address)
            assert await it.exit_status() == 1
    assert it.output.strip().splitlines()[-1] == (
        f"ghalistener: metrics cannot be served at metrics_addr '{address}': address already in use"
    )


def test_it_says_what_it_is_when_asked() -> None:
    shown = {}
    for argument in ("--help", "-h", "--version"):
        command = (*PROGRAM, argument)
        done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        shown[argument] = done.stdout
    assert "LISTENER_CONFIG_PATH" in shown["--help"] == shown["-h"]
    assert shown["--version"] == f"{__version__}\n"


def test_an_argument_is_said_to_have_no_effect() -> None:
    command = (*PROGRAM, "--port=1")
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "ghalistener: '--port=1' has no effect, see --help"


async def test_a_mistake_of_ours_is_exit_status_one_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def broken(*_: object) -> None:
        raise LookupError("ghp_very_secret")

    monkeypatch.setattr(process, "serve", broken)
    async with stage(tmp_path) as it:
        config = ListenerConfig(**it.config)
        assert await process._until_stopped(config, {}) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said == "ghalistener: ended by an unexpected LookupError, please report it: see the log"


def test_without_a_configuration_it_says_so() -> None:
    done = subprocess.run(PROGRAM, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "ghalistener: LISTENER_CONFIG_PATH is not set: expected the path of config.json"
    )


def test_it_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from arc_controller.cli.ghalistener import load\n"
        "load()\n"
        "import arc_controller.listener\n"
        "import arc_controller.runtime.incluster, arc_controller.actions.network\n"
        "print('\\n'.join(name for name, module in sys.modules.items() if module is not None))\n"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "arc_controller.listener.loop" in loaded
    found = [
        name
        for name in loaded
        if any(name == heavy or name.startswith(f"{heavy}.") for heavy in FORBIDDEN)
    ]
    assert found == []
