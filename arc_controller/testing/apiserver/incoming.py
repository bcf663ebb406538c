"""What arrives, before it is judged: put in order, told apart, completed from what is stored."""

from __future__ import annotations

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.messages import Object, encode_json, json_type
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.strategy import Call


def ordered(resource: Resource, body: Object) -> Object:
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


def settle_namespace(resource: Resource, namespace: str, meta: Object) -> None:
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


def merge_owners(call: Call, meta: Object) -> None:
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


def carry_over(meta: Object, old: Object) -> None:
    """What a client cannot change, taken from what is stored."""
    if not meta.get("uid"):
        meta["uid"] = old["uid"]
    for key in ("creationTimestamp", "generation"):
        take(meta, old, key)
    for key in ("selfLink",):
        meta.pop(key, None)
    for key in [key for key, value in meta.items() if value is None]:
        del meta[key]
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        if key in meta and not meta[key]:
            del meta[key]


def take(obj: Object, source: Object, key: str) -> None:
    if key in source:
        obj[key] = source[key]
    else:
        obj.pop(key, None)


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


def bad_patch(call: Call, patched: Object, why: str) -> errors.StatusError:
    quoted = call.strategic
    text = encode_json(patched).decode() if quoted is None else errors.go_plain(quoted)
    return errors.invalid("", "", "", [errors.invalid_value("patch", text, why)])


def check_patched_kind(call: Call, resource: Resource, obj: Object) -> None:
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if (kind, version) == (resource.kind, resource.api_version):
        return
    why = (
        f"no kind {errors.go_quote(str(kind))} is registered for version "
        f'{errors.go_quote(str(version))} in scheme "pkg/runtime/scheme.go:111"'
    )
    raise bad_patch(call, obj, why)


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


def check_type(resource: Resource, obj: Object, name: str) -> None:
    version = obj.get("apiVersion")
    if resource.custom and version and version != resource.api_version:
        why = f"must be {resource.api_version}"
        problem = errors.invalid_value("apiVersion", version, why)
        group = str(version).rpartition("/")[0]
        raise errors.invalid(group, str(obj.get("kind")), name, [problem])
    if resource.custom and obj.get("kind") != resource.kind:
        problem = errors.invalid_value("kind", obj.get("kind"), f"must be {resource.kind}")
        raise errors.invalid(resource.group, str(obj.get("kind")), name, [problem])
