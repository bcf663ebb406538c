"""The console script ``ghalistener``: one listener as a process, see `arc_controller.listener`."""

from __future__ import annotations

import sys
from types import ModuleType


def main() -> None:
    """Listen until SIGTERM; see `arc_controller.listener.process` for the exit status."""
    sys.exit(load().main(arguments=sys.argv[1:]))


def load() -> ModuleType:
    """Import the process's code, and no more than it needs.

    structlog loads rich where it is installed, 5 MiB that a listener never uses; a module that is
    None cannot be imported.
    """
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from arc_controller.listener import process

    return process


if __name__ == "__main__":
    main()
