"""The console script ``manager``: the four controllers as a process, see `manager_process`."""

from __future__ import annotations

import gc
import sys
from types import ModuleType


def main() -> None:
    """Run until SIGTERM; see `arc_controller.cli.manager_process.main` for the exit status."""
    process = load()
    # What is loaded stays, and a cache is no garbage: a tenth of the work is looking at them anew.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    sys.exit(process.main())


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
