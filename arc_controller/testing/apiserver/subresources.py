"""Subresources other than `status`: pods' log, binding and eviction, namespaces' finalize,
scale, and service account tokens."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from arc_controller.testing.apiserver import bodies, errors, reader
from arc_controller.testing.apiserver.deleter import Deleter, parse_options
from arc_controller.testing.apiserver.messages import Object, Request, Response, json_response
from arc_controller.testing.apiserver.namespaces import finalize_namespace
from arc_controller.testing.apiserver.resources import Resource, ResourceTable
from arc_controller.testing.apiserver.routing import RequestInfo
from arc_controller.testing.apiserver.scale import Scaling
from arc_controller.testing.apiserver.store import Store
from arc_controller.testing.apiserver.strategy import Call
from arc_controller.testing.apiserver.tokens import TokenIssuer
from arc_controller.testing.apiserver.writer import Writer

if TYPE_CHECKING:
    from arc_controller.testing.apiserver.server import LogSource


class Subresources:
    def __init__(
        self,
        store: Store,
        resources: ResourceTable,
        writer: Writer,
        deleter: Deleter,
        issuer: TokenIssuer,
    ) -> None:
        self._store = store
        self._resources = resources
        self._writer = writer
        self._deleter = deleter
        self._issuer = issuer

    async def answer(
        self, request: Request, info: RequestInfo, resource: Resource, logs: LogSource | None
    ) -> Response:
        key = (resource.storage_key, info.subresource, info.verb)
        if key == ("pods", "log", "get"):
            return await self._log(info, resource, logs)
        if key == ("pods", "binding", "create"):
            return self._bind(request, info, resource)
        if key == ("pods", "eviction", "create"):
            return self._evict(request, info, resource)
        if key == ("namespaces", "finalize", "update"):
            return self._finalize(request, info)
        if key == ("serviceaccounts", "token", "create"):
            account = reader.read_one(self._store, resource, info.namespace, info.name).obj
            return json_response(201, self._issuer.issue(info.namespace, account, _object(request)))
        if info.subresource == "scale" and info.verb in ("get", "update", "patch"):
            scaling = Scaling(self._writer, resource)
            return scaling.answer(request, info, self._call(info))
        raise errors.method_not_allowed()

    def _call(self, info: RequestInfo) -> Call:
        assert info.user is not None
        return Call(
            now=self._writer.timestamp(),
            user=info.user,
            dry_run=bool(info.query.get("dryRun")),
            manager=info.user_agent.partition("/")[0] or "unknown",
        )

    async def _log(self, info: RequestInfo, resource: Resource, logs: LogSource | None) -> Response:
        pod = reader.read_one(self._store, resource, info.namespace, info.name).obj
        containers = [
            each["name"]
            for kind in ("initContainers", "containers")
            for each in (pod.get("spec") or {}).get(kind) or ()
        ]
        container = info.query.get("container", "")
        main = [each["name"] for each in (pod.get("spec") or {}).get("containers") or ()]
        if not container:
            if len(main) > 1:
                raise errors.bad_request(
                    f"a container name must be specified for pod {info.name}, choose one of: "
                    f"[{' '.join(containers)}]"
                )
            container = main[0]
        elif container not in containers:
            raise errors.bad_request(f"container {container} is not valid for pod {info.name}")
        if not pod["spec"].get("nodeName"):
            return Response(200, {"Content-Type": "text/plain"}, b"")
        text: Any = b""
        if logs is not None:
            text = logs(info.namespace, info.name, container, info.query)
            if inspect.isawaitable(text):
                text = await text
        return Response(200, {"Content-Type": "text/plain"}, text)

    def _bind(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        body = _object(request)
        node = (body.get("target") or {}).get("name")
        if not node:
            raise errors.invalid("", "Binding", info.name, [errors.required("target.name")])
        old = reader.read_one(self._store, resource, info.namespace, info.name).obj
        bound = (old.get("spec") or {}).get("nodeName")
        if old["metadata"].get("deletionTimestamp"):
            raise errors.conflict(
                "",
                "pods/binding",
                info.name,
                f"pod {info.name} is being deleted, cannot be assigned to a host",
            )
        if bound:
            raise errors.conflict(
                "",
                "pods/binding",
                info.name,
                f'pod {info.name} is already assigned to node "{bound}"',
            )
        call = self._call(info)
        obj: Object = dict(old)
        obj["metadata"] = dict(old["metadata"])
        obj["spec"] = {**old["spec"], "nodeName": node}
        status = dict(old.get("status") or {})
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": call.now,
        }
        others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
        status["conditions"] = [*others, scheduled]
        obj["status"] = status
        if not call.dry_run:
            self._store.put(resource.storage_key, info.namespace, info.name, obj)
        return json_response(
            201,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "code": 201,
            },
        )

    def _evict(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        body = _object(request)
        given = (body.get("metadata") or {}).get("name")
        if given and given != info.name:
            raise errors.bad_request(
                f"name in URL does not match name in Eviction object: {info.name} {given}"
            )
        options = parse_options(body.get("deleteOptions") or {}, {})
        call = self._call(info)
        self._note_eviction(call, resource, info)
        self._deleter.delete(call, resource, info.namespace, info.name, options)
        return json_response(
            201,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "code": 201,
            },
        )

    def _note_eviction(self, call: Call, resource: Resource, info: RequestInfo) -> None:
        """A pod that lives on for its grace period says why it is going."""
        pod = reader.read_one(self._store, resource, info.namespace, info.name).obj
        status = pod.get("status") or {}
        over = status.get("phase") in ("Succeeded", "Failed")
        if over or pod["metadata"].get("deletionTimestamp") or not pod["spec"].get("nodeName"):
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": call.now,
        }
        others = [
            each for each in status.get("conditions") or () if each["type"] != "DisruptionTarget"
        ]

        evicted = {
            **pod,
            "metadata": dict(pod["metadata"]),
            "status": {**status, "conditions": [*others, condition]},
        }
        if not call.dry_run:
            self._store.put(resource.storage_key, info.namespace, info.name, evicted)

    def _finalize(self, request: Request, info: RequestInfo) -> Response:
        body = _object(request)
        finalizers = (body.get("spec") or {}).get("finalizers") or []
        call = self._call(info)
        finalize_namespace(self._writer, self._resources, call, info.name, finalizers)
        return json_response(200, body)


def _object(request: Request) -> Object:
    body = bodies.decode_body(request)
    if not isinstance(body, dict):
        raise errors.bad_request("the body must be an object")
    return body
