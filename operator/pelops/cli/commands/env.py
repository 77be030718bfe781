"""`pelops env`: the environment of workers."""

from __future__ import annotations

import argparse
from pathlib import Path

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.errors import ExitCode
from pelops.errors import InvalidSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "--file",
        "-f",
        type=Path,
        required=True,
        metavar="FILE",
        help="YAML file with a StreamConsumerGroup",
    )
    add_examples(
        parser,
        "pelops env -f orders.yaml",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the variables as YAML."""
    from pelops.cli.environment import render_environment

    try:
        text = arguments.file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSpec(f"{arguments.file} is not UTF-8 text") from error
    console.write(render_environment(text))
    return ExitCode.SUCCESS
