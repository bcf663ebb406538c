"""A fake of the GitHub Actions scale-set service, for tests, simulations and demonstrations."""

from .calls import Call, ConnectionReset
from .faults import Fault, Faults
from .http_server import HttpActionsService
from .model import Job, JobState, RunnerRecord, ScaleSetRecord, SessionRecord
from .proxy import FakeProxy
from .runner import RunnerBusyElsewhere, RunnerConnection, RunnerRemoved, RunnerVersionRefused
from .service import FakeActionsService, RequestRecord
from .transport import InProcessTransport

__all__ = [
    "Call",
    "ConnectionReset",
    "FakeActionsService",
    "FakeProxy",
    "Fault",
    "Faults",
    "HttpActionsService",
    "InProcessTransport",
    "Job",
    "JobState",
    "RequestRecord",
    "RunnerBusyElsewhere",
    "RunnerConnection",
    "RunnerRecord",
    "RunnerRemoved",
    "RunnerVersionRefused",
    "ScaleSetRecord",
    "SessionRecord",
]
