"""Child processes that start when they are ready, show why when they are not, and always end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from arc_controller.testing.envtest.assets import EnvtestError

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.05


class ProcessFailed(EnvtestError):
    """A program ended, or was not ready in time; the message ends with the tail of its log."""


class Process:
    """One child process, its log in a file. Only ever signals the child it started itself."""

    def __init__(self, program: Path, arguments: Sequence[str], log: Path) -> None:
        self.name = program.name
        self.log = log
        self._command = [str(program), *arguments]
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    async def start(self) -> None:
        """Starts the program; says nothing about whether it is ready, see `wait_ready`."""
        with self.log.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own: Ctrl-C in a terminal reaches the tests, which then stop us.
                start_new_session=True,
                preexec_fn=_dies_with_its_parent(),
            )

    async def wait_ready(self, ready: Callable[[], Awaitable[bool]], timeout: float) -> None:
        """Returns once ``ready()`` is true.

        Raises `ProcessFailed` when the program ends first or ``timeout`` seconds have passed.
        """
        child = self._running()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if child.returncode is not None:
                        raise ProcessFailed(
                            f"{self.name} ended with status {child.returncode} before it was "
                            f"ready\n{self.tail()}"
                        )
                    if await ready():
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ProcessFailed(
                f"{self.name} was not ready after {timeout:g} s\n{self.tail()}"
            ) from None

    async def stop(self, grace: float) -> None:
        """SIGTERM, and after ``grace`` seconds SIGKILL. Safe to call at any time, any number of
        times; when cancelled, the program is killed at once and the cancellation goes on."""
        child = self._child
        if child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await child.wait()
        except TimeoutError:
            await self.kill()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            raise

    async def kill(self) -> None:
        """SIGKILL: what a crash looks like to everybody else."""
        child = self._child
        if child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()

    def tail(self, lines: int = 20) -> str:
        """The last ``lines`` lines of the log, under a heading that names the file."""
        try:
            written = self.log.read_text(errors="replace").splitlines()
        except OSError:
            written = []
        shown = "\n".join(f"  {line[:400]}" for line in written[-lines:]) or "  (empty)"
        return f"the end of {self.log}:\n{shown}"

    def _running(self) -> asyncio.subprocess.Process:
        if self._child is None:
            raise EnvtestError(f"{self.name} was not started")
        return self._child


def free_port() -> int:
    """A loopback port nobody listens on now. Somebody else may take it before we do: see the
    retry in `Envtest`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _dies_with_its_parent() -> Callable[[], None] | None:
    """On Linux the kernel ends the child when we are killed and can no longer do it ourselves."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # resolved before the fork: after it only simple calls are safe

    def before_exec() -> None:
        # Not SIGTERM: an API server that is asked to stop waits for an etcd that went with us.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return before_exec
