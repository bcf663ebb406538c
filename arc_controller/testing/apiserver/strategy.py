"""What one kind does differently from the others when it is written or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arc_controller.testing.apiserver.decode import Decoder
from arc_controller.testing.apiserver.errors import FieldError
from arc_controller.testing.apiserver.messages import ADMIN, Object, UserInfo
from arc_controller.testing.apiserver.metadata import name_problem_subdomain
from arc_controller.testing.apiserver.types import Node


@dataclass(slots=True)
class Call:
    """What a write knows about the request behind it."""

    now: str
    """The time of the request, as RFC 3339 with whole seconds."""
    user: UserInfo = ADMIN
    dry_run: bool = False
    field_validation: str = ""
    manager: str = ""
    warnings: list[str] = field(default_factory=list)
    patched: bool = False
    """The update comes from a patch."""
    strategic: Any = None
    """The body of a strategic merge patch: what a refusal quotes."""
    applied: Any = None
    """The field managers as server-side apply left them."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_period: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""


class Strategy:
    """Rules of a kind without rules of its own. Methods change the object given to them."""

    unconditional_update = True
    """May be updated without a resourceVersion."""
    create_on_update = False
    """PUT of a name that does not exist creates it."""
    returns_deleted = False
    """Deletion answers with the object instead of a Status."""
    deletion_counts_grace = True
    """A deletion that finalizers hold shows a grace period of 0."""
    counts_generation = False
    """`metadata.generation` follows the spec."""
    validates_metadata_again = True
    """Updates check labels, annotations, owners and finalizers twice, and both checks report."""
    qualified_finalizers = True
    """Finalizers without a domain are refused."""
    status_takes_metadata = True
    """An update of `status` may change labels, annotations and finalizers too."""
    status_resets: frozenset[str] = frozenset()
    """What of the metadata it may not change nevertheless."""

    def conform(
        self, obj: Object, old: Object | None, node: Node, *, applied: bool = False
    ) -> list[str]:
        """Decode as the kind's type: drop what it does not declare, and say what that was.

        `applied`: the object comes from a server-side apply. Raises `DecodeError`.
        """
        decoder = Decoder()
        decoder.conform(node, obj, old, "")
        return decoder.unknown

    def prepare_create(self, obj: Object, call: Call) -> None:
        """Set what is the server's and clear what a client may not set."""

    def prepare_update(self, obj: Object, old: Object, call: Call) -> None:
        """The same for an update of the main resource."""

    def prepare_status(self, obj: Object, old: Object, call: Call) -> None:
        """The same for an update of `status`."""

    def default(self, obj: Object) -> None:
        """Fill in defaults, on every write. Their fields belong to whoever writes."""

    def validate(self, obj: Object) -> list[FieldError]:
        return []

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """What is allowed in a create or update and yet worth a warning."""
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return []

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        return []

    def validate_name(self, name: str) -> str:
        """What is wrong with the name; empty when it is fine."""
        return name_problem_subdomain(name)

    def grace_period(self, obj: Object, options: DeleteOptions) -> int | None:
        """Seconds between the deletion and the end; None for kinds that go at once."""
        return None

    def prepare_delete(self, obj: Object) -> None:
        """Mark an object whose deletion begins."""

    def is_held(self, obj: Object) -> bool:
        """Whether something beside `metadata.finalizers` keeps a deleted object."""
        return False

    def spec_changed(self, obj: Object, old: Object) -> bool:
        """Whether the generation grows."""
        return obj.get("spec") != old.get("spec")


def default_in(obj: Mapping[str, Any], key: str, value: Any) -> None:
    """Set a field that is absent, null or an empty string."""
    if isinstance(obj, dict) and obj.get(key) in (None, ""):
        obj[key] = value
