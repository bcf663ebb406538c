"""Wrong kubeconfigs are told about in one sentence, and without their secrets."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arc_controller.runtime.errors import ConfigurationError
from arc_controller.runtime.kubeconfig import Choice, choose

SECRET = "s3cr3t-t0k3n"
PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()
EXEC_API = "client.authentication.k8s.io/v1"

Config = dict[str, Any]
Change = Callable[[Config], object]


def config(**user: Any) -> Config:
    return {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.invalid:6443"}}],
        "users": [{"name": "u", "user": user or {"token": SECRET}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }


def chosen(tmp_path: Path, content: Config | str, context: str | None = None) -> Choice:
    path = tmp_path / "config"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return choose(str(path), context)


def cluster_has(**fields: Any) -> Change:
    return lambda c: c["clusters"][0]["cluster"].update(
        {name.replace("_", "-"): value for name, value in fields.items()}
    )


def user_has(**fields: Any) -> Change:
    return lambda c: c["users"][0]["user"].update(
        {name.replace("_", "-"): value for name, value in fields.items()}
    )


def context_has(**fields: Any) -> Change:
    return lambda c: c["contexts"][0]["context"].update(fields)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c.pop("current-context"), "no current-context, and none was asked for .*: one"),
        (lambda c: c.update({"current-context": "two"}), r"no context 'two' \(there are: one\)"),
        (lambda c: c.pop("clusters"), r"a cluster that is not there: 'c' \(there are none\)"),
        (lambda c: c.update(clusters=7), "clusters is no list"),
        (lambda c: c.update(users=["u"]), "entry 1 of users has no name"),
        (context_has(cluster="d"), r"context 'one' is for a cluster .* 'd' \(there are: c\)"),
        (context_has(cluster=None), "context 'one' names no cluster"),
        (context_has(user="v"), r"context 'one' is for a user that is not there: 'v' .*: u\)"),
        (context_has(user=None), "context 'one' names no user"),
        (lambda c: c["contexts"][0].update(context=None), "context 'one' has no section context"),
        (lambda c: c["users"][0].update(user=None), "user 'u' has no section user"),
        (lambda c: c["clusters"][0]["cluster"].pop("server"), "cluster 'c' has no server: write"),
        (cluster_has(server=None), "cluster 'c': server has no value"),
        (cluster_has(server=8080), "cluster 'c' has no server: write https://host or"),
        (cluster_has(server="localhost:6443"), "server 'localhost:6443' cannot be used: write"),
        (cluster_has(server="https://a:99999"), "server 'https://a:99999' cannot be used: write"),
        (cluster_has(proxy_url="nonsense"), "proxy-url 'nonsense' cannot be used"),
        (cluster_has(certificate_authority_data="!"), "certificate-authority-data is no base64"),
        (user_has(token=None), "user 'u': token has no value"),
        (user_has(token=f"{SECRET}\nX-Evil: 1"), "user 'u': token holds a character that no HTTP"),
        (user_has(client_certificate_data=PEM), "half of a client certificate: client-key is mis"),
        (user_has(client_key="/k"), "half of a client certificate: client-certificate is missing"),
        (user_has(client_key_data=SECRET), "user 'u': client-key-data is no base64 of a PEM file"),
        (user_has(exec={"apiVersion": EXEC_API}), "user 'u': exec has no command"),
        (user_has(exec={"command": "aws"}), "user 'u': exec has no apiVersion"),
        (user_has(exec="aws"), "user 'u': exec has no command"),
        (user_has(**{"as": "root"}), "as: 'root': impersonation is not supported"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_field(
    tmp_path: Path, change: Change, sentence: str
) -> None:
    wrong = config()
    change(wrong)
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        chosen(tmp_path, wrong)
    message = str(caught.value)
    assert message.startswith(f"kubeconfig {tmp_path}/config cannot be used: ")
    assert SECRET not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty"),
        ("- a", "holds no mapping with clusters, contexts and users"),
        (f"users: [\n  token: {SECRET}\nfoo: : bar", "is no YAML: line 3, column 4: "),
        (f"users:\n\t- token: {SECRET}", "is no YAML: line 2, column 1: "),
        ("\x00", "is no YAML"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_told_by_line_and_column(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        chosen(tmp_path, text)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        choose(str(tmp_path / "config"))


def test_of_several_files_the_first_that_says_something_counts(tmp_path: Path) -> None:
    """As for kubectl; another order would mean another cluster."""
    first, second = config(), config()
    second["contexts"][0]["name"] = second["current-context"] = "two"
    names = {"empty": "", "first": yaml.safe_dump(first), "second": yaml.safe_dump(second)}
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    paths = {name: str(tmp_path / name) for name in (*names, "missing")}

    def files(*order: str) -> str:
        return os.pathsep.join(paths[name] for name in order)

    assert choose(files("first", "second")).context == "one"
    assert choose(files("second", "first")).context == "two"
    assert choose(files("missing", "empty", "second")) == Choice(
        paths["second"], "two", "u", secrets=(SECRET,)
    )
    assert choose(files("first", "second"), "two").context == "two"


def test_without_a_user_plain_http_can_be_used(tmp_path: Path) -> None:
    plain = config()
    cluster_has(server="http://127.0.0.1:8001")(plain)
    plain["contexts"][0]["context"].pop("user")
    assert chosen(tmp_path, plain).user == ""


def test_every_credential_is_cut_out_of_what_somebody_else_says(tmp_path: Path) -> None:
    secrets = {name: f"{SECRET}-{name}" for name in ("token", "password", "id-token", "env")}
    user = {
        "token": secrets["token"],
        "username": "joe",
        "password": secrets["password"],
        "auth-provider": {"name": "oidc", "config": {"id-token": secrets["id-token"]}},
        "exec": {
            "apiVersion": EXEC_API,
            "command": "aws",
            "env": [{"name": "AWS_KEY", "value": secrets["env"]}],
        },
    }
    choice = chosen(tmp_path, config(**user))
    said = choice.redacted(f"Expected key x in {user}")
    assert not [secret for secret in secrets.values() if secret in said]
    assert "joe" in said
    assert SECRET not in repr(choice)
