"""Draws a plan from a seed: a workload, and what goes wrong meanwhile."""

from __future__ import annotations

from random import Random
from typing import Any, Final, get_args

from arc_controller.testing.simulation import plan as p

MINUTE: Final = 60.0
NAMES: Final = ("linux", "gpu")

_EDITS: Final[tuple[Any, ...]] = (
    "image",
    "image",
    "limits",
    "metadata",
    "runner-metadata",
    "proxy",
    "group",
    "label",
)
_CALLS: Final = (
    "registration_token",
    "register",
    "find_scale_set",
    "create_scale_set",
    "update_scale_set",
    "delete_scale_set",
    "generate_jit_config",
    "generate_jit_config",
    "find_runner",
    "remove_runner",
    "remove_runner",
    "create_session",
    "refresh_session",
    "delete_session",
    "get_message",
    "get_message",
    "delete_message",
    "acquire_jobs",
)
_KINDS: Final = (
    "autoscalinglisteners.actions.github.com",
    "ephemeralrunnersets.actions.github.com",
    "ephemeralrunners.actions.github.com",
    "ephemeralrunners.actions.github.com",
    "secrets",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "serviceaccounts",
)
_LABELLED: Final = (
    "autoscalingrunnersets.actions.github.com",
    "ephemeralrunnersets.actions.github.com",
    "ephemeralrunners.actions.github.com",
    "ephemeralrunners.actions.github.com",
    "pods",
)
_CACHED: Final = ("ephemeralrunners", "ephemeralrunnersets", "pods", "autoscalingrunnersets")


def draw(seed: int) -> p.Plan:
    """The plan of a seed: always the same one."""
    return _Draw(seed).plan()


