"""What a process has used so far."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU in seconds (user and system), resident memory in MiB, and its peak."""

    cpu: float = 0.0
    resident: float = 0.0
    peak: float = 0.0


def usage(pid: int = 0) -> Usage:
    """Of a process, this one for 0; nothing for one that is gone."""
    try:
        process = psutil.Process(pid or os.getpid())
        times, memory = process.cpu_times(), process.memory_info()
    except psutil.NoSuchProcess:
        return Usage()
    resident = memory.rss / 2**20
    return Usage(times.user + times.system, resident, max(resident, _peak(process.pid)))


def _peak(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except (OSError, ValueError, IndexError):
        pass  # only Linux knows
    return 0.0
