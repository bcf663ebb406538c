"""The `scale` subresource: replicas of any kind that says where they are."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver import bodies, errors, reader
from arc_controller.testing.apiserver.jsonpath import compile_path
from arc_controller.testing.apiserver.messages import Object, Request, Response, json_response
from arc_controller.testing.apiserver.patch import JSON_PATCH, json_patch, merge_patch
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.routing import RequestInfo
from arc_controller.testing.apiserver.strategy import Call
from arc_controller.testing.apiserver.writer import Writer


class Scaling:
    def __init__(self, writer: Writer, resource: Resource) -> None:
        self._writer = writer
        self._resource = resource
        self._paths = resource.scale or {}

    def answer(self, request: Request, info: RequestInfo, call: Call) -> Response:
        stored = reader.read_one(self._writer.store, self._resource, info.namespace, info.name)
        if info.verb == "get":
            return json_response(200, self._scale(stored.obj))

        def change(obj: Object) -> Object:
            wanted = self._wanted(request, info, obj)
            replicas = (wanted.get("spec") or {}).get("replicas", 0)
            if not isinstance(replicas, int) or replicas < 0:
                problem = errors.invalid_value(
                    "spec.replicas", replicas, "must be greater than or equal to 0"
                )
                raise errors.invalid("autoscaling", "Scale", info.name, [problem])
            version = (wanted.get("metadata") or {}).get("resourceVersion")
            if version:
                obj["metadata"]["resourceVersion"] = version
            _set(obj, self._paths["specReplicasPath"], replicas)
            return obj

        updated = self._writer.update(
            call, self._resource, info.namespace, info.name, change, subresource="scale"
        )
        return json_response(200, self._scale(updated.obj))

    def _wanted(self, request: Request, info: RequestInfo, obj: Object) -> Object:
        body = bodies.decode_body(request)
        if info.verb == "update":
            result: Any = body
        elif bodies.media_type(request) == JSON_PATCH:
            result = json_patch(self._scale(obj), body)
        else:
            result = merge_patch(self._scale(obj), body)
        if not isinstance(result, dict):
            raise errors.bad_request("the body must be a Scale")
        return result

    def _scale(self, obj: Object) -> Object:
        meta = obj["metadata"]
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        replicas = self._number(obj, "specReplicasPath")
        status: Object = {"replicas": self._number(obj, "statusReplicasPath")}
        selector = self._paths.get("labelSelectorPath")
        if selector:
            found = compile_path(selector)(obj)
            if found:
                status["selector"] = _selector_text(found[0])
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: meta[key] for key in kept if key in meta},
            "spec": {"replicas": replicas} if replicas else {},
            "status": status,
        }

    def _number(self, obj: Object, path: str) -> int:
        found = compile_path(self._paths[path])(obj)
        return int(found[0]) if found and isinstance(found[0], int) else 0


def _selector_text(selector: Any) -> str:
    """A label selector as text; built-in kinds have an object there."""
    if not isinstance(selector, dict):
        return str(selector)
    labels = selector.get("matchLabels") or {}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _set(obj: Object, path: str, value: int) -> None:
    parts = path.strip(".").split(".")
    at: Any = obj
    for part in parts[:-1]:
        at = at.setdefault(part, {})
    at[parts[-1]] = value
