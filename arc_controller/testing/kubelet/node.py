"""The node: watches pods and plays each one, from being scheduled to being gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random
from typing import Any, Final

import msgspec
import structlog

from arc_controller.api.core import PodManifest, Secret
from arc_controller.runtime.cache import Cache
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.clock import utc_now
from arc_controller.runtime.errors import TransportError
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.scheme import Resource, Scheme
from arc_controller.runtime.transport import Transport
from arc_controller.testing.actions import FakeActionsService
from arc_controller.testing.kubelet.behaviour import Behave, PodBehaviour, well
from arc_controller.testing.kubelet.container import Log, Process
from arc_controller.testing.kubelet.listeners import Listeners
from arc_controller.testing.kubelet.pod import PodWorker
from arc_controller.testing.kubelet.podspec import (
    JIT_CONFIG,
    config_of,
    environment_of,
    main_container,
    pod_kind,
)
from arc_controller.testing.kubelet.runners import RunnerProcess

USER_AGENT: Final = "fake-kubelet"

log = structlog.get_logger(__name__)


def kubelet_scheme() -> Scheme:
    """Pods with their spec, and secrets."""
    scheme = Scheme()
    scheme.register(PodManifest, Resource("", "v1", "Pod", "pods"))
    scheme.register(Secret, Resource("", "v1", "Secret", "secrets"))
    return scheme


class FakeKubelet:
    """Plays all pods that the API server has, whatever node they ask for.

    A pod whose container ``runner`` (or any other) has ``ACTIONS_RUNNER_INPUT_JITCONFIG`` is a
    runner of ``service``; one with a container ``listener`` is run by ``listeners``; all others run
    until they are deleted. ``behave`` is asked how each new pod fares; `next_pods` overrides it for
    the pods to come.

    `start` runs until cancelled; then every process it started is killed, and nothing else.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        service: FakeActionsService | None = None,
        listeners: Listeners | None = None,
        behave: Behave = well,
        node: str = "fake-node",
        now: Callable[[], datetime] = utc_now,
        random: Random | None = None,
    ) -> None:
        self.transport = transport
        self.client = ApiClient(transport, kubelet_scheme())
        self.cache = Cache(transport, kubelet_scheme(), now=now, random=random)
        self.node = node
        self.now = now
        self.behave = behave
        self.started: Counter[str] = Counter()
        """How many pods were seen, by kind: ``runner``, ``listener``, ``other``."""
        self._service = service
        self._listeners = listeners
        self._workers: dict[str, PodWorker] = {}
        self._named: dict[NamespacedName, PodWorker] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order: a seed repeats a run
        self._logs: dict[NamespacedName, Log] = {}
        self._overrides: list[tuple[str, PodBehaviour]] = []
        self.cache.informer(PodManifest).add_handler(self)

    async def start(self) -> None:
        """Play until cancelled."""
        try:
            await self.cache.start()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*list(self._tasks), return_exceptions=True)

    async def wait_for_sync(self) -> None:
        """Until every pod that exists has been seen."""
        await self.cache.wait_for_sync()

    def next_pods(self, behaviour: PodBehaviour, count: int = 1, *, kind: str = "runner") -> None:
        """The next ``count`` new pods of a kind fare like this."""
        self._overrides += [(kind, behaviour)] * count

    @property
    def pods(self) -> Mapping[str, PodWorker]:
        """The pods being played, by UID."""
        return self._workers

    def kill(self, namespace: str, name: str) -> bool:
        """SIGKILL the main process of a pod; its container then ends with 137. False if none."""
        worker = self._find(namespace, name)
        return worker is not None and worker.kill()

    def logs(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> bytes:
        """What ``kubectl logs`` shows: to be set as `ApiServer.pod_logs`."""
        found = self._logs.get(NamespacedName(namespace, pod))
        worker = self._find(namespace, pod)
        if found is None or worker is None or container != worker.main_container:
            return b""
        return found.read(query)

    # --- what the cache says

    def on_add(self, obj: PodManifest, initial: bool) -> None:
        if obj.status.phase in ("Succeeded", "Failed") and not obj.is_being_deleted:
            return
        kind = pod_kind(obj)
        self.started[kind] += 1
        pod_log = self._logs[obj.key] = Log(self.now)
        worker = PodWorker(self, obj, self._behaviour(kind, obj), pod_log)
        self._workers[obj.uid] = self._named[obj.key] = worker
        task = asyncio.create_task(worker.run(), name=f"pod {obj.key}")
        worker.task = task
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if obj.is_being_deleted:
            worker.delete(obj)

    def on_update(self, old: PodManifest, new: PodManifest) -> None:
        if old.uid != new.uid:
            self.on_delete(old)
            self.on_add(new, False)
            return
        worker = self._workers.get(new.uid)
        if worker is not None and new.is_being_deleted:
            worker.delete(new)

    def on_delete(self, obj: PodManifest) -> None:
        worker = self._workers.pop(obj.uid, None)
        if worker is not None and worker.task is not None:
            worker.task.cancel()  # force deleted: no grace
        if self._named.get(obj.key) is worker:
            self._named.pop(obj.key, None)
            self._logs.pop(obj.key, None)

    # --- for the workers

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        secret = await self.client.find(Secret, NamespacedName(namespace, name))
        return secret.data if secret is not None else {}

    async def process(self, pod: PodManifest, behaviour: PodBehaviour) -> Process | None:
        """What runs in the pod; None for a pod that just stays. Raises `LookupError` with what a
        kubelet would say when the container's configuration cannot be put together."""
        kind = pod_kind(pod)
        container = main_container(pod)
        if kind == "listener" and self._listeners is not None:
            environ = await environment_of(pod, container, self.read_secret)
            config = await config_of(pod, environ, self.read_secret)
            return self._listeners.process(pod, config, environ)
        if kind == "runner" and self._service is not None:
            environ = await environment_of(pod, container, self.read_secret)
            jit_config = environ.get(JIT_CONFIG)
            if jit_config is None:
                raise LookupError(f"couldn't find the secret key of {JIT_CONFIG}")

            async def read() -> str:
                return jit_config

            return RunnerProcess(self._service, read, behaviour)
        return None

    async def call(self, method: str, path: str, body: Mapping[str, Any], content_type: str) -> int:
        """One request to the API server, repeated until it answers; 4xx are the pod's business."""
        while True:
            try:
                response = await self.transport.request(
                    method, path, body=msgspec.json.encode(body), content_type=content_type
                )
            except TransportError:
                status = 599
            else:
                status = response.status
            if status < 500 and status != 429:
                if status >= 400 and status not in (404, 409):
                    log.warning("refused", call=f"{method} {path}", status=status)
                return status
            await asyncio.sleep(1.0)

    def _find(self, namespace: str, name: str) -> PodWorker | None:
        return self._named.get(NamespacedName(namespace, name))

    def _behaviour(self, kind: str, pod: PodManifest) -> PodBehaviour:
        for index, (wanted, behaviour) in enumerate(self._overrides):
            if wanted == kind:
                del self._overrides[index]
                return behaviour
        return self.behave(pod) if kind == "runner" else PodBehaviour()
