"""core/v1 and events.k8s.io/v1 Events: one storage, two spellings."""

from __future__ import annotations

from arc_controller.testing.apiserver.messages import Object

_NEW_TO_OLD = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_OLD_TO_NEW = {old: new for new, old in _NEW_TO_OLD.items()}


def to_core(obj: Object) -> Object:
    converted = {_NEW_TO_OLD.get(key, key): value for key, value in obj.items()}
    converted["apiVersion"] = "v1"
    return converted


def from_core(obj: Object) -> Object:
    converted = {_OLD_TO_NEW.get(key, key): value for key, value in obj.items()}
    converted["apiVersion"] = "events.k8s.io/v1"
    for key in ("reportingController", "reportingInstance"):
        if not converted.get(key):
            converted.pop(key, None)
    return converted
