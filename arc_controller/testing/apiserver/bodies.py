"""Request bodies: JSON or YAML in, an object of the expected kind out."""

from __future__ import annotations

from typing import Any

import msgspec

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.messages import Object, Request, decode_json, json_type
from arc_controller.testing.apiserver.protobuf import decode_protobuf
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.types import core_name

PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = ("application/json", "application/yaml", PROTOBUF)
_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "application/apply-patch+yaml")


def media_type(request: Request) -> str:
    return request.header("content-type").partition(";")[0].strip().lower()


def decode_body(request: Request) -> Any:
    """The decoded body, as JSON or YAML. Raises BadRequest or UnsupportedMediaType."""
    kind = media_type(request)
    if kind == PROTOBUF:
        return decode_protobuf(request.body)
    if kind in _YAML:
        return decode_yaml(request.body)
    if (
        kind
        and kind not in ("application/json", "application/json-patch+json")
        and not (kind.endswith("+json"))
    ):
        raise errors.unsupported_media_type(ACCEPTED)
    return decode_json_body(request.body)


def decode_json_body(body: bytes) -> Any:
    try:
        return decode_json(body)
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"error decoding the body as JSON: {error}") from None


def decode_yaml(body: bytes) -> Any:
    import yaml

    try:
        return yaml.load(body, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        line = max(error.problem_mark.line, 1) if error.problem_mark is not None else 1
        raise errors.bad_request(
            "error decoding YAML: error converting YAML to JSON: "
            f"yaml: line {line}: {error.problem}"
        ) from None
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from None


def decode_object(request: Request, resource: Resource) -> Object:
    """An object of the resource's kind, as a create or update carries it."""
    unrecognized = f"the object provided is unrecognized (must be of type {resource.kind}): "
    summary = _summary(request.body)
    try:
        body = decode_body(request)
    except errors.StatusError as error:
        if error.code != 400 or media_type(request) == PROTOBUF:
            raise
        raise errors.bad_request(
            f"{unrecognized}couldn't get version/kind; json parse error: {error} ({summary})"
        ) from None
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise errors.bad_request(
            f"{unrecognized}couldn't get version/kind; json parse error: json: cannot unmarshal "
            f"{json_type(body)} into Go value of type struct {{ APIVersion string "
            '"json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } '
            f"({summary})"
        )
    for key in ("apiVersion", "kind"):
        given = body.get(key)
        if given is not None and not isinstance(given, str):
            raise errors.bad_request(
                f"{unrecognized}couldn't get version/kind; json parse error: json: cannot "
                f"unmarshal {json_type(given)} into Go struct field .{key} of type string "
                f"({summary})"
            )
    if resource.custom and not body.get("kind"):
        shown = request.body.decode(errors="replace")
        if "fieldValidation=Ignore" in request.query:
            raise errors.bad_request(
                f"{resource.kind} in version {errors.go_quote(resource.version)} cannot be handled "
                f"as a {resource.kind}: Object 'Kind' is missing in '{shown}'"
            )
        raise errors.bad_request(f"{unrecognized}Object 'Kind' is missing in '{shown}' ({summary})")
    if str(body.get("apiVersion")).count("/") > 1:
        raise errors.bad_request(
            f"{unrecognized}unexpected GroupVersion string: {body['apiVersion']} ({summary})"
        )
    if request.method != "PUT" or not resource.custom or body["kind"] == resource.kind:
        check_kind(body, resource)
    return body


def _summary(data: bytes, limit: int = 30) -> str:
    """The beginning of a body, as the server quotes it."""
    start = data[:limit]
    text = start.decode(errors="replace") if data.startswith(b"{") else start.hex()
    return f"{text} ..." if len(data) > limit else text


def check_kind(body: Object, resource: Resource) -> None:
    """The body's kind and apiVersion are the resource's; absent ones are filled in for built-in
    kinds, as typed decoding does."""
    kind, api_version = body.get("kind"), body.get("apiVersion")
    if not kind and not resource.custom:
        body["kind"] = kind = resource.kind
    if not api_version and not resource.custom:
        body["apiVersion"] = api_version = resource.api_version
    group, _, version = str(api_version).rpartition("/")
    if not resource.custom and not core_name(group, version, str(kind)):
        raise errors.bad_request(
            f"{kind} in version {errors.go_quote(version)} cannot be handled as a "
            f"{resource.kind}: no kind {errors.go_quote(str(kind))} is registered for version "
            f'{errors.go_quote(str(api_version))} in scheme "pkg/runtime/scheme.go:111"'
        )
    if api_version != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({api_version or ''}) does not match the expected API "
            f"version ({resource.api_version})"
        )
    if kind == resource.kind:
        return
    if resource.custom:
        name = (body.get("metadata") or {}).get("name") or ""
        problem = errors.invalid_value("kind", kind, f"must be {resource.kind}")
        raise errors.invalid(resource.group, str(kind), name, [problem])
    given, wanted = f"{resource.version}.{kind}", f"{resource.group or 'core'}.{resource.kind}"
    raise errors.bad_request(
        f"{kind} in version {errors.go_quote(resource.version)} cannot be handled as a "
        f"{resource.kind}: converting ({given}) to ({wanted}): unknown conversion"
    )


_YAML_LOADER: Any = None


def _loader() -> Any:
    """YAML as Kubernetes reads it: timestamps stay strings."""
    global _YAML_LOADER
    if _YAML_LOADER is None:
        import yaml

        class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
            pass

        Loader.yaml_implicit_resolvers = {
            first: [(tag, regexp) for tag, regexp in resolvers if "timestamp" not in tag]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
        _YAML_LOADER = Loader
    return _YAML_LOADER
