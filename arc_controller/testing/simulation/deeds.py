"""How each action of a plan is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import singledispatch
from typing import Any, Final, TypeVar

import msgspec

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.runtime.client import MERGE_PATCH
from arc_controller.runtime.errors import ApiError
from arc_controller.testing.actions import Fault as ServiceRule
from arc_controller.testing.apiserver import Object, Stored
from arc_controller.testing.cluster import CREDENTIALS, RUNNER_NAMESPACE
from arc_controller.testing.cluster import scale_set as scale_set_manifest
from arc_controller.testing.kubelet.container import KILLED
from arc_controller.testing.simulation import facts, plan
from arc_controller.testing.simulation.network import Tripwire
from arc_controller.testing.simulation.world import SimulatedManager, World

URL: Final = "https://github.com/acme"
OTHER_URL: Final = "https://github.com/acme/app"
PROXY_CREDENTIALS: Final = "proxy-credentials"
T = TypeVar("T", bound=plan.Fault)


async def prepare(world: World) -> None:
    """What a user does before anything else: the secrets."""
    world.service.accept_tokens("ghp_0")
    await world.cluster.apply(
        _secret(CREDENTIALS, {"github_token": "ghp_0"}),
        _secret(PROXY_CREDENTIALS, {"username": "runner", "password": "S3CRET-0"}),
    )


async def perform(world: World, action: plan.Action) -> None:
    """Do it, from its time to its end. Cancelling it ends a fault at once."""
    await asyncio.sleep(max(0.0, action.at - world.loop.time()))
    world.spectator.note(f"ACTION {action}".replace("  ", " "))
    await do(action, world)


@singledispatch
async def do(action: plan.Action, world: World) -> None:
    raise NotImplementedError(type(action).__name__)


# --- users ----------------------------------------------------------------------------------------


@do.register
async def _(action: plan.CreateScaleSet, world: World) -> None:
    if world.store.read(facts.SCALE_SETS, RUNNER_NAMESPACE, action.name) is not None:
        return
    extra: dict[str, Any] = {"proxy": _proxy()} if action.proxy else {}
    if action.group:
        extra["runner_group"] = action.group
    manifest = scale_set_manifest(
        action.name,
        min_runners=action.least,
        max_runners=action.most,
        runner_scale_set_name=action.name,
        template=_template(0),
        **extra,
    )
    await world.cluster.apply(manifest)


@do.register
async def _(action: plan.DeleteScaleSet, world: World) -> None:
    await world.cluster.delete(AutoscalingRunnerSet, action.name)


@do.register
async def _(action: plan.QueueJobs, world: World) -> None:
    world.service.queue_jobs(
        action.count, scale_set=action.name, duration=action.duration, direct=action.direct
    )


@do.register
async def _(action: plan.CancelJobs, world: World) -> None:
    waiting = [job for job in world.service.jobs if not job.is_over]
    for job in world.random.sample(waiting, min(action.count, len(waiting))):
        world.service.cancel_job(job)


@do.register
async def _(action: plan.Edit, world: World) -> None:
    found = world.store.read(facts.SCALE_SETS, RUNNER_NAMESPACE, action.name)
    if found is not None:
        await edit(world, found.obj, action)


async def edit(world: World, obj: Object, action: plan.Edit) -> None:
    """Send the user's patch."""
    spec = obj["spec"]
    number = str(int(action.at))
    change: Object
    match action.what:
        case "image":
            images = [c["image"] for c in spec["template"]["spec"]["containers"]]
            version = int(images[0].rpartition(":")[2]) + 1
            change = {"spec": {"template": _template(version)}}
        case "limits":
            change = {"spec": {"minRunners": action.least, "maxRunners": action.most}}
        case "metadata":
            change = {"metadata": {"labels": {"team": f"t{number}", "private.label": number}}}
        case "runner-metadata":
            change = {"spec": {"ephemeralRunnerMetadata": {"labels": {"edited": f"t{number}"}}}}
        case "proxy":
            change = {"spec": {"proxy": None if "proxy" in spec else _proxy()}}
        case "group":
            group = None if spec.get("runnerGroup") == "extra" else "extra"
            change = {"spec": {"runnerGroup": group}}
        case "label":
            change = {"spec": {"runnerScaleSetLabels": [f"label{number}"]}}
        case "url":
            url = OTHER_URL if spec["githubConfigUrl"] == URL else URL
            change = {"spec": {"githubConfigUrl": url}}
    with suppress(ApiError):
        await world.cluster.patch(AutoscalingRunnerSet, facts.name(obj), change)


