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
from pathlib import PurePath
from typing import Final

from pelops.cli.command_line import build_parser, explain_missing
from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import COMMON
from pelops.errors import PelopsError

COMPLETE: Final = "__complete"  # what completion scripts of shells call


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
        raise explain_missing(arguments.command, error) from error


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
