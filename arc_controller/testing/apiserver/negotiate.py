"""In which form the client wants its answer."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from arc_controller.testing.apiserver import errors

Form = Literal["Object", "Table", "PartialObjectMetadata", "Discovery"]

_SERVED = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
)


@lru_cache(maxsize=512)
def negotiate(accept: str) -> tuple[Form, str]:
    """The form and its version. Raises NotAcceptable when JSON will not do."""
    if not accept:
        return "Object", ""
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media not in ("application/json", "*/*", "application/*"):
            continue
        given = dict(each.split("=", 1) for each in parameters if "=" in each)
        wanted = given.get("as", "")
        version = given.get("v", "v1")
        if wanted == "Table" and version in ("v1", "v1beta1"):
            return "Table", version
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return "PartialObjectMetadata", version
        if wanted == "APIGroupDiscoveryList" and version in ("v2", "v2beta1"):
            return "Discovery", version
        if not wanted:
            return "Object", ""
    raise errors.not_acceptable(_SERVED)
