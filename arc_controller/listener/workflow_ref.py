"""The metric labels that hide in a job's workflow reference."""

from __future__ import annotations

import re
from typing import NamedTuple

_REFERENCE = re.compile(
    r"[^/@]+/[^/@]+/\.github/workflows/(?P<name>[^/@]+)\.ya?ml@refs/(?P<target>.+)"
)
_BRANCH_OR_TAG = re.compile(r"(?:heads|tags)/.+")
_PULL = re.compile(r"(?P<target>pull/\d+)(?:/(?:merge|head))?")


class WorkflowRef(NamedTuple):
    """``WorkflowRef("ci", "heads/main")``; both are empty when the reference is something else."""

    name: str = ""
    target: str = ""


def parse_workflow_ref(reference: str) -> WorkflowRef:
    """Take ``O/R/.github/workflows/ci.yml@refs/heads/main`` apart. Never raises.

    The target is ``heads/BRANCH``, ``tags/TAG`` or, for a pull request, ``pull/NUMBER``.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return WorkflowRef()
    if _BRANCH_OR_TAG.fullmatch(match["target"]):
        return WorkflowRef(match["name"], match["target"])
    pull = _PULL.fullmatch(match["target"])
    return WorkflowRef(match["name"], pull["target"]) if pull else WorkflowRef()
