"""`metadata.managedFields`: who set which field, and the conflicts of server-side apply.

Follows the rules of structured-merge-diff as the API reference describes them: an update takes
the fields it changes from everyone else, an apply refuses to unless forced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from arc_controller.testing.apiserver import errors, fieldset
from arc_controller.testing.apiserver.apply import merge_applied, prune_given_up
from arc_controller.testing.apiserver.decode import Decoder
from arc_controller.testing.apiserver.fieldset import Fields
from arc_controller.testing.apiserver.messages import Object, decode_json, encode_json
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.strategy import Call
from arc_controller.testing.apiserver.types import UNTYPED, Node, core_name, core_node, custom_node

_STRIPPED: Fields = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:clusterName": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}
_NOT_COMPARED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "managedFields",
    "selfLink",
)
_MAX_UPDATE_MANAGERS = 10
_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class _Id:
    """Who. One who applies is the same in every version."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(slots=True)
class _Entry:
    fields: Fields
    time: str
    api_version: str


@dataclass(slots=True)
class Managers:
    """The decoded `managedFields` of one object."""

    entries: dict[_Id, _Entry] = field(default_factory=dict)

    @classmethod
    def decode(cls, listed: Any) -> Managers:
        found = cls()
        for each in listed or ():
            if not isinstance(each, Mapping) or not each.get("operation"):
                continue
            version = each.get("apiVersion", "")
            applies = each["operation"] == "Apply"
            key = _Id(
                each.get("manager", ""),
                each["operation"],
                "" if applies else version,
                each.get("subresource", ""),
            )
            fields = each.get("fieldsV1") or {}
            found.entries[key] = _Entry(fields, each.get("time", ""), version)
        return found

    def encode(self) -> list[Object]:
        listed: list[Object] = []
        for key, entry in self.entries.items():
            wire: Object = {
                "manager": key.manager,
                "operation": key.operation,
                "apiVersion": entry.api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields,
            }
            if entry.time:
                wire["time"] = entry.time
            if key.subresource:
                wire["subresource"] = key.subresource
            listed.append(wire)
        listed.sort(
            key=lambda each: (
                each["operation"],
                each.get("time", ""),
                each["manager"],
                each["apiVersion"],
                each.get("subresource", ""),
            )
        )
        return listed


