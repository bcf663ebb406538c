"""Leader election by Lease, as every Kubernetes controller understands it.

A candidate takes the lease when nobody holds it, or when it has not seen the holder renew it for
the lease's duration. Only its own clock counts: the times written in the lease inform people.
Every write carries the ``resourceVersion`` of what the decision was made on.

The holder gives up when it could not renew for ``renew_deadline``, counted on the loop's time from
the moment the last successful renewal was *sent*. Others count the longer ``lease_duration`` from a
later moment (when they saw that renewal), so the old leader has stopped before a new one starts.
"""

from __future__ import annotations

import asyncio
import math
import random as random_
import socket
import uuid
from dataclasses import dataclass
from typing import NoReturn, Protocol

import msgspec
import structlog

from arc_controller.runtime.client import Reader, Writer
from arc_controller.runtime.clock import Now, micro_time, utc_now
from arc_controller.runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    MalformedAnswer,
    NotFound,
    Status,
    TransportError,
)
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import KubeObject, NamespacedName, ObjectMeta, Wire
from arc_controller.runtime.scheme import Resource, Scheme

log = structlog.get_logger(__name__)

JITTER = 0.2


class LeadershipLost(Exception):
    """This process is not the leader any more; it must not write and should end."""


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """Which lease is competed for, and how. Durations are in seconds.

    Raises `ValueError` unless ``lease_duration > renew_deadline > retry_period``, with room for the
    jitter of the latter.
    """

    name: str
    namespace: str
    identity: str = ""
    """Who we are; a host name and a UUID unless given. Must be unique."""
    lease_duration: float = 15.0
    """Others take the lease when they have not seen it renewed for that long."""
    renew_deadline: float = 10.0
    """We give up when we could not renew it for that long."""
    retry_period: float = 2.0
    """How often it is renewed, or tried to be taken."""

    def __post_init__(self) -> None:
        if not self.name or not self.namespace:
            raise ValueError(
                f"leader election needs a lease name and a namespace, not {self.name!r} "
                f"and {self.namespace!r}"
            )
        if not self.lease_duration > self.renew_deadline > self.retry_period * (1 + JITTER) > 0:
            raise ValueError(
                f"leader election: lease_duration ({self.lease_duration} s) must exceed "
                f"renew_deadline ({self.renew_deadline} s), and that the retry_period "
                f"({self.retry_period} s) by a fifth at least"
            )


class LeaseSpec(Wire):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(KubeObject):
    """https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/"""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


def lease_scheme() -> Scheme:
    """A scheme that knows leases, for the client of a `LeaderElector`."""
    scheme = Scheme()
    scheme.register(Lease, Resource("coordination.k8s.io", "v1", "Lease", "leases"))
    return scheme


class LeaseClient(Reader, Writer, Protocol):
    """What the elector needs: an uncached client whose scheme knows `Lease`."""


