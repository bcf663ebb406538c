"""The console script ``arcctl``: a cluster in a box, to try things out.

Needs the extra ``testing``: it is made of `arc_controller.testing`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import arc_controller

DEMO = """\
Starts an embedded API server, a fake Actions service, the manager and (when the manager asks for
it) a listener as real processes, applies the sample manifests, queues jobs, and watches until
everything is done and gone. Exits with 0 only if no job was lost and nothing was left behind.
"""
APISERVER = """\
Serves the embedded API server, with our CRDs installed, until interrupted. Everything is kept in
memory. Point kubectl at it with the kubeconfig that is written.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a subcommand; the process's exit status is its own."""
    options = parser().parse_args(arguments)
    sys.exit(_run(options.run(options)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="arcctl", description="A runner scale set cluster in a box.")
    top.add_argument("--version", action="version", version=arc_controller.__version__)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo", help="run jobs on an embedded cluster, from nothing to nothing", description=DEMO
    )
    demo.add_argument("--jobs", type=_count, default=20, metavar="N", help="how many (20)")
    demo.add_argument(
        "--keep",
        action="store_true",
        help="stay up, with the scale set, until interrupted; a number and Enter queue more jobs",
    )
    demo.add_argument(
        "--kill-manager-at",
        type=_moment,
        metavar="SECONDS|random",
        help="SIGKILL the manager that long after the jobs were queued, and start it again",
    )
    demo.add_argument(
        "--job-seconds", type=_seconds, default=2.0, metavar="S", help="how long a job takes (2)"
    )
    demo.add_argument(
        "--timeout", type=_seconds, default=0.0, metavar="S", help="give up after (120 + 1 a job)"
    )
    demo.add_argument("--seed", type=int, default=None, help="of the random choices")
    demo.set_defaults(run=_demo)

    server = commands.add_parser(
        "apiserver", help="serve the embedded API server alone", description=APISERVER
    )
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    server.add_argument("--port", type=_port, default=8001, help="0 takes a free one (8001)")
    server.add_argument(
        "--kubeconfig", type=Path, default=Path("arcctl.kubeconfig"), help="where to write it"
    )
    server.add_argument("--no-crds", action="store_true", help="without our four kinds")
    server.add_argument("--rbac", action="store_true", help="enforce the RBAC objects in it")
    server.set_defaults(run=_api_server)
    return top


async def _demo(options: argparse.Namespace) -> int:
    from arc_controller.cli.demo import Demo, DemoOptions

    chosen = DemoOptions(
        jobs=options.jobs,
        keep=options.keep,
        kill_manager_at=options.kill_manager_at,
        job_seconds=options.job_seconds,
        timeout=options.timeout or 120.0 + options.jobs,
    )
    return await Demo(chosen, random.Random(options.seed)).run()


async def _api_server(options: argparse.Namespace) -> int:
    from arc_controller.api.crd import custom_resource_definitions
    from arc_controller.testing.apiserver import ApiServer, HttpApiServer

    crds = [] if options.no_crds else custom_resource_definitions()
    api = ApiServer(crds=crds, authorization=options.rbac)
    try:
        # Without RBAC whoever comes is the admin; with it a token is needed, and kubectl sends
        # tokens over TLS only.
        async with HttpApiServer(api, options.host, options.port, tls=options.rbac) as http:
            path = http.write_kubeconfig(options.kubeconfig).absolute()
            print(
                f"Serving on {http.url}; try\n  export KUBECONFIG={path}\n  kubectl get namespaces"
            )
            await asyncio.get_running_loop().create_future()
    finally:
        await api.aclose()
    return 0


def _run(work: Coroutine[Any, Any, int]) -> int:
    """Run it; an interruption is cancellation, and then the usual 130."""
    try:
        return asyncio.run(_until_terminated(work))
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return 143
    except OSError as error:
        print(f"arcctl: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(
            f"arcctl: {error.name} is missing: pip install 'arc-controller[testing]'",
            file=sys.stderr,
        )
        return 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """SIGTERM cancels it, so that it takes its processes and files along."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _moment(text: str) -> float | str:
    return text if text == "random" else _seconds(text)


if __name__ == "__main__":
    main()
