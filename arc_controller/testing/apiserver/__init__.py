"""A Kubernetes API server in memory, for tests, simulations and the demo.

`ApiServer().handle(request)` answers without a socket; `HttpApiServer` puts it on one, where
ordinary `kubectl` can use it. How faithful it is, `differential` measures against a real one.

What it does not do, and knows: CEL rules (`x-kubernetes-validations`), webhooks, conversion of
custom resources beyond the apiVersion, aggregated APIs, protobuf answers (bodies are read), OpenAPI
v2 for clients that take only protobuf, prose in `kubectl explain` of built-in kinds, managedFields
of reviews and token requests, exec/attach/port-forward, and Go's own words for JSON that does not
parse. Deployments, services and nodes are stored, nothing acts on them.
"""

from arc_controller.testing.apiserver.errors import StatusError
from arc_controller.testing.apiserver.http import HttpApiServer
from arc_controller.testing.apiserver.messages import (
    ADMIN,
    ANONYMOUS,
    Object,
    Request,
    Response,
    UserInfo,
    json_response,
    service_account_user,
)
from arc_controller.testing.apiserver.requestlog import RequestLog, RequestRecord
from arc_controller.testing.apiserver.routing import RequestInfo
from arc_controller.testing.apiserver.server import ApiServer, FaultHook, LogSource
from arc_controller.testing.apiserver.store import Store, Stored
from arc_controller.testing.apiserver.watch import Watch

__all__ = [
    "ADMIN",
    "ANONYMOUS",
    "ApiServer",
    "FaultHook",
    "HttpApiServer",
    "LogSource",
    "Object",
    "Request",
    "RequestInfo",
    "RequestLog",
    "RequestRecord",
    "Response",
    "StatusError",
    "Store",
    "Stored",
    "UserInfo",
    "Watch",
    "json_response",
    "service_account_user",
]
