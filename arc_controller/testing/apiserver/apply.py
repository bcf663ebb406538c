"""Server-side apply: merge an applied configuration, remove what its manager gave up."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver.fieldset import (
    Fields,
    is_granular_list,
    is_granular_map,
    is_member,
    item_key,
    items_by_key,
)
from arc_controller.testing.apiserver.types import Node


def merge_applied(live: Any, config: Any, node: Node) -> Any:
    """The live value with the configuration's fields on top. Changes `live`."""
    if is_granular_map(node, config) and isinstance(live, dict) and not node.atomic:
        for key, value in config.items():
            if key in live:
                live[key] = merge_applied(live[key], value, node.field(key))
            else:
                live[key] = value
        return live
    if is_granular_list(node, config) and isinstance(live, list):
        return _merge_list(live, config, node)
    if config is None and (is_granular_map(node, live) or is_granular_list(node, live)):
        return live  # nothing to put into it
    return config


def _merge_list(live: list[Any], config: list[Any], node: Node) -> list[Any]:
    """Items in the configuration's order; live items it does not name keep their places."""
    wanted = items_by_key(node, config)
    present = items_by_key(node, live)
    merged: list[Any] = []
    done: set[str] = set()
    ordered = list(wanted)
    upcoming = 0
    for item in live:
        key = item_key(node, item)
        if key is None or key not in wanted:
            merged.append(item)
            continue
        if key in done:
            continue
        while upcoming < len(ordered) and key not in done:
            name = ordered[upcoming]
            upcoming += 1
            if name in done:
                continue
            done.add(name)
            if name in present and node.list_type == "map":
                merged.append(merge_applied(present[name], wanted[name], node.items))
            else:
                merged.append(wanted[name])
    merged += [wanted[name] for name in ordered if name not in done]
    merged += [item for item in config if item_key(node, item) is None]
    return merged


def prune_given_up(value: Any, given_up: Fields, kept: Fields, node: Node) -> Any:
    """Remove the fields in `given_up`, except where `kept` says that somebody owns something
    beneath them. Changes `value`."""
    if is_granular_map(node, value):
        for key, removal in given_up.items():
            if not key.startswith("f:"):
                continue
            name = key[2:]
            if name not in value:
                continue
            if key not in kept and name in node.fields:
                # A declared field goes with all that is in it, owned or not.
                del value[name]
                continue
            child = _pruned(value[name], removal, kept.get(key), node.field(name))
            if child is _GONE:
                del value[name]
            else:
                value[name] = child
        return value
    if is_granular_list(node, value):
        left: list[Any] = []
        for item in value:
            key = item_key(node, item) or ""
            removal = given_up.get(key)
            if removal is None:
                left.append(item)
                continue
            child = _pruned(item, removal, kept.get(key), node.items)
            if child is not _GONE:
                left.append(child)
        return left
    return value


_GONE = object()


def _pruned(value: Any, removal: Fields, kept: Fields | None, node: Node) -> Any:
    if kept is None and is_member(removal):
        return _GONE
    value = prune_given_up(value, removal, kept or {}, node)
    if kept is None and value in ({}, []):
        return _GONE
    return value
