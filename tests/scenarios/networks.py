"""A service that is reached through a proxy, and has a certificate of its own."""

from __future__ import annotations

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import AutoscalingListener
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import FakeProxy, HttpActionsService
from arc_controller.testing.actions.certificates import LocalAuthority
from tests.scenarios.permissions import CONTROLLER_NAMESPACE
from tests.scenarios.stage import Stage, clean_up, hasty_service, scenario

HOST = "ghes.test"
PASSWORD = "hunter/2"


@scenario
async def a_server_with_its_own_certificate_behind_a_proxy_is_reached_by_everybody(
    stage: Stage,
) -> None:
    authority = LocalAuthority()
    service = hasty_service()
    context = authority.server_context(HOST)
    async with (
        HttpActionsService(service, ssl_context=context) as http,
        FakeProxy({HOST: http.port}, user="me", password=PASSWORD) as proxy,
        stage.cluster(service=service, sockets=True) as cluster,
    ):
        meta = {"namespace": stage.namespace}
        await cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {**meta, "name": "proxy"},
                "stringData": {"username": "me", "password": PASSWORD},
            },
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**meta, "name": "authority"},
                "data": {"ca.crt": authority.pem},
            },
        )
        await cluster.add_scale_set(
            "linux",
            github_config_url=f"https://{HOST}/acme",
            github_server_tls={
                "certificateFrom": {"configMapKeyRef": {"name": "authority", "key": "ca.crt"}}
            },
            proxy={
                "https": {"url": proxy.url, "credentialSecretRef": "proxy"},
                "noProxy": ["internal.test"],
            },
            max_runners=5,
        )
        await cluster.until(listeners=1)
        cluster.queue_jobs(1, duration=2)
        await cluster.until(running=1)
        (runner,) = cluster.runners
        environ = {
            name: found
            for name in ("http_proxy", "https_proxy", "no_proxy")
            if (found := await _environment(stage, runner.key, name)) is not None
        }
        assert set(environ) == {"https_proxy", "no_proxy"}
        secret = await cluster.client.get(
            Secret, NamespacedName(stage.namespace, environ["https_proxy"])
        )
        host = proxy.url.removeprefix("http://")
        assert secret.data["https_proxy"] == f"http://me:hunter%2F2@{host}".encode()
        assert secret.data["no_proxy"] == b"internal.test"
        await cluster.until(completed=1, runners=0, registrations=0)
        assert proxy.refused == 0
        assert set(proxy.requests) == {f"CONNECT {HOST}:443"}

        (listener,) = cluster.all(AutoscalingListener)
        key = NamespacedName(CONTROLLER_NAMESPACE, f"{listener.metadata.name}-proxy")
        assert await cluster.client.find(Secret, key) is not None
        await clean_up(cluster)
        assert await cluster.client.find(Secret, key) is None
        assert await cluster.client.find(Secret, secret.key) is None


async def _environment(stage: Stage, pod: NamespacedName, name: str) -> str | None:
    """The secret that a variable of the runner's container comes from."""
    _, found = await stage.ask("GET", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
    (container,) = found["spec"]["containers"]
    for variable in container["env"]:
        if variable["name"] == name:
            reference = variable["valueFrom"]["secretKeyRef"]
            assert reference["key"] == name
            return str(reference["name"])
    return None
