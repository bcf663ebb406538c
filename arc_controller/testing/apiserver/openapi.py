"""OpenAPI documents: v3 by group version and v2 as one, built from what is served."""

from __future__ import annotations

import hashlib
from typing import Any

from arc_controller.testing.apiserver.discovery import VERSION
from arc_controller.testing.apiserver.messages import Object, encode_json
from arc_controller.testing.apiserver.resources import Resource, ResourceTable
from arc_controller.testing.apiserver.types import META, core_name, core_schemas

_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_COMPONENTS = "#/components/schemas/"
_DEFINITIONS = "#/definitions/"
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


class OpenApi:
    """Documents made when asked for, kept until the table of resources changes."""

    def __init__(self, resources: ResourceTable) -> None:
        self._resources = resources
        self._generation = -1
        self._documents: dict[str, bytes] = {}

    def index(self) -> Object:
        """What `/openapi/v3` answers."""
        paths = {
            _document_path(group, version): {
                "serverRelativeURL": f"/openapi/v3/{_document_path(group, version)}"
                f"?hash={self._hash(group, version)}"
            }
            for group, versions in self._resources.groups().items()
            for version in versions
        }
        return {"paths": paths}

    def document(self, path: str) -> bytes | None:
        """The OpenAPI v3 document of `api/v1` or `apis/GROUP/VERSION`."""
        self._refresh()
        if path not in self._documents:
            parts = path.split("/")
            group, version = ("", parts[-1]) if parts[0] == "api" else (parts[1], parts[-1])
            found = self._resources.in_version(group, version)
            if not found:
                return None
            self._documents[path] = encode_json(_document_v3(found))
        return self._documents[path]

    def version_two(self) -> bytes:
        """The one document of `/openapi/v2`."""
        self._refresh()
        if "v2" not in self._documents:
            self._documents["v2"] = encode_json(_document_v2(list(self._resources)))
        return self._documents["v2"]

    def _refresh(self) -> None:
        if self._generation != self._resources.generation:
            self._generation = self._resources.generation
            self._documents.clear()

    def _hash(self, group: str, version: str) -> str:
        known = [
            f"{each.plural} {id(each.schema)}"
            for each in self._resources.in_version(group, version)
        ]
        text = f"{self._resources.generation if group else 0} {known}"
        return hashlib.sha256(text.encode()).hexdigest()[:32].upper()


def _document_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _document_v3(resources: list[Resource]) -> Object:
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for resource in resources:
        name = _add_schemas(schemas, resource)
        paths.update(_paths(resource, name, version_two=False))
    _close_over(schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _document_v2(resources: list[Resource]) -> Object:
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for resource in resources:
        name = _add_schemas(schemas, resource)
        paths.update(_paths(resource, name, version_two=True))
    _close_over(schemas)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "definitions": {name: _to_version_two(each) for name, each in schemas.items()},
    }


def _add_schemas(schemas: dict[str, Any], resource: Resource) -> str:
    """Put the kind and its list into the schemas; returns the kind's name there."""
    group, version, kind = resource.group, resource.version, resource.kind
    if not resource.custom:
        name = core_name(group, version, kind)
        schemas[name] = core_schemas()[name]
    else:
        name = ".".join([*reversed(group.split(".")), version, kind])
        schemas[name] = _custom_schema(resource)
    list_name = f"{name}List"
    schemas[list_name] = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"{_COMPONENTS}{META}ListMeta"},
            "items": {"type": "array", "items": {"$ref": f"{_COMPONENTS}{name}"}},
        },
        "x-kubernetes-group-version-kind": [_gvk(resource, resource.list_kind_name)],
    }
    return name


def _custom_schema(resource: Resource) -> Object:
    schema = dict(resource.schema or {"type": "object"})
    properties = dict(schema.get("properties") or {})
    properties["apiVersion"] = {
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an "
        "object. Servers should convert recognized schemas to the latest internal value, and may "
        f"reject unrecognized values. More info: {_CONVENTIONS}#resources",
    }
    properties["kind"] = {
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object "
        "represents. Servers may infer this from the endpoint the client submits requests to. "
        f"Cannot be updated. In CamelCase. More info: {_CONVENTIONS}#types-kinds",
    }
    properties["metadata"] = {
        "description": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata",
        "allOf": [{"$ref": f"{_COMPONENTS}{META}ObjectMeta"}],
    }
    schema["properties"] = properties
    schema["x-kubernetes-group-version-kind"] = [_gvk(resource, resource.kind)]
    return schema


def _gvk(resource: Resource, kind: str) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind}


