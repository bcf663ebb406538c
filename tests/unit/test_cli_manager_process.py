"""The manager as a process: exit status, signals, and a start that brings only what it needs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from arc_controller import __version__
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.cli.manager_flags import read_settings
from arc_controller.cli.manager_process import main, make_manager
from arc_controller.testing.apiserver import ApiServer, HttpApiServer
from arc_controller.testing.transport import InProcessTransport

ENVIRON = {
    "CONTROLLER_MANAGER_CONTAINER_IMAGE": "arc:1",
    "CONTROLLER_MANAGER_POD_NAMESPACE": "default",
}
PATIENCE = 60.0


def test_version_and_help_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], {}) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
    assert main(["--help"], {}) == 0
    assert "--watch-single-namespace" in capsys.readouterr().out


def test_a_misuse_is_one_sentence_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--github-token=s3cret"], ENVIRON) == 2
    error = capsys.readouterr().err
    assert error.startswith("manager: --github-token is not supported")
    assert error.count("\n") == 1
    assert "s3cret" not in error
    assert main([], {}) == 2


def test_without_a_cluster_it_says_what_it_looked_for(tmp_path: Path) -> None:
    status, output = asyncio.run(_ends(KUBECONFIG=str(tmp_path / "nothing")))
    assert status == 2
    assert "nothing" in output


def test_a_proxy_variable_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _server(tmp_path) as kubeconfig:
            status, output = await _ends(KUBECONFIG=kubeconfig, HTTPS_PROXY="ftp://proxy")
        assert status == 2
        assert "https proxy" in output

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gracefully_with_status_0(tmp_path: Path, number: signal.Signals) -> None:
    async def scenario() -> None:
        async with _server(tmp_path) as kubeconfig:
            process = await _start(
                "--log-format=json", "--enable-leader-election", KUBECONFIG=kubeconfig
            )
            assert process.stderr is not None
            async with asyncio.timeout(PATIENCE):
                lines = []
                async for line in process.stderr:
                    lines.append(json.loads(line))
                    if lines[-1]["msg"].startswith("became the leader"):
                        break
                process.send_signal(number)
                rest = (await process.stderr.read()).decode().splitlines()
                assert await process.wait() == 0
            assert lines[0]["msg"] == "starting"
            assert lines[0]["version"] == __version__
            assert json.loads(rest[-1])["msg"] == "stopped"

    asyncio.run(scenario())


async def test_all_four_controllers_are_in_the_manager() -> None:
    transport = InProcessTransport(ApiServer(random=Random(1)))
    settings = read_settings(["--enable-leader-election"], ENVIRON)
    from prometheus_client import CollectorRegistry

    manager, service = make_manager(transport, settings, CollectorRegistry())
    assert {controller.name for controller in manager.controllers} == {
        "autoscalingrunnerset",
        "autoscalinglistener",
        "ephemeralrunnerset",
        "ephemeralrunner",
    }
    assert manager.elector is not None
    await service.aclose()


def test_a_start_does_not_load_what_is_not_needed() -> None:
    """In a cluster: no official client, no rich, no testing, no cryptography, no azure."""
    unwanted = ["kubernetes", "arc_controller.testing", "cryptography", "azure", "hypothesis"]
    code = (
        "import sys; from arc_controller.cli.manager import load; load();"
        f"print([name for name in {unwanted} if name in sys.modules],"
        " sys.modules.get('rich'))"
    )
    found = asyncio.run(_output(sys.executable, "-c", code))
    assert found.strip() == "[] None"


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[str]:
    server = HttpApiServer(ApiServer(crds=custom_resource_definitions()))
    await server.start()
    kubeconfig = folder / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    try:
        yield str(kubeconfig)
    finally:
        await server.stop()


async def _start(*arguments: str, **environ: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "arc_controller.cli.manager",
        "--metrics-addr=0",
        *arguments,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **ENVIRON, **environ},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )


async def _ends(*arguments: str, **environ: str) -> tuple[int, str]:
    """Run it to its own end: exit status and what it said."""
    process = await _start(*arguments, **environ)
    async with asyncio.timeout(PATIENCE):
        _, output = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode()
