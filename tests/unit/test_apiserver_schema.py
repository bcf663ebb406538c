"""The embedded API server: schemas of custom resources and decoding of built-in kinds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.apiserver.local import LocalClient
from tests.unit.test_apiserver_crud import CONFIGMAPS, PODS, WIDGETS, pod, widget, widget_crd

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "minLength": 1},
        "replicas": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": 9,
            "default": 1,
        },
        "mode": {"type": "string", "enum": ["Fast", "Slow"]},
        "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
        "port": {"x-kubernetes-int-or-string": True},
        "when": {"type": "string", "format": "date-time"},
        "note": {"type": "string", "nullable": True},
        "tags": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "string"},
            "x-kubernetes-list-type": "set",
        },
        "rules": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "weight": {"type": "integer", "default": 5},
                },
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "limits": {
            "type": "object",
            "maxProperties": 2,
            "additionalProperties": {"type": "integer"},
        },
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"on": {"type": "boolean", "default": True}},
        },
        "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "embedded": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}


@pytest.fixture
def client() -> LocalClient:
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": SPEC,
                "status": {
                    "type": "object",
                    "properties": {"phase": {"type": "string", "enum": ["Ready"]}},
                },
            },
        }
    }
    return LocalClient(ApiServer(crds=[widget_crd(schema=schema)], random=Random(1)))


async def test_defaults_are_filled_in_also_inside_defaults(client: LocalClient) -> None:
    response = await client.post(WIDGETS, widget(url="x", rules=[{"name": "a"}]))
    assert response.json()["spec"] == {
        "url": "x",
        "replicas": 1,
        "rules": [{"name": "a", "weight": 5}],
        "nested": {"on": True},
    }


async def test_undeclared_fields_are_dropped_and_warned_about(client: LocalClient) -> None:
    body = widget(url="x", nope=1, nested={"off": 1}, anything={"kept": {"deep": 1}})
    response = await client.post(WIDGETS, body)
    spec = response.json()["spec"]
    assert "nope" not in spec
    assert spec["nested"] == {"on": True}
    assert spec["anything"] == {"kept": {"deep": 1}}
    assert response.headers["Warning"] == (
        '299 - "unknown field \\"spec.nested.off\\"", 299 - "unknown field \\"spec.nope\\""'
    ) or response.headers["Warning"] == (
        '299 - "unknown field \\"spec.nope\\"", 299 - "unknown field \\"spec.nested.off\\""'
    )


async def test_strict_validation_refuses_undeclared_fields(client: LocalClient) -> None:
    response = await client.post(WIDGETS, widget(url="x", nope=1), fieldValidation="Strict")
    assert response.status == 400
    assert response.json()["message"] == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "spec.nope"'
    )
    quiet = await client.post(WIDGETS, widget(url="x", nope=1), fieldValidation="Ignore")
    assert "Warning" not in quiet.headers


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "FieldValueRequired", "spec.url: Required value"),
    (
        {"url": "x", "replicas": "3"},
        "FieldValueTypeInvalid",
        'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: '
        '"string"',
    ),
    (
        {"url": "x", "replicas": -1},
        "FieldValueInvalid",
        "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal "
        "to 0",
    ),
    (
        {"url": "x", "replicas": 10},
        "FieldValueInvalid",
        "spec.replicas: Invalid value: 10: spec.replicas in body should be less than or equal to 9",
    ),
    (
        {"url": "x", "mode": "Medium"},
        "FieldValueNotSupported",
        'spec.mode: Unsupported value: "Medium": supported values: "Fast", "Slow"',
    ),
    (
        {"url": "x", "code": "A"},
        "FieldValueInvalid",
        "spec.code: Invalid value: \"A\": spec.code in body should match '^[a-z]+$'",
    ),
    (
        {"url": "x", "code": "abcde"},
        "FieldValueTooLong",
        "spec.code: Too long: may not be more than 4 bytes",
    ),
    (
        {"url": ""},
        "FieldValueInvalid",
        'spec.url: Invalid value: "": spec.url in body should be at least 1 chars long',
    ),
    (
        {"url": "x", "tags": ["a", "b", "c", "d"]},
        "FieldValueTooMany",
        "spec.tags: Too many: 4: must have at most 3 items",
    ),
    (
        {"url": "x", "tags": ["a", "a"]},
        "FieldValueDuplicate",
        'spec.tags[1]: Duplicate value: "a"',
    ),
    (
        {"url": "x", "rules": [{"name": "a"}, {"name": "a"}]},
        "FieldValueDuplicate",
        'spec.rules[1]: Duplicate value: {"name":"a"}',
    ),
    (
        {"url": "x", "rules": [{}]},
        "FieldValueRequired",
        "spec.rules[0].name: Required value",
    ),
    (
        {"url": "x", "limits": {"a": "1"}},
        "FieldValueTypeInvalid",
        'spec.limits.a: Invalid value: "string": spec.limits.a in body must be of type integer: '
        '"string"',
    ),
    (
        {"url": "x", "limits": {"a": 1, "b": 1, "c": 1}},
        "FieldValueTooMany",
        "spec.limits: Too many: 3: must have at most 2 items",
    ),
    (
        {"url": "x", "port": 1.5},
        "FieldValueTypeInvalid",
        'spec.port: Invalid value: "number": spec.port in body must be of type integer,string: '
        '"number"',
    ),
    ({"url": None, "replicas": 1}, "FieldValueRequired", "spec.url: Required value"),
    (
        {"url": "x", "tags": [None]},
        "FieldValueTypeInvalid",
        'spec.tags[0]: Invalid value: "null": spec.tags[0] in body must be of type string: "null"',
    ),
    (
        {"url": "x", "when": "yesterday"},
        "FieldValueInvalid",
        'spec.when: Invalid value: "yesterday": spec.when in body must be of type date-time: '
        '"yesterday"',
    ),
    (
        {"url": "x", "embedded": {"kind": "Pod"}},
        "FieldValueRequired",
        "spec.embedded.apiVersion: Required value",
    ),
]


@pytest.mark.parametrize(
    "spec, reason, message", CASES, ids=[f"{case[0]} {case[2]}" for case in CASES]
)
async def test_what_is_wrong_is_said(
    client: LocalClient, spec: dict[str, Any], reason: str, message: str
) -> None:
    response = await client.post(WIDGETS, widget(**spec))
    assert response.status == 422
    status = response.json()
    assert status["message"] == f'Widget.example.com "a" is invalid: {message}'
    (cause,) = status["details"]["causes"]
    assert cause["reason"] == reason
    assert f"{cause['field']}: {cause['message']}" == message


async def test_several_problems_are_listed(client: LocalClient) -> None:
    response = await client.post(WIDGETS, widget(url="", replicas=-1))
    status = response.json()
    assert status["message"].startswith('Widget.example.com "a" is invalid: [')
    assert len(status["details"]["causes"]) == 2


async def test_null_is_kept_where_nullable_and_absent_elsewhere(
    client: LocalClient,
) -> None:
    response = await client.post(WIDGETS, widget(url="x", note=None, replicas=None))
    assert response.json()["spec"]["note"] is None
    assert response.json()["spec"]["replicas"] == 1


async def test_an_int_or_string_is_either(client: LocalClient) -> None:
    assert (await client.post(WIDGETS, widget("a", url="x", port=80))).status == 201
    assert (await client.post(WIDGETS, widget("b", url="x", port="http"))).status == 201


async def test_status_is_validated_too(client: LocalClient) -> None:
    await client.post(WIDGETS, widget(url="x"))
    wrong = await client.patch(f"{WIDGETS}/a/status", {"status": {"phase": "Odd"}})
    assert wrong.status == 422
    assert "status.phase: Unsupported value" in wrong.json()["message"]
    dropped = await client.patch(f"{WIDGETS}/a/status", {"status": {"other": 1}})
    assert dropped.json()["status"] == {}


async def test_what_was_invalid_before_may_stay(client: LocalClient) -> None:
    """A schema that grows stricter does not freeze the objects that are there."""
    await client.post(WIDGETS, widget(url="x", mode="Fast"))
    strict = widget_crd()
    schema = {
        **SPEC,
        "properties": {**SPEC["properties"], "mode": {"type": "string", "enum": ["Slow"]}},
    }
    strict["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}
    }
    client.api.install_crd(strict)
    assert (await client.patch(f"{WIDGETS}/a", {"spec": {"replicas": 2}})).status == 200
    assert (await client.patch(f"{WIDGETS}/a", {"spec": {"mode": "Fast"}})).status == 200
    assert (await client.post(WIDGETS, widget("b", url="x", mode="Fast"))).status == 422


async def test_a_wrong_type_in_a_built_in_kind_is_a_bad_request(client: LocalClient) -> None:
    body = pod()
    body["spec"]["terminationGracePeriodSeconds"] = "soon"
    response = await client.post(PODS, body)
    assert response.status == 400
    assert response.json()["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string into Go '
        "struct field PodSpec.spec.terminationGracePeriodSeconds of type int64"
    )
    body = pod()
    body["spec"]["containers"] = {}
    response = await client.post(PODS, body)
    assert response.json()["message"].endswith(
        "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type "
        "[]v1.Container"
    )


async def test_labels_are_strings_in_custom_resources_too(client: LocalClient) -> None:
    body = widget(url="x")
    body["metadata"]["labels"] = {"n": 1}
    response = await client.post(WIDGETS, body)
    assert response.status == 400
    assert "json: cannot unmarshal number into Go struct field" in response.json()["message"]


async def test_undeclared_fields_of_built_in_kinds_are_dropped(client: LocalClient) -> None:
    body = pod(imaginary=True)
    response = await client.post(PODS, body)
    assert "imaginary" not in response.json()["spec"]
    assert response.headers["Warning"] == '299 - "unknown field \\"spec.imaginary\\""'
    strict = await client.post(PODS, pod("b", imaginary=True), fieldValidation="Strict")
    assert strict.status == 400


async def test_nulls_and_empty_lists_of_built_in_kinds_are_absent(client: LocalClient) -> None:
    body: dict[str, Any] = {
        "metadata": {"name": "a", "labels": {}, "annotations": None},
        "data": {},
    }
    created = (await client.post(CONFIGMAPS, body)).json()
    assert "data" not in created
    assert "labels" not in created["metadata"]
    assert "annotations" not in created["metadata"]


async def test_a_bad_quantity_is_a_bad_request(client: LocalClient) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "lots"}}}
    body = pod(containers=[container])
    response = await client.post(PODS, body)
    assert response.status == 400
    assert "quantities must match the regular expression" in response.json()["message"]
