"""Configuration and credentials by the official client, from kubeconfig files of every sort."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from arc_controller.runtime import officialclient
from arc_controller.runtime.errors import ConfigurationError, TransportError
from arc_controller.runtime.http import HttpTransport
from arc_controller.runtime.officialclient import OfficialConnection, find_kubeconfig
from arc_controller.testing.loop import simulated
from tests.unit.authority import Authority


def kubeconfig(
    path: Path, user: dict[str, Any], server: str = "https://api.invalid:6443", **cluster: Any
) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def connect(tmp_path: Path, user: dict[str, Any], **cluster: Any) -> OfficialConnection:
    return await officialclient.connect(kubeconfig(tmp_path / "config", user, **cluster))


def plugin(tmp_path: Path, expires: str = "") -> dict[str, Any]:
    """An exec plugin that gives another token each time it is run."""
    script, counter = tmp_path / "plugin", tmp_path / "runs"
    status = {"token": "TOKEN", **({"expirationTimestamp": expires} if expires else {})}
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    script.write_text(
        "#!/bin/sh\n"
        f"echo x >> {counter}\n"
        f"echo '{json.dumps(credential)}' | sed s/TOKEN/token-$(wc -l < {counter})/\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": credential["apiVersion"], "command": str(script)}}


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


# --- where the server is --------------------------------------------------------------------------


async def test_a_token_goes_into_the_authorization_header(tmp_path: Path) -> None:
    connection = await connect(tmp_path, {"token": "secret\n"})
    assert connection.url == "https://api.invalid:6443"
    assert await connection.authorization() == "Bearer secret"
    assert not await connection.renew()


async def test_a_user_without_credentials_has_none(tmp_path: Path) -> None:
    connection = await connect(tmp_path, {}, server="http://127.0.0.1:8001/")
    assert connection.url == "http://127.0.0.1:8001"
    assert await connection.authorization() == ""


async def test_name_and_password_go_into_the_header(tmp_path: Path) -> None:
    connection = await connect(tmp_path, {"username": "u", "password": "p"})
    encoded = base64.b64encode(b"u:p").decode()
    assert await connection.authorization() == f"Basic {encoded}"


async def test_proxy_and_server_name_of_a_cluster_are_used(tmp_path: Path) -> None:
    more = {"proxy-url": "http://proxy:3128", "tls-server-name": "kubernetes"}
    connection = await connect(tmp_path, {"token": "t"}, **more)
    assert connection.options == {"proxy": "http://proxy:3128", "server_hostname": "kubernetes"}


async def test_the_proxy_of_the_environment_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment:3128")
    connection = await connect(tmp_path, {"token": "t"})
    assert connection.options == {"proxy": "http://environment:3128"}
    monkeypatch.setenv("NO_PROXY", "api.invalid")
    assert (await connect(tmp_path, {"token": "t"})).options == {}


async def test_verification_may_be_turned_off(tmp_path: Path) -> None:
    connection = await connect(tmp_path, {"token": "t"}, **{"insecure-skip-tls-verify": True})
    assert connection._rest.ssl_context.verify_mode is ssl.CERT_NONE
    strict = await connect(tmp_path, {"token": "t"})
    assert strict._rest.ssl_context.verify_mode is ssl.CERT_REQUIRED


async def test_another_context_may_be_asked_for(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "t"})
    with pytest.raises(ConfigurationError, match="there is no context 'other'"):
        await officialclient.connect(path, "other")
    assert (await officialclient.connect(path, "one")).url == "https://api.invalid:6443"


async def test_several_files_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", {"token": "first"})
    second = kubeconfig(tmp_path / "second", {"token": "second"})
    connection = await officialclient.connect(f"{first}{os.pathsep}{second}")
    assert await connection.authorization() == "Bearer first"


@pytest.mark.parametrize("text", ["", "[]", "a: [", "clusters: 7", "\x00"])
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigurationError, match=rf"kubeconfig {tmp_path}/config cannot be used"):
        await officialclient.connect(str(tmp_path / "config"))


async def test_a_pod_that_is_none_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="the pod's service account cannot be used"):
        await officialclient.connect(None)


# --- fresh credentials ----------------------------------------------------------------------------


async def test_a_plugin_is_run_once_while_its_token_is_good(tmp_path: Path) -> None:
    connection = await connect(tmp_path, plugin(tmp_path, expires="2999-01-01T00:00:00Z"))
    for _ in range(5):
        assert await connection.authorization() == "Bearer token-1"
    assert runs(tmp_path) == 1


async def test_a_plugin_is_run_again_when_its_token_expired(tmp_path: Path) -> None:
    connection = await connect(tmp_path, plugin(tmp_path, expires="2020-01-01T00:00:00Z"))
    assert await connection.authorization() == "Bearer token-2"
    connection._checked_at = float("-inf")  # A minute later.
    assert await connection.authorization() == "Bearer token-3"
    assert await connection.authorization() == "Bearer token-3"


async def test_a_plugin_without_an_expiry_is_run_again_only_when_refused(tmp_path: Path) -> None:
    connection = await connect(tmp_path, plugin(tmp_path))
    connection._checked_at = float("-inf")
    assert await connection.authorization() == "Bearer token-1"
    assert await connection.renew()
    assert await connection.authorization() == "Bearer token-2"


async def test_many_refusals_at_once_run_a_plugin_once(tmp_path: Path) -> None:
    connection = await connect(tmp_path, plugin(tmp_path, expires="2999-01-01T00:00:00Z"))
    assert all(await asyncio.gather(*(connection.renew() for _ in range(10))))
    assert runs(tmp_path) == 2


async def test_a_plugin_that_fails_leaves_the_old_token(tmp_path: Path) -> None:
    connection = await connect(tmp_path, plugin(tmp_path, expires="2020-01-01T00:00:00Z"))
    (tmp_path / "plugin").write_text("#!/bin/sh\nexit 1\n")
    assert await connection.authorization() == "Bearer token-1"
    assert not await connection.renew()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "No such file or directory"),
        ("echo please log in >&2; exit 1", "please log in"),
        ("echo nonsense", "failed to decode process output"),
        ("true", "failed to decode process output"),
        ("""echo '{"apiVersion":"a/v1","kind":"ExecCredential"}'""", "missing key 'status'"),
    ],
)
async def test_a_plugin_without_credentials_is_no_configuration(
    tmp_path: Path, script: str | None, reason: str
) -> None:
    """The official client only logs it, and goes on as nobody."""
    path = tmp_path / "plugin"
    if script is not None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    user = {"exec": {"apiVersion": "a/v1", "command": str(path)}}
    with pytest.raises(ConfigurationError, match=rf"plugin' of user 'u' gave no cred.*{reason}"):
        await connect(tmp_path, user)


async def test_a_plugin_that_hangs_is_given_up_and_the_old_token_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked first would wait for ever, and with it a reconcile."""
    connection = await connect(tmp_path, plugin(tmp_path, expires="2020-01-01T00:00:00Z"))
    (tmp_path / "plugin").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(officialclient, "RENEW_SECONDS", 0.1)
    with capture_logs() as logs:
        assert await connection.authorization() == "Bearer token-1"
        assert not await connection.renew()
    assert [line["error"] for line in logs] == ["no answer in 0.1 s"] * 2


