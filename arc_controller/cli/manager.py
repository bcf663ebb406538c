"""The console script ``manager``: the four controllers as a process, see `manager_process`."""

from __future__ import annotations

import sys
from types import ModuleType


def main() -> None:
    """Run until SIGTERM; see `arc_controller.cli.manager_process.main` for the exit status."""
    sys.exit(load().main())


def load() -> ModuleType:
    """Import the process's code, and no more than it needs.

    structlog loads rich where it is installed, 5 MiB that a manager never uses; a module that is
    None cannot be imported.
    """
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from arc_controller.cli import manager_process

    return manager_process


if __name__ == "__main__":
    main()