class LeaderElector:
    """`acquire`; `hold` until it raises `LeadershipLost`; `release` when all work has ended."""

    def __init__(
        self,
        client: LeaseClient,
        election: LeaderElection,
        *,
        now: Now = utc_now,
        random: random_.Random | None = None,
        metrics: RuntimeMetrics | None = None,
    ) -> None:
        self._client = client
        self._election = election
        self._now = now
        self._random = random or random_.Random()
        self._metrics = metrics
        self._key = NamespacedName(election.namespace, election.name)
        # Not from `random`: two candidates with the same seed must still be two.
        self.identity = election.identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._is_leader = False
        self._lease: Lease | None = None  # as last seen; None: to be read again
        self._seen: LeaseSpec | None = None  # the last content that differed ...
        self._seen_at = 0.0  # ... and when, on our clock
        self._renewed_at = 0.0  # when our last successful write was sent
        self._report(False)

    @property
    def is_leader(self) -> bool:
        return self._is_leader

    @property
    def holder(self) -> str:
        """Who held the lease when it was last looked at; empty if nobody did."""
        return self._seen.holder_identity if self._seen is not None else ""

    async def acquire(self) -> None:
        """Wait until we are the leader.

        API errors are logged and tried again. After a cancellation the lease may be ours: the
        answer to a write may have been lost. `release` finds out.
        """
        election = self._election
        while not await self._attempt(election.renew_deadline):
            await asyncio.sleep(election.retry_period * (1 + self._random.uniform(0, JITTER)))
        self._is_leader = True
        self._report(True)
        log.info("became the leader", lease=str(self._key), identity=self.identity)

    async def hold(self) -> NoReturn:
        """Renew the lease until that fails for too long: raises `LeadershipLost`."""
        election, loop = self._election, asyncio.get_running_loop()
        next_attempt = self._renewed_at + election.retry_period
        try:
            while True:
                async with asyncio.timeout_at(self._renewed_at + election.renew_deadline):
                    await asyncio.sleep(next_attempt - loop.time())
                    # Half the deadline, so that one request that hangs is not the end.
                    was_renewed = await self._attempt(election.renew_deadline / 2)
                # From the sending of a good one: slow answers must not eat up the deadline.
                since = self._renewed_at if was_renewed else loop.time()
                next_attempt = since + election.retry_period
        except TimeoutError:
            raise LeadershipLost(
                f"lease {self._key} could not be renewed for {election.renew_deadline:g} s"
            ) from None
        finally:
            self._is_leader = False
            self._report(False)

    async def release(self) -> None:
        """Let another candidate take the lease at once. Does nothing if it is not ours.

        To be called when nothing works on the strength of the lease any more. Raises `ApiError` or
        `TransportError`; the lease then runs out by itself.
        """
        lease = await self._client.find(Lease, self._key)
        if lease is None or lease.spec.holder_identity != self.identity:
            return
        lazy = LazyCopy(lease)
        now = micro_time(self._now())
        spec = lazy.mutate().spec
        spec.holder_identity = ""
        spec.lease_duration_seconds = 1
        spec.acquire_time = spec.renew_time = now
        await lazy.patch(self._client)
        log.info("released the lease", lease=str(self._key), identity=self.identity)

    async def _attempt(self, timeout: float) -> bool:
        """Try once to take or renew the lease. Raises `LeadershipLost` if it is not ours."""
        try:
            async with asyncio.timeout(timeout):
                return await self._take_or_renew()
        except (ApiError, TransportError, TimeoutError) as error:
            self._lease = None
            log.warning(
                "the lease could not be read or written",
                lease=str(self._key),
                error=str(error) or f"no answer in {timeout:g} s",
            )
            return False

    async def _take_or_renew(self) -> bool:
        if self._is_leader and self._lease is not None:
            try:
                return await self._write(self._lease)
            except (Conflict, NotFound):
                self._lease = None  # it is not as we left it: look
        lease = await self._client.find(Lease, self._key)
        if lease is None:
            return await self._create()
        self._observe(lease.spec)
        if self._is_leader and self.holder != self.identity:
            raise LeadershipLost(f"lease {self._key} is held by {self.holder or 'nobody'} now")
        if not self._may_take(lease.spec):
            return False
        try:
            return await self._write(lease)
        except (Conflict, NotFound):
            return False  # another candidate was faster

    def _may_take(self, spec: LeaseSpec) -> bool:
        if spec.holder_identity in ("", self.identity):
            return True
        duration = spec.lease_duration_seconds or self._election.lease_duration
        return asyncio.get_running_loop().time() >= self._seen_at + duration

    def _observe(self, spec: LeaseSpec) -> None:
        if spec != self._seen:
            self._seen, self._seen_at = spec, asyncio.get_running_loop().time()

    async def _create(self) -> bool:
        now = micro_time(self._now())
        lease = Lease(
            metadata=ObjectMeta(namespace=self._key.namespace, name=self._key.name),
            spec=LeaseSpec(
                holder_identity=self.identity,
                lease_duration_seconds=self._duration_seconds,
                acquire_time=now,
                renew_time=now,
            ),
        )
        sent = asyncio.get_running_loop().time()
        try:
            self._renewed(await self._client.create(lease), sent)
        except AlreadyExists:
            return False
        return True

    async def _write(self, lease: Lease) -> bool:
        if not lease.metadata.resource_version:
            message = "the lease has no resourceVersion, so nobody can be kept from taking it, too"
            raise MalformedAnswer(Status(message=message), f"lease {self._key}")
        lazy = LazyCopy(lease)
        spec = lazy.mutate().spec
        spec.renew_time = micro_time(self._now())
        spec.lease_duration_seconds = self._duration_seconds
        if spec.holder_identity != self.identity:
            spec.holder_identity = self.identity
            spec.acquire_time = spec.renew_time
            spec.lease_transitions += 1
        sent = asyncio.get_running_loop().time()
        await lazy.patch(self._client)
        self._renewed(lazy.obj, sent)
        return True

    def _renewed(self, lease: Lease, sent: float) -> None:
        self._lease, self._renewed_at = lease, sent
        self._observe(lease.spec)

    @property
    def _duration_seconds(self) -> int:
        return math.ceil(self._election.lease_duration)

    def _report(self, is_leader: bool) -> None:
        if self._metrics is not None:
            self._metrics.set_leader(self._election.name, is_leader)
