"""Workflow references become labels; anything unexpected becomes empty ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.listener.workflow_ref import WorkflowRef, parse_workflow_ref


@pytest.mark.parametrize(
    ("reference", "name", "target"),
    [
        ("o/r/.github/workflows/ci.yml@refs/heads/main", "ci", "heads/main"),
        ("o/r/.github/workflows/ci.yaml@refs/heads/feature/x@2", "ci", "heads/feature/x@2"),
        ("o/r/.github/workflows/build.and.test.yml@refs/tags/v1", "build.and.test", "tags/v1"),
        ("o/r/.github/workflows/ci.yml@refs/pull/12/merge", "ci", "pull/12"),
        ("o/r/.github/workflows/ci.yml@refs/pull/12/head", "ci", "pull/12"),
        ("o/r/.github/workflows/ci.yml@refs/pull/12", "ci", "pull/12"),
    ],
)
def test_references_of_branches_tags_and_pull_requests(
    reference: str, name: str, target: str
) -> None:
    assert parse_workflow_ref(reference) == WorkflowRef(name, target)


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "o/r/.github/workflows/ci.yml",
        "o/r/.github/workflows/ci.yml@main",
        "o/r/.github/workflows/ci.yml@refs/heads/",
        "o/r/.github/workflows/ci.yml@refs/pull/x/merge",
        "o/r/.github/workflows/ci.yml@0123456789abcdef",
        "o/r/workflows/ci.yml@refs/heads/main",
        "o/r/.github/workflows/ci.txt@refs/heads/main",
        "r/.github/workflows/ci.yml@refs/heads/main",
    ],
)
def test_anything_else_has_no_labels(reference: str) -> None:
    assert parse_workflow_ref(reference) == WorkflowRef("", "")


@given(st.text())
def test_no_text_makes_it_fail(reference: str) -> None:
    name, target = parse_workflow_ref(reference)
    assert (name == "") == (target == "")
