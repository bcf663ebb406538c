"""What an invariant wants to know of a stored object, read from the plain JSON."""

from __future__ import annotations

from typing import Any, Final

from arc_controller.testing.apiserver import Object, Store

GROUP: Final = "actions.github.com"
SCALE_SETS: Final = f"autoscalingrunnersets.{GROUP}"
RUNNER_SETS: Final = f"ephemeralrunnersets.{GROUP}"
RUNNERS: Final = f"ephemeralrunners.{GROUP}"
LISTENERS: Final = f"autoscalinglisteners.{GROUP}"
PODS: Final = "pods"
SECRETS: Final = "secrets"

DONE: Final = frozenset({"Succeeded", "Failed", "Outdated"})
REVISION: Final = "actions.github.com/actionable-revision"


def is_being_deleted(obj: Object) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None


def uid(obj: Object) -> str:
    found: str = obj["metadata"].get("uid", "")
    return found


def name(obj: Object) -> str:
    found: str = obj["metadata"]["name"]
    return found


def namespace(obj: Object) -> str:
    found: str = obj["metadata"].get("namespace", "")
    return found


def phase(obj: Object) -> str:
    found: str = obj.get("status", {}).get("phase", "")
    return found


def owner_uid(obj: Object) -> str:
    """Of the controller among the owners."""
    for owner in obj["metadata"].get("ownerReferences", []):
        if owner.get("controller"):
            found: str = owner["uid"]
            return found
    return ""


def has_job(runner: Object) -> bool:
    status = runner.get("status", {})
    return bool(status.get("jobId") or status.get("jobRequestId"))


def revision(runner: Object) -> int:
    text = runner["metadata"].get("annotations", {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def spec_revision(runner_set: Object) -> int:
    return int(runner_set.get("spec", {}).get("actionableRevision", 0))


def applied_revision(runner_set: Object) -> int:
    return int(runner_set.get("status", {}).get("appliedActionableRevision", 0))


def replicas(runner_set: Object) -> int:
    return int(runner_set.get("spec", {}).get("replicas", 0))


def patch_id(runner_set: Object) -> int:
    return int(runner_set.get("spec", {}).get("patchID", 0))


def is_healthy(pod: Object) -> bool:
    """Whether the pod starts or runs, and nothing is wrong with it."""
    status: dict[str, Any] = pod.get("status", {})
    if is_being_deleted(pod) or status.get("phase", "Pending") not in ("Pending", "Running"):
        return False
    for part in ("containerStatuses", "initContainerStatuses"):
        for each in status.get(part, []):
            if each.get("state", {}).get("terminated", {}).get("exitCode", 0):
                return False
            if part == "containerStatuses" and "terminated" in each.get("state", {}):
                return False
    conditions = status.get("conditions", [])
    return not any(each["type"] == "DisruptionTarget" for each in conditions)


def owned_by(store: Store, resource: str, owner: str, in_namespace: str) -> list[Object]:
    """The objects of a resource that an owner controls."""
    found = (each.obj for each in store.scan(resource, in_namespace))
    return [obj for obj in found if owner_uid(obj) == owner]


def by_uid(store: Store, resource: str, wanted: str, in_namespace: str) -> Object | None:
    for each in store.scan(resource, in_namespace):
        if uid(each.obj) == wanted:
            return each.obj
    return None
