"""``arcctl``: the demo as a user runs it, with real processes, and its parts."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from random import Random

import pytest
import structlog
from rich.console import Console

from arc_controller.cli import shipped
from arc_controller.cli.arcctl import main, parser
from arc_controller.cli.demo import Demo, DemoOptions
from arc_controller.cli.demo_input import lines
from arc_controller.cli.demo_manager import ManagerProcess, resident_mib
from arc_controller.cli.demo_view import LineView, Snapshot, render
from arc_controller.testing.kubelet.listeners import die_with_parent

KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
ARCCTL = (sys.executable, "-m", "arc_controller.cli.arcctl")


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *ARCCTL,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        preexec_fn=_as_from_a_terminal,
    )


def _as_from_a_terminal() -> None:
    """A job in the background of a script inherits that it ignores interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform == "linux":
        die_with_parent()


async def demo(*arguments: str) -> tuple[int, str]:
    """Exit status and output of a demo that ends by itself."""
    child = await start("demo", *arguments)
    try:
        async with asyncio.timeout(240):
            output = (await child.communicate())[0].decode()
    except BaseException:
        child.kill()
        await child.wait()
        raise
    assert child.returncode is not None
    return child.returncode, output


async def test_it_runs_jobs_from_nothing_to_nothing_and_says_so() -> None:
    status, output = await demo("--jobs", "4", "--job-seconds", "0.5")
    assert output.splitlines()[-1] == (
        "demo: 4 jobs completed, 0 lost, 0 objects left, 0 registrations left"
    )
    assert status == 0
    assert "kubectl --kubeconfig" in output
    assert re.search(r"manager: \d+\.\d\d API requests per job", output)
    assert re.search(r"memory: manager \d+ MiB, listener \d+ MiB", output)


async def test_a_manager_killed_in_the_middle_changes_nothing_about_the_end() -> None:
    status, output = await demo("--jobs", "4", "--job-seconds", "2", "--kill-manager-at", "3")
    assert "the manager was killed 3.0 s after the jobs were queued" in output
    assert "manager starts: 2" in output
    assert output.splitlines()[-1] == (
        "demo: 4 jobs completed, 0 lost, 0 objects left, 0 registrations left"
    )
    assert status == 0


async def test_what_is_not_done_in_time_is_counted_as_lost_and_fails() -> None:
    status, output = await demo("--jobs", "2", "--job-seconds", "600", "--timeout", "8")
    last = output.splitlines()[-1]
    assert last.startswith("demo: 0 jobs completed, 2 lost, ")
    assert status == 1
    assert "gave up after 8 s" in output


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_kept_up_it_stays_until_it_is_stopped_and_takes_its_children_along(
    number: signal.Signals, status: int
) -> None:
    child = await start("demo", "--jobs", "1", "--job-seconds", "0.1", "--keep")
    output: list[str] = []
    assert child.stdout is not None
    try:
        async with asyncio.timeout(120):
            async for line in child.stdout:
                output.append(line.decode())
                if "stays up until you interrupt it" in output[-1]:
                    break
            await _can_be_looked_at("".join(output))
            (manager,) = _children_of(child.pid, "arc_controller.cli.manager")
            child.send_signal(number)
            assert await child.wait() == status
    except BaseException:
        child.kill()
        await child.wait()
        raise
    async with asyncio.timeout(30):
        while _is_there(manager):
            await asyncio.sleep(0.1)


class Kept:
    """A demo that stays up, as somebody sees it who types."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.output = ""

    async def until(self, words: str) -> None:
        assert self.child.stdout is not None
        async with asyncio.timeout(120):
            async for line in self.child.stdout:
                self.output += line.decode()
                if words in line.decode():
                    return
        raise AssertionError(f"it never said {words!r}:\n{self.output}")

    def type(self, text: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(text.encode())


async def test_kept_up_it_takes_more_jobs_and_starts_a_killed_manager_again() -> None:
    child = await start("demo", "--jobs", "1", "--job-seconds", "0.1", "--keep")
    kept = Kept(child)
    try:
        await kept.until("type how many and press Enter")
        kept.type("many\n0\n\n3\n")
        await kept.until("'many' is not a number of jobs, 1 to 10000")
        await kept.until("'0' is not a number of jobs")
        await kept.until("3 more jobs are queued")
        await kept.until("jobs: 4 completed")
        (manager,) = _children_of(child.pid, "arc_controller.cli.manager")
        os.kill(manager, signal.SIGKILL)
        await kept.until("the manager ended with status -9")
        await kept.until("it is started again")
        kept.type("2\n")
        await kept.until("jobs: 6 completed")
        child.send_signal(signal.SIGINT)
        assert await child.wait() == 130
    except BaseException:
        child.kill()
        await child.wait()
        raise


async def test_kept_up_a_manager_that_does_not_stay_up_ends_the_demo(tmp_path: Path) -> None:
    once = tmp_path / "once"
    program = (
        f"import os, sys; path = {str(once)!r}\n"
        "if os.path.exists(path): print('no more'); sys.exit(3)\n"
        "open(path, 'w'); from arc_controller.cli.manager import main; main()"
    )
    said: list[str] = []
    demo = Demo(
        DemoOptions(jobs=1, keep=True, job_seconds=0.1),
        Random(1),
        view=Said(said),
        manager_command=(sys.executable, "-c", program),
    )
    before = structlog.get_config()  # the demo has its process to itself
    try:
        async with asyncio.timeout(120):
            running = asyncio.create_task(demo.run())
            while not any("stays up until" in line for line in said):
                await asyncio.sleep(0.1)
            os.kill(demo._manager.pid, signal.SIGKILL)
            assert await running == 1
    finally:
        structlog.configure(**before)
    assert "it does not stay up" in said
    assert any(line.startswith("the manager ended with status 3:") for line in said)


class Said:
    """A view that remembers what is said."""

    def __init__(self, said: list[str]) -> None:
        self.say = said.append

    def show(self, snapshot: Snapshot) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Nothing is open."""


