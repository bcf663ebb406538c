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
from arc_controller.testing.apiserver.managed import FieldManager
from arc_controller.testing.apiserver.messages import Object, decode_json, encode_json, json_type
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
        obj = _ordered(resource, body)
        meta = obj["metadata"]
        _settle_namespace(resource, namespace, meta)
        self._conform(call, resource, obj, None)
        tracked = True
        if "status" in resource.subresources and resource.custom:
            # What the field managers cannot read they leave alone, all of it.
            status = self.fields.node(resource).field("status")
            tracked = not misfits(status, obj.pop("status", None))
        _merge_owners(call, meta)
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
        obj = _ordered(resource, decode_json(encode_json(body)))
        self._conform(call, resource, obj, None)
        _merge_owners(call, obj["metadata"])
        _settle_namespace(resource, namespace, obj["metadata"])

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
        obj = _ordered(resource, change(old.copy()))
        meta = obj["metadata"]
        check_identity(resource, obj, name)
        _settle_namespace(resource, namespace, meta)
        given = meta.get("managedFields")
        resets = given == [{}] or (given == [] and not resource.custom)
        if call.strategic is not None:
            obj |= {"kind": resource.kind, "apiVersion": resource.api_version}
        elif call.patched and not resource.custom:
            _check_patched_kind(call, resource, obj)
        self._conform(call, resource, obj, old.obj, lambda: change(old.copy()))
        _merge_owners(call, meta)
        self._check_lock(call, resource, name, meta, old.obj["metadata"])
        _check_type(resource, obj, name)
        _carry_over(meta, old.obj["metadata"])
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
            _take(meta, old.obj["metadata"], "deletionTimestamp")
        if meta.get("deletionGracePeriodSeconds") is None:
            _take(meta, old.obj["metadata"], "deletionGracePeriodSeconds")
        if subresource == "status":
            obj = self._only_status(resource, obj, old)
            meta = obj["metadata"]
        elif "status" in resource.subresources:
            _take(obj, old.obj, "status")
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
                raise _bad_patch(call, again(), why) from None
            raise errors.bad_request(f"{what}{error}") from None
        if not unknown or call.field_validation == "Ignore":
            return
        texts = [f"unknown field {errors.go_quote(each)}" for each in unknown]
        if call.field_validation != "Strict":
            call.warnings += texts
            return
        why = f"strict decoding error: {', '.join(texts)}"
        if call.patched and again is not None:
            raise _bad_patch(call, again(), why)
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
        _take(kept, obj, "status")
        if resource.strategy.status_takes_metadata:
            kept["metadata"] = obj["metadata"]
        else:
            _take(kept["metadata"], obj["metadata"], "managedFields")
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


def stale_precondition(
    resource: Resource, namespace: str, name: str, *, field: str, given: str, stored: str
) -> errors.StatusError:
    """A write that is about another object of the same name, or another version (`field`)."""
    place = f"{resource.group}/{resource.plural}" if resource.custom else resource.plural
    key = "/".join(part for part in (place, namespace, name) if part)
    return errors.conflict(
        resource.group,
        resource.plural,
        name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {field} in precondition: {given}, "
        f"{field} in object meta: {stored}",
    )


def _bad_patch(call: Call, patched: Object, why: str) -> errors.StatusError:
    quoted = call.strategic
    text = encode_json(patched).decode() if quoted is None else errors.go_plain(quoted)
    return errors.invalid("", "", "", [errors.invalid_value("patch", text, why)])


def _check_patched_kind(call: Call, resource: Resource, obj: Object) -> None:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if (kind, version) == (resource.kind, resource.api_version):
        return
    why = (
        f"no kind {errors.go_quote(str(kind))} is registered for version "
        f'{errors.go_quote(str(version))} in scheme "pkg/runtime/scheme.go:111"'
    )
    raise _bad_patch(call, obj, why)


def check_identity(resource: Resource, obj: Object, name: str) -> None:
    """A patch may not turn the object into another one."""
    meta = obj["metadata"]
    given = meta.get("name") if isinstance(meta, dict) else None
    if not given:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be "
            "provided"
        )
    if given != name:
        raise errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _check_type(resource: Resource, obj: Object, name: str) -> None:
    version = obj.get("apiVersion")
    if resource.custom and version and version != resource.api_version:
        why = f"must be {resource.api_version}"
        problem = errors.invalid_value("apiVersion", version, why)
        group = str(version).rpartition("/")[0]
        raise errors.invalid(group, str(obj.get("kind")), name, [problem])
    if resource.custom and obj.get("kind") != resource.kind:
        problem = errors.invalid_value("kind", obj.get("kind"), f"must be {resource.kind}")
        raise errors.invalid(resource.group, str(obj.get("kind")), name, [problem])


def _ordered(resource: Resource, body: Object) -> Object:
    """kind, apiVersion and metadata first: encoded objects then share their beginning."""
    meta = body.get("metadata")
    if meta is not None and not isinstance(meta, dict):
        what = f"{resource.kind} in version {errors.go_quote(resource.version)}"
        where = "value" if resource.custom else f"struct field {resource.kind}.metadata"
        raise errors.bad_request(
            f"{what} cannot be handled as a {resource.kind}: json: cannot unmarshal "
            f"{json_type(meta)} into Go {where} of type v1.ObjectMeta"
        )
    obj: Object = {
        "kind": body.get("kind") or resource.kind,
        "apiVersion": body.get("apiVersion") or resource.api_version,
        "metadata": meta or {},
    }
    for key, value in body.items():
        if key not in obj:
            obj[key] = value
    return obj


def _settle_namespace(resource: Resource, namespace: str, meta: Object) -> None:
    if not resource.namespaced:
        if meta.get("namespace"):
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        return
    given = meta.get("namespace")
    if given and given != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    meta["namespace"] = namespace


def _merge_owners(call: Call, meta: Object) -> None:
    """Owners that are given twice count once."""
    owners = meta.get("ownerReferences") or ()
    kept: list[Object] = []
    twice: list[str] = []
    for owner in owners:
        if owner in kept:
            twice.append(owner.get("uid", ""))
        else:
            kept.append(owner)
    if not twice:
        return
    meta["ownerReferences"] = kept
    when = " after mutating admission happens" if call.patched else ""
    call.warnings.append(
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner "
        "references in 1.20+, and may reject such requests as early as 1.24; please fix your "
        f"requests; duplicate UID(s) observed: {', '.join(twice)}"
    )


def _carry_over(meta: Object, old: Object) -> None:
    """What a client cannot change, taken from what is stored."""
    if not meta.get("uid"):
        meta["uid"] = old["uid"]
    for key in ("creationTimestamp", "generation"):
        _take(meta, old, key)
    for key in ("selfLink",):
        meta.pop(key, None)
    for key in [key for key, value in meta.items() if value is None]:
        del meta[key]
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        if key in meta and not meta[key]:
            del meta[key]


def _take(obj: Object, source: Object, key: str) -> None:
    if key in source:
        obj[key] = source[key]
    else:
        obj.pop(key, None)


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
