"""How a user reaches the API server, in every form that clients ask for it."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from arc_controller.testing.envtest.pki import write_private


@dataclass(frozen=True)
class ClientConfig:
    """One user of the API server. `token` is a bearer token; it is left out of ``repr``."""

    username: str
    url: str
    ca_file: Path
    kubeconfig_file: Path
    token: str = field(repr=False)

    @property
    def ca_pem(self) -> str:
        return self.ca_file.read_text()

    def kubeconfig(self, namespace: str = "default") -> dict[str, Any]:
        """A kubeconfig with the certificate authority inline: it may be moved anywhere."""
        authority = base64.b64encode(self.ca_file.read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "envtest",
                    "cluster": {"server": self.url, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": self.username, "user": {"token": self.token}}],
            "contexts": [
                {
                    "name": "envtest",
                    "context": {
                        "cluster": "envtest",
                        "user": self.username,
                        "namespace": namespace,
                    },
                }
            ],
            "current-context": "envtest",
        }

    def write_kubeconfig(self, path: Path, namespace: str = "default") -> Path:
        """Writes the kubeconfig to ``path``, readable by its owner only; returns the path."""
        write_private(path, yaml.safe_dump(self.kubeconfig(namespace)).encode())
        return path

    def write_in_cluster(self, folder: Path, namespace: str) -> dict[str, str]:
        """Lays out ``folder`` as a pod's service account mount: token, CA and namespace.

        Returns the variables that a pod's containers find in their environment.
        """
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / "token", self.token.encode())
        (folder / "ca.crt").write_bytes(self.ca_file.read_bytes())
        (folder / "namespace").write_text(namespace)
        host, port = self.url.removeprefix("https://").rsplit(":", 1)
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def environ(self) -> dict[str, str]:
        """The environment of this process with ``KUBECONFIG`` set: for kubectl and managers."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig_file)}
