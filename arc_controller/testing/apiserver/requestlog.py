"""A record of the requests served: what tests assert on and benchmarks count."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from arc_controller.testing.apiserver.messages import decode_json


@dataclass(slots=True)
class RequestRecord:
    """One served request. `bytes_out` of a watch grows while it is open."""

    method: str
    verb: str
    path: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    user_agent: str
    status: int
    bytes_in: int = 0
    bytes_out: int = 0
    patch_type: str = ""
    patch_body: bytes = b""
    query: str = ""

    @property
    def patch(self) -> Any:
        """The decoded patch; None for other requests and for what is not JSON."""
        try:
            return decode_json(self.patch_body) if self.patch_body else None
        except msgspec.DecodeError:
            return None


class RequestLog:
    """The last `size` requests; the counters never forget."""

    def __init__(self, size: int = 20_000) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=size)
        self._counts: Counter[tuple[str, str, str, str, str]] = Counter()

    def add(self, record: RequestRecord) -> None:
        self._records.append(record)
        self._counts[
            record.user, record.user_agent, record.verb, record.resource, record.subresource
        ] += 1

    def requests_by(
        self,
        *,
        user_agent: str | None = None,
        user: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
    ) -> int:
        """How many requests matched what is given. A user agent matches by how it starts."""
        total = 0
        for (by, agent, did, what, part), count in self._counts.items():
            if user_agent is not None and not agent.startswith(user_agent):
                continue
            if user is not None and by != user:
                continue
            if verb is not None and did != verb:
                continue
            if resource is not None and what != resource:
                continue
            if subresource is not None and part != subresource:
                continue
            total += count
        return total

    def table(self, *fields: str) -> Counter[tuple[str, ...]]:
        """Counts grouped by some of user, user_agent, verb, resource, subresource."""
        order = ("user", "user_agent", "verb", "resource", "subresource")
        positions = [order.index(each) for each in fields]
        grouped: Counter[tuple[str, ...]] = Counter()
        for key, count in self._counts.items():
            grouped[tuple(key[position] for position in positions)] += count
        return grouped

    def find(self, **wanted: object) -> list[RequestRecord]:
        """The kept records whose attributes equal what is given."""
        return [
            record
            for record in self._records
            if all(getattr(record, key) == value for key, value in wanted.items())
        ]

    def writes(self) -> list[RequestRecord]:
        """The kept records of requests that change something."""
        return [record for record in self._records if record.verb not in _READS]

    def clear(self) -> None:
        self._records.clear()
        self._counts.clear()

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)


_READS = frozenset({"get", "list", "watch", "head"})
