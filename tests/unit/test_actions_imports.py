"""What importing the client costs: the listener's memory is counted in MiB."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_client_loads_nothing_heavy() -> None:
    heavy = ["aiohttp", "jwt", "cryptography", "azure", "kubernetes", "rich", "structlog"]
    code = f"import sys, arc_controller.actions;print(*[m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []


def test_the_network_of_a_token_client_needs_aiohttp_only() -> None:
    heavy = ["jwt", "cryptography", "azure", "kubernetes", "rich", "structlog"]
    code = (
        "import sys\n"
        "from arc_controller.actions import ActionsClient, PersonalAccessToken\n"
        "ActionsClient('https://github.com/acme', PersonalAccessToken('t'))\n"
        f"print(*[m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []
