"""`python -m local_cluster up|down|status|build`: a cluster to play with on this machine."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from local_cluster.binaries import cache_directory
from local_cluster.cluster import ClusterOptions
from local_cluster.commands import bring_down, bring_up, build_all, print_status
from local_cluster.errors import LocalClusterError
from local_cluster.interrupts import raise_interrupts
from local_cluster.progress import report
from local_cluster.redis_servers import TOPOLOGIES, VERSIONS, NoSuchServer, ServerFailed

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    asked = vars(_build_parser().parse_args(arguments))
    raise_interrupts()
    try:
        return _run(asked.pop("command"), asked)
    except (LocalClusterError, NoSuchServer, ServerFailed, TimeoutError) as error:
        report(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        report("interrupted")
        return INTERRUPTED


def _run(command: str, asked: dict[str, Any]) -> int:
    if command == "build":
        build_all(asked["redis"] or VERSIONS, redis_only=asked["redis_only"])
        return 0
    state = asked.pop("state")
    if command == "status":
        return 0 if print_status(state) else 1
    if command == "down":
        bring_down(state)
    else:
        bring_up(state, ClusterOptions(**asked), asked)
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser(
        "up",
        help="start a cluster; print REDIS_URL=... and `export KUBECONFIG=...`",
        # What was not named is absent: a cluster that is up need not match a default.
        argument_default=argparse.SUPPRESS,
    )
    _add_options(up)
    down = commands.add_parser("down", help="stop it and remove its state")
    status = commands.add_parser("status", help="print the processes; exit code 1 unless all run")
    build = commands.add_parser("build", help="build or fetch what `up` needs, and start nothing")
    build.add_argument("--redis", choices=tuple(VERSIONS), action="append", help="default: all")
    build.add_argument("--redis-only", action="store_true", help="leave out the control plane")
    default = cache_directory() / "clusters" / "default"
    for command in (up, down, status):
        command.add_argument(
            "--state", type=Path, default=default, help=f"its directory (default: {default})"
        )
    return parser


def _add_options(up: argparse.ArgumentParser) -> None:
    up.add_argument("--redis", choices=tuple(VERSIONS), help="default: 8.6")
    up.add_argument("--topology", choices=tuple(TOPOLOGIES), help="default: standalone")
    up.add_argument("--nodes", type=_parse_count, help="nodes that run pods (default: 1)")
    up.add_argument(
        "--light",
        action="store_true",
        help="pods become Ready without processes, for thousands of pods",
    )
    where = up.add_mutually_exclusive_group()
    where.add_argument("--kind", action="store_true", help="use kind, which needs Docker")
    where.add_argument("--kubeconfig", type=Path, help="use this cluster, and start only Redis")


def _parse_count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return count


if __name__ == "__main__":
    sys.exit(main())
