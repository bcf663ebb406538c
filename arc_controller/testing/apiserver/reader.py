"""Get, list and watch: resource versions, pages and snapshots."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.messages import decode_json, encode_json
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.selectors import (
    field_matcher,
    field_text,
    parse_label_selector,
    selected_value,
)
from arc_controller.testing.apiserver.store import HistoryGoneError, Store, Stored
from arc_controller.testing.apiserver.watch import Encode, Filter, Watch

_COMMON_FIELDS = {"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace"}

_LIST_EXPIRED = "The resourceVersion for the provided list is too old."
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of a list."""

    stored: list[Stored]
    revision: int
    next_token: str = ""
    remaining: int | None = None


def make_filter(resource: Resource, namespace: str, name: str, query: dict[str, str]) -> Filter:
    """What the path and the selectors of a list or watch ask for."""
    label_text = query.get("labelSelector", "")
    field_text = query.get("fieldSelector", "")
    if not label_text and not field_text:
        return Filter(namespace, name)
    fields = None
    if field_text:
        name = name or selected_value(field_text, "metadata.name")
        supported = {**_COMMON_FIELDS, **resource.selectable}

        def unsupported(field: str) -> Exception:
            if resource.custom or resource.selectable:
                return errors.bad_request(f"field label not supported: {field}")
            return errors.bad_request(
                f'"{field}" is not a known field selector: only "metadata.name", '
                '"metadata.namespace"'
            )

        fields = field_matcher(field_text, supported, unsupported)
    return Filter(namespace, name, parse_label_selector(label_text), fields)


def read_one(store: Store, resource: Resource, namespace: str, name: str) -> Stored:
    """The object. Raises NotFound."""
    stored = store.read(resource.storage_key, namespace, name)
    if stored is None:
        raise errors.not_found(resource.group, resource.plural, name)
    return stored


def read_page(store: Store, resource: Resource, wanted: Filter, query: dict[str, str]) -> Page:
    """One page of a list, as consistent as the resourceVersion of the query asks."""
    key = resource.storage_key
    token = query.get("continue", "")
    match = query.get("resourceVersionMatch", "")
    asked = query.get("resourceVersion", "")
    limit = _number(query, "limit")
    _check_match(asked, match, token)
    start = ""
    revision = store.revision
    if token:
        if asked not in ("", "0"):
            raise errors.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        revision, start = _decode_token(token)
        if revision < 0:
            revision = store.revision
        objects = _snapshot(store, key, wanted.namespace, revision, start)
    else:
        number = parse_version(asked)
        if number > store.revision:
            raise errors.too_large_resource_version(number, store.revision)
        if match == "Exact":
            revision = number
            objects = _snapshot(store, key, wanted.namespace, revision, "")
        elif wanted.name and wanted.namespace:
            one = store.read(key, wanted.namespace, wanted.name)
            objects = [one] if one is not None else []
        else:
            objects = _indexed(store.scan(key, wanted.namespace), resource, query)
    if start:
        objects = [each for each in objects if _path(each) >= start]
    if wanted.name and wanted.namespace:
        objects = [each for each in objects if each.name == wanted.name]
    everything = wanted.everything
    if everything and not limit:
        return Page(objects, revision)
    page: list[Stored] = []
    for index, each in enumerate(objects, start=1):
        if everything or wanted.selects(each):
            page.append(each)
        if limit and len(page) == limit and index < len(objects):
            # Whatever follows, selected or not, is for the next page to look at.
            following = _encode_token(revision, _path(each) + "\0")
            exact = wanted.labels is None and wanted.fields is None
            return Page(page, revision, following, len(objects) - index if exact else None)
    return Page(page, revision)


def _indexed(objects: list[Stored], resource: Resource, query: dict[str, str]) -> list[Stored]:
    """What the index finds, if the real server has one of a field that is selected by."""
    field = resource.indexed
    value = selected_value(query.get("fieldSelector", ""), field) if field else ""
    if not value:
        return objects
    path = field.split(".")
    return [each for each in objects if field_text(each.obj, path) == value]