@do.register
async def _(action: plan.RotateCredentials, world: World) -> None:
    token = f"ghp_{int(action.at)}"
    world.service.accept_tokens(token)
    try:
        await asyncio.sleep(action.gap)
    finally:
        await world.cluster.apply(_secret(CREDENTIALS, {"github_token": token}))


@do.register
async def _(action: plan.RotateProxyPassword, world: World) -> None:
    password = f"S3CRET-{int(action.at)}"
    secret = _secret(PROXY_CREDENTIALS, {"username": "runner", "password": password})
    await world.cluster.apply(secret)


@do.register
async def _(action: plan.DeleteObject, world: World) -> None:
    found = world.pick(_ours(world, action.resource), action.pick)
    if found is not None:
        await world.cluster.transport.request("DELETE", _path(found))


@do.register
async def _(action: plan.LabelObject, world: World) -> None:
    found = world.pick(_ours(world, action.resource), action.pick)
    if found is not None:
        await _label(world, found, f"t{int(action.at)}")


@do.register
async def _(action: plan.OutdatedVersion, world: World) -> None:
    world.service.runner_version_refused = True
    try:
        await asyncio.sleep(action.lasts)
    finally:
        world.service.runner_version_refused = False


# --- the cluster ----------------------------------------------------------------------------------


@do.register
async def _(action: plan.ApiTrouble, world: World) -> None:
    await _for_a_while(action, world.network.troubles)


@do.register
async def _(action: plan.ApiOutage, world: World) -> None:
    world.network.outages.append(action.who)
    world.network.break_watches(action.who)
    try:
        await asyncio.sleep(action.lasts)
    finally:
        world.network.outages.remove(action.who)


@do.register
async def _(action: plan.WatchTrouble, world: World) -> None:
    await _for_a_while(action, world.network.watch_troubles)


@do.register
async def _(action: plan.StaleCache, world: World) -> None:
    await _for_a_while(action, world.network.stale)


@do.register
async def _(action: plan.BreakWatches, world: World) -> None:
    world.network.break_watches()


@do.register
async def _(action: plan.CompactHistory, world: World) -> None:
    world.store.compact()
    world.network.break_watches()


@do.register
async def _(action: plan.Quota, world: World) -> None:
    await _for_a_while(action, world.quotas)


@do.register
async def _(action: plan.PodTrouble, world: World) -> None:
    await _for_a_while(action, world.pod_troubles)


@do.register
async def _(action: plan.HurtPod, world: World) -> None:
    pods = world.runner_pods() if action.kind == "runner" else world.listener_pods()
    pod = world.pick(pods, action.pick)
    if pod is None:
        return
    match action.how:
        case "kill":
            world.cluster.kubelet.kill(pod.namespace, pod.name)
        case "drain":
            await world.cluster.transport.request("DELETE", _path(pod))
        case "force":
            query = [("gracePeriodSeconds", "0")]
            await world.cluster.transport.request("DELETE", _path(pod), query=query)


# --- the Actions service --------------------------------------------------------------------------


@do.register
async def _(action: plan.ServiceTrouble, world: World) -> None:
    faults, calls, rate = world.service.faults, action.calls, action.rate
    rule: ServiceRule
    match action.how:
        case "fail" | "fail-after":
            rule = faults.fail(
                *calls,
                status=action.status,
                type_name=action.type_name,
                times=None,
                probability=rate,
                after_effect=action.how == "fail-after",
            )
        case "reset" | "reset-after":
            after = action.how == "reset-after"
            rule = faults.reset(*calls, times=None, probability=rate, after_effect=after)
        case "delay":
            rule = faults.delay(*calls, seconds=action.seconds, times=None, probability=rate)
        case "truncate":
            rule = faults.truncate(*calls, times=None)
            rule.probability = rate
        case "empty":
            rule = faults.empty(*calls, times=None)
            rule.probability = rate
    try:
        await asyncio.sleep(action.lasts)
    finally:
        rule.stop()


@do.register
async def _(action: plan.ServiceOutage, world: World) -> None:
    world.service.go_down()
    try:
        await asyncio.sleep(action.lasts)
    finally:
        world.service.come_up()


