"""The AutoscalingListener controller: an account, a role, two secrets, and the pod that listens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import structlog
from cachetools import LRUCache

from arc_controller.actions import ActionsError, ScaleSetNotFound
from arc_controller.api.core import (
    Pod,
    PodImages,
    PodManifest,
    Role,
    RoleBinding,
    Secret,
    ServiceAccount,
)
from arc_controller.api.v1alpha1 import (
    Annotation,
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
    Finalizer,
)
from arc_controller.controllers.conditions import READY, SCALE_SET_FOUND, put_condition
from arc_controller.controllers.context import Context
from arc_controller.controllers.indexes import scale_set_of
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.listener_config import (
    config_file,
    config_secret,
    config_secret_key,
    proxy_secret,
    proxy_secret_key,
)
from arc_controller.controllers.listener_pod import GRACE_PERIOD, listener_pod
from arc_controller.controllers.listener_rbac import role, role_binding, service_account
from arc_controller.controllers.listener_state import (
    NO_SESSION,
    STARTING,
    PodState,
    pod_state,
    waits_for_session,
)
from arc_controller.controllers.meaning import meaning_hash, same_meaning
from arc_controller.controllers.meta import is_foreign, same_metadata, set_metadata
from arc_controller.controllers.proxy import proxy_environment
from arc_controller.controllers.restarts import Restarts
from arc_controller.controllers.service import Access
from arc_controller.controllers.tls import server_root_ca
from arc_controller.controllers.trouble import REPAIRED_BY_HAND, trouble_of
from arc_controller.controllers.turnstile import place_of
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import AlreadyExists, ApiError
from arc_controller.runtime.events import EventType
from arc_controller.runtime.finalizers import add_finalizers, missing_finalizers, remove_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import K, NamespacedName, find_condition

log = structlog.get_logger(__name__)

SHORT_TRUST, LONG_TRUST = 30.0, 600.0
"""Seconds that a secret of ours, once seen to be right, is taken to be right: before the pod runs,
and while it does."""
GRACE = timedelta(seconds=GRACE_PERIOD)
OVERDUE = timedelta(seconds=60)
"""How long after its grace period a pod that does not go is taken for one on a lost node."""

Listener = LazyCopy[AutoscalingListener]


@dataclass(frozen=True, slots=True)
class _Secrets:
    """The two secrets as they should be; `proxy` is None when there is no proxy."""

    config: Secret
    proxy: Secret | None


class AutoscalingListenerReconciler:
    """Keeps exactly one listener running for each AutoscalingListener."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._restarts = Restarts()
        self._images: LRUCache[str, PodImages] = LRUCache(8192)
        self._trusted: LRUCache[NamespacedName, tuple[str, float]] = LRUCache(8192)

    async def reconcile(self, key: NamespacedName) -> Result:
        found = await self._client.find(AutoscalingListener, key)
        if found is None:
            self._context.metrics.forget_listener(key)
            return Result()
        if not self._context.config.watches(found.spec.autoscaling_runner_set_namespace):
            return Result()  # another manager's
        listener = LazyCopy(found)

        if found.is_being_deleted:
            return await self._delete(listener)

        if await self._client.find(AutoscalingRunnerSet, scale_set_of(found)) is None:
            await self._client.delete(AutoscalingListener, key, uid=found.uid)
            return Result()

        if add_finalizers(listener, Finalizer.AUTOSCALING_LISTENER):
            await listener.patch(self._client)

        try:
            return await self._advance(listener)
        except (InputError, ActionsError, ApiError) as error:
            return await self._explain(listener, error)

    async def _advance(self, listener: Listener) -> Result:
        obj = listener.obj
        await self._ensure_service_account(obj)
        await self._ensure_role(obj)
        await self._ensure_role_binding(obj)

        secrets = await self._wanted_secrets(obj)
        pod = await self._client.find(Pod, obj.key)
        state = pod_state(pod) if pod is not None else None
        # A pod that runs has read its secrets; whether somebody touched them since is not urgent.
        trust = LONG_TRUST if state is not None and state.runs else SHORT_TRUST
        if secrets.proxy is not None:
            await self._ensure_secret(obj, secrets.proxy, trust)
        await self._ensure_secret(obj, secrets.config, trust)

        if pod is None or state is None:
            return await self._start_pod(listener, secrets)
        if pod.is_being_deleted:
            return await self._await_end(listener, pod)
        is_wanted = _is_wanted(pod, self._wanted_pod(obj, secrets)) and not self._is_edited(pod)
        if is_foreign(pod, obj) or not is_wanted:
            await self._client.delete(Pod, pod.key, uid=pod.uid)
            message = "the listener is restarted: its pod or configuration has changed"
            self._context.events.event(obj, "Normal", "Restarting", message)
            return await self._report(listener, False, "Restarting", message)
        if state.is_over:
            return await self._restart(listener, pod, state)
        if state.runs:
            self._found(listener)
            spec = obj.spec
            key = NamespacedName(
                spec.autoscaling_runner_set_namespace, spec.ephemeral_runner_set_name
            )
            runner_set = await self._client.find(EphemeralRunnerSet, key)
            if waits_for_session(pod, runner_set, self._context.config.image):
                state = NO_SESSION
        return await self._report(listener, state.runs, state.reason, state.message)

    # The account and what it may do.

    async def _ensure_service_account(self, obj: AutoscalingListener) -> None:
        wanted = service_account(obj)
        found = await self._client.find(ServiceAccount, wanted.key)
        if found is None:
            found = await self._create(wanted)
        lazy = LazyCopy(found)
        if not same_metadata(found.metadata, wanted.metadata):
            set_metadata(lazy, wanted.metadata)
        await lazy.patch(self._client)

    async def _ensure_role(self, obj: AutoscalingListener) -> None:
        wanted = role(obj)
        found = await self._client.find(Role, wanted.key)
        if found is None:
            found = await self._create(wanted)
        lazy = LazyCopy(found)
        if not same_metadata(found.metadata, wanted.metadata):
            set_metadata(lazy, wanted.metadata)
        if not same_meaning(found.rules, wanted.rules):
            lazy.mutate().rules = wanted.rules
        await lazy.patch(self._client)

    async def _ensure_role_binding(self, obj: AutoscalingListener) -> None:
        wanted = role_binding(obj)
        found = await self._client.find(RoleBinding, wanted.key)
        if found is None:
            found = await self._create(wanted)
        if not same_meaning(found.role_ref, wanted.role_ref):
            # The API server lets nobody change it.
            await self._client.delete(RoleBinding, found.key, uid=found.uid)
            found = await self._client.create(wanted)
        lazy = LazyCopy(found)
        if not same_metadata(found.metadata, wanted.metadata):
            set_metadata(lazy, wanted.metadata)
        if not same_meaning(found.subjects, wanted.subjects):
            lazy.mutate().subjects = wanted.subjects
        await lazy.patch(self._client)

    # The secrets.

    async def _wanted_secrets(self, obj: AutoscalingListener) -> _Secrets:
        """Raises `InputError` and `ActionsError` when what they are made from is missing."""
        spec, service = obj.spec, self._context.service
        namespace = spec.autoscaling_runner_set_namespace
        access = Access.of(spec, namespace)
        uses_vault = spec.vault_config is not None and bool(spec.vault_config.type)
        vault_proxy = spec.vault_config.proxy if spec.vault_config else None
        content = config_file(
            obj,
            self._context.config,
            credentials={} if uses_vault else await service.credentials(access),
            root_ca=await server_root_ca(service.inputs, spec.github_server_tls, namespace),
            vault_proxy=await proxy_environment(service.inputs, vault_proxy, namespace)
            if uses_vault and vault_proxy
            else None,
        )
        if spec.proxy is None:
            return _Secrets(config_secret(obj, content), None)
        environment = await proxy_environment(service.inputs, spec.proxy, namespace)
        return _Secrets(config_secret(obj, content), proxy_secret(obj, environment))

    async def _ensure_secret(self, obj: AutoscalingListener, wanted: Secret, trust: float) -> None:
        """Secrets are not cached: one that was right `trust` seconds ago is not read again."""
        digest, now = _digest(obj, wanted), asyncio.get_running_loop().time()
        seen, at = self._trusted.get(wanted.key, ("", 0.0))
        if seen == digest and now - at < trust:
            return
        found = await self._client.find(Secret, wanted.key)
        if found is None:
            found = await self._create(wanted)
        lazy = LazyCopy(found)
        if not same_metadata(found.metadata, wanted.metadata):
            set_metadata(lazy, wanted.metadata)
        if found.data != wanted.data:
            lazy.mutate().data = dict(wanted.data)
        await lazy.patch(self._client)
        self._trusted[wanted.key] = (digest, now)

    # The pod.

    def _wanted_pod(self, obj: AutoscalingListener, secrets: _Secrets) -> PodManifest:
        contents = [secrets.config.data, secrets.proxy.data if secrets.proxy else {}]
        return listener_pod(obj, self._context.config, *contents)

    def _is_edited(self, pod: Pod) -> bool:
        """Whether somebody gave the pod other images since we first saw it. What a webhook made of
        ours when the pod was created does not count, hence no comparison with what we wanted."""
        return self._images.setdefault(pod.uid, pod.spec) != pod.spec

    async def _start_pod(self, listener: Listener, secrets: _Secrets) -> Result:
        obj = listener.obj
        wanted = self._wanted_pod(obj, secrets)
        try:
            await self._client.create(wanted)
        except AlreadyExists:
            # Either the cache is behind, or somebody took the labels off, by which it is cached.
            pod = await self._context.live.find(Pod, wanted.key)
            if pod is not None and not same_metadata(pod.metadata, wanted.metadata):
                await self._client.delete(Pod, pod.key, uid=pod.uid)
            return Result(requeue_after=1.0)
        self._context.events.event(obj, "Normal", "Started", "the listener's pod was created")
        return await self._report(listener, False, STARTING.reason, STARTING.message)

    async def _await_end(self, listener: Listener, pod: Pod) -> Result:
        now = self._context.now()
        deadline = pod.metadata.deletion_timestamp or now + GRACE  # None: we deleted it just now
        left = (deadline + OVERDUE - now).total_seconds()
        if left <= 0:
            # Nobody runs it any more, and at the service only one listener can have the session.
            await self._client.delete(Pod, pod.key, uid=pod.uid, grace_period_seconds=0)
            left = OVERDUE.total_seconds()
        await self._report(listener, False, "Stopping", f"the pod {pod.metadata.name} is stopping")
        return Result(requeue_after=left)

    async def _restart(self, listener: Listener, pod: Pod, state: PodState) -> Result:
        obj = listener.obj
        if not await self._is_scale_set_known(listener):
            message = (
                f"the service does not know scale set {obj.spec.runner_scale_set_id}; "
                "it is registered again, and a new listener made for it"
            )
            if self._condition(listener, SCALE_SET_FOUND, False, "ScaleSetNotFound", message):
                self._context.events.event(obj, "Warning", "ScaleSetNotFound", message)
            await self._report(listener, False, "ScaleSetNotFound", message)
            return Result(requeue_after=REPAIRED_BY_HAND)

        ended = state.ended or self._context.now()
        created = pod.metadata.creation_timestamp
        lived = (ended - created).total_seconds() if created else 0.0
        wait = self._restarts.wait(obj.uid, pod.uid, lived)
        if wait > 0:
            # Its logs can be read meanwhile.
            message = f"{state.message}; it ended {self._restarts.count(obj.uid)} times in a row"
            if self._condition(listener, READY, False, "BackOff", message):
                self._context.events.event(obj, "Warning", "BackOff", message)
            await self._report(listener, False, "BackOff", message)
            return Result(requeue_after=wait)
        kind: EventType = "Normal" if state.is_clean else "Warning"
        self._context.events.event(obj, kind, state.reason, f"{state.message}; restarting")
        await self._client.delete(Pod, pod.key, uid=pod.uid)
        return await self._report(listener, False, state.reason, state.message)

    async def _is_scale_set_known(self, listener: Listener) -> bool:
        """Ask the service, which removes scale sets that were offline for days. What cannot be
        found out now counts as known: the next listener will tell."""
        obj = listener.obj
        try:
            client = await self._context.service.for_listener(obj.spec)
            with self._context.turnstile.passing(*place_of(obj.spec.github_config_url)):
                await client.get_runner_scale_set_by_id(obj.spec.runner_scale_set_id)
        except ScaleSetNotFound:
            return False
        except (InputError, ActionsError) as error:
            self._failed(obj, error)
            log.info("cannot ask whether the scale set is there", reason=str(error))
            return True
        self._found(listener)
        return True

    def _found(self, listener: Listener) -> None:
        """Take the complaint back, if there was one."""
        if find_condition(listener.obj.status.conditions, SCALE_SET_FOUND) is not None:
            message = "the service knows the scale set"
            self._condition(listener, SCALE_SET_FOUND, True, "ScaleSetFound", message)

    # The end.

    async def _delete(self, listener: Listener) -> Result:
        obj = listener.obj
        if missing_finalizers(obj, Finalizer.AUTOSCALING_LISTENER):
            return Result()

        pod = await self._client.find(Pod, obj.key)
        if pod is not None and not pod.is_being_deleted:
            await self._client.delete(Pod, pod.key, uid=pod.uid)
        if pod is not None:
            return await self._await_end(listener, pod)

        for secret in (config_secret_key(obj), proxy_secret_key(obj) if obj.spec.proxy else None):
            if secret is not None:
                self._trusted.pop(secret, None)
                await self._client.delete(Secret, secret)
        in_runners_namespace = NamespacedName(
            obj.spec.autoscaling_runner_set_namespace, obj.key.name
        )
        # What the cache does not have needs no request, which may even be refused: with the scale
        # set's namespace, our permissions in it are gone too.
        for kind, key in (
            (RoleBinding, in_runners_namespace),
            (Role, in_runners_namespace),
            (ServiceAccount, obj.key),
        ):
            if await self._client.find(kind, key) is not None:
                await self._client.delete(kind, key)

        self._restarts.forget(obj.uid)
        remove_finalizers(listener, Finalizer.AUTOSCALING_LISTENER)
        await listener.patch(self._client)
        self._context.metrics.forget_listener(obj.key)
        return Result()

    # What the user sees.

    async def _explain(self, listener: Listener, error: Exception) -> Result:
        """Say in the status what is wrong, and come back: at leisure if it needs a person."""
        self._failed(listener.obj, error)
        trouble = trouble_of(error)
        if trouble is None:
            raise error
        if self._condition(listener, READY, False, trouble.reason, trouble.message):
            obj = listener.obj
            self._context.events.event(obj, "Warning", trouble.reason, trouble.message)
        await listener.patch_status(self._client)
        if trouble.retry is None:
            raise error
        log.warning("waiting for somebody to repair it", reason=trouble.reason, why=trouble.message)
        return Result(requeue_after=trouble.retry)

    async def _report(self, listener: Listener, runs: bool, reason: str, message: str) -> Result:
        """Write what changed; the next look is for rotated secrets and changed config maps."""
        obj = listener.obj
        self._context.metrics.listener(obj.key, obj.spec.github_config_url, runs=runs)
        self._condition(listener, READY, runs, reason, message)
        await listener.patch_status(self._client)
        return Result(requeue_after=self._context.config.sync_period)

    def _condition(
        self, listener: Listener, type_: str, holds: bool, reason: str, message: str
    ) -> bool:
        return put_condition(listener, type_, holds, reason, message, now=self._context.now())

    def _failed(self, obj: AutoscalingListener, error: Exception) -> None:
        namespace = obj.spec.autoscaling_runner_set_namespace
        self._context.service.failed(error, obj.spec, namespace)

    async def _create(self, wanted: K) -> K:
        """Create it, or get the one that is there although the cache does not have it: somebody
        may have taken its labels off."""
        try:
            return await self._client.create(wanted)
        except AlreadyExists:
            return await self._context.live.get(type(wanted), wanted.key)


def _is_wanted(pod: Pod, wanted: PodManifest) -> bool:
    """Whether it is made as it should be. The hash says so: fields that the server filled in, or an
    admission webhook, are not in it."""
    name = Annotation.INTEGRITY_HASH
    return pod.metadata.annotations.get(name) == wanted.metadata.annotations[name]


def _digest(obj: AutoscalingListener, wanted: Secret) -> str:
    return meaning_hash(obj.uid, wanted.metadata, wanted.data)
