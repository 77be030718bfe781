"""`pelops keys`: the names of the keys of a group."""

from __future__ import annotations

import argparse
import json

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.errors import ExitCode
from pelops.domain.naming import derive_keys

_FIRST = ("stream", "group", "slot", "dead_letter", "ledger", "state", "started")
_LAST = ("worker_state", "worker_ledger", "retry", "offer_stream", "audit", "discarded")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("--stream", required=True, metavar="KEY", help="key of the stream")
    parser.add_argument("--group", required=True, metavar="NAME", help="name of the group")
    add_examples(
        parser,
        "pelops keys --stream orders:events --group processing",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the keys as JSON."""
    keys = derive_keys(arguments.stream, arguments.group)
    console.write(json.dumps({name: getattr(keys, name) for name in (*_FIRST, *_LAST)}, indent=2))
    return ExitCode.SUCCESS
