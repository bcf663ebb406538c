"""What the default admission plugins and the service account controller do to pods and
namespaces."""

from __future__ import annotations

from random import Random

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.background import Background
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.metadata import generated_name
from arc_controller.testing.apiserver.resources import ResourceTable
from arc_controller.testing.apiserver.store import Event, Store
from arc_controller.testing.apiserver.writer import Attempt, Writer

_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def pod_defaults(attempt: Attempt) -> None:
    """Priority and DefaultTolerationSeconds: in every cluster."""
    if attempt.resource.storage_key != "pods" or attempt.operation == "DELETE":
        return
    spec = attempt.obj.get("spec")
    if not isinstance(spec, dict) or attempt.subresource:
        return
    if attempt.old is not None:
        for key in ("priority", "preemptionPolicy"):
            if key in attempt.old.get("spec", {}):
                spec.setdefault(key, attempt.old["spec"][key])
    elif spec.get("priority"):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            "priority admission controller computed 0 from the given PriorityClass name"
        )
        raise errors.forbidden("", "pods", attempt.obj["metadata"].get("name", ""), why)
    else:
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        covered = any(
            each.get("effect") in (None, "", "NoExecute") and each.get("key") in (None, "", key)
            for each in tolerations
        )
        if not covered:
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            )


class ServiceAccountAdmission:
    """Gives pods their service account and its token, and refuses those whose account is
    missing."""

    def __init__(self, store: Store, random: Random) -> None:
        self._store = store
        self._random = random

    def __call__(self, attempt: Attempt) -> None:
        if attempt.resource.storage_key != "pods" or attempt.operation != "CREATE":
            return
        obj = attempt.obj
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return
        name = spec.setdefault("serviceAccountName", "default") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        namespace = obj["metadata"]["namespace"]
        account = self._store.get("", "serviceaccounts", namespace, name)
        if account is None:
            why = (
                f"error looking up service account {namespace}/{name}: "
                f'serviceaccount "{name}" not found'
            )
            raise errors.forbidden("", "pods", obj["metadata"].get("name", ""), why)
        automount = spec.get("automountServiceAccountToken")
        if automount is None:
            automount = account.get("automountServiceAccountToken")
        if automount is not False:
            self._mount_token(spec)

    def _mount_token(self, spec: Object) -> None:
        volume = generated_name("kube-api-access-", self._random)
        used = False
        for kind in ("initContainers", "containers"):
            for container in spec.get(kind) or ():
                mounts = container.get("volumeMounts") or []
                if any(each.get("mountPath") == _MOUNT for each in mounts):
                    continue
                used = True
                mount = {"name": volume, "readOnly": True, "mountPath": _MOUNT}
                container["volumeMounts"] = [*mounts, mount]
        if used:
            spec["volumes"] = [*(spec.get("volumes") or []), _token_volume(volume)]


class ServiceAccountController:
    """Makes the service account `default` in every namespace."""

    def __init__(
        self, store: Store, resources: ResourceTable, writer: Writer, background: Background
    ) -> None:
        self._store = store
        self._resources = resources
        self._writer = writer
        self._background = background
        store.observe(self._observe)

    def ensure_all(self) -> None:
        for stored in self._store.scan("namespaces"):
            self._ensure(stored.name)

    def _observe(self, event: Event) -> None:
        stored = event.stored
        if stored.resource == "namespaces" and event.type == "ADDED":
            self._enqueue(stored.name)
        elif (
            stored.resource == "serviceaccounts"
            and stored.name == "default"
            and event.type == "DELETED"
        ):
            self._enqueue(stored.namespace)

    def _enqueue(self, namespace: str) -> None:
        self._background.add(("account", namespace), lambda: self._ensure(namespace))

    def _ensure(self, namespace: str) -> None:
        found = self._store.get("", "namespaces", "", namespace)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        if self._store.get("", "serviceaccounts", namespace, "default") is not None:
            return
        resource = self._resources.by_storage("serviceaccounts")
        self._writer.create(
            self._writer.call(manager="kube-controller-manager"),
            resource,
            namespace,
            {"metadata": {"name": "default"}},
        )


def _token_volume(name: str) -> Object:
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {
                                    "apiVersion": "v1",
                                    "fieldPath": "metadata.namespace",
                                },
                            }
                        ]
                    }
                },
            ],
            "defaultMode": 420,
        },
    }
