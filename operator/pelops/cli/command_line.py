"""The commands of `pelops`, and the parser of its command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

from pelops.cli.command_parser import CommandParser
from pelops.cli.errors import CommandFailed
from pelops.cli.flags import add_common_flags
from pelops.domain.site import page_url


@dataclass(frozen=True, slots=True, kw_only=True)
class CliCommand:
    """A command, without its module."""

    name: str
    help: str
    section: str  # of `pelops --help`
    asks_cluster: bool = False  # has the common flags: -n, -A, --context, ...

    @property
    def module(self) -> str:
        return f"pelops.cli.commands.{self.name.replace('-', '_')}"


OBSERVE: Final = "Observe groups"
CHANGE: Final = "Change groups"
SET_UP: Final = "Set up and get help"
OFFLINE: Final = "Without a cluster"

COMMANDS: Final = (
    CliCommand(
        name="status",
        help="show one group in detail, or all groups; --wait waits until they are Ready",
        section=OBSERVE,
        asks_cluster=True,
    ),
    CliCommand(
        name="top",
        help="show backlog, rates and workers of groups, every second",
        section=OBSERVE,
        asks_cluster=True,
    ),
    CliCommand(
        name="why",
        help="show where one entry is and what happened to it",
        section=OBSERVE,
        asks_cluster=True,
    ),
    CliCommand(
        name="pending",
        help="show who has which entries pending, and why they are not recovered now",
        section=OBSERVE,
        asks_cluster=True,
    ),
    CliCommand(
        name="dlq",
        help="list, show and export dead letters; redrive, discard and restore them",
        section=CHANGE,
        asks_cluster=True,
    ),
    CliCommand(
        name="pause",
        help="suspend a group: Pelops observes it and changes nothing",
        section=CHANGE,
        asks_cluster=True,
    ),
    CliCommand(
        name="resume", help="end the suspension of a group", section=CHANGE, asks_cluster=True
    ),
    CliCommand(
        name="adopt",
        help="print a StreamConsumerGroup for workers that already run",
        section=SET_UP,
        asks_cluster=True,
    ),
    CliCommand(
        name="doctor",
        help="check the installation, a group and its Redis for problems",
        section=SET_UP,
        asks_cluster=True,
    ),
    CliCommand(
        name="report",
        help="write a support bundle without Secrets and payloads",
        section=SET_UP,
        asks_cluster=True,
    ),
    CliCommand(name="keys", help="print the Redis keys of a group as JSON", section=OFFLINE),
    CliCommand(
        name="acl",
        help="print an ACL SETUSER line with the rights that a role requires",
        section=OFFLINE,
    ),
    CliCommand(
        name="env",
        help="print the environment variables that workers of a resource require",
        section=OFFLINE,
    ),
    CliCommand(
        name="version",
        help="print the version of this program and of the operator",
        section=SET_UP,
        asks_cluster=True,
    ),
    CliCommand(
        name="completion",
        help="print a script that completes command lines in a shell",
        section=OFFLINE,
    ),
    CliCommand(name="audit", help="read the archive of an audit", section=OFFLINE),
)


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from pelops.build import describe_build

        print(f"pelops {describe_build()}")
        parser.exit()


def build_parser(program: str = "pelops") -> CommandParser:
    """Return the parser of the whole command line. No module of a command is imported."""
    parser = CommandParser(prog=program, description=_describe_commands())
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="print the version and the commit"
    )
    add_common_flags(parser)
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", prog=program, help=argparse.SUPPRESS
    )
    for command in COMMANDS:
        commands.add_parser(
            command.name,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            load=partial(_load_command, command),
        )
    parser.epilog = f"`{program} COMMAND --help` shows examples and the flags of a command."
    return parser


def _load_command(command: CliCommand, parser: CommandParser) -> None:
    try:
        module = import_module(command.module)
    except ModuleNotFoundError as error:
        raise explain_missing(command, error) from error
    module.add_arguments(parser)
    parser.set_defaults(run=module.run, command=command)
    if command.asks_cluster:
        for one in parser.walk():
            one.shortened = add_common_flags(one)


def _describe_commands() -> str:
    lines = ["Operate Redis Streams consumer groups that Pelops manages."]
    width = max(len(command.name) for command in COMMANDS)
    for section in dict.fromkeys(command.section for command in COMMANDS):
        lines += ["", f"{section}:"]
        lines += [
            f"  {command.name:<{width}}  {command.help}"
            for command in COMMANDS
            if command.section == section
        ]
    return "\n".join(lines)


# The extra of pelops-operator with a package; the extra `cli` has all that is not listed.
EXTRAS: Final = {"deltalake": "pipeline", "pyarrow": "pipeline", "pyspark": "spark"}


def explain_missing(command: CliCommand, error: ModuleNotFoundError) -> CommandFailed:
    """Return the error of a command whose package is not installed. Raises `error` for a fault of
    Pelops.
    """
    missing = (error.name or "").partition(".")[0]
    if missing == "pelops":
        raise error
    return CommandFailed(
        f"`pelops {command.name}`: the package {missing} is not installed. Install Pelops with "
        f"the extra [{EXTRAS.get(missing, 'cli')}]: {page_url('guides/command-line')}"
    )
