"""Which Python class stands for which kind, and where that kind lives on the server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Generic, cast
from urllib.parse import quote

import msgspec

from arc_controller.runtime.objects import K, KubeObject, ListMeta, NamespacedName, OwnerReference


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind's names: ``Resource("apps", "v1", "Deployment", "deployments")``."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The REST path of the collection, of one object, or of its subresource.

        Raises `ValueError` for names that cannot be part of a path.
        """
        parts = [f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""What nearly all names are made of; nothing in it needs quoting."""


def _segment(name: str) -> str:
    """A name in a path. Names come from people's manifests: one must not lead to another path."""
    if _PLAIN.fullmatch(name):
        return name
    if name in (".", "..") or "/" in name or "%" in name:
        raise ValueError(f"{name!r} cannot be the name of an object: '.', '..', '/', '%' are not")
    return quote(name, safe=":@!$&'()*+,;=~")


class ObjectList(msgspec.Struct, Generic[K]):
    """One page of a list. Anything that has no ``items`` is none, not even an empty one."""

    metadata: ListMeta
    items: list[K]


class UnknownKind(LookupError):
    """A class was used that nobody registered."""


class Scheme:
    """Kind ↔ Python class ↔ REST path; one registration per kind.

    A subclass of a registered class stands for the same kind (it may declare more fields, for
    creating objects of which only a projection is ever read back).
    """

    def __init__(self) -> None:
        self._resources: dict[type[KubeObject], Resource] = {}
        self._classes: dict[tuple[str, str], type[KubeObject]] = {}
        self._heads: dict[type[KubeObject], bytes] = {}
        self._decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}
        self._encoder = msgspec.json.Encoder()

    def register(self, kind: type[KubeObject], resource: Resource) -> None:
        """Raises `ValueError` if the class or the kind is registered already as something else."""
        gk = (resource.group, resource.kind)
        if (
            self._resources.get(kind, resource) != resource
            or self._classes.get(gk, kind) is not kind
        ):
            raise ValueError(f"{kind.__name__} or {resource.kind} is registered already")
        self._resources[kind] = resource
        self._classes[gk] = kind

    def update(self, other: Scheme) -> Scheme:
        """Register all that `other` knows; returns self."""
        for kind, resource in other._resources.items():
            self.register(kind, resource)
        return self

    def kinds(self) -> list[type[KubeObject]]:
        return list(self._resources)

    def registered(self, kind: type[K]) -> type[K]:
        """The registered class that `kind` is or extends. Raises `UnknownKind`."""
        if kind in self._resources:
            return kind
        for base in kind.__mro__:
            if base in self._resources:
                return cast("type[K]", base)
        raise UnknownKind(
            f"{kind.__name__} is not registered; call scheme.register({kind.__name__}, …)"
        )

    def resource(self, kind: type[KubeObject]) -> Resource:
        """Raises `UnknownKind`."""
        return self._resources.get(kind) or self._resources[self.registered(kind)]

    def class_of(self, api_version: str, kind: str) -> type[KubeObject]:
        """The class for an object's ``apiVersion`` and ``kind``. Raises `UnknownKind`."""
        group = api_version.rpartition("/")[0]
        try:
            return self._classes[group, kind]
        except KeyError:
            raise UnknownKind(f"no class is registered for {api_version} {kind}") from None

    def path(self, kind: type[KubeObject], key: NamespacedName, subresource: str = "") -> str:
        """The path of one object. Raises `UnknownKind`, and `ValueError` for an incomplete key."""
        resource = self.resource(kind)
        if not key.name:
            raise ValueError(f"{resource.kind}: the name is empty")
        if resource.namespaced and not key.namespace:
            raise ValueError(f"{resource.kind} {key.name!r}: the namespace is empty")
        return resource.path(key.namespace, key.name, subresource)

    def owner_reference(self, owner: KubeObject, *, controller: bool = True) -> OwnerReference:
        resource = self.resource(type(owner))
        return OwnerReference(
            api_version=resource.api_version,
            kind=resource.kind,
            name=owner.metadata.name,
            uid=owner.metadata.uid,
            controller=controller,
            block_owner_deletion=controller,
        )

    def encode(self, obj: KubeObject) -> bytes:
        """JSON with ``apiVersion`` and ``kind``."""
        kind = type(obj)
        head = self._heads.get(kind)
        if head is None:
            resource = self.resource(kind)
            names = {"apiVersion": resource.api_version, "kind": resource.kind}
            head = self._heads[kind] = self._encoder.encode(names)[:-1] + b","
        return head + self._encoder.encode(obj)[1:]  # metadata is always encoded

    def decode(self, kind: type[K], body: bytes | msgspec.Raw) -> K:
        """Where a type does not allow null, null counts as absent, as it does in Kubernetes.

        Raises `msgspec.DecodeError` (`msgspec.ValidationError` names the field), also for an object
        that is nested too deeply to be read.
        """
        obj: K = self._decode(kind, body)
        return obj

    def decode_list(self, kind: type[K], body: bytes) -> ObjectList[K]:
        """Like `decode`; ``items: null`` is an empty list."""
        result: ObjectList[K] = self._decode(ObjectList[kind], body, ("items",))  # type: ignore[valid-type]
        return result

    def _decode(self, type_: Any, body: bytes | msgspec.Raw, lists: tuple[str, ...] = ()) -> Any:
        decode = self._decoder(type_).decode
        try:
            try:
                return decode(body)
            except msgspec.ValidationError as error:
                value = msgspec.json.decode(body)
                without_nulls = _without_nulls(value, lists)
                if without_nulls == value:
                    raise error from None
                return decode(msgspec.json.encode(without_nulls))
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None

    def _decoder(self, type_: Any) -> msgspec.json.Decoder[Any]:
        decoder = self._decoders.get(type_)
        if decoder is None:
            decoder = self._decoders[type_] = msgspec.json.Decoder(type_)
        return decoder


def _without_nulls(value: Any, lists: tuple[str, ...] = ()) -> Any:
    """Fields that are null left out; those in `lists`, at the top, made empty (Go's nil slice)."""
    if isinstance(value, dict):
        return {
            name: [] if each is None else _without_nulls(each)
            for name, each in value.items()
            if each is not None or name in lists
        }
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
