"""The Grafana dashboard asks only for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from arc_controller.controllers.metrics import LABELS
from arc_controller.controllers.metrics import ControllerMetrics as ScaleSetMetrics
from arc_controller.listener.metrics import DEFINITIONS
from arc_controller.runtime.httpmetrics import TransportMetrics
from arc_controller.runtime.metrics import RuntimeMetrics

DASHBOARD = Path(__file__).parents[2] / "docs" / "dashboards" / "runner-scale-sets.json"
METRIC = re.compile(r"\b(?:gha|workqueue|controller_runtime|rest_client|leader_election)_\w+")
SELECTOR = re.compile(r"(?P<metric>[a-z]\w+)\{(?P<matchers>[^}]*)\}")
GROUPING = re.compile(r"by \((?P<labels>[^)]*)\)")


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return content


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dashboard()["panels"]
    return found


def queries() -> Iterator[str]:
    for panel in panels():
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def known() -> dict[str, set[str]]:
    """Every series that manager and listeners expose, with its labels."""
    registry = CollectorRegistry()
    RuntimeMetrics(registry).controller("x", 1)
    ScaleSetMetrics(registry)
    TransportMetrics(registry, "host")
    found: dict[str, set[str]] = {}
    for family in registry.collect():
        labels = set(getattr(_collector(registry, family.name), "_labelnames", ()))
        for name in _series(family.name, family.type):
            found[name] = labels
    for name in found:
        if name.startswith("gha_controller_"):
            found[name] = set(LABELS)
    for definition in DEFINITIONS.values():
        for name in _series(definition.name.removesuffix("_total"), definition.kind):
            found[name] = set(definition.labels)
    return {
        name: labels | {"le"} if name.endswith("_bucket") else labels
        for name, labels in found.items()
    }


def _collector(registry: CollectorRegistry, name: str) -> object:
    names: Mapping[str, object] = registry._names_to_collectors
    return names.get(name) or names.get(f"{name}_total")


def _series(base: str, kind: str) -> list[str]:
    if kind == "counter":
        return [f"{base}_total"]
    if kind == "histogram":
        return [f"{base}_bucket", f"{base}_sum", f"{base}_count"]
    return [base]


def test_every_metric_that_is_asked_for_exists() -> None:
    asked = {name for query in queries() for name in METRIC.findall(query)}
    assert asked - known().keys() == set()


def test_every_listener_metric_and_every_scale_set_metric_is_shown() -> None:
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for query in queries()
        for name in METRIC.findall(query)
    }
    wanted = {*DEFINITIONS, *(name for name in known() if name.startswith("gha_controller_"))}
    assert wanted - shown == set()


def test_every_label_that_is_selected_or_grouped_by_exists() -> None:
    labels = known()
    for query in queries():
        asked = METRIC.findall(query)
        for match in SELECTOR.finditer(query):
            for matcher in filter(None, match["matchers"].split(",")):
                name = re.split(r"[=!]", matcher.strip())[0]
                assert name in labels[match["metric"]], query
        for match in GROUPING.finditer(query):
            for label in (each.strip() for each in match["labels"].split(",")):
                assert all(label in labels[metric] for metric in asked), f"{label} in {query}"


def test_panels_have_titles_and_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    assert all(panel["title"] for panel in panels())
    for one, other in combinations((panel["gridPos"] for panel in panels()), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above


def test_every_panel_uses_the_data_source_that_is_chosen() -> None:
    for panel in panels():
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"
