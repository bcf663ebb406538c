"""One manager of a test's cluster: started, restarted, killed, as a process would be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Protocol

from arc_controller.actions import (
    ActionsClient,
    Credentials,
    HttpTransport,
    ProxySettings,
    UserAgent,
)
from arc_controller.api import SCHEME
from arc_controller.controllers import add_controllers
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.inputs import Inputs
from arc_controller.controllers.scopes import cache_scopes, cache_transforms
from arc_controller.controllers.service import ActionsClients
from arc_controller.runtime.manager import Manager, ManagerOptions
from arc_controller.runtime.transport import Transport
from arc_controller.testing.wires import ActionsWire, Requests, Wire, end


class AnyManager(Protocol):
    """A manager that a test can start, stop and kill: a task of this process, or a process.

    ``failure`` is what ended it without being asked to.
    """

    name: str
    failure: BaseException | None

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    async def stop(self) -> None:
        """SIGTERM, and wait for its end."""

    async def kill(self) -> None:
        """SIGKILL. Does nothing when it does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerParts:
    """What every incarnation of a manager is made from. ``transport`` makes a new connection;
    ``actions`` is the network to the service, None for the real one."""

    transport: Callable[[], Transport]
    actions: HttpTransport | None
    config: ControllerConfig
    options: ManagerOptions
    requests: Requests
    now: Callable[[], datetime]
    random: Random
    detect_mutations: bool = True


class ManagerHandle:
    """A manager that can be started again and again under one name.

    ``failure`` is what ended the last incarnation without being asked to.
    """

    def __init__(self, name: str, parts: ManagerParts) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._parts = parts
        self._manager: Manager | None = None
        self._task: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        self._network: ActionsWire | None = None

    @property
    def manager(self) -> Manager:
        """The running incarnation. Raises `RuntimeError` when none runs."""
        if self._manager is None:
            raise RuntimeError(f"manager {self.name} is not running")
        return self._manager

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin a new incarnation; it works once its caches are filled."""
        if self.is_running:
            raise RuntimeError(f"manager {self.name} runs already")
        parts = self._parts
        self._wire = Wire(parts.transport(), self.name, parts.requests)
        network = None if parts.actions is None else ActionsWire(parts.actions)
        self._network = network

        def client(
            config_url: str,
            credentials: Credentials,
            *,
            proxy: ProxySettings | None,
            root_cas: tuple[str, ...],
            user_agent: UserAgent,
        ) -> ActionsClient:
            return ActionsClient(
                config_url,
                credentials,
                proxy=proxy,
                root_cas=root_cas,
                user_agent=user_agent,
                transport=network,
                now=parts.now,
                random=Random(parts.random.getrandbits(64)),
            )

        options = replace(
            parts.options,
            scopes=parts.options.scopes or cache_scopes(parts.config),
            transforms=parts.options.transforms or cache_transforms(),
        )
        self._manager = manager = Manager(
            self._wire,
            SCHEME,
            options=options,
            now=parts.now,
            random=Random(parts.random.getrandbits(64)),
        )
        manager.cache.detect_mutations = parts.detect_mutations
        clients = ActionsClients(Inputs(manager.api_reader), factory=client)
        add_controllers(manager, parts.config, clients)
        self._task = asyncio.create_task(self._run(manager, clients), name=self.name)

    async def stop(self) -> None:
        """Graceful, as after SIGTERM. Checks that nobody changed what the cache holds."""
        if self._task is None or self._manager is None:
            return
        manager = self._manager
        manager.stop()
        await asyncio.wait([self._task])
        if self._parts.detect_mutations:
            manager.cache.check_mutations()
        await self._forget()

    async def kill(self) -> None:
        """As SIGKILL: nothing of what it would still do reaches anybody."""
        if self._task is None or self._wire is None:
            return
        self._wire.cut()
        if self._network is not None:
            self._network.cut()
        await end(self._task)
        await self._forget()

    async def _forget(self) -> None:
        if self._wire is not None:
            await self._wire.close()
        self._manager = self._task = self._wire = self._network = None

    async def _run(self, manager: Manager, clients: ActionsClients) -> None:
        try:
            await manager.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.failure = error
            raise
        finally:
            await clients.aclose()
