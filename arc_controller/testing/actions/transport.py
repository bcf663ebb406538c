"""The client's network without a network: requests go straight to the service."""

from __future__ import annotations

from arc_controller.actions import ConnectionFailed, HttpRequest, HttpResponse

from .calls import ConnectionReset, CutResponse
from .service import FakeActionsService


class InProcessTransport:
    """An :class:`~arc_controller.actions.HttpTransport` that ends in a fake service."""

    def __init__(self, service: FakeActionsService) -> None:
        self._service = service

    async def send(self, request: HttpRequest) -> HttpResponse:
        try:
            response = await self._service.handle(request)
        except ConnectionReset:
            raise ConnectionFailed(
                request.method, request.url, "the connection was reset"
            ) from None
        if isinstance(response, CutResponse):
            raise ConnectionFailed(
                request.method, request.url, "the connection broke in the middle of the answer"
            )
        return response

    async def aclose(self) -> None:
        """Nothing is open."""
