"""ResourceQuota: refuses what goes over it and keeps its status."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.background import Background
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.quantity import format_quantity, parse_quantity
from arc_controller.testing.apiserver.resources import ResourceTable
from arc_controller.testing.apiserver.store import Event, Store, Stored
from arc_controller.testing.apiserver.writer import Attempt, Writer

_KEY = "resourcequotas"
_PLAIN_COUNTS = ("configmaps", "secrets", "services", "resourcequotas")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")


class QuotaAdmission:
    """Counts what a namespace holds on every creation; exact, since writes are one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, attempt: Attempt) -> None:
        if attempt.operation != "CREATE" or not attempt.resource.namespaced:
            return
        namespace = attempt.obj["metadata"]["namespace"]
        if not self._store.count(_KEY, namespace):
            return
        key = attempt.resource.storage_key
        for quota in self._store.scan(_KEY, namespace):
            self._check(attempt, key, quota.obj)

    def _check(self, attempt: Attempt, key: str, quota: Object) -> None:
        hard = (quota.get("spec") or {}).get("hard") or {}
        resource, obj = attempt.resource, attempt.obj
        name = obj["metadata"].get("name", "")
        namespace = obj["metadata"]["namespace"]
        asked = {
            limit: amount
            for limit in hard
            if (amount := usage_of(limit, key, obj)) is not None and amount > 0
        }
        if key == "pods":
            self._check_declared(attempt, quota, hard)
        used = {limit: used_in(self._store, limit, namespace) for limit in asked}
        over = [
            limit
            for limit in sorted(asked)
            if used[limit] + asked[limit] > parse_quantity(hard[limit])
        ]
        if over:
            why = (
                f"exceeded quota: {quota['metadata']['name']}, "
                f"requested: {_list(over, asked)}, used: {_list(over, used)}, "
                f"limited: {','.join(f'{limit}={hard[limit]}' for limit in over)}"
            )
            raise errors.forbidden(resource.group, resource.plural, name, why)

    def _check_declared(self, attempt: Attempt, quota: Object, hard: Object) -> None:
        missing = [
            limit
            for limit in sorted(hard)
            if _is_compute(limit) and not usage_of(limit, "pods", attempt.obj)
        ]
        if missing:
            containers = (attempt.obj.get("spec") or {}).get("containers") or []
            names = ",".join(sorted(each.get("name", "") for each in containers))
            listed = "; ".join(f"{limit} for: {names}" for limit in missing)
            why = f"failed quota: {quota['metadata']['name']}: must specify {listed}"
            raise errors.forbidden("", "pods", attempt.obj["metadata"].get("name", ""), why)


class QuotaController:
    """Keeps `status.hard` and `status.used` of quotas up to date."""

    def __init__(
        self, store: Store, resources: ResourceTable, writer: Writer, background: Background
    ) -> None:
        self._store = store
        self._resources = resources
        self._writer = writer
        self._background = background
        store.observe(self._observe)

    def _observe(self, event: Event) -> None:
        stored = event.stored
        if not stored.namespace or not self._store.count(_KEY, stored.namespace):
            return
        if stored.resource == _KEY and event.type == "DELETED":
            return
        namespace = stored.namespace
        self._background.add(("quota", namespace), lambda: self._refresh(namespace))

    def _refresh(self, namespace: str) -> None:
        resource = self._resources.by_storage(_KEY)
        for stored in self._store.scan(_KEY, namespace):
            status = self._status(stored)

            def change(obj: Object, status: Object = status) -> Object:
                return {**obj, "status": status}

            if (stored.obj.get("status") or {}) != status:
                self._writer.update(
                    self._writer.call(manager="kube-controller-manager"),
                    resource,
                    namespace,
                    stored.name,
                    change,
                    subresource="status",
                )

    def _status(self, stored: Stored) -> Object:
        hard = (stored.obj.get("spec") or {}).get("hard") or {}
        used = {
            limit: format_quantity(used_in(self._store, limit, stored.namespace)) for limit in hard
        }
        return {"hard": dict(hard), "used": used}


def used_in(store: Store, limit: str, namespace: str) -> Fraction:
    """How much of a limit the objects of a namespace use."""
    key = _counted(limit)
    if key is None:
        key = "pods"
    total = Fraction(0)
    for stored in store.scan(key, namespace):
        total += usage_of(limit, key, stored.obj) or 0
    return total


def usage_of(limit: str, key: str, obj: Object) -> Fraction | None:
    """How much of a limit one object uses; None when the limit is not about its kind."""
    counted = _counted(limit)
    if counted is not None:
        if counted != key:
            return None
        ended = key == "pods" and limit == "pods" and _is_over(obj)
        return Fraction(0 if ended else 1)
    if key != "pods" or not _is_compute(limit):
        return None
    if _is_over(obj):
        return Fraction(0)
    section, _, name = limit.rpartition(".")
    section = section or "requests"
    total = Fraction(0)
    for container in (obj.get("spec") or {}).get("containers") or ():
        given: Any = ((container.get("resources") or {}).get(section) or {}).get(name)
        if given is not None:
            total += parse_quantity(given)
    return total


def _counted(limit: str) -> str | None:
    if limit == "pods" or limit in _PLAIN_COUNTS:
        return limit
    return limit.removeprefix("count/") if limit.startswith("count/") else None


def _is_compute(limit: str) -> bool:
    section, _, name = limit.rpartition(".")
    return name in _COMPUTE and section in ("", "requests", "limits")


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _list(limits: list[str], amounts: dict[str, Fraction]) -> str:
    return ",".join(f"{limit}={format_quantity(amounts[limit])}" for limit in limits)
