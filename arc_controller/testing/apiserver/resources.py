"""Which resources exist: the table that routing, discovery and storage are driven by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.store import storage_key
from arc_controller.testing.apiserver.strategy import Strategy

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
Convert = Callable[[Object], Object]


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column: JSONPath for custom resources, a function for core kinds."""

    name: str
    type: str
    path: str = ""
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    strategy: Strategy
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    selectable: Mapping[str, str] = field(default_factory=dict)
    indexed: str = ""
    """A selectable field with an index: a page of a list counts only what that finds."""
    storage: str = ""
    convert_out: Convert | None = None
    convert_in: Convert | None = None
    custom: bool = False
    columns: tuple[Column, ...] = ()
    schema: Mapping[str, Any] | None = None
    scale: Mapping[str, Any] | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_key(self) -> str:
        return self.storage or storage_key(self.group, self.plural)

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.lower()

    @property
    def list_kind_name(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @property
    def prefix(self) -> bytes:
        """How the encoded object starts: cut off for the items of a typed list."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()


class ResourceTable:
    """Resources by (group, version, plural) and by (apiVersion, kind)."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self._by_storage: dict[str, Resource] = {}
        self.generation = 0
        """Grows with every change: what was derived from the table is then out of date."""

    def add(self, resource: Resource) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_kind[resource.api_version, resource.kind] = resource
        self._by_storage.setdefault(resource.storage_key, resource)
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        gone = [each for each in self if (each.group, each.plural) == (group, plural)]
        for resource in gone:
            del self._by_path[resource.group, resource.version, resource.plural]
            self._by_kind.pop((resource.api_version, resource.kind), None)
            self._by_storage.pop(resource.storage_key, None)
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        return self._by_kind.get((api_version, kind))

    def by_storage(self, key: str) -> Resource:
        """The resource an object was stored under, in its storage version."""
        return self._by_storage[key]

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())

    def groups(self) -> dict[str, list[str]]:
        """Versions of every group, in the order they were added; the core group is `""`."""
        found: dict[str, list[str]] = {}
        for resource in self:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found

    def in_version(self, group: str, version: str) -> list[Resource]:
        return [each for each in self if (each.group, each.version) == (group, version)]
