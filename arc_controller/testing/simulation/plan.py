"""What happens in a simulation, as data: a list of actions with their times.

A plan is drawn from a seed (`arc_controller.testing.simulation.draw`), can be written down as JSON,
and can be made shorter: every sublist of its actions is a plan, too.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Who: TypeAlias = Literal["manager", "listener", "*"]


class Action(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Something that happens ``at`` so many seconds of simulated time."""

    at: float

    def __str__(self) -> str:
        values = [
            f"{name}={getattr(self, name)!r}"
            for name, default in zip(self.__struct_fields__, _defaults(type(self)), strict=True)
            if name != "at" and getattr(self, name) != default
        ]
        return f"{self.at:8.1f}  {type(self).__name__}({', '.join(values)})"


class Fault(Action, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A fault that ``lasts`` so many seconds."""

    lasts: float


# --- what users do --------------------------------------------------------------------------------


class CreateScaleSet(Action, frozen=True, kw_only=True, tag=True):
    name: str
    least: int = 0
    most: int = 3
    proxy: bool = False
    group: str = ""


class DeleteScaleSet(Action, frozen=True, kw_only=True, tag=True):
    name: str


class QueueJobs(Action, frozen=True, kw_only=True, tag=True):
    """``direct`` jobs are assigned without being offered first."""

    name: str
    count: int
    duration: float
    direct: bool = False


class CancelJobs(Action, frozen=True, kw_only=True, tag=True):
    """Cancel so many of the jobs that are not over, wherever they are."""

    count: int


class Edit(Action, frozen=True, kw_only=True, tag=True):
    """A user changes a scale set: a newer runner image, other limits, metadata …"""

    name: str
    what: Literal[
        "image", "limits", "metadata", "runner-metadata", "proxy", "group", "label", "url"
    ]
    least: int = 0
    most: int = 3


class RotateCredentials(Action, frozen=True, kw_only=True, tag=True):
    """The old token is revoked; the secret gets the new one ``gap`` seconds later."""

    gap: float


class RotateProxyPassword(Action, frozen=True, kw_only=True, tag=True):
    pass


class DeleteObject(Action, frozen=True, kw_only=True, tag=True):
    """Somebody deletes an object; ``pick`` (0 to 1) says which of those that there are."""

    resource: str
    pick: float


class LabelObject(Action, frozen=True, kw_only=True, tag=True):
    """Somebody labels an object: its resourceVersion moves on."""

    resource: str
    pick: float


class OutdatedVersion(Fault, frozen=True, kw_only=True, tag=True):
    """The service refuses the version of every runner that connects."""


# --- the cluster ----------------------------------------------------------------------------------


class ApiTrouble(Fault, frozen=True, kw_only=True, tag=True):
    """A share (``rate``) of requests goes wrong.

    ``before``, ``after``: no answer, without or with the write having taken effect; ``refused``,
    ``failed``: a 5xx, without and with effect; ``conflict``: a write is refused with 409;
    ``throttled``: 429; ``slow``: it takes up to ``seconds``; ``hang``: no answer for a long time.
    """

    who: Who
    how: Literal["before", "after", "refused", "failed", "conflict", "throttled", "slow", "hang"]
    rate: float
    seconds: float = 0.0


class ApiOutage(Fault, frozen=True, kw_only=True, tag=True):
    """No request gets through, and watches break."""

    who: Who


class WatchTrouble(Fault, frozen=True, kw_only=True, tag=True):
    """Events of watches are late by up to ``seconds``; a share (``rate``) of them breaks the
    stream and is dropped with it, or ends it with 410."""

    how: Literal["break", "gone", "late"]
    rate: float = 0.0
    seconds: float = 0.0


class StaleCache(Fault, frozen=True, kw_only=True, tag=True):
    """Watches of these resources (all when empty) bring nothing, and lists of them fail, while
    reads of single objects and writes go through: the manager's cache stays as it is. An ``index``
    of 0 or more says which manager's."""

    resources: tuple[str, ...] = ()
    index: int = -1


class BreakWatches(Action, frozen=True, kw_only=True, tag=True):
    pass


class CompactHistory(Action, frozen=True, kw_only=True, tag=True):
    """Whoever was disconnected before now gets a 410."""


class Quota(Fault, frozen=True, kw_only=True, tag=True):
    """At most so many pods in the runners' namespace."""

    pods: int


class PodTrouble(Fault, frozen=True, kw_only=True, tag=True):
    """A ``share`` of new runner pods goes wrong somehow, ``stuck`` of them never start while this
    lasts. With a ``code`` of 0 or more what goes wrong is always the same: the runner exits with it
    after so many ``seconds``."""

    share: float
    stuck: float = 0.0
    code: int = -1
    seconds: float = 0.0


class HurtPod(Action, frozen=True, kw_only=True, tag=True):
    """``kill``: SIGKILL for the main process; ``drain``: an eviction, with its grace period;
    ``force``: gone at once."""

    kind: Literal["runner", "listener"]
    how: Literal["kill", "drain", "force"]
    pick: float


# --- the Actions service --------------------------------------------------------------------------


class ServiceTrouble(Fault, frozen=True, kw_only=True, tag=True):
    """A share (``rate``) of these calls goes wrong; ``seconds`` is for ``delay``."""

    calls: tuple[str, ...]
    how: Literal["fail", "fail-after", "reset", "reset-after", "delay", "truncate", "empty"]
    rate: float
    status: int = 500
    type_name: str = ""
    seconds: float = 0.0


class ServiceOutage(Fault, frozen=True, kw_only=True, tag=True):
    pass


class ServiceEvent(Action, frozen=True, kw_only=True, tag=True):
    what: Literal[
        "expire-admin-tokens",
        "expire-queue-tokens",
        "expire-session",
        "reset-polls",
        "redeliver",
        "lose-messages",
        "lose-acknowledgement",
    ]
    name: str = ""


class ForgetScaleSet(Action, frozen=True, kw_only=True, tag=True):
    """The service removes the scale set, as it does when nobody listened for days."""

    name: str


class StrangeSession(Fault, frozen=True, kw_only=True, tag=True):
    """Somebody else holds the scale set's message session."""

    name: str


# --- our own processes ----------------------------------------------------------------------------


class KillManager(Action, frozen=True, kw_only=True, tag=True):
    """SIGKILL at its n-th request from now on, before or after that took effect (0: at once); it
    comes back ``down`` seconds later."""

    index: int
    requests: int = 0
    effect: bool = False
    down: float = 1.0


class StopManager(Action, frozen=True, kw_only=True, tag=True):
    """SIGTERM; a new one comes ``down`` seconds later."""

    index: int
    down: float = 1.0


class KillListener(Action, frozen=True, kw_only=True, tag=True):
    """SIGKILL of a listener at its n-th request to the API server from now on (0: at once)."""

    pick: float
    requests: int = 0
    effect: bool = False


class SecondLeader(Fault, frozen=True, kw_only=True, tag=True):
    """A manager that takes part in no election works, too."""


class HeldWrites(Fault, frozen=True, kw_only=True, tag=True):
    """Writes of managers travel for up to ``seconds``; they arrive whatever became of the
    sender."""

    seconds: float


class ClockJump(Action, frozen=True, kw_only=True, tag=True):
    """The wall clock of managers and listeners is set by so many seconds."""

    seconds: float


AnyAction: TypeAlias = (
    CreateScaleSet
    | DeleteScaleSet
    | QueueJobs
    | CancelJobs
    | Edit
    | RotateCredentials
    | RotateProxyPassword
    | DeleteObject
    | LabelObject
    | OutdatedVersion
    | ApiTrouble
    | ApiOutage
    | WatchTrouble
    | StaleCache
    | BreakWatches
    | CompactHistory
    | Quota
    | PodTrouble
    | HurtPod
    | ServiceTrouble
    | ServiceOutage
    | ServiceEvent
    | ForgetScaleSet
    | StrangeSession
    | KillManager
    | StopManager
    | KillListener
    | SecondLeader
    | HeldWrites
    | ClockJump
)

EXTRA_LEADERS = (SecondLeader, HeldWrites)
"""With these more than one leader acts, and there may be more runners than one asks for."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole simulation. ``length``: when the last fault is over, in seconds."""

    seed: int
    length: float
    managers: int = 1
    actions: tuple[AnyAction, ...] = ()

    def with_actions(self, actions: tuple[AnyAction, ...]) -> Plan:
        return msgspec.structs.replace(self, actions=actions)

    @property
    def extra_leaders(self) -> bool:
        """Whether there ever is more than one leader at a time."""
        return any(isinstance(action, EXTRA_LEADERS) for action in self.actions)

    def most_runners(self, name: str) -> int:
        """The largest maxRunners that the scale set ever has."""
        limits = [
            action.most
            for action in self.actions
            if (isinstance(action, CreateScaleSet) and action.name == name)
            or (isinstance(action, Edit) and action.name == name and action.what == "limits")
        ]
        return max(limits, default=0)

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Plan:
        """Raises `msgspec.ValidationError`."""
        return msgspec.json.decode(text, type=cls)

    def __str__(self) -> str:
        head = f"seed {self.seed}, {self.managers} manager(s), faults end at {self.length:g} s"
        return "\n".join([head, *(str(action) for action in self.actions)])


def _defaults(kind: type[Action]) -> list[object]:
    fields = msgspec.structs.fields(kind)
    return [field.default for field in fields]
