"""The command line of Pelops: `pelops`, and `kubectl pelops`.

Each command is a module of `pelops.cli.commands` with two functions:

    add_arguments(parser: argparse.ArgumentParser) -> None
    run(arguments: Namespace, console: Console) -> int      # an ExitCode

A module is imported when its command runs, so that `pelops --help` and completion stay fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import Any, Final

from pelops.cli.command_parser import CommandParser
from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import COMMON, add_common_flags
from pelops.domain.site import page_url
from pelops.errors import PelopsError

COMPLETE: Final = "__complete"  # what completion scripts of shells call


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


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command of `pelops`. Exits with its code unless that is 0."""
    code = run(list(sys.argv[1:] if argv is None else argv), find_program_name(sys.argv[0]))
    if code:
        sys.exit(int(code))


def find_program_name(path: str) -> str:
    """Return how the user calls the program: `kubectl pelops` if it was started as a plugin."""
    name = PurePath(path).name.removesuffix(".pyz")
    return name.replace("-", " ").replace("_", "-") if name.startswith("kubectl-") else "pelops"


def run(words: list[str], program: str = "pelops") -> int:
    """Run one command, and return its exit code. Errors are printed on standard error."""
    if words[:1] == [COMPLETE]:
        from pelops.cli.completion import print_candidates

        return print_candidates(words[1:])
    console = Console(program)
    try:
        arguments = parse(words, program)
        console = Console.of(arguments, program)
        code = _run_command(arguments, console)
        sys.stdout.flush()
        return int(code)
    except CommandFailed as error:
        console.error(str(error))
        return error.code
    except BrokenPipeError:
        # Python flushes standard output once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.PIPE_CLOSED
    except PelopsError as error:
        console.error(str(error))
        return ExitCode.PROBLEM
    except OSError as error:
        why = error.strerror or str(error)
        console.error(f"{error.filename}: {why}" if error.filename else why)
        return ExitCode.PROBLEM
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _run_command(arguments: argparse.Namespace, console: Console) -> int:
    try:
        return int(arguments.run(arguments, console))
    except ModuleNotFoundError as error:
        raise _explain_missing(arguments.command, error) from error


def parse(words: Sequence[str], program: str = "pelops") -> argparse.Namespace:
    """Return the arguments of a command line; exits with 2 if they are wrong.

    Raises:
        CommandFailed: a package that the command needs is not installed.
    """
    parser = build_parser(program)
    arguments = parser.parse_args(words)
    if not arguments.command.asks_cluster:
        for name in COMMON:
            if hasattr(arguments, name):
                flag = f"--{name.replace('_', '-')}"
                parser.error(f"{arguments.command.name} does not have the flag {flag}")
    return arguments


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
        raise _explain_missing(command, error) from error
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


def _explain_missing(command: CliCommand, error: ModuleNotFoundError) -> CommandFailed:
    missing = (error.name or "").partition(".")[0]
    if missing == "pelops":
        raise error
    return CommandFailed(
        f"`pelops {command.name}`: the package {missing} is not installed. Install Pelops with "
        f"the extra [{EXTRAS.get(missing, 'cli')}]: {page_url('guides/command-line')}"
    )
