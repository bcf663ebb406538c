"""Refreshes the pod template schema in the package from a real API server.

``python -m arc_controller.testing.envtest.pod_template`` after the version in tools/go.mod changed,
then ``make manifests``.
"""

from __future__ import annotations

import asyncio
import json
from importlib import resources
from pathlib import Path
from typing import Any

from arc_controller.api.crd import POD_TEMPLATE_FILE
from arc_controller.api.structural import POD_TEMPLATE, structural_schema
from arc_controller.testing.envtest.environment import Envtest


async def published_schema(env: Envtest) -> dict[str, Any]:
    """The structural schema of a pod template, from what ``env`` publishes."""
    return structural_schema(await env.rest.request("GET", "/openapi/v3/api/v1"), POD_TEMPLATE)


def encoded(schema: dict[str, Any]) -> str:
    """One line, keys sorted: small, and the same for the same schema."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":")) + "\n"


async def fetch() -> dict[str, Any]:
    async with Envtest() as env:
        return await published_schema(env)


def main() -> None:
    path = Path(str(resources.files("arc_controller.api") / POD_TEMPLATE_FILE))
    path.write_text(encoded(asyncio.run(fetch())))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
