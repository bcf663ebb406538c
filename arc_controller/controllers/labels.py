"""Labels and annotations of everything that is made for a scale set.

They flow from the AutoscalingRunnerSet downwards: first what a user asked for in the optional
metadata fields, over it what the scale set itself carries, over both what we rely on ourselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from arc_controller.actions import parse_config_url
from arc_controller.api.v1alpha1 import PART_OF, Label, ResourceMeta

MAX_LABEL = 63
_TRIMMED = "-trim"
_EDGE = "-_."
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]")


def label_value(text: str) -> str:
    """`text` as a label value: at most 63 characters (a longer one ends with ``-trim``), without
    ``-``, ``_`` or ``.`` at either end; what a label may not hold becomes ``-``."""
    text = _NOT_IN_LABELS.sub("-", text).strip(_EDGE)
    if len(text) > MAX_LABEL:
        text = text[: MAX_LABEL - len(_TRIMMED)] + _TRIMMED
    return text


def url_labels(config_url: str) -> dict[str, str]:
    """Labels for the enterprise, organization and repository that a config URL names.

    Raises `arc_controller.actions.InvalidConfigUrl`.
    """
    url = parse_config_url(config_url)
    named = {
        Label.ENTERPRISE: url.enterprise,
        Label.ORGANIZATION: url.organization,
        Label.REPOSITORY: url.repository,
    }
    return {key: label_value(name) for key, name in named.items() if label_value(name)}


def propagated(labels: Mapping[str, str], exclude_prefixes: Iterable[str] = ()) -> dict[str, str]:
    """The labels that flow on to what is made from an object."""
    prefixes = tuple(prefix for prefix in exclude_prefixes if prefix)
    return {key: value for key, value in labels.items() if not key.startswith(prefixes)}


def own_labels(component: str, *, name: str, namespace: str, version: str) -> dict[str, str]:
    """The labels we rely on: what a thing is, and which scale set it belongs to."""
    labels = {
        Label.PART_OF: PART_OF,
        Label.COMPONENT: component,
        Label.SCALE_SET_NAME: label_value(name),
        Label.SCALE_SET_NAMESPACE: label_value(namespace),
    }
    return {**labels, Label.VERSION: label_value(version)} if version else labels


def merged_labels(extra: ResourceMeta | None, *ours: Mapping[str, str]) -> dict[str, str]:
    """`extra` under `ours`; of those, a later one wins."""
    return _merged(extra.labels if extra else {}, *ours)


def merged_annotations(extra: ResourceMeta | None, *ours: Mapping[str, str]) -> dict[str, str]:
    """`extra` under `ours`; of those, a later one wins."""
    return _merged(extra.annotations if extra else {}, *ours)


def _merged(*layers: Mapping[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for layer in layers:
        result.update(layer)
    return result