class FieldManager:
    """Tracks updates and performs applies for every kind."""

    def __init__(self) -> None:
        self.enabled = True
        """Without it updates are not recorded, and so never conflict with an apply."""
        self._nodes: dict[Resource, Node] = {}
        self._empties: dict[Resource, Object] = {}

    def node(self, resource: Resource) -> Node:
        """The type of the resource's objects, as they are stored."""
        node = self._nodes.get(resource)
        if node is None:
            if len(self._nodes) > 256:
                self._nodes.clear()
                self._empties.clear()
            node = self._nodes[resource] = resource_node(resource)
        return node

    def track(
        self, call: Call, resource: Resource, obj: Object, old: Object | None, subresource: str
    ) -> None:
        """Write into `obj` who owns what if this write goes through."""
        meta = obj["metadata"]
        if call.applied is not None:
            meta.pop("managedFields", None)
            if listed := call.applied.encode():
                meta["managedFields"] = listed
            return
        if not self.enabled:
            return
        before = old["metadata"].get("managedFields") if old is not None else None
        given = None if subresource else meta.get("managedFields")
        if given == [{}]:
            managers = Managers()
        elif given:
            managers = Managers.decode(given)
        else:
            managers = Managers.decode(before)
        if old is not None and not managers.entries:
            # What nobody tracks stays untracked until somebody applies.
            meta.pop("managedFields", None)
            return
        base = old if old is not None else self._empty(resource)
        compared = fieldset.compare(_comparable(base), _comparable(obj), self.node(resource))
        changed, removed = (self._relevant(resource, each, subresource) for each in compared)
        _take(managers, changed, removed)
        if changed:
            me = _Id(call.manager, "Update", resource.api_version, subresource)
            mine = managers.entries.get(me)
            fields = fieldset.union(mine.fields, changed) if mine is not None else changed
            managers.entries[me] = _Entry(fields, call.now, resource.api_version)
            _cap(managers)
        meta.pop("managedFields", None)
        listed = managers.encode()
        if listed:
            meta["managedFields"] = listed

    def settle(self, obj: Object, old: Object) -> None:
        """An update that changed nothing but times changed nothing."""
        now = obj["metadata"].get("managedFields") or []
        before = old["metadata"].get("managedFields") or []
        if now is before or not _same_but_times(now, before):
            return
        if _without_managers(obj) == _without_managers(old):
            obj["metadata"].pop("managedFields", None)
            if before:
                obj["metadata"]["managedFields"] = before

    def apply(
        self,
        call: Call,
        resource: Resource,
        live: Object | None,
        config: Object,
        *,
        subresource: str,
        force: bool,
    ) -> Object:
        """The object after applying `config`; raises the conflict. Changes `live`.

        The new owners are left in `call.applied`, for `track`.
        """
        node = self.node(resource)
        old = live if live is not None else {}
        managers = Managers.decode((old.get("metadata") or {}).get("managedFields"))
        if live is not None and not managers.entries:
            self._note_untracked(call, resource, live, managers)
        me = _Id(call.manager, "Apply", "", subresource)
        given = fieldset.applied(config, node)
        claimed = self._relevant(resource, fieldset.difference(given, _STRIPPED), subresource)
        previous = managers.entries.get(me)
        entry = _Entry(claimed, "" if previous is None else previous.time, resource.api_version)
        managers.entries[me] = entry
        merged = merge_applied(decode_json(encode_json(old)), config, node)
        others: Fields = {}
        for key, theirs in managers.entries.items():
            if key != me:
                others = fieldset.union(others, theirs.fields)
        if previous is not None:
            given_up = fieldset.difference(previous.fields, given)
            if given_up:
                kept = fieldset.union(others, given)
                merged = prune_given_up(merged, given_up, kept, node)
        base = old if live is not None else self._empty(resource)
        compared = fieldset.compare(_comparable(base), _comparable(merged), node)
        changed, removed = (self._relevant(resource, each, subresource) for each in compared)
        if not force:
            _refuse_conflicts(managers, me, changed, _allowed(call, old, node))
        if call.manager == _KUBECTL:
            _note_last_applied(merged, config)
        if merged != old:
            entry.time = call.now
        _take(managers, changed, removed, keep=me)
        if not claimed:
            del managers.entries[me]
        call.applied = managers
        result: Object = merged
        return result

    def _note_untracked(
        self, call: Call, resource: Resource, live: Object, managers: Managers
    ) -> None:
        """Fields that were there before anybody tracked them get an owner of their own."""
        compared = fieldset.compare(
            _comparable(self._empty(resource)), _comparable(live), self.node(resource)
        )
        fields = self._relevant(resource, compared[0], "")
        if fields:
            key = _Id("before-first-apply", "Update", resource.api_version)
            managers.entries[key] = _Entry(fields, call.now, resource.api_version)

    def _empty(self, resource: Resource) -> Object:
        """What an object looks like before anything is set in it."""
        empty = self._empties.get(resource)
        if empty is None:
            empty = {"metadata": {}}
            if not resource.custom:
                node = self.node(resource)
                empty.update({key: {} for key in ("spec", "status") if key in node.fields})
                Decoder().conform(node, empty, None, "")
            self._empties[resource] = empty
        return empty

    def _relevant(self, resource: Resource, fields: Fields, subresource: str) -> Fields:
        """Without what a write through this (sub)resource cannot change."""
        if subresource == "status":
            strategy = resource.strategy
            ignored = {"f:spec"} if strategy.status_takes_metadata else {"f:spec", "f:metadata"}
            kept = {key: value for key, value in fields.items() if key not in ignored}
            meta = kept.pop("f:metadata", {})
            resets = {f"f:{key}" for key in strategy.status_resets}
            if meta := {key: value for key, value in meta.items() if key not in resets}:
                kept["f:metadata"] = meta
            return kept
        if "status" in resource.subresources and "f:status" in fields:
            return {key: value for key, value in fields.items() if key != "f:status"}
        return fields