def open_watch(
    store: Store,
    resource: Resource,
    wanted: Filter,
    query: dict[str, str],
    *,
    bookmark_interval: float,
    default_timeout: Callable[[], float],
    encode: Encode | None = None,
    on_close: Callable[[Watch], None] | None = None,
) -> Watch:
    """Start a watch where the query's resourceVersion says."""
    asked = query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    bookmarks = _flag(query, "allowWatchBookmarks")
    initial = _flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
    _check_watch(initial, match)
    number = _watch_version(asked)
    seconds = _seconds(query)
    timeout = seconds if seconds > 0 else default_timeout()
    watch = Watch(
        store,
        resource,
        wanted,
        timeout=timeout,
        bookmark_interval=bookmark_interval if bookmarks else None,
        encode=encode,
        on_close=on_close,
    )
    if initial or (initial is None and number == 0):
        watch.add_existing(store.scan(resource.storage_key, wanted.namespace))
        if initial and bookmarks:
            watch.bookmark(store.revision, initial_events_end=True)
        watch.begin([])
        return watch
    if number == 0:
        watch.begin([])
        return watch
    try:
        replay = store.events_after(resource.storage_key, number)
    except HistoryGoneError as gone:
        watch.fail(errors.expired(f"too old resource version: {gone.asked} ({gone.oldest})"))
        return watch
    watch.begin(replay)
    return watch


def parse_version(text: str) -> int:
    """A resourceVersion as a number; 0 when absent. Raises Invalid like the real server."""
    if not text:
        return 0
    if not text.isdigit():
        problem = errors.invalid_value(
            "resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
        raise errors.bad_request(f"invalid resource version: {problem}")
    return int(text)


def _watch_version(text: str) -> int:
    try:
        return parse_version(text)
    except errors.StatusError as error:
        message = error.message.removeprefix("invalid resource version: ")
        raise errors.internal(message) from None


def encode_list(
    resource: Resource, page: Page, items: list[bytes], *, partial: bool = False
) -> bytes:
    """The list object around already encoded items."""
    kind = "PartialObjectMetadataList" if partial else resource.list_kind_name
    api_version = "meta.k8s.io/v1" if partial else resource.api_version
    metadata = list_metadata(page)
    if partial and not items:
        return encode_json(
            {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": None}
        )
    if resource.custom and not partial:
        metadata = {"continue": "", **metadata}
    return b"".join(
        (
            b'{"kind":"',
            kind.encode(),
            b'","apiVersion":"',
            api_version.encode(),
            b'","metadata":',
            encode_json(metadata),
            b',"items":[',
            b",".join(items),
            b"]}",
        )
    )


def list_metadata(page: Page) -> dict[str, object]:
    metadata: dict[str, object] = {"resourceVersion": str(page.revision)}
    if page.next_token:
        metadata["continue"] = page.next_token
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def _snapshot(store: Store, key: str, namespace: str, revision: int, start: str) -> list[Stored]:
    try:
        return store.list_at(key, namespace, revision)
    except HistoryGoneError:
        if not start:
            raise errors.expired(_LIST_EXPIRED) from None
        error = errors.expired(_CONTINUE_EXPIRED)
        error.list_meta = {"continue": _encode_token(-1, start)}
        raise error from None


def _path(stored: Stored) -> str:
    return f"{stored.namespace}/{stored.name}" if stored.namespace else stored.name


def _encode_token(revision: int, start: str) -> str:
    token = {"v": "meta.k8s.io/v1", "rv": revision, "start": start}
    return base64.urlsafe_b64encode(encode_json(token)).rstrip(b"=").decode()


def _decode_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        decoded = decode_json(base64.urlsafe_b64decode(padded))
        return int(decoded["rv"]), str(decoded["start"])
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError):
        at = next((i for i, each in enumerate(token) if not (each.isalnum() or each in "-_")), 0)
        raise errors.bad_request(
            "invalid continue token: continue key is not valid: illegal base64 data at input "
            f"byte {at}"
        ) from None


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _seconds(query: dict[str, str]) -> float:
    """Parts of a second too, which the real server does not take: tests need short watches."""
    try:
        return float(query.get("timeoutSeconds") or 0)
    except ValueError:
        return _number(query, "timeoutSeconds")


def _check_match(asked: str, match: str, token: str) -> None:
    if not match:
        return
    problem = None
    if token:
        problem = errors.forbidden_value(
            "resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"
        )
    elif not asked:
        problem = errors.forbidden_value(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )
    elif match not in ("Exact", "NotOlderThan"):
        problem = errors.not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", ""))
    elif match == "Exact" and asked == "0":
        problem = errors.forbidden_value(
            "resourceVersionMatch",
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        )
    if problem is not None:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [problem])


def _check_watch(initial: bool | None, match: str) -> None:
    problem = None
    if initial is not None and match != "NotOlderThan":
        problems = [
            errors.forbidden_value(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        ]
        if match:
            problems.append(errors.not_supported("resourceVersionMatch", match, ("NotOlderThan",)))
        raise errors.invalid("meta.k8s.io", "ListOptions", "", problems)
    if initial is None and match:
        problem = errors.forbidden_value(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    if problem is not None:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [problem])


def _flag(query: dict[str, str], key: str) -> bool:
    return query.get(key, "") in ("1", "true", "True")
