"""One real API server: started, filled with CRDs and users, and gone without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import aiohttp

from arc_controller.testing.envtest.access import Grant, grant_objects
from arc_controller.testing.envtest.assets import Assets, EnvtestError, find_assets
from arc_controller.testing.envtest.audit import POLICY, AuditEvent, AuditLog
from arc_controller.testing.envtest.clientconfig import ClientConfig
from arc_controller.testing.envtest.crds import CrdSource, install_crds, load_crds
from arc_controller.testing.envtest.pki import (
    Authority,
    TokenIssuer,
    new_key,
    private_pem,
    public_pem,
    utc_now,
    write_private,
)
from arc_controller.testing.envtest.process import Process, ProcessFailed, free_port
from arc_controller.testing.envtest.programs import run_program
from arc_controller.testing.envtest.rest import Rest
from arc_controller.testing.envtest.trust import DiscoveryServer, authentication_configuration

_T = TypeVar("_T")

ADMIN = "envtest-admin"
# What tests of controllers need. Not the node controllers (they would remove pods that no kubelet
# reports), nor deployments and their like.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
_HELM_HOMES = ("CACHE", "CONFIG", "DATA")
_STARTS = 3  # a free port may be taken by somebody else before our program opens it
_PORT_TAKEN = "address already in use"


class Envtest:
    """``async with Envtest(...) as env``: etcd and kube-apiserver on loopback ports.

    :param crds: files, folders or objects, installed and served before the block is entered.
    :param controller_manager: also run kube-controller-manager with garbage collection, namespace
        deletion, service accounts and resource quota. Without it nothing deletes the objects whose
        owner is gone, namespaces stay Terminating, and pods need no service account.
    :param authorization: ``"RBAC"``, or ``"AlwaysAllow"`` for tests that are about something else.
    :param audit: record every request, see `audit_events`.
    :param api_server_arguments: added to the command line of kube-apiserver.
    :param work_dir: where data, keys and logs go; it is kept. A temporary folder otherwise.
    :param start_timeout: seconds that each program has to become ready.

    Entering raises `AssetsMissing` when the programs are not on this machine and `ProcessFailed`,
    with the end of its log, when one does not start. Leaving, in whichever way (an exception and a
    cancellation included, also while starting), stops the children and removes the folder.
    """

    def __init__(
        self,
        crds: Iterable[CrdSource] = (),
        *,
        controller_manager: bool = False,
        authorization: Literal["RBAC", "AlwaysAllow"] = "RBAC",
        audit: bool = False,
        api_server_arguments: Sequence[str] = (),
        controllers: Sequence[str] = CONTROLLERS,
        assets: Assets | None = None,
        work_dir: Path | None = None,
        start_timeout: float = 60,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._crds = list(crds)
        self._with_controller_manager = controller_manager
        self._authorization = authorization
        self._audit = audit
        self._api_server_arguments = list(api_server_arguments)
        self._controllers = list(controllers)
        self._assets = assets
        self._keep = work_dir
        self._start_timeout = start_timeout
        self._now = now
        self._cleanup = contextlib.AsyncExitStack()
        self._issuer: TokenIssuer | None = None
        self._admin: ClientConfig | None = None
        self._rest: Rest | None = None
        self._folder: Path | None = None
        self._audit_log: AuditLog | None = None
        self._port = 0
        self.etcd_url = ""
        self.processes: dict[str, Process] = {}

    # -- what a test uses

    @property
    def admin(self) -> ClientConfig:
        """A user in ``system:masters``: may do everything."""
        return _started(self._admin)

    @property
    def rest(self) -> Rest:
        """Plain requests as `admin`, to set the scene and to look at it."""
        return _started(self._rest)

    @property
    def folder(self) -> Path:
        """Data, keys, kubeconfig files and logs."""
        return _started(self._folder)

    async def user(
        self,
        name: str,
        *,
        groups: Sequence[str] = (),
        rules: Sequence[Mapping[str, Any]] = (),
        namespace: str | None = None,
    ) -> ClientConfig:
        """A user called ``name`` who may do what ``rules`` (as in a Role) say: in ``namespace``
        (it must exist), or everywhere. Ask again with the same name to grant more.

        A name of the form ``system:serviceaccount:NAMESPACE:NAME`` makes a user whom role bindings
        of that service account apply to.
        """
        if rules:
            await self.grant(name, rules, namespace=namespace)
        return self._config(name, groups)

    async def grant(
        self, username: str, rules: Sequence[Mapping[str, Any]], *, namespace: str | None = None
    ) -> None:
        """Lets ``username`` do what ``rules`` say, in ``namespace`` or everywhere."""
        for path, body in grant_objects(Grant(username, tuple(rules), namespace)):
            await self.rest.request("POST", path, body)

    async def service_account(
        self,
        namespace: str,
        name: str,
        *,
        rules: Sequence[Mapping[str, Any]] = (),
        everywhere: bool = False,
    ) -> ClientConfig:
        """A user that is the service account ``NAMESPACE/NAME`` to every role binding. Neither the
        account nor its namespace is created. ``rules`` hold in the namespace, or everywhere."""
        username = f"system:serviceaccount:{namespace}:{name}"
        return await self.user(
            username,
            groups=["system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
            rules=rules,
            namespace=None if everywhere else namespace,
        )

    async def namespace(self, name: str) -> None:
        """Creates a namespace; with the controller manager, waits for its default account."""
        await self.rest.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if self._with_controller_manager:
            await self._until_found(f"/api/v1/namespaces/{name}/serviceaccounts/default")

    async def install_crds(self, *crds: CrdSource) -> None:
        """More CRDs, served when this returns. The garbage collector of the controller manager
        learns of them up to 30 s later; those given to `Envtest` it knows from the start."""
        await install_crds(self.rest, load_crds(crds), self._start_timeout)

    async def kubectl(
        self, *arguments: str, user: ClientConfig | None = None, stdin: str | None = None
    ) -> str:
        """Runs kubectl as ``user`` (default: admin); returns what it printed.

        Raises `EnvtestError` with its error output when it fails. Cancelling kills it.
        """
        program = self._found_assets().program("kubectl")
        return await run_program(
            program, *arguments, environ=(user or self.admin).environ(), stdin=stdin
        )

    async def helm(self, *arguments: str, user: ClientConfig | None = None) -> str:
        """Runs helm (``make envtest`` builds it too), as `kubectl`. It keeps nothing at home."""
        program = self._found_assets().program("helm")
        homes = {f"HELM_{kind}_HOME": str(self.folder / "helm") for kind in _HELM_HOMES}
        environ = {**(user or self.admin).environ(), **homes}
        return await run_program(program, *arguments, environ=environ)

    def audit_events(self) -> list[AuditEvent]:
        """Every request so far, oldest first. Needs ``audit=True``."""
        if not self._audit:
            raise EnvtestError("nothing was recorded: start Envtest with audit=True")
        if self._audit_log is None:
            self._audit_log = AuditLog(self.folder / "audit.log")
        return self._audit_log.events()

    async def restart_api_server(self, *, kill: bool = False) -> None:
        """Stops kube-apiserver (or kills it) and starts it again at the same address: every watch
        breaks, the state stays."""
        server = self.processes["kube-apiserver"]
        await (server.kill() if kill else server.stop(grace=10))
        await server.start()
        await server.wait_ready(self._api_server_ready, self._start_timeout)

    # -- its life

    async def __aenter__(self) -> Envtest:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        assets = self._found_assets()
        self._folder = self._make_folder()
        for folder in ("users", "etcd"):
            (self._folder / folder).mkdir(exist_ok=True)
        await self._start_etcd(assets)
        await self._start_api_server(assets)
        if self._crds:
            await self.install_crds(*self._crds)
        if self._with_controller_manager:
            await self._start_controller_manager(assets)

    async def _stop(self) -> None:
        """Runs to its end even when the task is cancelled meanwhile, and then is cancelled."""
        stopping = asyncio.ensure_future(self._cleanup.aclose())
        cancelled: asyncio.CancelledError | None = None
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception:
                break  # raised by result() below
        stopping.result()
        if cancelled is not None:
            raise cancelled

    def _make_folder(self) -> Path:
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            return self._keep
        folder = Path(tempfile.mkdtemp(prefix="envtest-"))

        async def remove() -> None:
            await asyncio.to_thread(shutil.rmtree, folder, True)

        self._cleanup.push_async_callback(remove)
        return folder

    async def _start_etcd(self, assets: Assets) -> None:
        async def attempt() -> Process:
            self.etcd_url = f"http://127.0.0.1:{free_port()}"
            peer_url = f"http://127.0.0.1:{free_port()}"
            arguments = {
                "data-dir": str(self.folder / "etcd"),
                "listen-client-urls": self.etcd_url,
                "advertise-client-urls": self.etcd_url,
                "listen-peer-urls": peer_url,
                "initial-advertise-peer-urls": peer_url,
                "initial-cluster": f"default={peer_url}",
                "unsafe-no-fsync": "true",  # the data need not outlive a power failure
                "logger": "zap",
                "log-level": "warn",
            }
            return await self._run(assets, "etcd", arguments, self._etcd_ready, grace=5)

        await self._with_free_ports(attempt)

    async def _start_api_server(self, assets: Assets) -> None:
        folder = self.folder
        now = self._now()
        authority = Authority.new(now)
        (folder / "ca.crt").write_bytes(authority.pem)
        hosts = ["127.0.0.1", "localhost", "kubernetes.default.svc"]
        authority.issue(folder, "apiserver", hosts, now)
        authority.issue(folder, "discovery", ["127.0.0.1"], now)
        service_accounts = new_key()
        write_private(folder / "service-accounts.key", private_pem(service_accounts))
        (folder / "service-accounts.pub").write_bytes(public_pem(service_accounts))
        await self._start_discovery(authority)
        (folder / "audit-policy.json").write_text(json.dumps(POLICY))

        async def attempt() -> Process:
            self._port = free_port()
            self._admin = self._config(ADMIN, ["system:masters"])
            return await self._run(
                assets, "kube-apiserver", self._api_server_flags(), self._api_server_ready, grace=10
            )

        await self._with_free_ports(attempt)
        self._rest = await self._cleanup.enter_async_context(Rest(self.admin))

    async def _start_discovery(self, authority: Authority) -> None:
        async def attempt() -> DiscoveryServer:
            port = free_port()
            self._issuer = TokenIssuer(f"https://127.0.0.1:{port}", "envtest", new_key())
            server = DiscoveryServer(
                self._issuer,
                port,
                self.folder / "discovery.crt",
                self.folder / "discovery.key",
            )
            self._cleanup.push_async_callback(server.stop)
            await server.start()
            return server

        await self._with_free_ports(attempt)
        configuration = authentication_configuration(_started(self._issuer), authority.pem.decode())
        (self.folder / "authentication.json").write_text(json.dumps(configuration))

    def _api_server_flags(self) -> dict[str, str]:
        folder = self.folder
        flags = {
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": str(self._port),
            "endpoint-reconciler-type": "none",  # it refuses to publish a loopback address
            "etcd-servers": self.etcd_url,
            "cert-dir": str(folder),
            "tls-cert-file": str(folder / "apiserver.crt"),
            "tls-private-key-file": str(folder / "apiserver.key"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(folder / "service-accounts.pub"),
            "service-account-signing-key-file": str(folder / "service-accounts.key"),
            "service-cluster-ip-range": "10.0.0.0/24",
            "authentication-config": str(folder / "authentication.json"),
            "authorization-mode": self._authorization,
            "allow-privileged": "true",  # docker in docker
            "profiling": "false",
        }
        if not self._with_controller_manager:
            # Nobody makes the default service account that this one would insist on.
            flags["disable-admission-plugins"] = "ServiceAccount"
        if self._audit:
            flags |= {
                "audit-policy-file": str(folder / "audit-policy.json"),
                "audit-log-path": str(folder / "audit.log"),
                "audit-log-mode": "blocking",
                "audit-log-maxsize": "10000",
            }
        return flags

    async def _start_controller_manager(self, assets: Assets) -> None:
        folder = self.folder

        async def attempt() -> Process:
            port = free_port()
            arguments = {
                "kubeconfig": str(self.admin.kubeconfig_file),
                "controllers": ",".join(self._controllers),
                "bind-address": "127.0.0.1",
                "secure-port": str(port),
                "cert-dir": str(folder / "controller-manager"),
                "authentication-skip-lookup": "true",
                "leader-elect": "false",
                "service-account-private-key-file": str(folder / "service-accounts.key"),
                "root-ca-file": str(folder / "ca.crt"),
                "kube-api-qps": "1000",
                "kube-api-burst": "2000",
                "profiling": "false",
            }

            async def ready() -> bool:
                return await _healthy(f"https://127.0.0.1:{port}/healthz")

            return await self._run(assets, "kube-controller-manager", arguments, ready, grace=5)

        await self._with_free_ports(attempt)
        await self._until_found("/api/v1/namespaces/default/serviceaccounts/default")

    async def _run(
        self,
        assets: Assets,
        program: str,
        flags: Mapping[str, str],
        ready: Callable[[], Awaitable[bool]],
        *,
        grace: float,
    ) -> Process:
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        if program == "kube-apiserver":
            arguments += self._api_server_arguments
        process = Process(assets.program(program), arguments, self.folder / f"{program}.log")
        self._cleanup.push_async_callback(process.stop, grace)
        self.processes[program] = process
        await process.start()
        await process.wait_ready(ready, self._start_timeout)
        return process

    async def _with_free_ports(self, attempt: Callable[[], Awaitable[object]]) -> None:
        for left in reversed(range(_STARTS)):
            try:
                await attempt()
            except (ProcessFailed, OSError) as error:
                if not left or _PORT_TAKEN not in str(error).lower():
                    raise
            else:
                return

    async def _etcd_ready(self) -> bool:
        return await _healthy(f"{self.etcd_url}/readyz")

    async def _api_server_ready(self) -> bool:
        """Ready, and admin's token is trusted: the keys for it are fetched in the background."""
        async with Rest(self.admin) as rest:
            try:
                return (await rest.try_request("GET", "/readyz")).ok and (
                    await rest.try_request("GET", "/api/v1/namespaces/kube-system")
                ).ok
            except aiohttp.ClientError:
                return False

    async def _until_found(self, path: str) -> None:
        try:
            async with asyncio.timeout(self._start_timeout):
                while not (await self.rest.try_request("GET", path)).ok:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            tail = self.processes["kube-controller-manager"].tail()
            raise EnvtestError(
                f"{path} was not created after {self._start_timeout:g} s\n{tail}"
            ) from None

    def _config(self, username: str, groups: Sequence[str]) -> ClientConfig:
        file_name = "".join(c if c.isalnum() or c in "-." else "_" for c in username)
        config = ClientConfig(
            username=username,
            url=f"https://127.0.0.1:{self._port}",
            ca_file=self.folder / "ca.crt",
            kubeconfig_file=self.folder / "users" / f"{file_name}.kubeconfig",
            token=_started(self._issuer).token(username, groups, self._now()),
        )
        config.write_kubeconfig(config.kubeconfig_file)
        return config

    def _found_assets(self) -> Assets:
        if self._assets is None:
            self._assets = find_assets()
        return self._assets


def _started(value: _T | None) -> _T:
    if value is None:
        raise EnvtestError("Envtest is used outside of `async with`")
    return value


async def _healthy(url: str) -> bool:
    """Whether a health endpoint on loopback says so; its certificate is not looked at."""
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            async with session.get(url, ssl=False) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False
