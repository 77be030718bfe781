"""`pelops pending`: who has which entries pending, and why they are not recovered now."""

from __future__ import annotations

import argparse

from pelops.cli.command_parser import add_examples
from pelops.cli.commands.why import print_coverage
from pelops.cli.console import Console
from pelops.cli.display.durations import render_age
from pelops.cli.display.tables import Cell, Column, Style, Styled
from pelops.cli.errors import ExitCode
from pelops.cli.flags import add_output_flag
from pelops.cli.inspection import Answer, add_way_flags, ask, choose_group

_COLUMNS = (
    Column(name="CONSUMER"),
    Column(name="PROCESS"),
    Column(name="ENTRIES", right=True),
    Column(name="LOWEST ID"),
    Column(name="IDLE", right=True),
    Column(name="DELIVERIES", right=True, wide=True),
    Column(name="STATE"),
    Column(name="WHY NOT RECOVERED NOW"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="StreamConsumerGroup; default: the only one of the namespace",
    )
    parser.add_argument(
        "--by",
        choices=("consumer", "age"),
        default="consumer",
        help="a line for each consumer, or for each of the entries with the lowest IDs",
    )
    add_way_flags(parser)
    add_output_flag(parser, ("text", "wide", "json", "yaml"))
    add_examples(
        parser,
        "# a line for each consumer",
        "pelops pending orders -n shop",
        "",
        "# the pending entries with the lowest IDs",
        "pelops pending orders -n shop --by age",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print a line for each consumer, or for each entry."""
    name = choose_group(arguments, console)
    by_age = arguments.by == "age"
    asked = {"command": "pending", "name": name, **({"by_age": True} if by_age else {})}
    words = ["pending", *([name] if name else []), "--by", arguments.by]
    answer = ask(arguments, console, asked, words)
    if not console.is_text:
        console.document(answer)
        return ExitCode.SUCCESS
    if not answer["lines"]:
        console.note(f"group {answer['group']} has no pending entry")
    else:
        console.table(_COLUMNS, [_row(line) for line in answer["lines"]])
    print_coverage(answer, console)
    return ExitCode.SUCCESS


def _row(line: Answer) -> list[Cell]:
    state = line["state"]
    is_well = state == "HeldByLiveWorker"
    return [
        line["consumer"] or "(given back)",
        line["liveness"],
        line["entries"],
        line["id"],
        render_age(line["idleSeconds"]),
        line["deliveries"],
        Styled(state, Style.GOOD if is_well else Style.WARNING),
        line["message"],
    ]
