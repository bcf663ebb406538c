"""Whether a scale set was installed by a chart of our release series.

Nothing follows from it but a condition and an Event: the types are compatible, and an object that a
user wrote is not ours to delete.
"""

from __future__ import annotations

import re

_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\D.*)?")
_TAKES_ANY = re.compile(r"dev|canary-.*")


def version_complaint(label: str, ours: str) -> str:
    """One sentence if the two versions differ in major or minor, else ``""``.

    ``dev`` and ``canary-*`` go with everything; without a label there is nothing to compare.
    """
    if not label or _TAKES_ANY.fullmatch(ours) or _TAKES_ANY.fullmatch(label):
        return ""
    if _series(label) == _series(ours):
        return ""
    return (
        f"the label app.kubernetes.io/version is {label!r} and the controller is {ours}; "
        "everything keeps working, but upgrade the chart of the scale set to the same release"
    )


def _series(version: str) -> tuple[str, str] | str:
    match = _RELEASE.fullmatch(version)
    return (match[1], match[2]) if match else version
