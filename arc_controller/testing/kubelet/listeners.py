"""A listener's process: the `Listener` object as a task here, or a real ``ghalistener`` process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec
import structlog

from arc_controller.actions import ActionsClient, ActionsError, HttpTransport
from arc_controller.api import SCHEME
from arc_controller.api.core import PodManifest
from arc_controller.listener import ConfigError, ListenerError, Patience, assemble, parse_config
from arc_controller.listener.process import CONFIG_PATH, open_actions_client
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.transport import Transport
from arc_controller.testing.kubelet.container import KILLED, Exit, Process, Say
from arc_controller.testing.wires import ActionsWire, Wire, end

TransportFor = Callable[[str, str], Transport]
"""(namespace, service account) → a transport that acts as that service account."""

log = structlog.get_logger(__name__)


class Listeners(Protocol):
    """Makes the process of a listener's pod."""

    def process(self, pod: PodManifest, config: bytes, environ: Mapping[str, str]) -> Process:
        """``config`` is the content of config.json, ``environ`` the container's environment."""


class ListenerTasks:
    """Listeners as tasks of this process: for tests and simulations.

    ``transport_for`` gives each one the API server as its own service account; ``actions`` is the
    network to the Actions service (None: the real one, over sockets). ``now`` is their wall clock.
    """

    def __init__(
        self,
        transport_for: TransportFor,
        actions: HttpTransport | None = None,
        *,
        patience: Patience | None = None,
        now: Now = utc_now,
        random: Random | None = None,
    ) -> None:
        self._transport_for = transport_for
        self._actions = actions
        self._patience = patience
        self._now = now
        self._random = random or Random()

    def process(self, pod: PodManifest, config: bytes, environ: Mapping[str, str]) -> Process:
        account = pod.spec.get("serviceAccountName", "default")
        return _ListenerTask(
            config,
            environ,
            owner=pod.metadata.name,
            transport=self._transport_for(pod.metadata.namespace, account),
            actions=self._actions,
            patience=self._patience,
            now=self._now,
            random=Random(self._random.getrandbits(64)),
        )


class _ListenerTask:
    def __init__(
        self,
        config: bytes,
        environ: Mapping[str, str],
        *,
        owner: str,
        transport: Transport,
        actions: HttpTransport | None,
        patience: Patience | None,
        now: Now,
        random: Random,
    ) -> None:
        self._config = config
        self._environ = environ
        self._owner = owner
        self._transport = Wire(transport)
        self._network = ActionsWire(actions) if actions is not None else None
        self._patience = patience
        self._now = now
        self._random = random
        self._work: asyncio.Task[Exit] | None = None
        self._stopping = False

    def terminate(self) -> None:
        self._stopping = True
        if self._work is not None:
            self._work.cancel()

    async def run(self, say: Say) -> Exit:
        if self._stopping:
            return Exit(0)
        say("the log of this listener is the log of the process that it is a task of")
        self._work = asyncio.create_task(self._listen())
        try:
            await asyncio.wait([self._work])
        except asyncio.CancelledError:
            await self._kill(self._work)
            raise
        if self._work.cancelled():
            return Exit(0 if self._stopping else KILLED)
        return self._work.result()

    async def _kill(self, work: asyncio.Task[Exit]) -> None:
        """SIGKILL: not another byte leaves."""
        self._transport.cut()
        if self._network is not None:
            self._network.cut()
        await end(work)

    async def _listen(self) -> Exit:
        try:
            config = parse_config(self._config)
            async with await self._client(config) as actions:
                listener = assemble(
                    config,
                    ApiClient(self._transport, SCHEME),
                    actions,
                    owner=self._owner,
                    patience=self._patience,
                    now=self._now,
                    random=self._random,
                )
                await listener.run()
        except ConfigError as error:
            return Exit(2, termination_message=str(error))
        except (ListenerError, ActionsError) as error:
            return Exit(1, termination_message=str(error))
        except Exception as error:
            log.exception("a listener crashed", listener=self._owner)
            return Exit(1, termination_message=f"{type(error).__name__}: {error}")
        finally:
            await self._transport.close()

    async def _client(self, config: Any) -> ActionsClient:
        if self._network is None:
            return await open_actions_client(config, self._environ)
        return ActionsClient(
            config.config_url,
            config.credentials(),
            transport=self._network,
            now=self._now,
            random=self._random,
        )


