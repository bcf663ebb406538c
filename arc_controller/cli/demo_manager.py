"""The manager as a child process of the demo, and how much memory processes use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from arc_controller.testing.kubelet.listeners import die_with_parent

COMMAND = (sys.executable, "-m", "arc_controller.cli.manager")
FLAGS = ("--auto-scaling-runner-set-only", "--metrics-addr=0", "--log-level=info")


class ManagerProcess:
    """Started, killed and started again; its output goes to a file."""

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        namespace: str,
        *,
        command: Sequence[str] = COMMAND,
        flags: Sequence[str] = FLAGS,
    ) -> None:
        self.log = log
        self.starts = 0
        self._arguments = (*command, *flags)
        self._environ = {
            **{key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ},
            "KUBECONFIG": str(kubeconfig),
            "CONTROLLER_MANAGER_CONTAINER_IMAGE": "arc-controller:demo",
            "CONTROLLER_MANAGER_POD_NAMESPACE": namespace,
        }
        self._child: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        running = self._child is not None and self._child.returncode is None
        return self._child.pid if running and self._child else 0

    async def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as output:
            self._child = await asyncio.create_subprocess_exec(
                *self._arguments,
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # the interrupt of the terminal is ours to deal with
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )

    async def stop(self, grace: float = 30.0) -> int:
        """SIGTERM, and SIGKILL after the grace period; the exit status."""
        if self._child is None:
            return 0
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                return await self._child.wait()
        except TimeoutError:
            return await self.kill()

    async def kill(self) -> int:
        """SIGKILL; the exit status."""
        if self._child is None:
            return 0
        self._signal(signal.SIGKILL)
        return await self._child.wait()

    def failure(self) -> str:
        """Why it does not run any more, when nobody asked it to end; empty while it runs."""
        if self._child is None or self._child.returncode is None:
            return ""
        return f"the manager ended with status {self._child.returncode}:\n{self.last_lines()}"

    def last_lines(self, count: int = 15) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-count:])
        return ""

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(number)


def resident_mib(pid: int) -> float:
    """The peak of a process's resident memory in MiB; 0 where that cannot be known."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0.0