class _Draw:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"plan {seed}")
        self.length = self.random.choice((10, 10, 20, 40, 60, 240)) * MINUTE
        self.managers = 2 if self.random.random() < 0.35 else 1
        self.names = NAMES[: 1 + (self.random.random() < 0.5)]
        self.hot = [
            self.random.uniform(20.0, self.length) for _ in range(self.random.randint(1, 3))
        ]
        # A seed is about a few kinds of faults: with all of them at once nothing gets far.
        self.troubled = {
            "api": self._chance(0.45),
            "watches": self._chance(0.4),
            "stale": self._chance(0.25),
            "pods": self._chance(0.5),
            "service": self._chance(0.45),
            "processes": self._chance(0.5),
            "users": self._chance(0.5),
            "clock": self._chance(0.15),
            "leaders": self._chance(0.1),
        }

    def plan(self) -> p.Plan:
        actions: list[Any] = [*self._workload()]
        for kind, strikes in self.troubled.items():
            if strikes:
                actions += getattr(self, f"_{kind}")()
        actions.sort(key=lambda action: action.at)
        return p.Plan(
            seed=self.seed, length=self.length, managers=self.managers, actions=tuple(actions)
        )

    # --- small draws

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _at(self) -> float:
        """Troubles come together more often than not: that is where they are interesting."""
        first, last = 2.0, self.length - 5.0
        at = self.random.uniform(first, last)
        if self._chance(0.6):
            at = self.random.choice(self.hot) + self.random.gauss(0.0, 15.0)
        return round(min(max(at, first), last), 3)

    def _lasting(self, shortest: float, longest: float) -> dict[str, Any]:
        """``at`` and ``lasts`` of a fault that is over in time."""
        at = self._at()
        lasts = min(self.random.uniform(shortest, longest), self.length - at)
        return {"at": at, "lasts": round(lasts, 3)}

    def _some(self, least: int, most: int) -> range:
        return range(self.random.randint(least, most))

    def _name(self) -> str:
        return self.random.choice(self.names)

    def _rate(self) -> float:
        return round(self.random.choice((0.05, 0.2, 0.5, 0.9)), 2)

    def _pick(self) -> float:
        return round(self.random.random(), 3)

    def _limits(self) -> dict[str, Any]:
        most = self.random.choice((1, 2, 3, 5, 8))
        return {"least": self.random.choice((0, 0, 0, 1, min(2, most))), "most": most}

    # --- the workload

    def _workload(self) -> list[Any]:
        random = self.random
        actions: list[Any] = [
            p.CreateScaleSet(
                at=round(random.uniform(0.0, 3.0), 3),
                name=name,
                proxy=self._chance(0.3),
                **self._limits(),
            )
            for name in self.names
        ]
        for _ in self._some(3, 9):
            actions.append(
                p.QueueJobs(
                    at=self._at(),
                    name=self._name(),
                    count=random.randint(1, 6),
                    duration=round(random.expovariate(1 / 60), 1),
                    direct=self._chance(0.2),
                )
            )
        if self._chance(0.3):
            actions.append(p.CancelJobs(at=self._at(), count=random.randint(1, 4)))
        return actions

    def _users(self) -> list[Any]:
        random = self.random
        actions: list[Any] = []
        for _ in self._some(1, 4):
            what = random.choice(_EDITS)
            actions.append(p.Edit(at=self._at(), name=self._name(), what=what, **self._limits()))
        for _ in self._some(0, 2):
            resource = random.choice(_KINDS)
            actions.append(p.DeleteObject(at=self._at(), resource=resource, pick=self._pick()))
        for _ in self._some(0, 4):
            resource = random.choice(_LABELLED)
            actions.append(p.LabelObject(at=self._at(), resource=resource, pick=self._pick()))
        if self._chance(0.3):
            name, at = self._name(), self._at()
            again = min(at + random.uniform(10.0, 300.0), self.length - 1.0)
            actions.append(p.DeleteScaleSet(at=at, name=name))
            actions.append(p.CreateScaleSet(at=round(again, 3), name=name, **self._limits()))
        if self._chance(0.3):
            at = self._at()
            gap = min(random.choice((0.0, 30.0, 600.0)), self.length - at)
            actions.append(p.RotateCredentials(at=at, gap=gap))
        if self._chance(0.2):
            actions.append(p.RotateProxyPassword(at=self._at()))
        if self._chance(0.25):
            actions.append(p.OutdatedVersion(**self._lasting(10.0, 600.0)))
        return actions

    # --- faults

    def _api(self) -> list[Any]:
        random = self.random
        actions: list[Any] = []
        kinds: Any = (
            "before",
            "after",
            "refused",
            "failed",
            "conflict",
            "throttled",
            "slow",
            "hang",
        )
        for _ in self._some(1, 4):
            actions.append(
                p.ApiTrouble(
                    **self._lasting(5.0, 600.0),
                    who=random.choice(get_args(p.Who)),
                    how=random.choice(kinds),
                    rate=self._rate(),
                    seconds=random.choice((1.0, 5.0, 20.0)),
                )
            )
        for _ in self._some(0, 1):
            who = random.choice(get_args(p.Who))
            actions.append(p.ApiOutage(**self._lasting(1.0, 300.0), who=who))
        if self._chance(0.3):
            actions.append(p.Quota(**self._lasting(30.0, 1200.0), pods=random.randint(0, 3)))
        return actions

    def _watches(self) -> list[Any]:
        random = self.random
        actions: list[Any] = []
        for _ in self._some(1, 3):
            how: Any = random.choice(("break", "gone", "late"))
            seconds = random.choice((0.5, 5.0, 60.0)) if how == "late" else 0.0
            rate = 0.0 if how == "late" else self._rate()
            lasts = self._lasting(5.0, 900.0)
            actions.append(p.WatchTrouble(**lasts, how=how, rate=rate, seconds=seconds))
        for _ in self._some(0, 3):
            kind = random.choice((p.BreakWatches, p.CompactHistory))
            actions.append(kind(at=self._at()))
        return actions

    def _stale(self) -> list[Any]:
        random = self.random
        actions: list[Any] = []
        for _ in self._some(1, 2):
            some = tuple(kind for kind in _CACHED if self._chance(0.5))
            index = random.choice((-1, 0, 1)) if self.managers == 2 else -1
            fault = p.StaleCache(**self._lasting(30.0, 10_800.0), resources=some, index=index)
            actions.append(fault)
            if self._chance(0.5):
                # The other one takes over, with what it has seen of the world.
                at = round(random.uniform(fault.at, fault.at + min(fault.lasts, 600.0)), 3)
                requests, other = random.choice((0, 1, 3)), 1 if index == 0 else 0
                down = random.choice((5.0, 120.0))
                actions.append(p.KillManager(at=at, index=other, requests=requests, down=down))
        return actions

    def _pods(self) -> list[Any]:
        random = self.random
        actions: list[Any] = []
        for _ in self._some(0, 2):
            share = random.choice((0.1, 0.3, 0.7, 1.0))
            stuck = random.choice((0.0, 0.0, 0.2))
            lasts = self._lasting(30.0, 1200.0)
            same: dict[str, Any] = {}
            if self._chance(0.3):
                same = {
                    "code": random.choice((0, 1, 7, 137)),
                    "seconds": random.choice((0.0, 5.0, 60.0)),
                }
            actions.append(p.PodTrouble(**lasts, share=share, stuck=stuck, **same))
        for _ in self._some(0, 6):
            kind: Any = random.choice(("runner", "runner", "runner", "listener"))
            how: Any = random.choice(("kill", "drain", "force"))
            actions.append(p.HurtPod(at=self._at(), kind=kind, how=how, pick=self._pick()))
        return actions

    def _service(self) -> list[Any]:
        random = self.random
        actions: list[Any] = []
        ways: Any = ("fail", "fail-after", "reset", "reset-after", "delay", "truncate", "empty")
        for _ in self._some(1, 3):
            calls = ("*",) if self._chance(0.3) else tuple({random.choice(_CALLS): None})
            how = random.choice(ways)
            if how in ("truncate", "empty") and calls == ("*",):
                how = "reset"
            actions.append(
                p.ServiceTrouble(
                    **self._lasting(5.0, 900.0),
                    calls=calls,
                    how=how,
                    rate=self._rate(),
                    status=random.choice((500, 502, 503, 429, 401, 403)),
                    seconds=random.choice((1.0, 30.0, 200.0)),
                )
            )
        for _ in self._some(0, 1):
            actions.append(p.ServiceOutage(**self._lasting(5.0, 900.0)))
        events = (
            "expire-admin-tokens",
            "expire-queue-tokens",
            "expire-session",
            "reset-polls",
            "redeliver",
            "lose-messages",
            "lose-acknowledgement",
        )
        for _ in self._some(0, 4):
            what: Any = random.choice(events)
            actions.append(p.ServiceEvent(at=self._at(), what=what, name=self._name()))
        if self._chance(0.2):
            actions.append(p.ForgetScaleSet(at=self._at(), name=self._name()))
        if self._chance(0.2):
            actions.append(p.StrangeSession(**self._lasting(10.0, 500.0), name=self._name()))
        return actions

    def _processes(self) -> list[Any]:
        random = self.random
        actions: list[Any] = []
        for _ in self._some(1, 5):
            at, index = self._at(), random.randrange(2)
            down = min(random.choice((0.1, 1.0, 20.0, 600.0)), self.length - at)
            if self._chance(0.75):
                requests = random.choice((0, 1, 1, 2, 3, 5, 8, 13))
                effect = self._chance(0.5)
                actions.append(
                    p.KillManager(at=at, index=index, requests=requests, effect=effect, down=down)
                )
            else:
                actions.append(p.StopManager(at=at, index=index, down=down))
        for _ in self._some(0, 3):
            requests, effect = random.choice((0, 1, 1, 2)), self._chance(0.5)
            pick = self._pick()
            actions.append(
                p.KillListener(at=self._at(), pick=pick, requests=requests, effect=effect)
            )
        return actions

    def _clock(self) -> list[Any]:
        jumps = (-7200.0, -600.0, -30.0, 30.0, 600.0, 7200.0, 86_400.0)
        return [
            p.ClockJump(at=self._at(), seconds=self.random.choice(jumps)) for _ in self._some(1, 3)
        ]

    def _leaders(self) -> list[Any]:
        if self._chance(0.5):
            return [p.SecondLeader(**self._lasting(30.0, 600.0))]
        seconds = self.random.choice((5.0, 30.0, 90.0))
        return [p.HeldWrites(**self._lasting(30.0, 600.0), seconds=seconds)]
