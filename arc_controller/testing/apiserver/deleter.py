"""Deletion: preconditions, grace periods, finalizers and propagation policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.incoming import stale_precondition
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.metadata import rfc3339
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.store import Stored
from arc_controller.testing.apiserver.strategy import Call, DeleteOptions
from arc_controller.testing.apiserver.writer import Attempt, Writer, unstored

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_POLICIES = {"Orphan", "Background", "Foreground"}


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a delete did: the object as it was last seen, and whether it is gone."""

    stored: Stored
    gone: bool


def parse_options(body: Object, query: dict[str, str]) -> DeleteOptions:
    """DeleteOptions from the body, or from the query parameters when there is none."""
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        grace = int(query["gracePeriodSeconds"])
    orphan = body.get("orphanDependents")
    if orphan is None and query.get("orphanDependents"):
        orphan = query["orphanDependents"] == "true"
    policy = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if policy and policy not in _POLICIES:
        problem = errors.not_supported(
            "propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil")
        )
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [problem])
    dry_run = body.get("dryRun")
    if dry_run and dry_run != ["All"]:
        problem = errors.not_supported("dryRun", dry_run, ("All",))
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [problem])
    if orphan is not None and policy:
        why = "orphanDependents and deletionPropagation cannot be both set"
        problem = errors.invalid_value("propagationPolicy", policy, why)
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [problem])
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    return DeleteOptions(
        grace_period=None if grace is None else int(grace),
        propagation=policy,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
    )


class Deleter:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store

    def delete(
        self, call: Call, resource: Resource, namespace: str, name: str, options: DeleteOptions
    ) -> Deletion:
        """Delete an object, or mark it when finalizers or a grace period hold it."""
        old = self._store.read(resource.storage_key, namespace, name)
        if old is None:
            raise errors.not_found(resource.group, resource.plural, name)
        attempt = Attempt(call, resource, "DELETE", old.obj, old.obj)
        for admission in self._writer.admit:
            admission(attempt)
        _check_preconditions(resource, old, options)
        if options.grace_period is not None and options.grace_period < 0:
            options = replace(options, grace_period=1)
        obj = old.copy()
        meta = obj["metadata"]
        old_finalizers = meta.get("finalizers")
        finalizers = _finalizers_for(old_finalizers or [], options.propagation)
        grace = self._grace(resource, obj, options)
        if grace is _PENDING:
            return Deletion(old, gone=False)
        _set_finalizers(meta, finalizers)
        held = bool(finalizers) or resource.strategy.is_held(obj)
        if grace is None and not held:
            if options.resource_version and meta.get("finalizers") != old_finalizers:
                raise _lost_version(resource, old)
            return self._remove(call, resource, old)
        if grace is None:
            self._mark(resource, obj, call.now)
        stored = self._put(call, resource, old, obj)
        if held or grace:
            return Deletion(stored, gone=False)
        return self._remove(call, resource, stored)

    def _grace(self, resource: Resource, obj: Object, options: DeleteOptions) -> int | None:
        """Set the deletion's time and grace period if the kind has one; says the seconds."""
        meta = obj["metadata"]
        now = self._writer.moment()
        if not meta.get("deletionTimestamp"):
            period = resource.strategy.grace_period(obj, options)
            if period is None:
                return None
            meta["deletionTimestamp"] = rfc3339(now + timedelta(seconds=period))
            meta["deletionGracePeriodSeconds"] = period
            _bump_generation(meta)
            return period
        if resource.strategy.grace_period(obj, options) is None:
            return None
        running = meta.get("deletionGracePeriodSeconds") or 0
        if not running:
            return None
        if options.grace_period is None or options.grace_period >= running:
            return _PENDING
        period = options.grace_period
        ends = datetime.fromisoformat(meta["deletionTimestamp"])
        ends += timedelta(seconds=period - running)
        if ends < now:
            ends = now
            period = min(period, 1)
        meta["deletionTimestamp"] = rfc3339(ends)
        meta["deletionGracePeriodSeconds"] = period
        return period

    def _mark(self, resource: Resource, obj: Object, now: str) -> None:
        meta = obj["metadata"]
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = now
            if resource.strategy.deletion_counts_grace:
                meta["deletionGracePeriodSeconds"] = 0
            _bump_generation(meta)
            resource.strategy.prepare_delete(obj)
        elif resource.strategy.deletion_counts_grace:
            meta.setdefault("deletionGracePeriodSeconds", 0)

    def _put(self, call: Call, resource: Resource, old: Stored, obj: Object) -> Stored:
        if obj == old.obj:
            return old
        if call.dry_run:
            return unstored(resource, old.namespace, old.name, obj, old.revision)
        return self._store.put(resource.storage_key, old.namespace, old.name, obj)

    def _remove(self, call: Call, resource: Resource, old: Stored) -> Deletion:
        if call.dry_run:
            return Deletion(old, gone=True)
        last = self._store.remove(resource.storage_key, old.namespace, old.name, old.copy())
        return Deletion(last, gone=True)


_PENDING = -1


def _check_preconditions(resource: Resource, old: Stored, options: DeleteOptions) -> None:
    meta = old.obj["metadata"]
    why = ""
    if options.uid and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({meta['uid']}). The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match "
            f"the ResourceVersion in record ({meta['resourceVersion']}). The object might have "
            "been modified"
        )
    if why:
        raise errors.conflict(resource.group, resource.kind, old.name, why)


def _lost_version(resource: Resource, old: Stored) -> errors.StatusError:
    """Where the policy takes the last finalizer away, the real server deletes in a second step,
    and that one has forgotten which version was asked for."""
    version = old.obj["metadata"]["resourceVersion"]
    return stale_precondition(
        resource, old.namespace, old.name, field="ResourceVersion", given="", stored=version
    )


def _finalizers_for(finalizers: list[str], propagation: str) -> list[str]:
    kept = [each for each in finalizers if each not in (ORPHAN, FOREGROUND)]
    if propagation == "Orphan" or (not propagation and ORPHAN in finalizers):
        kept.append(ORPHAN)
    elif propagation == "Foreground" or (not propagation and FOREGROUND in finalizers):
        kept.append(FOREGROUND)
    return finalizers if set(kept) == set(finalizers) else kept


def _set_finalizers(meta: Object, finalizers: list[str]) -> None:
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def _bump_generation(meta: Object) -> None:
    if meta.get("generation"):
        meta["generation"] += 1
