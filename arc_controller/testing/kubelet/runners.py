"""A runner's process: connects with its JIT configuration, takes one job, runs it, exits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from arc_controller.testing.actions import (
    ConnectionReset,
    FakeActionsService,
    RunnerBusyElsewhere,
    RunnerConnection,
    RunnerRemoved,
    RunnerVersionRefused,
)
from arc_controller.testing.kubelet.behaviour import PodBehaviour
from arc_controller.testing.kubelet.container import TERMINATED, Exit, Say

TOO_OLD: Final = 7
RECONNECT: Final = 5.0
SESSION_CONFLICT: Final = 30.0


class RunnerProcess:
    """Plays the runner whose JIT configuration ``read_jit_config`` returns.

    Its exit codes are those of the runner image: 0 after its job, and when it finds itself removed;
    7 when the service takes it for too old; 1 when the configuration is none.
    """

    def __init__(
        self,
        service: FakeActionsService,
        read_jit_config: Callable[[], Awaitable[str]],
        behaviour: PodBehaviour,
    ) -> None:
        self._service = service
        self._read_jit_config = read_jit_config
        self._behaviour = behaviour
        self._terminated = asyncio.Event()

    def terminate(self) -> None:
        self._terminated.set()

    async def run(self, say: Say) -> Exit:
        if not self._behaviour.connects:
            code = self._behaviour.exit_code
            return Exit(1 if code is None else code)
        work = asyncio.create_task(self._work(say))
        term = asyncio.create_task(self._terminated.wait())
        try:
            await asyncio.wait([work, term], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            say("Exiting...")
            await asyncio.wait([work], timeout=self._behaviour.terminates_in)
            return work.result() if work.done() else Exit(TERMINATED)
        finally:
            for task in (work, term):
                task.cancel()
            await asyncio.gather(work, term, return_exceptions=True)

    async def _work(self, say: Say) -> Exit:
        if self._behaviour.connects_after is not None:
            await self._behaviour.connects_after.wait()
        try:
            connection = await self._connect(say)
        except RunnerRemoved:
            say("The runner registration has been deleted from the server")
            return Exit(0)
        except RunnerVersionRefused as refused:
            say(str(refused))
            return Exit(TOO_OLD)
        except ValueError:
            say("The JIT configuration cannot be read")
            return Exit(1)
        try:
            return await self._take_a_job(connection, say)
        finally:
            connection.go_offline()  # after its job it is gone anyway, and this does nothing

    async def _connect(self, say: Say) -> RunnerConnection:
        jit_config = await self._read_jit_config()
        while True:
            try:
                connection = self._service.runner_online(jit_config)
            except ConnectionReset:
                say("Cannot reach the service, trying again")
                await asyncio.sleep(RECONNECT)
            except RunnerBusyElsewhere:
                say("A session for this runner already exists, trying again")
                await asyncio.sleep(SESSION_CONFLICT)
            else:
                say("√ Connected to GitHub")
                say("Listening for Jobs")
                return connection

    async def _take_a_job(self, connection: RunnerConnection, say: Say) -> Exit:
        try:
            job = await connection.wait_for_job()
        except RunnerRemoved:
            say("The runner registration has been deleted from the server")
            return Exit(0)
        say(f"Running job: {job.display_name}")
        result = await connection.run(job)
        say(f"Job {job.display_name} completed with result: {result}")
        code = self._behaviour.exit_code
        return Exit(0 if code is None else code)
