"""Why a listener ends by itself: each says what to do about it."""

from __future__ import annotations


class ListenerError(Exception):
    """Something that does not heal by waiting."""


class ScaleSetGone(ListenerError):
    """The service does not know the scale set any more."""


class SessionNeverReleased(ListenerError):
    """Another listener has held the scale set's message session for as long as we waited."""


class ServiceRefused(ListenerError):
    """The service has refused us for as long as we waited: credentials or permissions."""
