"""How faithful the embedded server is: the same requests to it and to a real one, answers compared.

`generate` draws a sequence of requests from a seed, `compare` sends it to both sides and lists what
differs: status codes, bodies, warnings, and the events of watches opened before the first request
and in between; `shrink` looks for the shortest that still differs. Times, uids, resource versions,
quoted objects and the diff that refuses a pod's change are not compared. What is known to differ,
and why, is in `KNOWN`; `Report.unexplained` leaves it out.
"""

from arc_controller.testing.apiserver.differential.compare import (
    Memory,
    Report,
    compare,
    describe,
    shrink,
)
from arc_controller.testing.apiserver.differential.differences import KNOWN, Difference
from arc_controller.testing.apiserver.differential.normal import normal
from arc_controller.testing.apiserver.differential.requests import generate
from arc_controller.testing.apiserver.differential.sides import Answer, EmbeddedSide, HttpSide, Side
from arc_controller.testing.apiserver.differential.steps import COLLECTIONS, WATCH, WIDGETS, Step

__all__ = [
    "COLLECTIONS",
    "KNOWN",
    "WATCH",
    "WIDGETS",
    "Answer",
    "Difference",
    "EmbeddedSide",
    "HttpSide",
    "Memory",
    "Report",
    "Side",
    "Step",
    "compare",
    "describe",
    "generate",
    "normal",
    "shrink",
]
