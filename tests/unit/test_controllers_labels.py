"""Labels, annotations and names of what is made for a scale set."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.actions import InvalidConfigUrl
from arc_controller.api.core import ServiceAccount
from arc_controller.api.v1alpha1 import Annotation, Label, ResourceMeta
from arc_controller.controllers.labels import (
    label_value,
    merged_annotations,
    merged_labels,
    own_labels,
    propagated,
    url_labels,
)
from arc_controller.controllers.meta import (
    hashed_name,
    is_foreign,
    same_metadata,
    set_metadata,
    with_integrity,
)
from arc_controller.controllers.scale_set_version import version_complaint
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import ObjectMeta, OwnerReference

LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@given(st.text(alphabet="aZ9-_.", max_size=200) | st.text(max_size=80))
def test_any_name_becomes_a_valid_label_value(text: str) -> None:
    assert LABEL.fullmatch(label_value(text))


def test_a_long_label_value_is_cut_and_says_so() -> None:
    assert label_value("a" * 63) == "a" * 63
    assert label_value("a" * 64) == "a" * 58 + "-trim"
    assert label_value("-_.name.-") == "name"
    assert label_value("0.14.0+build.5") == "0.14.0-build.5"


def test_url_labels_name_what_the_url_names() -> None:
    assert url_labels("https://github.com/enterprises/big") == {Label.ENTERPRISE: "big"}
    assert url_labels("https://github.com/acme") == {Label.ORGANIZATION: "acme"}
    assert url_labels("https://ghes.example.com/acme/app") == {
        Label.ORGANIZATION: "acme",
        Label.REPOSITORY: "app",
    }
    with pytest.raises(InvalidConfigUrl):
        url_labels("https://github.com")


def test_labels_with_an_excluded_prefix_do_not_flow_down() -> None:
    labels = {"team": "x", "helm.sh/chart": "y", "helm.sh": "z"}
    assert propagated(labels) == labels
    assert propagated(labels, ("helm.sh/", "")) == {"team": "x", "helm.sh": "z"}


def test_extra_metadata_adds_and_never_overrides() -> None:
    extra = ResourceMeta(labels={"a": "1", Label.COMPONENT: "mine"}, annotations={"b": "2"})
    ours = own_labels("runner-set", name="n", namespace="s", version="0.14.0")
    labels = merged_labels(extra, {"a": "0"}, ours)
    assert (labels["a"], labels[Label.COMPONENT]) == ("0", "runner-set")
    assert merged_annotations(extra, {"c": "3"}) == {"b": "2", "c": "3"}
    assert merged_labels(None, {"a": "0"}) == {"a": "0"}


names = st.from_regex(r"[a-z]([-a-z0-9]{0,250}[a-z0-9])?", fullmatch=True)


@given(names, st.text(), st.text())
def test_a_listeners_name_fits_into_a_label_however_long_its_owners_is(
    name: str, namespace: str, url: str
) -> None:
    result = hashed_name(name, "listener", namespace, url)
    assert NAME.fullmatch(result), result
    assert result.endswith("-listener")
    assert re.fullmatch(r".*-[0-9a-f]{8}-listener", result)
    if len(name) <= 45:
        assert result.startswith(f"{name}-")


def test_names_differ_when_what_they_stand_for_does() -> None:
    long = "x" * 60
    found = {
        hashed_name("n", "listener", "ns", "group", "url"),
        hashed_name("n", "listener", "ns", "groupurl", ""),
        hashed_name("n", "listener", "other", "group", "url"),
        hashed_name(f"{long}a", "listener", "ns", "group", "url"),
        hashed_name(f"{long}b", "listener", "ns", "group", "url"),
    }
    assert len(found) == 5


def test_metadata_is_the_same_when_all_that_is_wanted_is_there() -> None:
    owner = OwnerReference(api_version="v1", kind="K", name="o", uid="1", controller=True)
    wanted = with_integrity(ObjectMeta(labels={"a": "1"}, owner_references=[owner]))
    actual = with_integrity(ObjectMeta(labels={"a": "1"}, owner_references=[owner]))
    actual.labels["others"] = "x"
    actual.annotations["others"] = "y"
    assert same_metadata(actual, wanted)
    assert not same_metadata(ObjectMeta(labels=actual.labels), wanted)
    actual.owner_references = []
    assert not same_metadata(actual, wanted)


def test_metadata_that_is_no_longer_wanted_is_noticed_and_removed() -> None:
    account = ServiceAccount(metadata=with_integrity(ObjectMeta(labels={"a": "1", "b": "2"})))
    wanted = with_integrity(ObjectMeta(labels={"a": "1"}))
    assert not same_metadata(account.metadata, wanted)
    lazy = LazyCopy(account)
    set_metadata(lazy, wanted)
    assert lazy.obj.metadata.labels == {"a": "1"}
    assert lazy.diff()["metadata"]["labels"] == {"b": None}


def test_a_new_owner_of_the_same_name_replaces_the_old_one_and_others_stay() -> None:
    def reference(uid: str, name: str = "o") -> OwnerReference:
        return OwnerReference(api_version="v1", kind="K", name=name, uid=uid, controller=True)

    account = ServiceAccount(
        metadata=ObjectMeta(owner_references=[reference("old"), reference("x", "other")])
    )
    lazy = LazyCopy(account)
    set_metadata(lazy, ObjectMeta(owner_references=[reference("new")]))
    assert [r.uid for r in lazy.obj.metadata.owner_references] == ["x", "new"]


def test_what_nobody_controls_may_be_adopted() -> None:
    owner = ServiceAccount(metadata=ObjectMeta(uid="1"))
    thing = ServiceAccount()
    assert not is_foreign(thing, owner)
    thing.metadata.owner_references = [
        OwnerReference(api_version="v1", kind="K", name="o", uid="2", controller=True)
    ]
    assert is_foreign(thing, owner)


def test_the_integrity_hash_covers_content_too() -> None:
    first, second = (
        with_integrity(ObjectMeta(), content).annotations[Annotation.INTEGRITY_HASH]
        for content in ({"a": 1}, {"a": 2})
    )
    assert first != second


@pytest.mark.parametrize(
    ("label", "ours", "complains"),
    [
        ("0.14.0", "0.14.3", False),
        ("v0.14.0", "0.14.3", False),
        ("0.14.0-rc1", "0.14.3", False),
        ("0.14", "0.14.3", False),
        ("0.13.9", "0.14.0", True),
        ("1.14.0", "0.14.0", True),
        ("0.140.0", "0.14.0", True),
        ("nonsense", "0.14.0", True),
        ("", "0.14.0", False),
        ("0.1.0", "dev", False),
        ("0.1.0", "canary-abc", False),
        ("dev", "0.14.0", False),
    ],
)
def test_versions_agree_in_major_and_minor(label: str, ours: str, complains: bool) -> None:
    assert bool(version_complaint(label, ours)) is complains