async def test_what_is_typed_comes_as_lines_and_ends_with_the_input() -> None:
    reader, writer = os.pipe()
    taken: list[str] = []
    with lines(taken.append, reader):
        for part in (b"1", b"2\nab", b"c \n", b"rest"):
            os.write(writer, part)
            await asyncio.sleep(0.01)
        os.close(writer)
        await asyncio.sleep(0.01)
        assert not asyncio.get_running_loop().remove_reader(reader), "it has ended by itself"
    os.close(reader)
    assert taken == ["12", "abc"]


async def test_where_nothing_can_be_typed_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("5\n")
    taken: list[str] = []
    for path in (os.devnull, tmp_path / "file"):
        opened = os.open(path, os.O_RDONLY)
        with lines(taken.append, opened):
            await asyncio.sleep(0.01)
        os.close(opened)
    assert taken == []


async def _can_be_looked_at(output: str) -> None:
    """The printed command works: kubectl sends no token over plain HTTP, and nobody else may."""
    if KUBECTL is None:
        return
    printed = re.search(r"kubectl (--kubeconfig \S+ get \S+ -A)", output)
    assert printed is not None, output
    kubectl = await asyncio.create_subprocess_exec(
        KUBECTL,
        *printed[1].split(),
        "--no-headers",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await kubectl.communicate()
    assert (kubectl.returncode, err) == (0, b"")
    assert b"autoscalingrunnerset.actions.github.com/sample-runners" in out


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _children_of(pid: int, program: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes().decode()
        except (OSError, ValueError):
            continue
        if parent == pid and program in command:
            found.append(int(path.name))
    return found


@pytest.mark.parametrize(("flags", "scheme"), [((), "http"), (("--rbac",), "https")])
async def test_the_api_server_alone_serves_until_it_is_interrupted(
    flags: tuple[str, ...], scheme: str, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    child = await start("apiserver", "--port", "0", "--kubeconfig", str(kubeconfig), *flags)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            first = (await child.stdout.readline()).decode()
            child.send_signal(signal.SIGINT)
            await child.wait()
    except BaseException:
        child.kill()
        await child.wait()
        raise
    assert re.match(rf"Serving on {scheme}://127\.0\.0\.1:\d+", first)
    assert child.returncode == 130
    server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    assert server in first


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demo", "--jobs", "0"], "argument --jobs: '0' is not a number of 1 or more"),
        (["demo", "--jobs", "many"], "argument --jobs: 'many' is not a number of 1 or more"),
        (["demo", "--kill-manager-at", "soon"], "'soon' is not a number of seconds, 0 or more"),
        (["apiserver", "--port", "99999"], "'99999' is not a port from 0 to 65535"),
        ([], "the following arguments are required: COMMAND"),
        (["dem"], "invalid choice: 'dem'"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_defaults_are_those_of_the_readme() -> None:
    options = parser().parse_args(["demo"])
    assert (options.jobs, options.keep, options.kill_manager_at) == (20, False, None)
    assert parser().parse_args(["demo", "--kill-manager-at", "random"]).kill_manager_at == "random"


def test_the_shipped_manifests_are_found() -> None:
    kinds = {each["kind"] for each in shipped.manifests("rbac", "rbac/runner_namespace")}
    assert {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role"} <= kinds
    (sample,) = shipped.load("samples/autoscalingrunnerset.yaml")
    assert sample["kind"] == "AutoscalingRunnerSet"


def snapshot(**changes: object) -> Snapshot:
    values: dict[str, object] = {
        "seconds": 1.5,
        "jobs": {"running": 2, "completed": 1},
        "runners": {"Running": 2},
        "pods": {"Running": 3},
        "requests": {"manager": 40},
        "queued": 3,
        "hint": "kubectl get pods",
    }
    return Snapshot(**{**values, **changes})  # type: ignore[arg-type]


def test_lines_are_printed_only_when_something_changed() -> None:
    stream = io.StringIO()
    view = LineView(stream)
    view.show(snapshot())
    view.show(snapshot(seconds=2.0, requests={"manager": 41}))
    view.show(snapshot(jobs={"completed": 3}))
    assert len(stream.getvalue().splitlines()) == 2
    assert "jobs: 2 running, 1 completed" in stream.getvalue()


def test_the_table_shows_jobs_runners_pods_and_requests() -> None:
    stream = io.StringIO()
    Console(file=stream, width=100).print(render(snapshot()))
    shown = stream.getvalue()
    for part in ("1/3", "2 running", "runners Running", "3 Running", "40 manager", "kubectl"):
        assert part in shown


async def test_a_manager_that_cannot_start_is_reported_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    program = (sys.executable, "-c", "print('no such flag'); raise SystemExit(2)")
    manager = ManagerProcess(
        tmp_path / "kubeconfig", tmp_path / "log", "arc-systems", command=program, flags=()
    )
    await manager.start()
    async with asyncio.timeout(30):
        while not manager.failure():
            await asyncio.sleep(0.05)
    assert manager.failure() == "the manager ended with status 2:\nno such flag"
    assert manager.pid == 0
    assert resident_mib(0) == 0.0
