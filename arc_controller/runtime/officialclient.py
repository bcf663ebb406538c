"""Configuration and authentication by the official client (``kubernetes.aio``).

Kubeconfig files, exec plugins, OIDC, client certificates, TLS and proxies are its business: this
module asks it for a configuration and for sessions made from that, and for fresh credentials.

Its packages import the whole client, synchronous half included, when any part of them is imported.
We need four modules. They are loaded privately, below empty parent packages, which saves 19 MiB and
some 300 ms (`_load`); whoever imports ``kubernetes`` elsewhere gets the real thing, untouched.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import ssl
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
import structlog

from arc_controller.runtime import sessions
from arc_controller.runtime.errors import ConfigurationError
from arc_controller.runtime.kubeconfig import choose

REFRESH_SECONDS = 60.0
"""So often the official client is asked whether credentials expired and files changed."""
RENEW_SECONDS = 30.0
"""Getting fresh credentials may take so long; a request or two wait for it."""
PATIENCE_SECONDS = 10.0
LONGEST_REASON = 300

_log = structlog.get_logger(__name__)


async def connect(kubeconfig: str | None, context: str | None = None) -> OfficialConnection:
    """The configuration of a kubeconfig (or several, as in ``KUBECONFIG``), or of this pod if None.

    Raises `ConfigurationError`.
    """
    choice = choose(kubeconfig, context) if kubeconfig is not None else None
    official = _load()
    configuration = official.Configuration()
    loader = None
    try:
        if choice is None:
            official.load_incluster_config(client_configuration=configuration)
            return OfficialConnection(official, configuration)
        with _last_words() as words, _patience(choice.plugin):
            # Renewed tokens stay in memory: the file belongs to the user.
            loader = await official.load_kube_config(
                config_file=choice.files,
                context=choice.context,
                client_configuration=configuration,
                persist_config=False,
            )
        if choice.plugin and not configuration.api_key and not configuration.cert_file:
            reason = words[-1] if words else "it says nothing"
            raise ConfigurationError(
                f"the exec plugin {choice.plugin!r} of user {choice.user!r} gave no credentials: "
                f"{reason[:LONGEST_REASON]}"
            )
        return OfficialConnection(official, configuration, loader, redact=choice.redacted)
    except Exception as error:  # Whatever it met: there is no configuration.
        source, reason = "the pod's service account", str(error) or type(error).__name__
        if choice is not None:
            source, reason = f"kubeconfig {kubeconfig}", choice.redacted(reason)
        if isinstance(error, ssl.SSLError):
            reason = f"a certificate or key cannot be loaded: {reason}"
        # Not chained: the official client's errors may quote credentials.
        raise ConfigurationError(f"{source} cannot be used: {reason}") from None


@contextlib.contextmanager
def _patience(plugin: str) -> Iterator[None]:
    """Say what is waited for: a plugin may wait for somebody to log in."""
    if not plugin:
        yield
        return
    loop = asyncio.get_running_loop()
    timer = loop.call_later(
        PATIENCE_SECONDS, lambda: _log.warning("waiting for an exec plugin", command=plugin)
    )
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _last_words() -> Iterator[list[str]]:
    """What the official client logs: it says so, and raises nothing, when a plugin fails."""
    words: list[str] = []

    class Listen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            words.append(record.getMessage())

    logger, listener = logging.getLogger("kubernetes.aio.config.kube_config"), Listen(logging.ERROR)
    logger.addHandler(listener)
    try:
        yield words
    finally:
        logger.removeHandler(listener)


def find_kubeconfig(explicit: str | None = None) -> str | None:
    """The kubeconfig to use (maybe several, separated as in ``PATH``); None in a pod without one.

    Raises `ConfigurationError` if there is nothing that says where the API server is.
    """
    if explicit:
        if not Path(explicit).expanduser().is_file():
            raise ConfigurationError(f"kubeconfig {explicit!r}: {_no_file(explicit)}")
        return explicit
    listed = os.environ.get("KUBECONFIG", "")
    if listed:
        if not any(Path(p).expanduser().is_file() for p in listed.split(os.pathsep) if p):
            raise ConfigurationError(f"KUBECONFIG is {listed!r}: {_no_file(listed)}")
        return listed
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    default = Path.home() / ".kube" / "config"
    if default.is_file():
        return str(default)
    raise ConfigurationError(
        "no Kubernetes cluster: set KUBECONFIG to a kubeconfig file, "
        f"or put one at {default}, or run in a pod"
    )


class OfficialConnection:
    """A `Connection` made from the official client's configuration.

    ``loader`` is its kubeconfig loader, which knows how to get new credentials; None in a pod,
    where the configuration itself has a hook that reads the token file again.
    """

    def __init__(
        self,
        official: OfficialClient,
        configuration: Any,
        loader: Any = None,
        *,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._redact = redact
        self._configuration = configuration
        self._loader = loader
        self._rest = _rest_client(official, configuration)
        self._checked_at = float("-inf")
        self._certificate = self._certificate_state()
        self._refreshing = asyncio.Lock()
        self.url = str(configuration.host).rstrip("/")
        proxy = configuration.proxy or sessions.environment_proxy(self.url)
        options = {
            "proxy": proxy,
            "proxy_headers": configuration.proxy_headers,
            "server_hostname": configuration.tls_server_name,
        }
        self.options: Mapping[str, Any] = {name: value for name, value in options.items() if value}

    def open_session(self, connections: int) -> aiohttp.ClientSession:
        self._rest.maxsize = connections
        return cast("aiohttp.ClientSession", self._rest._create_pool_manager())

    async def authorization(self) -> str:
        if self._loader is not None:
            now = asyncio.get_running_loop().time()
            if now - self._checked_at >= REFRESH_SECONDS:
                self._checked_at = now
                await self._refresh()
        settings = await self._configuration.auth_settings()
        # A token file may end in a newline, which no header may contain.
        return str(settings["BearerToken"]["value"]).strip() if "BearerToken" in settings else ""

    async def renew(self) -> bool:
        if self._loader is None:
            return False
        before = self._credentials()
        async with self._refreshing:
            if self._credentials() == before:  # Nobody else was faster.
                # A plugin's credentials count as good until they expire; the server knows better.
                self._loader.__dict__.pop("exec_plugin_expiry", None)
                await self._reload()
        return self._credentials() != before

    async def _refresh(self) -> None:
        user = self._loader._user
        plugin = user is not None and "exec" in user
        # Without an expiry a plugin would be run each time: its token is good until it is refused.
        if plugin and "exec_plugin_expiry" not in self._loader.__dict__:
            return
        async with self._refreshing:
            await self._reload()

    async def _reload(self) -> None:
        try:
            async with asyncio.timeout(RENEW_SECONDS):  # A plugin may hang, or wait for somebody.
                await self._loader.load_and_set(self._configuration)
        except Exception as error:  # The old credentials may still be good.
            reason = str(error) or f"no answer in {RENEW_SECONDS:g} s"
            _log.warning("credentials were not renewed", error=self._redact(reason))
        self._reload_certificate()

    def _credentials(self) -> tuple[str, object]:
        return self._configuration.api_key.get("BearerToken", ""), self._certificate

    def _reload_certificate(self) -> None:
        """New connections use the new certificate; those that exist stay as they are."""
        current = self._certificate_state()
        if current is None or current == self._certificate:
            return
        try:
            self._rest.ssl_context.load_cert_chain(
                self._configuration.cert_file, keyfile=self._configuration.key_file
            )
        except OSError as error:
            _log.warning("client certificate was not renewed", error=str(error))
        else:
            self._certificate = current

    def _certificate_state(self) -> tuple[str, float] | None:
        path = self._configuration.cert_file
        with contextlib.suppress(OSError):
            if path:
                return path, os.stat(path).st_mtime
        return None


@dataclass(frozen=True, slots=True)
class OfficialClient:
    """What we use of the official client."""

    Configuration: Any
    RESTClientObject: Any
    load_incluster_config: Any
    load_kube_config: Any


def _rest_client(official: OfficialClient, configuration: Any) -> Any:
    configuration.client_session_kwargs = sessions.session_options()

    rest = official.RESTClientObject(configuration)
    # Made to be overridden; the rest of the session stays the official client's.
    rest._create_connector = lambda: sessions.connector(rest.maxsize, rest.ssl_context)
    return rest


def _load() -> OfficialClient:
    try:
        if "kubernetes" in sys.modules:
            return _import()
        with _private_packages():
            return _import()
    except (ImportError, AttributeError):
        return _import()  # A future version may be laid out differently; this always works.


def _import() -> OfficialClient:
    configuration = importlib.import_module("kubernetes.aio.client.configuration")
    rest = importlib.import_module("kubernetes.aio.client.rest")
    incluster = importlib.import_module("kubernetes.aio.config.incluster_config")
    kube_config = importlib.import_module("kubernetes.aio.config.kube_config")
    return OfficialClient(
        configuration.Configuration,
        rest.RESTClientObject,
        incluster.load_incluster_config,
        kube_config.load_kube_config,
    )


@contextlib.contextmanager
def _private_packages() -> Iterator[None]:
    """Empty stand-ins for the packages around the modules we need, taken away afterwards."""
    before = set(sys.modules)
    spec = importlib.util.find_spec("kubernetes")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the package kubernetes is not installed")
    root = spec.submodule_search_locations[0]
    try:
        for name in ("", ".aio", ".aio.client", ".aio.config", ".aio.utils"):
            package = types.ModuleType(f"kubernetes{name}")
            package.__path__ = [root + name.replace(".", os.sep)]
            sys.modules[package.__name__] = package
        # The configuration loaders take these two from the package of the client.
        client = cast("Any", sys.modules["kubernetes.aio.client"])
        module = importlib.import_module("kubernetes.aio.client.configuration")
        client.Configuration = module.Configuration
        client.ApiClient = None
        yield
    finally:
        for name in set(sys.modules) - before:
            if name == "kubernetes" or name.startswith("kubernetes."):
                del sys.modules[name]


def _no_file(listed: str) -> str:
    """What is wrong with paths of which none is a file."""
    is_folder = any(Path(p).expanduser().is_dir() for p in listed.split(os.pathsep) if p)
    return "that is a folder, name the file" if is_folder else "there is no such file"
