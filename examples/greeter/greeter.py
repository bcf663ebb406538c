"""The smallest whole controller: a `Greeting` says whom to greet, its status says how.

Run it against the cluster that kubectl talks to: python -m examples.greeter.greeter
"""

from __future__ import annotations

import asyncio
import signal

import msgspec

from arc_controller.runtime import (
    Client,
    ControllerBuilder,
    KubeObject,
    LazyCopy,
    Manager,
    NamespacedName,
    Resource,
    Result,
    Scheme,
    Wire,
    configure_logging,
)
from arc_controller.runtime.http import HttpTransport
from arc_controller.runtime.predicates import generation_changed


class GreetingSpec(Wire):
    who: str = "world"


class GreetingStatus(Wire):
    text: str = ""


class Greeting(KubeObject):
    spec: GreetingSpec = msgspec.field(default_factory=GreetingSpec)
    status: GreetingStatus = msgspec.field(default_factory=GreetingStatus)


SCHEME = Scheme()
SCHEME.register(Greeting, Resource("examples.dev", "v1", "Greeting", "greetings"))


class Greeter:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, key: NamespacedName) -> Result:
        greeting = await self.client.find(Greeting, key)
        if greeting is None:
            return Result()  # it is gone, and with it all there was to do
        lazy = LazyCopy(greeting)
        lazy.mutate().status.text = f"Hello, {greeting.spec.who}!"
        await lazy.patch_status(self.client)  # the difference, locked; nothing if there is none
        return Result()


async def main() -> None:
    configure_logging()
    transport = await HttpTransport.from_environment()
    manager = Manager(transport, SCHEME)
    greeter = Greeter(manager.client)
    ControllerBuilder(manager).for_(Greeting, predicates=[generation_changed]).build(greeter)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, manager.stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.stop)
    try:
        await manager.run()
    finally:
        await transport.close()


if __name__ == "__main__":
    asyncio.run(main())
