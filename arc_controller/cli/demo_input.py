"""What the user types while the demo stays up: lines from standard input, where there is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

READ_AT_ONCE = 4096


@contextmanager
def lines(take: Callable[[str], None], fd: int = 0) -> Iterator[None]:
    """Give every line that is typed to `take` while the block runs.

    Nothing is read where nothing can be typed: at the end of the input, from a file or the null
    device, and from a terminal that another program has in the foreground.
    """
    loop = asyncio.get_running_loop()
    typed = bytearray()

    def read() -> None:
        if not _is_ours(fd):
            return
        data = b""
        with suppress(OSError):
            data = os.read(fd, READ_AT_ONCE)
        if not data:
            loop.remove_reader(fd)
            return
        typed.extend(data)
        *whole, rest = bytes(typed).split(b"\n")
        typed[:] = rest[-READ_AT_ONCE:]
        for line in whole:
            take(line.decode("utf-8", "replace").strip())

    try:
        loop.add_reader(fd, read)
    except (OSError, ValueError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(fd)


def _is_ours(fd: int) -> bool:
    """Whoever reads from the terminal of another job is stopped by the system."""
    if not os.isatty(fd):
        return True
    with suppress(OSError):
        return os.tcgetpgrp(fd) == os.getpgrp()
    return False
