"""Create and update: from what a client sent to what the store keeps.

Nothing here awaits, so each write is one indivisible step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Literal

from arc_controller.testing.apiserver import errors, metadata
from arc_controller.testing.apiserver.decode import DecodeError
from arc_controller.testing.apiserver.incoming import (
    bad_patch,
    carry_over,
    check_identity,
    check_patched_kind,
    check_type,
    merge_owners,
    ordered,
    settle_namespace,
    stale_precondition,
    take,
)
from arc_controller.testing.apiserver.managed import FieldManager
from arc_controller.testing.apiserver.messages import Object, decode_json, encode_json
from arc_controller.testing.apiserver.resources import Resource, ResourceTable
from arc_controller.testing.apiserver.store import Store, Stored
from arc_controller.testing.apiserver.strategy import Call
from arc_controller.testing.apiserver.typed import misfits

Operation = Literal["CREATE", "UPDATE", "DELETE"]
Change = Callable[[Object], Object]

_GENERATE_TRIES = 8


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write that is about to happen."""

    call: Call
    resource: Resource
    operation: Operation
    obj: Object
    old: Object | None = None
    subresource: str = ""


Admission = Callable[[Attempt], None]
"""May refuse a write by raising, or fill in the object."""


class Writer:
    """Writes of all kinds; what differs between kinds is in their `Strategy`."""

    def __init__(
        self,
        store: Store,
        resources: ResourceTable,
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        self.store = store
        self.resources = resources
        self.admit: list[Admission] = []
        """Called before validation: defaults and refusals."""
        self.review: list[Admission] = []
        """Called once the object is valid: quotas and escalation checks."""
        self.fields = FieldManager()
        self._now = now
        self._random = random

    def call(self, **given: Any) -> Call:
        """A call of the server itself, as the cluster's administrator."""
        return Call(now=self.timestamp(), **given)

    def timestamp(self) -> str:
        return metadata.rfc3339(self._now())

    def moment(self) -> datetime:
        return self._now()

    def create(self, call: Call, resource: Resource, namespace: str, body: Object) -> Stored:
        """Create an object. Takes ownership of `body`."""
        obj = ordered(resource, body)
        meta = obj["metadata"]
        settle_namespace(resource, namespace, meta)
        self._conform(call, resource, obj, None)
        tracked = True
        if "status" in resource.subresources and resource.custom:
            # What the field managers cannot read they leave alone, all of it.
            status = self.fields.node(resource).field("status")
            tracked = not misfits(status, obj.pop("status", None))
        merge_owners(call, meta)
        generated = not meta.get("name") and bool(meta.get("generateName"))
        if generated:
            self._generate_name(resource, namespace, meta)
        self._initialise(resource, meta, call)
        strategy = resource.strategy
        strategy.default(obj)
        if tracked:
            self.fields.track(call, resource, obj, None, "")
        attempt = Attempt(call, resource, "CREATE", obj)
        for admission in self.admit:
            admission(attempt)
        strategy.prepare_create(obj, call)
        problems = _metadata_problems(resource, meta)
        if strategy.qualified_finalizers:
            problems += metadata.validate_builtin_finalizers(meta)
        _fail(resource, meta, problems + strategy.validate(obj))
        call.warnings += strategy.warnings(obj, None)
        for admission in self.review:
            admission(attempt)
        name = meta["name"]
        if metadata.is_version(meta.get("resourceVersion")):
            raise errors.internal("resourceVersion should not be set on objects to be created")
        present = self.store.read(resource.storage_key, namespace, name)
        if present is not None:
            error = errors.already_exists(
                resource.group,
                resource.plural,
                name,
                being_deleted=bool(present.obj["metadata"].get("deletionTimestamp")),
            )
            if meta.get("generateName"):
                error.message += (
                    ", the server was not able to generate a unique name for the object"
                )
                error.details = {**(error.details or {}), "retryAfterSeconds": 1}
            raise error
        return self._put(call, resource, namespace, name, obj)

    def check(self, call: Call, resource: Resource, namespace: str, body: Object) -> None:
        """Decode a copy of the body as its type. Raises what the server says of it."""
        obj = ordered(resource, decode_json(encode_json(body)))
        self._conform(call, resource, obj, None)
        merge_owners(call, obj["metadata"])
        settle_namespace(resource, namespace, obj["metadata"])

    def require(self, resource: Resource, namespace: str, name: str) -> Stored:
        """What is stored under the name. Raises NotFound."""
        stored = self.store.read(resource.storage_key, namespace, name)
        if stored is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return stored

    def update(
        self,
        call: Call,
        resource: Resource,
        namespace: str,
        name: str,
        change: Change,
        *,
        subresource: str = "",
    ) -> Stored:
        """Change an object. `change` gets a private copy of what is stored and returns the new
        object; it may raise. An update that changes nothing is not written."""
        old = self.require(resource, namespace, name)
        obj = ordered(resource, change(old.copy()))
        meta = obj["metadata"]
        check_identity(resource, obj, name)
        settle_namespace(resource, namespace, meta)
        given = meta.get("managedFields")
        resets = given == [{}] or (given == [] and not resource.custom)
        if call.strategic is not None:
            obj |= {"kind": resource.kind, "apiVersion": resource.api_version}
        elif call.patched and not resource.custom:
            check_patched_kind(call, resource, obj)
        self._conform(call, resource, obj, old.obj, lambda: change(old.copy()))
        merge_owners(call, meta)
        self._check_lock(call, resource, name, meta, old.obj["metadata"])
        check_type(resource, obj, name)
        carry_over(meta, old.obj["metadata"])
        strategy = resource.strategy
        strategy.default(obj)
        if resets:
            meta["managedFields"] = [{}]
        replaced = resource.custom and subresource == "status" and not call.patched
        if replaced and misfits(self.fields.node(resource), obj):
            meta.pop("managedFields", None)  # the field managers give up
        else:
            self.fields.track(call, resource, obj, old.obj, subresource)
        if old.obj["metadata"].get("deletionTimestamp"):
            take(meta, old.obj["metadata"], "deletionTimestamp")
        if meta.get("deletionGracePeriodSeconds") is None:
            take(meta, old.obj["metadata"], "deletionGracePeriodSeconds")
        if subresource == "status":
            obj = self._only_status(resource, obj, old)
            meta = obj["metadata"]
        elif "status" in resource.subresources:
            take(obj, old.obj, "status")
        attempt = Attempt(call, resource, "UPDATE", obj, old.obj, subresource)
        for admission in self.admit:
            admission(attempt)
        if subresource == "status":
            strategy.prepare_status(obj, old.obj, call)
        else:
            strategy.prepare_update(obj, old.obj, call)
        if (
            subresource in ("", "scale")
            and strategy.counts_generation
            and strategy.spec_changed(obj, old.obj)
        ):
            meta["generation"] = int(meta.get("generation") or 0) + 1
        problems: list[errors.FieldError] = []
        if strategy.validates_metadata_again:
            problems += metadata.name_problems(meta, strategy.validate_name)
        problems += metadata.validate_metadata(meta)
        shared = {key: each for key, each in meta.items() if key != "finalizers"}
        problems += metadata.validate_metadata(shared)
        if strategy.validates_metadata_again:
            problems += metadata.validate_metadata(shared)
            if strategy.qualified_finalizers:
                problems += metadata.validate_builtin_finalizers(meta)
        changes = list(metadata.validate_metadata_update(meta, old.obj["metadata"]))
        # The real server checks twice, and both checks report.
        problems += changes + changes
        if subresource == "status":
            problems += strategy.validate_status(obj, old.obj)
        else:
            problems += strategy.validate_update(obj, old.obj)
        _fail(resource, meta, problems)
        if not subresource:
            call.warnings += strategy.warnings(obj, old.obj)
        for admission in self.review:
            admission(attempt)
        self.fields.settle(obj, old.obj)
        if _deletion_is_complete(resource, obj):
            return self._remove_updated(call, resource, old, obj)
        if obj == old.obj:
            return old
        return self._put(call, resource, namespace, name, obj)

    def _conform(
        self,
        call: Call,
        resource: Resource,
        obj: Object,
        old: Object | None,
        again: Callable[[], Object] | None = None,
    ) -> None:
        """Decode the object as its type. Raises what the server says of fields that do not fit
        or, when the request asks for it, that do not exist."""
        what = (
            f"{resource.kind} in version {errors.go_quote(resource.version)} cannot be handled "
            f"as a {resource.kind}: "
        )
        try:
            unknown = resource.strategy.conform(
                obj, old, self.fields.node(resource), applied=call.applied is not None
            )
        except DecodeError as error:
            if call.patched and again is not None:
                why = str(error) if call.strategic is None else error.converted
                raise bad_patch(call, again(), why) from None
            raise errors.bad_request(f"{what}{error}") from None
        if not unknown or call.field_validation == "Ignore":
            return
        texts = [f"unknown field {errors.go_quote(each)}" for each in unknown]
        if call.field_validation != "Strict":
            call.warnings += texts
            return
        why = f"strict decoding error: {', '.join(texts)}"
        if call.patched and again is not None:
            raise bad_patch(call, again(), why)
        raise errors.bad_request(f"{what}{why}")

    def _remove_updated(self, call: Call, resource: Resource, old: Stored, obj: Object) -> Stored:
        """The update took away the last thing that held a deleted object."""
        if not call.dry_run:
            self.store.remove(resource.storage_key, old.namespace, old.name, old.copy())
        return unstored(resource, old.namespace, old.name, obj, old.revision)

    def _put(
        self, call: Call, resource: Resource, namespace: str, name: str, obj: Object
    ) -> Stored:
        if call.dry_run:
            return unstored(resource, namespace, name, obj, self.store.revision)
        return self.store.put(resource.storage_key, namespace, name, obj)

    def _generate_name(self, resource: Resource, namespace: str, meta: Object) -> None:
        for _ in range(_GENERATE_TRIES):
            name = metadata.generated_name(meta["generateName"], self._random)
            if self.store.read(resource.storage_key, namespace, name) is None:
                break
        meta["name"] = name

    def _initialise(self, resource: Resource, meta: Object, call: Call) -> None:
        meta["uid"] = metadata.new_uid(self._random)
        meta["creationTimestamp"] = call.now
        for key in ("deletionGracePeriodSeconds", "selfLink"):
            meta.pop(key, None)
        if call.applied is None:
            meta.pop("deletionTimestamp", None)
        if resource.strategy.counts_generation:
            meta["generation"] = 1

    def _check_lock(
        self, call: Call, resource: Resource, name: str, meta: Object, old: Object
    ) -> None:
        uid = meta.get("uid")
        if uid and uid != old["uid"] and not call.patched:
            namespace = str(old.get("namespace", ""))
            raise stale_precondition(
                resource, namespace, name, field="UID", given=uid, stored=old["uid"]
            )
        given = meta.get("resourceVersion") or ""
        if not given or given == "0":
            if not resource.strategy.unconditional_update:
                problem = errors.invalid_value(
                    "metadata.resourceVersion", 0, "must be specified for an update"
                )
                raise errors.invalid(resource.group, resource.plural, name, [problem])
            meta["resourceVersion"] = old["resourceVersion"]
        elif given != old["resourceVersion"]:
            metadata.require_version(given)
            raise errors.conflict(resource.group, resource.plural, name)

    def _only_status(self, resource: Resource, obj: Object, old: Stored) -> Object:
        """What an update of `status` may change: the status, and for core kinds the metadata."""
        kept = old.copy()
        take(kept, obj, "status")
        if resource.strategy.status_takes_metadata:
            kept["metadata"] = obj["metadata"]
        else:
            take(kept["metadata"], obj["metadata"], "managedFields")
        return kept


def unstored(resource: Resource, namespace: str, name: str, obj: Object, revision: int) -> Stored:
    """An object that is answered but not kept (dry run, last update of a deletion)."""
    return Stored(
        resource.storage_key,
        namespace,
        name,
        revision=revision,
        obj=obj,
        data=encode_json(obj),
    )


def _metadata_problems(resource: Resource, meta: Object) -> list[errors.FieldError]:
    names = metadata.name_problems(meta, resource.strategy.validate_name)
    return names + metadata.validate_metadata(meta)


def _fail(resource: Resource, meta: Object, problems: list[errors.FieldError]) -> None:
    if problems:
        raise errors.invalid(resource.group, resource.kind, meta.get("name") or "", problems)


def _deletion_is_complete(resource: Resource, obj: Object) -> bool:
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if meta.get("deletionGracePeriodSeconds"):
        return False
    return not resource.strategy.is_held(obj)
