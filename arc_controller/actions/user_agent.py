"""What we say of ourselves in the ``User-Agent`` header of every call."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from arc_controller import __version__


@dataclass(frozen=True, slots=True)
class UserAgent:
    """``system``, ``version`` and ``commit_sha`` describe the program that uses this client,
    ``subsystem`` the part of it that calls; ``build_version`` and ``build_commit_sha`` the client
    itself. ``scale_set_id`` is 0 where no scale set is concerned."""

    system: str = "actions-runner-controller"
    version: str = __version__
    commit_sha: str = ""
    scale_set_id: int = 0
    subsystem: str = "client"
    build_version: str = __version__
    build_commit_sha: str = ""

    def header(self) -> str:
        """The value of the header: one JSON object."""
        return msgspec.json.encode(
            {
                "system": self.system,
                "version": self.version,
                "commit_sha": self.commit_sha,
                "scale_set_id": self.scale_set_id,
                "subsystem": self.subsystem,
                "build_version": self.build_version,
                "build_commit_sha": self.build_commit_sha,
                "kind": "scaleset",
            }
        ).decode()
