"""Faults on demand: which call goes wrong, how, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from arc_controller.actions import HttpRequest

from .calls import Call

Kind = Literal["fail", "delay", "truncate", "empty", "cut", "reset", "bom", "ignore"]


@dataclass(eq=False, slots=True, kw_only=True)
class Fault:
    """One rule. ``hits`` counts how often it struck; :meth:`stop` ends it."""

    kind: Kind
    calls: frozenset[Call] | None
    times: int | None = 1
    when: Callable[[HttpRequest], bool] | None = None
    probability: float = 1.0
    after: float = 0.0
    after_effect: bool = False
    status: int = 500
    type_name: str = ""
    message: str = ""
    retry_after: float | None = None
    keep: float = 0.5
    hits: int = field(default=0)

    def stop(self) -> None:
        self.times = 0


class Faults:
    """The rules in force. All methods that add one take

    - ``call``: a name, several, or ``"*"`` for all;
    - ``times``: how often it strikes, None for always;
    - ``when``: a predicate on the request;
    - ``probability``: drawn from the service's own random numbers.

    Of rules that replace the answer only the first that matches strikes; delays add up.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._rules: list[Fault] = []

    def fail(
        self,
        *call: str,
        status: int = 500,
        type_name: str = "",
        message: str = "the service is not well",
        times: int | None = 1,
        when: Callable[[HttpRequest], bool] | None = None,
        probability: float = 1.0,
        retry_after: float | None = None,
        after_effect: bool = False,
    ) -> Fault:
        """Answer with an error; with ``after_effect`` only after the call did its work."""
        return self._add(
            Fault(
                kind="fail",
                calls=_calls(call),
                times=times,
                when=when,
                probability=probability,
                status=status,
                type_name=type_name,
                message=message,
                retry_after=retry_after,
                after_effect=after_effect,
            )
        )

    def delay(
        self,
        *call: str,
        seconds: float,
        times: int | None = 1,
        when: Callable[[HttpRequest], bool] | None = None,
        probability: float = 1.0,
        after_effect: bool = False,
    ) -> Fault:
        """Answer only after ``seconds`` of the loop's time."""
        return self._add(
            Fault(
                kind="delay",
                calls=_calls(call),
                times=times,
                when=when,
                probability=probability,
                after=seconds,
                after_effect=after_effect,
            )
        )

    def reset(
        self,
        *call: str,
        after: float = 0.0,
        times: int | None = 1,
        when: Callable[[HttpRequest], bool] | None = None,
        probability: float = 1.0,
        after_effect: bool = False,
    ) -> Fault:
        """Break the connection, ``after`` so many seconds."""
        return self._add(
            Fault(
                kind="reset",
                calls=_calls(call),
                times=times,
                when=when,
                probability=probability,
                after=after,
                after_effect=after_effect,
            )
        )

    def truncate(
        self, *call: str, keep: float = 0.5, times: int | None = 1, connection: bool = False
    ) -> Fault:
        """Send only a part of the body; with ``connection`` announce the whole and hang up."""
        return self._add(
            Fault(
                kind="cut" if connection else "truncate",
                calls=_calls(call),
                times=times,
                keep=keep,
                after_effect=True,
            )
        )

    def empty(self, *call: str, times: int | None = 1) -> Fault:
        """Do the work and answer 200 with nothing."""
        return self._add(Fault(kind="empty", calls=_calls(call), times=times, after_effect=True))

    def byte_order_mark(self, *call: str, times: int | None = None) -> Fault:
        """Begin bodies, those of errors too, with a byte order mark."""
        return self._add(Fault(kind="bom", calls=_calls(call), times=times, after_effect=True))

    def ignore(self, *call: str, times: int | None = 1) -> Fault:
        """Answer 204 and do nothing: an acknowledgement that is lost."""
        return self._add(Fault(kind="ignore", calls=_calls(call), times=times))

    def clear(self) -> None:
        """End all rules."""
        for rule in self._rules:
            rule.stop()
        self._rules.clear()

    def strike(self, call: Call, request: HttpRequest) -> tuple[list[Fault], Fault | None]:
        """Take the rules that apply to this request: delays and marks, and at most one that
        replaces the answer."""
        with_it: list[Fault] = []
        instead: Fault | None = None
        for rule in self._rules:
            mild = rule.kind in {"delay", "bom"}
            if not mild and instead is not None:
                continue
            if not self._applies(rule, call, request):
                continue
            rule.hits += 1
            if rule.times is not None:
                rule.times -= 1
            if mild:
                with_it.append(rule)
            else:
                instead = rule
        self._rules = [rule for rule in self._rules if rule.times != 0]
        return with_it, instead

    def _applies(self, rule: Fault, call: Call, request: HttpRequest) -> bool:
        return (
            rule.times != 0
            and (rule.calls is None or call in rule.calls)
            and (rule.when is None or rule.when(request))
            and (rule.probability >= 1.0 or self._random.random() < rule.probability)
        )

    def _add(self, rule: Fault) -> Fault:
        self._rules.append(rule)
        return rule


def _calls(names: tuple[str, ...]) -> frozenset[Call] | None:
    if not names:
        raise ValueError('name at least one call, or "*" for all')
    return None if "*" in names else frozenset(Call(name) for name in names)
