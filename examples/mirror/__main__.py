"""Run the controller against the cluster that kubectl talks to: python -m examples.mirror"""

from __future__ import annotations

import asyncio
import signal

from arc_controller.runtime import Manager, configure_logging
from arc_controller.runtime.http import HttpTransport
from examples.mirror.controller import add_mirror_controller
from examples.mirror.kind import SCHEME


async def main() -> None:
    configure_logging()
    transport = await HttpTransport.from_environment()
    manager = Manager(transport, SCHEME)
    add_mirror_controller(manager)
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_, manager.stop)
    try:
        await manager.run()
    finally:
        await transport.close()


if __name__ == "__main__":
    asyncio.run(main())