def _take(managers: Managers, changed: Fields, removed: Fields, keep: _Id | None = None) -> None:
    """What changed, and what is gone, belongs to nobody any more but to `keep`."""
    for key in list(managers.entries):
        if key == keep:
            continue
        entry = managers.entries[key]
        left = fieldset.difference(entry.fields, changed) if changed else entry.fields
        if removed:
            left = fieldset.difference(left, removed)
        if left:
            entry.fields = left
        else:
            del managers.entries[key]


def resource_node(resource: Resource) -> Node:
    if resource.custom:
        return custom_node(resource.schema or {})
    group, version, kind = resource.group, resource.version, resource.kind
    if resource.storage == "events":
        group = ""
    name = core_name(group, version, kind)
    return core_node(name) if name else UNTYPED


def _comparable(obj: Object) -> Object:
    meta = obj.get("metadata") or {}
    kept = {key: value for key, value in meta.items() if key not in _NOT_COMPARED}
    rest = {
        key: value for key, value in obj.items() if key not in ("kind", "apiVersion", "metadata")
    }
    return {**rest, "metadata": kept}


def _same_but_times(one: list[Object], other: list[Object]) -> bool:
    if len(one) != len(other):
        return False

    def plain(listed: list[Object]) -> list[Object]:
        bare = [{key: each[key] for key in each if key != "time"} for each in listed]
        return sorted(
            bare,
            key=lambda each: (
                each["operation"],
                each.get("manager", ""),
                each.get("subresource", ""),
            ),
        )

    return plain(one) == plain(other)


def _allowed(call: Call, live: Object, node: Node) -> Fields:
    """Fields that kubectl applied before it did so on the server: it may take them over."""
    if call.manager != _KUBECTL:
        return {}
    noted = ((live.get("metadata") or {}).get("annotations") or {}).get(_LAST_APPLIED)
    try:
        return fieldset.applied(decode_json(noted), node) if noted else {}
    except msgspec.DecodeError:
        return {}


def _note_last_applied(merged: Object, config: Object) -> None:
    """kubectl's annotation follows what it applies, where it is there already."""
    annotations = merged["metadata"].get("annotations") or {}
    if _LAST_APPLIED not in annotations:
        return
    metadata = dict(config.get("metadata") or {})
    metadata.pop("managedFields", None)
    own = dict(metadata.get("annotations") or {})
    own.pop(_LAST_APPLIED, None)
    noted = {**config, "metadata": {**metadata, "annotations": own}}
    annotations[_LAST_APPLIED] = msgspec.json.encode(noted, order="sorted").decode() + "\n"


def _without_managers(obj: Object) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": meta}


def _refuse_conflicts(managers: Managers, me: _Id, changed: Fields, allowed: Fields) -> None:
    conflicts: list[tuple[str, str]] = []
    for key, entry in managers.entries.items():
        if key == me:
            continue
        shared = fieldset.intersection(entry.fields, changed)
        if shared and allowed:
            shared = fieldset.difference(shared, allowed)
        if shared:
            text = _manager_text(key)
            conflicts += [(text, path) for path in fieldset.paths(shared)]
    if not conflicts:
        return
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    else:
        lines: list[str] = []
        for manager in sorted({manager for manager, _ in conflicts}):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {path}" for of, path in conflicts if of == manager]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    raise errors.StatusError(409, "Conflict", message, {"causes": causes})


def _manager_text(key: _Id) -> str:
    text = errors.go_quote(key.manager)
    if key.subresource:
        text += f" with subresource {errors.go_quote(key.subresource)}"
    if key.operation == "Update":
        text += f" using {key.api_version}"
    return text


def _cap(managers: Managers) -> None:
    """Old updaters are merged into one once there are too many, as the real server does."""
    updates = [key for key in managers.entries if key.operation == "Update"]
    if len(updates) <= _MAX_UPDATE_MANAGERS:
        return
    updates.sort(key=lambda key: managers.entries[key].time)
    merged: Fields = {}
    latest = ""
    for key in updates[: len(updates) - _MAX_UPDATE_MANAGERS + 1]:
        entry = managers.entries.pop(key)
        merged = fieldset.union(merged, entry.fields)
        latest = max(latest, entry.time)
    bucket = _Id("ancient-changes", "Update", updates[0].api_version)
    existing = managers.entries.get(bucket)
    if existing is not None:
        merged = fieldset.union(existing.fields, merged)
    managers.entries[bucket] = _Entry(merged, latest, bucket.api_version)