class ListenerProcesses:
    """Listeners as real processes, with their configuration in a temporary folder.

    ``kubeconfig`` makes the content of a kubeconfig file for (namespace, service account).
    """

    def __init__(
        self,
        kubeconfig: Callable[[str, str], Awaitable[Mapping[str, Any]]],
        *,
        command: Sequence[str] = (sys.executable, "-m", "arc_controller.cli.ghalistener"),
    ) -> None:
        self._kubeconfig = kubeconfig
        self._command = tuple(command)
        self.running: dict[str, asyncio.subprocess.Process] = {}
        """By pod name."""

    def process(self, pod: PodManifest, config: bytes, environ: Mapping[str, str]) -> Process:
        return _ListenerProcess(self, pod, config, environ)

    async def spawn(
        self, pod: PodManifest, config: bytes, environ: Mapping[str, str], folder: Path
    ) -> asyncio.subprocess.Process:
        meta = pod.metadata
        account = pod.spec.get("serviceAccountName", "default")
        kubeconfig = await self._kubeconfig(meta.namespace, account)
        paths = {CONFIG_PATH: folder / "config.json", "KUBECONFIG": folder / "kubeconfig"}
        for path, content in (
            (paths[CONFIG_PATH], config),
            (paths["KUBECONFIG"], msgspec.json.encode(kubeconfig)),
        ):
            path.touch(mode=0o600)
            path.write_bytes(content)
        inherited = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        child = await asyncio.create_subprocess_exec(
            *self._command,
            env={**inherited, **environ, **{key: str(path) for key, path in paths.items()}},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
        self.running[meta.name] = child
        return child


class _ListenerProcess:
    def __init__(
        self,
        owner: ListenerProcesses,
        pod: PodManifest,
        config: bytes,
        environ: Mapping[str, str],
    ) -> None:
        self._owner = owner
        self._pod = pod
        self._config = config
        self._environ = environ
        self._child: asyncio.subprocess.Process | None = None
        self._stopping = False

    def terminate(self) -> None:
        self._stopping = True
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGTERM)

    async def run(self, say: Say) -> Exit:
        with tempfile.TemporaryDirectory(prefix="listener-") as folder:
            child = await self._owner.spawn(self._pod, self._config, self._environ, Path(folder))
            self._child = child
            if self._stopping:
                self.terminate()
            last = ""
            try:
                assert child.stdout is not None
                async for line in child.stdout:
                    last = line.decode("utf-8", "replace").rstrip("\n")
                    say(last)
                code = await child.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
                raise
            finally:
                self._owner.running.pop(self._pod.metadata.name, None)
        code = code if code >= 0 else 128 - code
        return Exit(code, termination_message=last if code else "")


def die_with_parent() -> None:
    """Linux: the child gets SIGTERM when we die, however we die; nothing of a test stays behind."""
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


async def token_kubeconfig(
    transport: Transport, server: Mapping[str, Any], namespace: str, account: str
) -> dict[str, Any]:
    """A kubeconfig with a token for the service account, minted by the API server.

    ``server`` is the kubeconfig's ``cluster``: ``server`` and, with TLS,
    ``certificate-authority-data``.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {"expirationSeconds": 3600},
    }
    response = await transport.request("POST", path, body=msgspec.json.encode(body))
    if response.status >= 400:
        raise RuntimeError(f"no token for service account {namespace}/{account}: {response.status}")
    token = msgspec.json.decode(response.body)["status"]["token"]
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": dict(server)}],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [
            {
                "name": "listener",
                "context": {"cluster": "cluster", "user": account, "namespace": namespace},
            }
        ],
        "current-context": "listener",
    }
