"""One pod's life: scheduled, pulled, started, running, ended, deleted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from arc_controller.api.core import PodManifest
from arc_controller.runtime.client import JSON, MERGE_PATCH
from arc_controller.runtime.errors import ApiError, TransportError
from arc_controller.testing.kubelet.behaviour import Disruption, DisruptionKind, PodBehaviour
from arc_controller.testing.kubelet.container import (
    KILLED,
    Exit,
    Log,
    Object,
    Process,
    status_of,
    terminated,
)
from arc_controller.testing.kubelet.podspec import main_container

if TYPE_CHECKING:
    from arc_controller.testing.kubelet.node import FakeKubelet

NODE_GONE_FOR: Final = 60.0
"""Seconds between the deletion of a pod on a lost node and its forced removal."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Deletion:
    grace: float


class PodWorker:
    """Plays one pod. Cancelling `run` kills its process without another word to the API server."""

    def __init__(
        self, kubelet: FakeKubelet, pod: PodManifest, behaviour: PodBehaviour, log: Log
    ) -> None:
        self.pod = pod
        self.main_container: str = main_container(pod).get("name", "")
        self.task: asyncio.Task[None] | None = None
        self._kubelet = kubelet
        self._behaviour = behaviour
        self._log = log
        self._process: Process | None = None
        self._running: asyncio.Task[Exit] | None = None
        self._deletion: asyncio.Future[_Deletion] = asyncio.get_running_loop().create_future()
        self._node_is_lost = False

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    def delete(self, pod: PodManifest) -> None:
        """The API server says that the pod shall go."""
        grace = pod.metadata.deletion_grace_period_seconds
        if not self._deletion.done():
            self._deletion.set_result(_Deletion(30.0 if grace is None else float(grace)))

    def kill(self) -> bool:
        if self._running is None or self._running.done():
            return False
        self._running.cancel()
        return True

    async def run(self) -> None:
        life = asyncio.create_task(self._live())
        both: list[asyncio.Future[Any]] = [life, self._deletion]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._deletion.done() and not life.done():
                await self._end(life, self._deletion.result())
            if life.done() and not life.cancelled():
                life.result()  # a bug here must not look like a pod that waits
            if not self._node_is_lost:
                await self._deletion
                await self._remove()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("the fake kubelet failed", pod=str(self.pod.key))
            raise
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    # --- from scheduled to ended

    async def _live(self) -> None:
        behaviour = self._behaviour
        if behaviour.never_scheduled:
            await self._say_unschedulable()
            await _forever()
        await _sleep(behaviour.schedule)
        if not await self._bind():
            return
        if behaviour.image_pull_back_off:
            await self._wait_with("ImagePullBackOff", "Back-off pulling image")
            await _forever()
        await _sleep(behaviour.pull)
        if behaviour.init_exit_code and self.pod.spec.get("initContainers"):
            await self._fail_init(behaviour.init_exit_code)
            return
        while True:
            try:
                self._process = await self._kubelet.process(self.pod, behaviour)
                break
            except LookupError as error:
                await self._wait_with("CreateContainerConfigError", str(error.args[0]))
            except (ApiError, TransportError):
                pass
            await asyncio.sleep(10.0)
        await _sleep(behaviour.start)
        await self._report(status_of(self.pod, "Running", self._kubelet.now(), ready=True))
        ended = await self._run_process()
        if ended is not None:
            await self._report_end(ended)

    async def _run_process(self) -> Exit | None:
        """The end of the process; None when nobody is there to report it."""
        run = self._process.run(self._log.say) if self._process is not None else _forever()
        disruption = self._behaviour.disruption
        self._running = running = asyncio.create_task(run)
        try:
            await asyncio.wait([running], timeout=disruption.after if disruption else None)
            if running.done() or disruption is None:
                return Exit(KILLED) if running.cancelled() else running.result()
            if disruption.kind is DisruptionKind.PREEMPTED:
                await self._preempt()
                await asyncio.wait([running])
                return Exit(KILLED) if running.cancelled() else running.result()
            return await self._disrupt(disruption, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _disrupt(self, disruption: Disruption, running: asyncio.Task[Exit]) -> Exit | None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        match disruption.kind:
            case DisruptionKind.EVICTED:
                return Exit(
                    KILLED,
                    "Error",
                    "The node was low on resource: memory.",
                    "Evicted",
                    disruption="TerminationByKubelet",
                )
            case DisruptionKind.NODE_SHUTDOWN:
                return Exit(
                    KILLED,
                    "Error",
                    "Pod was terminated in response to imminent node shutdown.",
                    "Terminated",
                    disruption="TerminationByKubelet",
                )
            case DisruptionKind.OUT_OF_MEMORY:
                return Exit(KILLED, "OOMKilled")
            case DisruptionKind.NODE_LOST:
                await self._lose_node()
                return None
            case _:
                return Exit(disruption.exit_code)

    async def _lose_node(self) -> None:
        """The node controller marks the pod, the taint manager deletes it, and when nobody
        confirms that, the garbage collector of pods forces it."""
        self._node_is_lost = True
        status = status_of(self.pod, "Running", self._kubelet.now(), ready=False)
        status["reason"] = "NodeLost"
        status["message"] = f"Node {self._kubelet.node} which was running the pod is unresponsive"
        status["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        )
        await self._report(status)
        await self._delete({})
        await asyncio.sleep(NODE_GONE_FOR)
        await self._remove()

    async def _preempt(self) -> None:
        status = {
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
            ]
        }
        await self._report(status)
        await self._delete({})

    # --- deletion

    async def _end(self, life: asyncio.Task[None], deletion: _Deletion) -> None:
        """SIGTERM, the grace period, SIGKILL; then the end is reported."""
        if self._running is None:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            return
        if self._process is not None:
            self._process.terminate()
        else:
            self._running.cancel()
        await asyncio.wait([life], timeout=deletion.grace)
        if not life.done():
            self._running.cancel()
            await asyncio.wait([life])

    async def _remove(self) -> None:
        await self._delete({"gracePeriodSeconds": 0})

    async def _delete(self, options: Object) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": self.pod.uid},
            **options,
        }
        await self._kubelet.call("DELETE", self._path(), body, JSON)

    # --- what the API server is told

    async def _bind(self) -> bool:
        """Give the pod its node. False when it cannot be had any more."""
        if self.pod.spec.get("nodeName"):
            return True
        meta = {"name": self.pod.metadata.name, "uid": self.pod.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._kubelet.node},
        }
        status = await self._kubelet.call("POST", f"{self._path()}/binding", body, JSON)
        return status < 400

    async def _say_unschedulable(self) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }
        await self._report({"phase": "Pending", "conditions": [condition]})

    async def _wait_with(self, reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        states = {self.main_container: state}
        await self._report(status_of(self.pod, "Pending", self._kubelet.now(), states=states))

    async def _fail_init(self, code: int) -> None:
        now = self._kubelet.now()
        failed = self.pod.spec["initContainers"][0]["name"]
        states: dict[str, Object] = {failed: terminated(Exit(code), now)}
        for container in self.pod.spec["containers"]:
            states[container["name"]] = {"waiting": {"reason": "PodInitializing"}}
        await self._report(status_of(self.pod, "Failed", now, states=states))

    async def _report_end(self, exit: Exit) -> None:
        """The main container's end; the pod's too unless another container goes on."""
        now = self._kubelet.now()
        main = self.main_container
        others = [each for each in self.pod.spec["containers"] if each["name"] != main]
        if others and not exit.reason and not self._deletion.done():
            states = {main: terminated(exit, now)}
            await self._report(status_of(self.pod, "Running", now, states=states, exit=exit))
            return
        phase = "Failed" if exit.failed else "Succeeded"
        await self._report(status_of(self.pod, phase, now, exit=exit))

    async def _report(self, status: Object) -> None:
        patch = {"metadata": {"uid": self.pod.uid}, "status": status}
        await self._kubelet.call("PATCH", f"{self._path()}/status", patch, MERGE_PATCH)

    def _path(self) -> str:
        meta = self.pod.metadata
        return f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


async def _forever() -> Any:
    await asyncio.get_running_loop().create_future()