async def test_the_current_context_of_the_first_file_counts(tmp_path: Path) -> None:
    """As for kubectl: the official client alone would take the last one's, another cluster."""
    first = kubeconfig(tmp_path / "first", {"token": "t"}, "https://first.invalid")
    second = {
        "current-context": "two",
        "clusters": [{"name": "d", "cluster": {"server": "https://second.invalid"}}],
        "contexts": [{"name": "two", "context": {"cluster": "d", "user": "u"}}],
    }
    (tmp_path / "second").write_text(yaml.safe_dump(second))
    connection = await officialclient.connect(f"{first}{os.pathsep}{tmp_path / 'second'}")
    assert connection.url == "https://first.invalid"


async def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    connection = await connect(tmp_path, {"tokenFile": str(token)})
    assert await connection.authorization() == "Bearer first"
    token.write_text("second\n")
    assert await connection.authorization() == "Bearer first"
    assert await connection.renew()
    assert await connection.authorization() == "Bearer second"
    token.write_text("third\n")
    connection._checked_at = float("-inf")
    assert await connection.authorization() == "Bearer third"


def test_credentials_are_checked_every_minute(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    seen: list[str] = []

    @simulated
    async def play() -> None:
        connection = await connect(tmp_path, {"tokenFile": str(token)})
        await connection.authorization()
        token.write_text("second")
        for _ in range(3):
            seen.append(await connection.authorization())
            await asyncio.sleep(31)

    play()
    assert seen == ["Bearer first", "Bearer first", "Bearer second"]


# --- TLS ------------------------------------------------------------------------------------------


@asynccontextmanager
async def https_server(
    authority: Authority, name: str, *, ask_client: bool, expired: bool = False
) -> AsyncIterator[tuple[str, list[str]]]:
    """Notes the name in each client's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.certificate(name, expired=expired))
    if ask_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.file)
    clients: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        clients.append(dict(part[0] for part in peer.get("subject", ())).get("commonName", ""))
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}", clients
    finally:
        await runner.cleanup()


async def test_a_client_certificate_is_shown_and_a_rotated_one_after_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = tmp_path / "mine.crt", tmp_path / "mine.key"

    def show(name: str) -> None:
        for source, target in zip(authority.certificate(name), mine, strict=True):
            target.write_bytes(source.read_bytes())
        os.utime(mine[0], (len(name), len(name)))

    show("first")
    user = {"client-certificate": str(mine[0]), "client-key": str(mine[1])}
    async with https_server(authority, "localhost", ask_client=True) as (url, clients):
        path = kubeconfig(
            tmp_path / "c", user, url, **{"certificate-authority": str(authority.file)}
        )
        connection = await officialclient.connect(path)
        for turn in range(2):
            transport = HttpTransport(connection, qps=0)
            await transport.request("GET", "/x")
            await transport.close()
            if turn == 0:
                show("second one")
                assert await connection.renew()
    assert clients == ["first", "second one"]


async def test_the_authority_may_be_written_into_the_kubeconfig(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    data = base64.b64encode(authority.file.read_bytes()).decode()
    async with https_server(authority, "kubernetes", ask_client=False) as (url, clients):
        more = {"certificate-authority-data": data, "tls-server-name": "kubernetes"}
        path = kubeconfig(tmp_path / "c", {"token": "t"}, url, **more)
        transport = await HttpTransport.from_environment(kubeconfig=path, qps=0)
        assert transport.url == url
        assert (await transport.request("GET", "/x")).status == 200
        await transport.close()
    assert clients == [""]


async def test_a_server_that_nobody_vouches_for_is_not_talked_to(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    trusted = Authority(mine)
    async with https_server(Authority(theirs), "localhost", ask_client=False) as (url, clients):
        more = {"certificate-authority": str(trusted.file)}
        connection = await connect(tmp_path, {"token": "t"}, server=url, **more)
        transport = HttpTransport(connection, qps=0)
        with pytest.raises(TransportError, match="CERTIFICATE_VERIFY_FAILED"):
            await transport.request("GET", "/x")
        await transport.close()
    assert clients == []


async def test_an_expired_certificate_is_told_in_one_sentence(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with https_server(authority, "localhost", ask_client=False, expired=True) as (url, _):
        more = {"certificate-authority": str(authority.file)}
        connection = await connect(tmp_path, {"token": "t"}, server=url, **more)
        transport = HttpTransport(connection, qps=0)
        host = url.removeprefix("https://")
        with pytest.raises(TransportError) as caught:
            await transport.request("PATCH", "/x")
        await transport.close()
    assert str(caught.value) == (
        f"PATCH /x: the certificate of {host} is not accepted: "
        "certificate has expired (CERTIFICATE_VERIFY_FAILED)"
    )


# --- which kubeconfig -----------------------------------------------------------------------------


def test_the_kubeconfig_is_looked_for_where_kubectl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="set KUBECONFIG to a kubeconfig file"):
        find_kubeconfig()

    default = tmp_path / ".kube" / "config"
    default.parent.mkdir()
    default.write_text("x")
    assert find_kubeconfig() == str(default)

    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_kubeconfig() is None

    named = tmp_path / "named"
    monkeypatch.setenv("KUBECONFIG", str(named))
    with pytest.raises(ConfigurationError, match=r"KUBECONFIG is '.*named': there is no such file"):
        find_kubeconfig()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    with pytest.raises(ConfigurationError, match="that is a folder, name the file"):
        find_kubeconfig()
    with pytest.raises(ConfigurationError, match="that is a folder, name the file"):
        find_kubeconfig(str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(named))
    named.write_text("x")
    assert find_kubeconfig() == str(named)

    assert find_kubeconfig(str(default)) == str(default)
    with pytest.raises(ConfigurationError, match="kubeconfig 'nowhere': there is no such file"):
        find_kubeconfig("nowhere")


# --- what it costs --------------------------------------------------------------------------------

AFTERWARDS = """
import sys
from arc_controller.runtime import officialclient
official = officialclient._load()
assert not [name for name in sys.modules if name.split(".")[0] in ("kubernetes", "pydantic")]
import kubernetes.aio
configuration = kubernetes.aio.client.Configuration()
assert type(configuration) is not official.Configuration
assert kubernetes.aio.config.kube_config.ApiClient is kubernetes.aio.client.ApiClient
assert officialclient._load().Configuration is kubernetes.aio.client.Configuration
"""


def test_loading_it_privately_leaves_no_trace_and_whoever_imports_it_gets_the_real_one() -> None:
    subprocess.run([sys.executable, "-c", AFTERWARDS], check=True, timeout=120)


@pytest.mark.parametrize("module", ["http", "incluster", "cache", "client"])
def test_the_official_client_is_imported_only_when_it_is_needed(module: str) -> None:
    script = (
        f"import sys, arc_controller.runtime.{module}\n"
        "assert not [n for n in sys.modules if n.startswith(('kubernetes', 'prometheus'))]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
