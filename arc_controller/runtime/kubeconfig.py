"""Says what is wrong with a kubeconfig, in one sentence, before anybody uses it.

The official client uses it (see `officialclient`). Where one is wrong, that fails with whatever its
code ran into, and may quote what it stumbled over, credentials included.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from arc_controller.runtime.errors import ConfigurationError
from arc_controller.runtime.sessions import host_of

SHORTEST_SECRET = 4
"""Characters; what is shorter hides nothing, and is part of ordinary words."""
PARTS = ("clusters", "contexts", "users")

_SECRET = re.compile("token|secret|key|password")
_CLUSTER_FIELDS = (
    *("server", "certificate-authority", "certificate-authority-data"),
    *("insecure-skip-tls-verify", "tls-server-name", "proxy-url"),
)
_USER_FIELDS = (
    *("token", "tokenFile", "username", "password", "exec", "auth-provider"),
    *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a kubeconfig says, as far as it matters for using it."""

    files: str
    """Those that hold anything, separated as in ``PATH``."""
    context: str
    user: str = ""
    plugin: str = ""
    """The command of the user's exec plugin."""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def redacted(self, text: str) -> str:
        """The text without the credentials of the chosen user."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return text


def choose(files: str, context: str | None = None) -> Choice:
    """What the files (separated as in ``PATH``) say about `context`, or the current one.

    As for kubectl, the first file that says something counts. Raises `ConfigurationError`.
    """
    try:
        return _choose(files, context)
    except _Wrong as error:
        raise ConfigurationError(f"kubeconfig {files} cannot be used: {error}") from None


class _Wrong(Exception):
    """What is wrong, without saying where."""


def _choose(files: str, context: str | None) -> Choice:
    used, merged = [], _Merged()
    for file in files.split(os.pathsep):
        content = _read(Path(file).expanduser()) if file else None
        if content:
            used.append(file)
            merged.add(content)
    if not used:
        raise _Wrong("it is empty")
    wanted = context or merged.current_context
    if not wanted:
        known = _listed(merged.parts["contexts"])
        raise _Wrong(f"it has no current-context, and none was asked for ({known})")
    chosen = _section(merged.find("contexts", wanted, "there is no context"), "context", wanted)
    owner = f"context {wanted!r}"
    name = chosen.get("cluster")
    if not name:
        raise _Wrong(f"{owner} names no cluster")
    cluster = _section(
        merged.find("clusters", name, f"{owner} is for a cluster that is not there:"),
        "cluster",
        name,
    )
    _check_cluster(cluster, f"cluster {name!r}")
    choice = Choice(os.pathsep.join(used), str(wanted))
    user_name = chosen.get("user")
    if not user_name:
        if str(cluster.get("server")).startswith("https:"):
            raise _Wrong(f"{owner} names no user (one without credentials will do)")
        return choice
    user = _section(
        merged.find("users", user_name, f"{owner} is for a user that is not there:"),
        "user",
        user_name,
    )
    _check_user(user, f"user {user_name!r}")
    plugin = user["exec"]["command"] if "exec" in user else ""
    secrets = sorted(set(_secrets(user)), key=len, reverse=True)
    return Choice(choice.files, choice.context, str(user_name), plugin, tuple(secrets))


def _read(file: Path) -> Mapping[str, Any] | None:
    try:
        content = yaml.safe_load(file.read_text("utf-8"))
    except FileNotFoundError:
        return None  # Of several files some may be missing; `find_kubeconfig` saw one at least.
    except (OSError, UnicodeDecodeError) as error:
        raise _Wrong(f"{file} cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise _Wrong(f"{file} is no YAML: {where}{error.problem}") from None
    except yaml.YAMLError:
        raise _Wrong(f"{file} is no YAML") from None
    if content is not None and not isinstance(content, dict):
        raise _Wrong(f"{file} holds no mapping with clusters, contexts and users")
    return content


class _Merged:
    """Several files as one."""

    def __init__(self) -> None:
        self.current_context: Any = None
        self.parts: dict[str, dict[Any, Mapping[str, Any]]] = {part: {} for part in PARTS}

    def add(self, content: Mapping[str, Any]) -> None:
        self.current_context = self.current_context or content.get("current-context")
        for part in PARTS:
            entries = content.get(part) or []
            if not isinstance(entries, list):
                raise _Wrong(f"{part} is no list")
            for number, entry in enumerate(entries, 1):
                if not isinstance(entry, dict) or not entry.get("name"):
                    raise _Wrong(f"entry {number} of {part} has no name")
                self.parts[part].setdefault(entry["name"], entry)

    def find(self, part: str, name: Any, missing: str) -> Mapping[str, Any]:
        found = self.parts[part].get(name) if isinstance(name, str | int) else None
        if found is None:
            raise _Wrong(f"{missing} {name!r} ({_listed(self.parts[part])})")
        return found


def _listed(known: Mapping[Any, object]) -> str:
    return f"there are: {', '.join(map(str, known))}" if known else "there are none"


def _section(entry: Mapping[str, Any], what: str, name: Any) -> Mapping[str, Any]:
    section = entry.get(what)
    if not isinstance(section, dict):
        raise _Wrong(f"{what} {name!r} has no section {what}")
    return section


def _check_cluster(cluster: Mapping[str, Any], owner: str) -> None:
    _check_nulls(cluster, _CLUSTER_FIELDS, owner)
    server = cluster.get("server")
    if not isinstance(server, str) or not server:
        raise _Wrong(f"{owner} has no server: write https://host or https://host:port")
    for name in ("server", "proxy-url"):
        if name in cluster:
            try:
                host_of(str(cluster[name]), f"{owner}: {name}")
            except ConfigurationError as error:
                raise _Wrong(str(error)) from None
    _check_pem(cluster, "certificate-authority-data", owner)


def _check_user(user: Mapping[str, Any], owner: str) -> None:
    _check_nulls(user, _USER_FIELDS, owner)
    if user.get("as"):
        # The official client would send requests as somebody with other permissions.
        raise _Wrong(f"{owner}: as: {user['as']!r}: impersonation is not supported")
    if not str(user.get("token", "")).strip().isprintable():
        raise _Wrong(f"{owner}: token holds a character that no HTTP header may have")
    for name in ("client-certificate-data", "client-key-data"):
        _check_pem(user, name, owner)
    has_certificate = "client-certificate" in user or "client-certificate-data" in user
    has_key = "client-key" in user or "client-key-data" in user
    if has_certificate is not has_key:
        missing = "client-key" if has_certificate else "client-certificate"
        raise _Wrong(f"{owner} has one half of a client certificate: {missing} is missing")
    if "exec" in user:
        _check_exec(user["exec"], owner)


def _check_exec(plugin: Any, owner: str) -> None:
    for name in ("command", "apiVersion"):
        if not isinstance(plugin, dict) or not isinstance(plugin.get(name), str):
            raise _Wrong(f"{owner}: exec has no {name}")


def _check_nulls(section: Mapping[str, Any], names: tuple[str, ...], owner: str) -> None:
    for name in names:
        if name in section and section[name] is None:
            raise _Wrong(f"{owner}: {name} has no value")


def _check_pem(section: Mapping[str, Any], name: str, owner: str) -> None:
    if name not in section:
        return
    try:
        text = "".join(str(section[name]).split())
        if b"-----BEGIN " in base64.b64decode(text, validate=True):
            return
    except (binascii.Error, ValueError):
        pass
    raise _Wrong(f"{owner}: {name} is no base64 of a PEM file")


def _secrets(user: Mapping[str, Any]) -> Iterator[str]:
    values = [user.get(name) for name in ("token", "password", "client-key-data")]
    provider = user.get("auth-provider")
    if isinstance(provider, dict) and isinstance(provider.get("config"), dict):
        config = provider["config"].items()
        values += [value for name, value in config if _SECRET.search(str(name))]
    variables = user["exec"].get("env") if "exec" in user else None
    if isinstance(variables, list):
        values += [each.get("value") for each in variables if isinstance(each, dict)]
    yield from (str(value) for value in values if value and len(str(value)) >= SHORTEST_SECRET)
