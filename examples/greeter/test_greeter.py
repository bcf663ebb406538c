"""The controller in simulated time, on an API server that lives in the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from arc_controller.runtime import (
    ApiClient,
    ControllerBuilder,
    Manager,
    NamespacedName,
    ObjectMeta,
)
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.loop import now, simulated
from arc_controller.testing.transport import InProcessTransport
from examples.greeter.greeter import SCHEME, Greeter, Greeting, GreetingSpec

CRD = yaml.safe_load(Path(__file__).with_name("crd.yaml").read_text())
KEY = NamespacedName("default", "first")


@simulated
async def test_a_greeting_is_answered_again_when_it_changes() -> None:
    server = ApiServer(crds=[CRD], now=now)
    user = ApiClient(InProcessTransport(server), SCHEME)
    manager = Manager(InProcessTransport(server), SCHEME, now=now)
    ControllerBuilder(manager).for_(Greeting).build(Greeter(manager.client))
    running = asyncio.create_task(manager.run())

    meta = ObjectMeta(namespace=KEY.namespace, name=KEY.name)
    await user.create(Greeting(metadata=meta, spec=GreetingSpec(who="Ada")))
    await asyncio.sleep(1)
    assert (await user.get(Greeting, KEY)).status.text == "Hello, Ada!"

    await user.patch(Greeting, KEY, {"spec": {"who": "Grace"}})
    await asyncio.sleep(1)
    assert (await user.get(Greeting, KEY)).status.text == "Hello, Grace!"

    manager.stop()
    await running
