"""Credentials in a vault, which manager and listener ask for themselves."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.asymmetric import rsa

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import AutoscalingListener
from arc_controller.listener import parse_config
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import FakeProxy
from arc_controller.testing.actions.certificates import LocalAuthority
from arc_controller.testing.actions.vault import AUTHORITY, VAULT_URL, FakeAzureVault
from arc_controller.testing.cluster import scale_set
from tests.scenarios.permissions import CONTROLLER_NAMESPACE
from tests.scenarios.processes import processes
from tests.scenarios.stage import Stage, clean_up, scenario

TENANT = "11111111-2222-3333-4444-555555555555"
TOKEN = "ghp_from_vault"
NAME = "runner-credentials"


@scenario
async def credentials_in_a_vault_are_read_by_manager_and_listener_and_written_nowhere(
    stage: Stage,
) -> None:
    authority = LocalAuthority()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    certificate = authority.issue("runner-controller", key=key)
    vault = FakeAzureVault(
        tenant_id=TENANT,
        client_id="client",
        certificate=certificate,
        secrets={NAME: json.dumps({"github_token": TOKEN})},
        authority=authority,
    )
    with TemporaryDirectory(prefix="vault-") as name:
        folder = Path(name)
        (folder / "certificate.pem").write_text(certificate)
        (folder / "authority.pem").write_text(authority.pem)
        # In the environment, since nothing in the spec says which authority a vault has.
        trust = {"name": "SSL_CERT_FILE", "value": str(folder / "authority.pem")}
        async with (
            vault,
            FakeProxy(
                {VAULT_URL.removeprefix("https://"): vault.port, AUTHORITY: vault.port}
            ) as proxy,
            processes(stage, environ={trust["name"]: trust["value"]}) as (cluster, url),
        ):
            cluster.service.accept_tokens(TOKEN)
            await cluster.apply(
                scale_set(
                    "linux",
                    stage.namespace,
                    githubConfigUrl=url,
                    githubConfigSecret=NAME,
                    maxRunners=5,
                    vaultConfig={
                        "type": "azure_key_vault",
                        "azureKeyVault": {
                            "url": VAULT_URL,
                            "tenantId": TENANT,
                            "clientId": "client",
                            "certificatePath": str(folder / "certificate.pem"),
                        },
                        "proxy": {"https": {"url": proxy.url}},
                    },
                    listenerTemplate={
                        "spec": {"containers": [{"name": "listener", "env": [trust]}]}
                    },
                )
            )
            await cluster.until(listeners=1)
            cluster.queue_jobs(1, duration=1)
            await cluster.until(completed=1, runners=0, registrations=0)
            assert vault.calls["secret"] >= 2

            (listener,) = cluster.all(AutoscalingListener)
            secret_key = NamespacedName(CONTROLLER_NAMESPACE, f"{listener.metadata.name}-config")
            config = (await cluster.client.get(Secret, secret_key)).data["config.json"]
            assert parse_config(config).vault_lookup_key == NAME
            for namespace in (CONTROLLER_NAMESPACE, stage.namespace):
                for secret in await cluster.client.list(Secret, namespace=namespace):
                    assert not any(TOKEN.encode() in value for value in secret.data.values())
            await clean_up(cluster)
