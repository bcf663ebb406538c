"""Command line programs that run once: kubectl, helm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from arc_controller.testing.envtest.assets import EnvtestError


async def run_program(
    program: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """What ``program`` printed. Raises `EnvtestError` with its error output when it fails.

    Cancelling kills it.
    """
    child = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await child.communicate(None if stdin is None else stdin.encode())
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        raise
    if child.returncode != 0:
        raise EnvtestError(f"{program.name} {' '.join(arguments)}: {errors.decode().strip()}")
    return output.decode()
