"""`pelops resume`: end the suspension of a group."""

from __future__ import annotations

import argparse

from pelops.cli.command_parser import add_examples
from pelops.cli.commands.pause import suspend
from pelops.cli.console import Console
from pelops.cli.display.group_facts import PAUSE_REASON, PAUSED_AT, PAUSED_BY, read_group
from pelops.cli.errors import ExitCode
from pelops.cli.kubectl import GROUPS, Kubectl


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("name", metavar="NAME", help="StreamConsumerGroup")
    add_examples(
        parser,
        "pelops resume orders -n shop",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Set spec.suspend to false, and remove what `pelops pause` noted."""
    kubectl = Kubectl.of(arguments, console)
    group = read_group(kubectl.get(GROUPS, arguments.name))
    if not group.is_suspended:
        console.note(f"streamconsumergroup/{group.name} is not paused")
        return ExitCode.SUCCESS
    noted: dict[str, str | None] = {PAUSED_BY: None, PAUSED_AT: None, PAUSE_REASON: None}
    suspend(kubectl, arguments.name, value=False, annotations=noted)
    console.line(f"streamconsumergroup/{group.name} resumed")
    console.next("status", group.name, "-n", group.namespace, "--wait")
    return ExitCode.SUCCESS
