"""A real etcd and kube-apiserver for tests: what the embedded API server is measured against.

::

    async with Envtest(crds=["config/crd"], controller_manager=True) as env:
        manager = await env.user("manager", rules=[{"apiGroups": [""], ...}])
        ...  # manager.kubeconfig_file, or manager.url, manager.ca_file and manager.token

See ``docs/envtest.md``.
"""

from arc_controller.testing.envtest.assets import AssetsMissing, EnvtestError, find_assets
from arc_controller.testing.envtest.audit import AuditEvent, Rule, refusals, unused_rules
from arc_controller.testing.envtest.clientconfig import ClientConfig
from arc_controller.testing.envtest.environment import Envtest
from arc_controller.testing.envtest.process import ProcessFailed
from arc_controller.testing.envtest.programs import run_program
from arc_controller.testing.envtest.rest import Answer, Rest, RestError

__all__ = [
    "Answer",
    "AssetsMissing",
    "AuditEvent",
    "ClientConfig",
    "Envtest",
    "EnvtestError",
    "ProcessFailed",
    "Rest",
    "RestError",
    "Rule",
    "find_assets",
    "refusals",
    "run_program",
    "unused_rules",
]