def _close_over(schemas: dict[str, Any]) -> None:
    """Add everything that is referred to."""
    waiting = [META + "DeleteOptions", META + "Status", META + "Patch"]
    for schema in schemas.values():
        _references(schema, waiting)
    while waiting:
        name = waiting.pop()
        if name not in schemas and name in core_schemas():
            schemas[name] = core_schemas()[name]
            _references(schemas[name], waiting)


def _references(node: Any, found: list[str]) -> None:
    if isinstance(node, dict):
        ref = node.get("$ref")
        if isinstance(ref, str):
            found.append(ref.removeprefix(_COMPONENTS))
            return
        for each in node.values():
            _references(each, found)
    elif isinstance(node, list):
        for each in node:
            _references(each, found)


def _paths(resource: Resource, name: str, *, version_two: bool) -> Object:
    root = f"/{_document_path(resource.group, resource.version)}"
    if resource.namespaced:
        collection = f"{root}/namespaces/{{namespace}}/{resource.plural}"
    else:
        collection = f"{root}/{resource.plural}"
    maker = _Operations(resource, name, version_two=version_two)
    paths: Object = {collection: maker.collection(namespaced=resource.namespaced)}
    if resource.namespaced:
        paths[f"{root}/{resource.plural}"] = {"get": maker.operation("get", "list")}
    one = f"{collection}/{{name}}"
    paths[one] = maker.one(namespaced=resource.namespaced)
    if "status" in resource.subresources:
        paths[f"{one}/status"] = maker.one(namespaced=resource.namespaced, delete=False)
    return paths


class _Operations:
    def __init__(self, resource: Resource, name: str, *, version_two: bool) -> None:
        self._resource = resource
        self._name = name
        self._two = version_two

    def collection(self, *, namespaced: bool) -> Object:
        found: Object = {
            "get": self.operation("get", "list"),
            "post": self.operation("post", "post"),
        }
        if namespaced:
            found["parameters"] = [self._parameter("namespace", "path")]
        return found

    def one(self, *, namespaced: bool, delete: bool = True) -> Object:
        found: Object = {
            "get": self.operation("get", "get"),
            "put": self.operation("put", "put"),
            "patch": self.operation("patch", "patch"),
        }
        if delete:
            found["delete"] = self.operation("delete", "delete")
        names = ["name", "namespace"] if namespaced else ["name"]
        found["parameters"] = [self._parameter(each, "path") for each in names]
        return found

    def operation(self, method: str, action: str) -> Object:
        schema = self._ref(f"{self._name}List" if action == "list" else self._name)
        ok = {"description": "OK", **self._content(schema)}
        operation: Object = {
            "responses": {"200": ok},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(self._resource, self._resource.kind),
        }
        parameters: list[Object] = []
        if method in ("post", "put", "patch"):
            parameters = [self._parameter(each, "query") for each in _WRITE_PARAMETERS]
            body = self._ref(META + "Patch") if method == "patch" else self._ref(self._name)
            if method == "patch":
                parameters.append(self._parameter("force", "query"))
            if self._two:
                parameters.append({"name": "body", "in": "body", "required": True, "schema": body})
            else:
                operation["requestBody"] = {"required": True, **self._content(body)}
        if parameters:
            operation["parameters"] = parameters
        return operation

    def _ref(self, name: str) -> Object:
        return {"$ref": f"{_DEFINITIONS if self._two else _COMPONENTS}{name}"}

    def _content(self, schema: Object) -> Object:
        if self._two:
            return {"schema": schema}
        return {"content": {"application/json": {"schema": schema}}}

    def _parameter(self, name: str, where: str) -> Object:
        kind = "boolean" if name == "force" else "string"
        typed: Object = {"type": kind} if self._two else {"schema": {"type": kind}}
        parameter: Object = {"name": name, "in": where, **typed}
        if where == "path":
            parameter["required"] = True
        return parameter


def _to_version_two(node: Any) -> Any:
    """Swagger 2.0 knows neither oneOf nor components."""
    if isinstance(node, list):
        return [_to_version_two(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {}
    for key, value in node.items():
        if key in ("oneOf", "anyOf", "allOf", "not", "nullable"):
            continue
        if key == "$ref" and isinstance(value, str):
            found[key] = value.replace(_COMPONENTS, _DEFINITIONS)
        else:
            found[key] = _to_version_two(value)
    if "oneOf" in node and "type" not in node:
        found["type"] = "string"
    parts = node.get("allOf")
    if isinstance(parts, list) and len(parts) == 1 and "$ref" in parts[0]:
        return _to_version_two(parts[0])
    return found
