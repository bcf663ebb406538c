"""The CRDs as they are generated: complete, documented, and never too strict for a first patch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from arc_controller.api import manifests, v1alpha1
from arc_controller.api.crd import (
    CUSTOM_RESOURCES,
    REQUIRED,
    all_structs,
    custom_resource_definitions,
    pod_template_schema,
)
from arc_controller.api.field_docs import FIELD_DOCS
from arc_controller.api.scheme import SCHEME
from arc_controller.api.structural import NotStructural, structural_schema

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in custom_resource_definitions()}
KINDS = [resource.kind for resource in CUSTOM_RESOURCES]
LAST_APPLIED_LIMIT = 256 * 1024  # bytes of all annotations of an object


def schema_of(kind: str) -> dict[str, Any]:
    version = CRDS[kind]["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, value in schema.get("properties", {}).items():
        yield from walk(value, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from walk(schema[key], f"{path}[]")


def document(**schemas: dict[str, Any]) -> dict[str, Any]:
    return {"components": {"schemas": schemas}}


def reference(name: str) -> dict[str, Any]:
    return {"description": "…", "default": {}, "allOf": [{"$ref": f"#/components/schemas/{name}"}]}


def test_the_files_in_config_crd_are_what_the_types_say(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "config" / "crd"
    assert manifests.main(["--check", str(folder)]) == 0


def test_stale_files_are_named_and_fail_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert manifests.main([str(tmp_path)]) == 0
    assert manifests.main(["--check", str(tmp_path)]) == 0
    stale = tmp_path / "actions.github.com_ephemeralrunners.yaml"
    stale.write_text(stale.read_text().replace("RunnerId", "Runner"))
    (tmp_path / "kustomization.yaml").unlink()
    capsys.readouterr()
    assert manifests.main(["--check", str(tmp_path)]) == 1
    complaints = capsys.readouterr().err.splitlines()
    assert [Path(line.split()[0]).name for line in complaints] == [
        "actions.github.com_ephemeralrunners.yaml",
        "kustomization.yaml",
    ]


def test_the_yaml_reads_back_as_the_crd() -> None:
    for name, content in manifests.manifests().items():
        read = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if read["kind"] == "CustomResourceDefinition":
            assert read == CRDS[read["spec"]["names"]["kind"]], name


def test_names_agree_with_the_scheme() -> None:
    for resource in CUSTOM_RESOURCES:
        assert SCHEME.resource(resource.kind).plural == resource.plural


@pytest.mark.parametrize("kind", CRDS)
def test_each_crd_fits_into_the_annotation_of_kubectl_apply(kind: str) -> None:
    assert len(json.dumps(CRDS[kind], separators=(",", ":"))) < LAST_APPLIED_LIMIT * 0.75


@pytest.mark.parametrize("kind", CRDS)
def test_no_status_field_is_required(kind: str) -> None:
    required = {
        path: schema["required"]
        for path, schema in walk(schema_of(kind)["properties"]["status"])
        if "required" in schema
    }
    assert required in ({}, {".conditions[]": ["type", "status"]})


@pytest.mark.parametrize("kind", CRDS)
def test_what_is_required_or_a_key_exists_and_keys_are_always_there(kind: str) -> None:
    for path, schema in walk(schema_of(kind)):
        assert set(schema.get("required", ())) <= set(schema.get("properties", {})), path
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            items = schema["items"]
            assert key in items.get("required", ()) or "default" in items["properties"][key], path


@pytest.mark.parametrize("kind", CRDS)
def test_every_value_has_a_type(kind: str) -> None:
    for path, schema in walk(schema_of(kind)):
        assert ("type" in schema) != bool(schema.get("x-kubernetes-int-or-string")), path


def test_every_field_is_documented_and_nothing_else_is() -> None:
    structs = all_structs(KINDS)
    assert set(FIELD_DOCS) == structs
    for struct in structs:
        assert issubclass(struct, msgspec.Struct)
        assert set(FIELD_DOCS[struct]) == set(struct.__struct_fields__), struct.__name__


def test_required_fields_are_fields_of_their_struct() -> None:
    for struct, names in REQUIRED.items():
        assert issubclass(struct, msgspec.Struct)
        assert set(names) <= set(struct.__struct_encode_fields__), struct.__name__


def test_printer_columns_show_fields_that_exist() -> None:
    for kind, crd in CRDS.items():
        for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]:
            schema = schema_of(kind)
            path, ready = re.subn(r'\[\?\(@\.type=="Ready"\)\]', "", column["jsonPath"])
            first, *rest = path.removeprefix(".").split(".")
            schema = schema["properties"][first]
            if first == "metadata":
                continue
            for name in rest:
                schema = schema["properties"][name]
                schema = schema["items"] if ready and name == "conditions" else schema
            assert column["type"] in {"number", schema["type"]}, column


def test_counts_that_a_status_leaves_out_are_zero() -> None:
    for kind in ("AutoscalingRunnerSet", "EphemeralRunnerSet"):
        status = schema_of(kind)["properties"]["status"]["properties"]
        zero = {name for name, schema in status.items() if "default" in schema}
        assert len(zero) == 4
        assert all(name.endswith(("Runners", "Replicas")) for name in zero)
        assert {status[name]["default"] for name in zero} == {0}


def test_counts_have_a_floor_and_ids_are_wide() -> None:
    spec = schema_of("AutoscalingRunnerSet")["properties"]["spec"]["properties"]
    assert spec["minRunners"]["minimum"] == 0
    assert spec["maxRunners"]["maximum"] == v1alpha1.MAX_RUNNERS
    assert spec["minRunners"]["format"] == "int32"
    status = schema_of("EphemeralRunner")["properties"]["status"]["properties"]
    assert status["workflowRunId"]["format"] == "int64"
    assert status["failures"]["additionalProperties"]["format"] == "date-time"


def test_a_runner_is_a_pod_template_with_an_address_inline() -> None:
    spec = schema_of("EphemeralRunner")["properties"]["spec"]["properties"]
    template = pod_template_schema()["properties"]
    assert spec["spec"]["properties"] == template["spec"]["properties"]
    assert spec["metadata"] == template["metadata"]
    assert {"labels", "annotations"} <= set(spec["metadata"]["properties"])


def test_only_the_runner_template_needs_a_pod() -> None:
    spec = schema_of("AutoscalingRunnerSet")["properties"]["spec"]["properties"]
    assert spec["template"]["required"] == ["spec"]
    assert "required" not in spec["listenerTemplate"]


def test_references_are_replaced_and_descriptions_left_out() -> None:
    source = document(
        Outer={"type": "object", "properties": {"inner": reference("Inner")}},
        Inner={"type": "string", "description": "…", "default": ""},
    )
    assert structural_schema(source, "Outer") == {
        "type": "object",
        "properties": {"inner": {"type": "string"}},
    }


def test_a_default_stays_where_a_list_is_keyed_by_the_field() -> None:
    port = {
        "type": "object",
        "required": ["port"],
        "properties": {
            "port": {"type": "integer"},
            "protocol": {"type": "string", "default": "TCP"},
            "name": {"type": "string", "default": ""},
        },
    }
    ports = {
        "type": "array",
        "items": reference("Port"),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
    }
    schema = structural_schema(document(Ports=ports, Port=port), "Ports")
    assert schema["items"]["properties"] == {
        "port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": {"type": "string"},
    }


def test_a_key_that_may_be_missing_is_refused() -> None:
    ports = {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        "x-kubernetes-list-map-keys": ["name"],
    }
    with pytest.raises(NotStructural, match="Ports: key name may be missing"):
        structural_schema(document(Ports=ports), "Ports")


def test_a_type_that_contains_itself_is_refused() -> None:
    tree = {"type": "object", "properties": {"child": reference("Tree")}}
    with pytest.raises(NotStructural, match="Tree contains itself: Tree → Tree"):
        structural_schema(document(Tree=tree), "Tree")


def test_quantities_and_ports_may_be_numbers_or_strings() -> None:
    containers = pod_template_schema()["properties"]["spec"]["properties"]["containers"]
    container = containers["items"]["properties"]
    limit = container["resources"]["properties"]["limits"]["additionalProperties"]
    assert limit["x-kubernetes-int-or-string"]
    port = container["livenessProbe"]["properties"]["httpGet"]["properties"]["port"]
    assert port == {"x-kubernetes-int-or-string": True}
