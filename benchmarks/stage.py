"""Where a burst takes place: what a measurement needs of a cluster, and the embedded one."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Protocol

from arc_controller.cli.demo_manager import ManagerProcess
from arc_controller.cli.demo_world import RUNNER_NAMESPACE, World
from arc_controller.testing.actions import FakeActionsService
from arc_controller.testing.apiserver.store import Event
from arc_controller.testing.kubelet import FakeKubelet, ListenerProcesses
from arc_controller.testing.kubelet.behaviour import Behave
from benchmarks.processes import Usage, usage
from benchmarks.seen import KINDS, Seen


class Stage(Protocol):
    """A cluster with nothing in it but namespaces, permissions and credentials."""

    folder: Path
    service: FakeActionsService
    listeners: ListenerProcesses
    kubelet: FakeKubelet
    seen: Seen

    @property
    def url(self) -> str: ...

    @property
    def ca_pem(self) -> str:
        """What the server's certificate is checked against; empty for plain HTTP."""

    def manager_token(self) -> str:
        """A bearer token with the manager's rights."""

    def new_manager(self, *, flags: Sequence[str]) -> ManagerProcess:
        """The manager's process, not yet started."""

    async def apply_scale_set(self, max_runners: int) -> None: ...

    async def delete_scale_sets(self) -> None: ...

    async def stop_kubelet(self) -> None: ...

    async def left(self) -> int:
        """How many objects are there that were not at first."""

    def requests(self) -> Mapping[str, Counter[str]]:
        """Requests so far but watches and lists, by ``manager`` and ``listener``, then by kind."""

    def usage(self) -> Usage:
        """Of everything that is neither manager nor listener."""


class EmbeddedStage:
    """The demo's world. API server, Actions service and kubelet are this process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.folder = world.folder
        self.service = world.service
        self.listeners = world.listeners
        self.kubelet = world.kubelet
        self.seen = Seen()
        self.url = world.http.url
        self.ca_pem = ""
        self.manager_token = world.manager_token
        self.new_manager = world.new_manager
        self.delete_scale_sets = world.delete_scale_sets
        self.stop_kubelet = world.stop_kubelet
        self.requests = world.requests
        world.api.store.observe(self._observe)

    async def apply_scale_set(self, max_runners: int) -> None:
        self._world.apply_scale_set(max_runners)

    async def left(self) -> int:
        return len(self._world.left())

    def usage(self) -> Usage:
        return usage()

    def _observe(self, event: Event) -> None:
        stored = event.stored
        plural = stored.resource.split(".")[0]
        if stored.namespace != RUNNER_NAMESPACE or plural not in KINDS:
            return
        if event.type == "DELETED":
            self.seen.gone(plural, stored.name)
        elif event.type == "ADDED":
            self.seen.added(plural, stored.obj)
        else:
            self.seen.changed(plural, stored.obj)


OpenStage = Callable[[Path, int, Behave], AbstractAsyncContextManager[Stage]]
"""Folder for its files, seed, and how pods fare."""


@asynccontextmanager
async def embedded(folder: Path, seed: int, behave: Behave) -> AsyncIterator[Stage]:
    """An embedded cluster, for as long as the block runs."""
    async with World(folder, Random(seed), behave=behave) as world:
        yield EmbeddedStage(world)
