"""Protobuf bodies of built-in kinds: typed clients (kubectl's `create`, Go controllers) send them.

Answers are JSON always: every such client accepts it too.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from arc_controller.testing.apiserver.errors import bad_request
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.types import META, core_name, wire_fields

_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decode_protobuf(body: bytes) -> Object:
    """The object in a `k8s\\0` envelope. Raises BadRequest."""
    try:
        return _decode(body)
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise bad_request(f"error decoding the body as protobuf: {error}") from None


def _decode(body: bytes) -> Object:
    if not body.startswith(_MAGIC):
        raise ValueError("provided data does not appear to be a protobuf message")
    envelope = dict(_fields(body[len(_MAGIC) :]))
    meta = dict(_fields(envelope.get(1, b"")))
    api_version = meta.get(1, b"").decode()
    kind = meta.get(2, b"").decode()
    group, _, version = api_version.rpartition("/")
    name = core_name(group, version, kind)
    if kind == "DeleteOptions":
        name = META + "DeleteOptions"
    if not name:
        raise ValueError(f"no kind {kind!r} in {api_version!r}")
    decoded = _message(name, envelope.get(2, b""))
    return {"kind": kind, "apiVersion": api_version, **decoded}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, position = _varint(data, position)
        elif wire == 1:
            value = struct.unpack_from("<d", data, position)[0]
            position += 8
        elif wire == 2:
            size, position = _varint(data, position)
            value = data[position : position + size]
            if len(value) != size:
                raise ValueError("unexpected end of data")
            position += size
        elif wire == 5:
            value = struct.unpack_from("<f", data, position)[0]
            position += 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7


def _message(name: str, data: bytes) -> Any:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(data)
    known = wire_fields(name)
    if not known:
        raise ValueError(f"no type {name!r}")
    found: Object = {}
    for number, raw in _fields(data):
        described = known.get(str(number))
        if described is None:
            continue
        field, kind, ref, modifiers = described
        if "M" in modifiers:
            key, value = _entry(kind, ref, raw)
            found.setdefault(field, {})[key] = value
            continue
        value = _value(kind, ref, raw)
        if "n" in modifiers:
            found.update(value)
        elif "r" in modifiers:
            found.setdefault(field, []).append(value)
        elif value is not None and (value or "p" in modifiers or "o" not in modifiers):
            found[field] = value
    return found


def _entry(kind: str, ref: str, raw: bytes) -> tuple[str, Any]:
    entry = dict(_fields(raw))
    empty: Any = 0 if kind in "ib" else b""
    return entry.get(1, b"").decode(), _value(kind, ref, entry.get(2, empty))


def _value(kind: str, ref: str, raw: Any) -> Any:
    if kind == "s":
        return raw.decode()
    if kind == "i":
        return raw - (1 << 64) if raw >= 1 << 63 else raw
    if kind == "b":
        return bool(raw)
    if kind == "y":
        return base64.b64encode(raw).decode()
    return _message(ref, raw) if kind == "m" else raw


def _moment(data: bytes) -> datetime | None:
    parts = dict(_fields(data))
    if not parts:
        return None
    seconds = _value("i", "", parts.get(1, 0))
    return _EPOCH + timedelta(seconds=seconds, microseconds=parts.get(2, 0) // 1000)


def _time(data: bytes) -> str | None:
    moment = _moment(data)
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(data: bytes) -> str | None:
    moment = _moment(data)
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _quantity(data: bytes) -> str:
    text: str = dict(_fields(data)).get(1, b"").decode()
    return text


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    if parts.get(1):
        text: str = parts.get(3, b"").decode()
        return text
    number: int = _value("i", "", parts.get(2, 0))
    return number


def _raw_json(data: bytes) -> Any:
    return msgspec.json.decode(dict(_fields(data)).get(1) or b"null")


def _strings(data: bytes) -> list[str]:
    return [raw.decode() for number, raw in _fields(data) if number == 1]


_SPECIAL = {
    META + "Time": _time,
    META + "MicroTime": _micro_time,
    META + "FieldsV1": _raw_json,
    "RawExtension": _raw_json,
    "Strings": _strings,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
}