@do.register
async def _(action: plan.ServiceEvent, world: World) -> None:
    service = world.service
    name = action.name
    if action.what == "expire-admin-tokens":
        service.expire_admin_tokens()
    elif action.what == "expire-queue-tokens":
        service.expire_queue_tokens()
    elif action.what == "reset-polls":
        service.reset_polls()
    elif action.what == "lose-acknowledgement":
        service.faults.ignore("delete_message")
    else:
        with suppress(KeyError):  # it is not there
            if action.what == "expire-session":
                service.expire_session(name)
            elif action.what == "redeliver":
                service.redeliver(name)
            else:
                service.lose_messages(name)


@do.register
async def _(action: plan.ForgetScaleSet, world: World) -> None:
    with suppress(KeyError):
        world.service.forget_scale_set(action.name)


@do.register
async def _(action: plan.StrangeSession, world: World) -> None:
    """It comes as soon as the session is free, and polls."""
    with suppress(KeyError):
        await world.service.hold_session(action.name, action.lasts)


# --- our own processes ----------------------------------------------------------------------------


@do.register
async def _(action: plan.KillManager, world: World) -> None:
    manager = _manager(world, action.index)
    await manager.die(action.requests, action.effect)
    await _back_after(manager, action.down)


@do.register
async def _(action: plan.StopManager, world: World) -> None:
    manager = _manager(world, action.index)
    await manager.stop()
    await _back_after(manager, action.down)


@do.register
async def _(action: plan.KillListener, world: World) -> None:
    pod = world.pick(world.listener_pods(), action.pick)
    if pod is None:
        return
    account = pod.obj["spec"].get("serviceAccountName", "")
    connections = world.network.connections(f"listener/{account}")
    if action.requests and connections:
        dead = asyncio.Event()
        connections[-1].tripwire = Tripwire(action.requests, action.effect, dead.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(120.0):
                await dead.wait()
        connections[-1].tripwire = None
    world.spectator.note(f"listener {pod.name} is killed ({KILLED})")
    world.cluster.kubelet.kill(pod.namespace, pod.name)


@do.register
async def _(action: plan.SecondLeader, world: World) -> None:
    manager = SimulatedManager(world, f"manager-second-{int(action.at)}", elected=False)
    manager.start()
    try:
        await asyncio.sleep(action.lasts)
    finally:
        await manager.kill()


@do.register
async def _(action: plan.HeldWrites, world: World) -> None:
    await _for_a_while(action, world.network.held)


@do.register
async def _(action: plan.ClockJump, world: World) -> None:
    world.loop.jump_wall_clock(timedelta(seconds=action.seconds))


# --- small things ---------------------------------------------------------------------------------


async def _for_a_while(action: T, faults: list[T]) -> None:
    faults.append(action)
    try:
        await asyncio.sleep(action.lasts)
    finally:
        faults.remove(action)


def _manager(world: World, index: int) -> SimulatedManager:
    return world.managers[index % len(world.managers)]


async def _back_after(manager: SimulatedManager, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        if not manager.is_running:
            manager.start()


def _ours(world: World, resource: str) -> list[Stored]:
    """Those that our controllers made: not the user's own secrets."""
    own = (CREDENTIALS, PROXY_CREDENTIALS, "default")
    return [each for each in world.store.scan(resource) if each.name not in own]


def _path(stored: Stored) -> str:
    plural, _, group = stored.resource.partition(".")
    versions = {"actions.github.com": "v1alpha1"}
    root = f"/apis/{group}/{versions.get(group, 'v1')}" if group else "/api/v1"
    return f"{root}/namespaces/{stored.namespace}/{plural}/{stored.name}"


async def _label(world: World, stored: Stored, value: str) -> None:
    body = msgspec.json.encode({"metadata": {"labels": {"somebody.example/was-here": value}}})
    await world.cluster.transport.request(
        "PATCH", _path(stored), body=body, content_type=MERGE_PATCH
    )


def _template(version: int) -> Object:
    container = {"name": "runner", "image": f"runner:{version}", "command": ["/home/runner/run.sh"]}
    init = {"name": "prepare", "image": "init:1"}
    return {
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [init],
            "containers": [container],
        }
    }


def _proxy() -> Object:
    return {
        "https": {
            "url": "http://proxy.example:3128",
            "credentialSecretRef": PROXY_CREDENTIALS,
        },
        "noProxy": ["localhost"],
    }


def _secret(name: str, data: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": RUNNER_NAMESPACE},
        "stringData": data,
    }


Deed = Callable[[plan.Action, World], Awaitable[None]]
