"""Makes `wire.json`: how the built-in types look in protobuf and when JSON leaves a field out.

    python -m arc_controller.testing.apiserver.harvest_wire API APIMACHINERY

The arguments are the source folders of the Go modules `k8s.io/api` and `k8s.io/apimachinery`. Kept
are, for every struct that `core.json` names: field numbers, JSON names, types, and whether a field
is a pointer, repeated, a map, inline, or left out when zero.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from arc_controller.testing.apiserver.types import META, core_schemas

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ALIAS = re.compile(r"^type (\w+) (map\[\S+?\]\S+|\[\]\S+|string|u?int\d+|bool)\s*(?://.*)?$", re.M)
_FIELD = re.compile(r"^\s+(?:\w+\s+)?(\S+)\s+`([^`]*)`", re.MULTILINE)
_SCALARS = {
    "string": "s",
    "bool": "b",
    "int": "i",
    "int32": "i",
    "int64": "i",
    "uint32": "i",
    "uint64": "i",
    "float64": "d",
    "types.UID": "s",
    "types.NodeName": "s",
    "[]byte": "y",
}
_SPECIAL = {
    "metav1.Time": META + "Time",
    "metav1.MicroTime": META + "MicroTime",
    "Time": META + "Time",
    "MicroTime": META + "MicroTime",
    "resource.Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "intstr.IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "runtime.RawExtension": "RawExtension",
    "FieldsV1": META + "FieldsV1",
}


class _Package:
    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        text = path.read_text()
        self.structs = dict(_STRUCT.findall(text))
        self.aliases = dict(_ALIAS.findall(text))


def harvest(roots: list[Path]) -> dict[str, Any]:
    """Struct → field number → [JSON name, kind, type name, modifiers]."""
    packages: dict[str, _Package] = {}

    def package(prefix: str) -> _Package | None:
        if prefix not in packages:
            if prefix == META:
                path = roots[1] / "pkg/apis/meta/v1/types.go"
            elif prefix.startswith("io.k8s.api."):
                group, version = prefix.removeprefix("io.k8s.api.").rstrip(".").rsplit(".", 1)
                path = roots[0] / group.replace(".", "/") / version / "types.go"
            else:
                return None
            packages[prefix] = _Package(prefix, path)
        return packages[prefix]

    found: dict[str, Any] = {}
    waiting = list(core_schemas())
    while waiting:
        name = waiting.pop()
        prefix, _, short = name.rpartition(".")
        home = package(f"{prefix}.")
        if name in found or home is None or short not in home.structs:
            continue
        found[name] = _fields(home, home.structs[short], waiting)
    for fields in found.values():
        for field in fields.values():
            prefix, _, short = field[2].rpartition(".")
            known = packages.get(f"{prefix}.")
            if field[1] == "m" and known is not None and short in known.aliases:
                field[1:3] = _SCALARS[known.aliases[short]], ""
    return dict(sorted(found.items()))


def _fields(home: _Package, body: str, waiting: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for go_type, tags in _FIELD.findall(body):
        wire = re.search(r'protobuf:"\w+,(\d+),(\w+),name=(\w+)', tags)
        json = re.search(r'json:"([^"]*)"', tags)
        if wire is None or json is None:
            continue
        name, *options = json.group(1).split(",")
        modifiers = ""
        if "inline" in options:
            modifiers += "n"
        if "omitempty" in options:
            modifiers += "o"
        if "omitzero" in options:
            modifiers += "z"
        kind, ref, more = _resolve(home, go_type)
        if kind == "m":
            waiting.append(ref)
        fields[wire.group(1)] = [name, kind, ref, modifiers + more]
    return fields


def _resolve(home: _Package, go_type: str) -> tuple[str, str, str]:
    modifiers = ""
    if go_type.startswith("*"):
        go_type = go_type[1:]
        modifiers += "p"
    if go_type in home.aliases:
        target = home.aliases[go_type]
        if target == "[]string" and go_type in ("ExtraValue", "Verbs"):
            return "m", "Strings", modifiers
        go_type = target
    if go_type in _SCALARS:
        return _SCALARS[go_type], "", modifiers
    if go_type.startswith("map["):
        value = go_type[go_type.index("]") + 1 :]
        kind, ref, _ = _resolve(home, value)
        return kind, ref, modifiers + "M"
    if go_type.startswith("[]"):
        kind, ref, _ = _resolve(home, go_type[2:])
        return kind, ref, modifiers + "r"
    if go_type in _SPECIAL:
        return "m", _SPECIAL[go_type], modifiers
    package, dot, short = go_type.rpartition(".")
    if not dot:
        return "m", home.name + go_type, modifiers
    prefixes = {"metav1": META, "v1": "io.k8s.api.core.v1.", "corev1": "io.k8s.api.core.v1."}
    return "m", prefixes.get(package, META) + short, modifiers


def main() -> None:
    target = Path(__file__).with_name("wire.json")
    roots = [Path(argument) for argument in sys.argv[1:3]]
    target.write_bytes(msgspec.json.encode(harvest(roots)) + b"\n")


if __name__ == "__main__":
    main()
