"""A scale set's messages, read under a session that renews its own token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .client import ActionsClient
from .errors import MessageQueueTokenExpired
from .renewal import SharedCall
from .types import Message, MessageSession, RunnerScaleSetStatistic

T = TypeVar("T")


class MessageQueue:
    """An open session and the calls made under it.

    An expired queue token is renewed once, for all callers together, and the call made once more;
    if it is refused again, :class:`MessageQueueTokenExpired` reaches the caller. Errors are those
    of the :class:`ActionsClient`; :class:`SessionNotFound` means that a new queue must be opened.
    """

    def __init__(self, client: ActionsClient, scale_set_id: int, session: MessageSession) -> None:
        self.scale_set_id = scale_set_id
        self.session = session
        self._client = client
        self._renewal = SharedCall(self._renew)

    @classmethod
    async def open(cls, client: ActionsClient, scale_set_id: int, owner: str) -> MessageQueue:
        """Open a session. Raises :class:`SessionConflict` while another one is open."""
        session = await client.create_message_session(scale_set_id, owner)
        return cls(client, scale_set_id, session)

    @property
    def statistics(self) -> RunnerScaleSetStatistic | None:
        """The statistics that came with the session, or with its last renewal."""
        return self.session.statistics

    def __repr__(self) -> str:
        return f"MessageQueue(scale set {self.scale_set_id}, session {self.session.session_id})"

    async def get_message(self, last_message_id: int, max_capacity: int) -> Message | None:
        """See :meth:`ActionsClient.get_message`."""
        return await self._with_session(
            lambda session: self._client.get_message(session, last_message_id, max_capacity)
        )

    async def delete_message(self, message_id: int) -> None:
        """See :meth:`ActionsClient.delete_message`."""
        await self._with_session(lambda session: self._client.delete_message(session, message_id))

    async def acquire_jobs(self, request_ids: Sequence[int]) -> list[int]:
        """See :meth:`ActionsClient.acquire_jobs`."""
        return await self._with_session(
            lambda session: self._client.acquire_jobs(self.scale_set_id, session, request_ids)
        )

    async def refresh(self) -> MessageSession:
        """Renew the session now; shared with whoever else is renewing it."""
        return await self._renewal()

    async def close(self) -> None:
        """Close the session, so that a successor is not refused. May be called more than once."""
        await self._renewal.aclose()
        await self._client.delete_message_session(self.scale_set_id, self.session.session_id)

    async def _with_session(self, call: Callable[[MessageSession], Awaitable[T]]) -> T:
        session = self.session
        try:
            return await call(session)
        except MessageQueueTokenExpired:
            if self.session is session:
                await self._renewal()
        return await call(self.session)

    async def _renew(self) -> MessageSession:
        self.session = await self._client.refresh_message_session(
            self.scale_set_id, self.session.session_id
        )
        return self.session
