"""One HTTP session to the API server: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """What `ApiClient` and the reflector need of the network. Simulations replace it."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """One call, any status. Raises `TransportError` when there was no answer."""

    def stream(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A watch: entering sends the request, iterating yields one line (one event) each.

        Entering raises `ApiError` when the server refuses; iterating raises `TransportError` when
        the connection breaks and ends when the server ends the stream. Leaving closes it.
        """

    async def close(self) -> None: ...
