"""Classes, kinds and paths."""

from __future__ import annotations

import msgspec
import pytest

from arc_controller.api import SCHEME
from arc_controller.api.core import Pod, PodManifest, Role, Secret
from arc_controller.api.v1alpha1 import EphemeralRunner
from arc_controller.runtime.objects import KubeObject, NamespacedName, ObjectMeta
from arc_controller.runtime.scheme import Resource, Scheme, UnknownKind

KEY = NamespacedName("ns", "a")


class Node(KubeObject):
    pass


class Other(KubeObject):
    pass


NODES = Resource("", "v1", "Node", "nodes", namespaced=False)


def test_paths_are_those_of_the_api() -> None:
    assert SCHEME.path(Pod, KEY) == "/api/v1/namespaces/ns/pods/a"
    assert SCHEME.path(Pod, KEY, "status") == "/api/v1/namespaces/ns/pods/a/status"
    assert SCHEME.resource(Pod).path() == "/api/v1/pods"
    group = "/apis/actions.github.com/v1alpha1"
    assert SCHEME.path(EphemeralRunner, KEY) == f"{group}/namespaces/ns/ephemeralrunners/a"
    assert SCHEME.resource(EphemeralRunner).path("ns") == f"{group}/namespaces/ns/ephemeralrunners"
    assert NODES.path("ignored", "n1") == "/api/v1/nodes/n1"


def test_names_that_need_it_are_quoted() -> None:
    key = NamespacedName("ns", "system:x y?#")
    assert SCHEME.path(Role, key).endswith("/roles/system:x%20y%3F%23")


@pytest.mark.parametrize("name", ["..", ".", "../../secrets/b", "a/b", "%2e%2e"])
def test_a_name_cannot_lead_to_another_path(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of an object"):
        SCHEME.path(Secret, NamespacedName("ns", name))
    with pytest.raises(ValueError, match="cannot be the name of an object"):
        SCHEME.path(Secret, NamespacedName(name, "a"))


def test_an_incomplete_key_is_refused_instead_of_meaning_the_collection() -> None:
    with pytest.raises(ValueError, match="Secret: the name is empty"):
        SCHEME.path(Secret, NamespacedName("ns", ""))
    with pytest.raises(ValueError, match="Secret 'a': the namespace is empty"):
        SCHEME.path(Secret, NamespacedName("", "a"))


def test_what_is_encoded_has_its_kind_first_and_is_read_back() -> None:
    for obj in (Pod(metadata=ObjectMeta(name="a", namespace="ns")), Pod()):
        body = SCHEME.encode(obj)
        assert body.startswith(b'{"apiVersion":"v1","kind":"Pod",')
        assert SCHEME.decode(Pod, body) == obj


def test_a_subclass_stands_for_the_registered_kind() -> None:
    assert SCHEME.registered(PodManifest) is Pod
    assert SCHEME.path(PodManifest, KEY) == SCHEME.path(Pod, KEY)
    body = msgspec.json.decode(SCHEME.encode(PodManifest(spec={"containers": []})))
    assert body["kind"] == "Pod"
    assert body["spec"] == {"containers": []}


def test_a_page_of_a_list_is_decoded_with_its_position() -> None:
    body = (
        b'{"metadata":{"resourceVersion":"7","continue":"t"},"items":[{"metadata":{"name":"a"}}]}'
    )
    page = SCHEME.decode_list(Pod, body)
    assert [pod.metadata.name for pod in page.items] == ["a"]
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "t")
    assert SCHEME.decode_list(Pod, b'{"metadata":{},"items":[]}').items == []


def test_null_is_an_empty_list_and_nothing_is_no_list() -> None:
    """Go writes a nil slice as null; a Status has metadata, but no items."""
    assert SCHEME.decode_list(Pod, b'{"metadata":{},"items":null}').items == []
    with pytest.raises(msgspec.ValidationError, match="missing required field `items`"):
        SCHEME.decode_list(Pod, b'{"kind":"Status","metadata":{}}')


def test_null_counts_as_absent_where_the_type_allows_no_null() -> None:
    body = (
        b'{"metadata":{"name":"a","labels":null,"finalizers":null,"ownerReferences":null},'
        b'"status":null,"spec":{"containers":null}}'
    )
    assert SCHEME.decode(Pod, body) == Pod(metadata=ObjectMeta(name="a"))
    labels = b'{"metadata":{"name":"a","labels":{"x":null,"y":"1"}}}'
    assert SCHEME.decode(Pod, labels).metadata.labels == {"y": "1"}
    with pytest.raises(msgspec.ValidationError, match="Expected `str`, got `int`"):
        SCHEME.decode(Pod, b'{"metadata":{"name":1,"labels":null}}')


def test_what_is_nested_too_deeply_is_an_object_that_cannot_be_read() -> None:
    deep = b'{"metadata":{"name":"a"},"more":' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        SCHEME.decode(Pod, deep)


def test_a_class_nobody_registered_is_named() -> None:
    with pytest.raises(UnknownKind, match=r"Node is not registered; call scheme.register\(Node"):
        SCHEME.resource(Node)
    with pytest.raises(UnknownKind, match="v1 Nonsense"):
        SCHEME.class_of("v1", "Nonsense")


def test_one_kind_has_one_class_and_one_class_one_kind() -> None:
    scheme = Scheme()
    scheme.register(Node, NODES)
    scheme.register(Node, NODES)  # Again is no mistake.
    with pytest.raises(ValueError, match="registered already"):
        scheme.register(Other, NODES)
    with pytest.raises(ValueError, match="registered already"):
        scheme.register(Node, Resource("", "v1", "Knot", "knots"))
    assert scheme.kinds() == [Node]
    assert scheme.class_of("v1", "Node") is Node


def test_a_user_extends_a_scheme_with_kinds_of_their_own() -> None:
    mine = Scheme()
    mine.register(Node, NODES)
    both = mine.update(SCHEME)
    assert both is mine
    assert both.resource(Node) == NODES
    assert both.resource(Pod) == SCHEME.resource(Pod)
    with pytest.raises(UnknownKind):
        SCHEME.resource(Node)


def test_an_owner_reference_names_the_owner_as_the_api_knows_it() -> None:
    owner = EphemeralRunner(metadata=ObjectMeta(name="r", namespace="ns", uid="u"))
    reference = SCHEME.owner_reference(owner)
    assert (reference.api_version, reference.kind) == (
        "actions.github.com/v1alpha1",
        "EphemeralRunner",
    )
    assert (reference.name, reference.uid) == ("r", "u")
    assert reference.controller
    assert reference.block_owner_deletion
    assert not SCHEME.owner_reference(owner, controller=False).controller
