"""`pelops audit lookup`: the history of one entry, from the archive of an audit."""

from __future__ import annotations

import argparse
import json

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.errors import ExitCode
from pelops.errors import InvalidSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command within the command."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    lookup = commands.add_parser(
        "lookup",
        help="print the history of one entry",
        description="Print the history of one entry and its copies, over all windows.",
    )
    add = lookup.add_argument
    add("--archive", required=True, metavar="PATH", help="a directory, or s3a://BUCKET/PREFIX")
    asked = lookup.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--id", metavar="ID", help="ID of the entry, of a copy, or of its dead letter"
    )
    asked.add_argument("--root", metavar="ID", help="ID of the entry that a producer added")
    asked.add_argument(
        "--field",
        metavar="KEY=VALUE",
        help="value of the business key, or of any field if payloads are archived in full",
    )
    add("--stream", metavar="KEY", help="stream; default: every stream of the archive")
    add("--group", metavar="NAME", help="group; default: every group")
    add("--json", action="store_true", help="print JSON")
    add_examples(
        lookup,
        "# by the ID of the entry, of a copy or of its dead letter",
        "pelops audit lookup --archive s3a://audits/shop --id 1760000000000-0",
        "",
        "# by the value of a field",
        "pelops audit lookup --archive /archive --field order_id=4711 --stream orders:events",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the histories that the archive has of the entry."""
    from pelops.domain.entry_id import parse_entry_id
    from pelops.pipeline.archive.tables import open_archive
    from pelops.pipeline.entry_history import render_histories, render_history
    from pelops.pipeline.lookup import LookupQuestion, look_up, read_field

    asked = LookupQuestion(
        entry=None if arguments.id is None else parse_entry_id(arguments.id),
        root=None if arguments.root is None else parse_entry_id(arguments.root),
        field=None if arguments.field is None else read_field(arguments.field),
        stream=arguments.stream,
        group=arguments.group,
    )
    entry_histories = look_up(open_archive(arguments.archive), asked)
    if arguments.json:
        histories = [render_history(one) for one in entry_histories]
        console.write(json.dumps(histories, indent=2, ensure_ascii=False))
        return ExitCode.SUCCESS
    if not entry_histories:
        what = arguments.id or arguments.root or arguments.field
        raise InvalidSpec(
            f"entry {what} is not in {arguments.archive}: it was added after the last audit, "
            "removed before the first one, or its window was removed by retention"
        )
    console.write(render_histories(entry_histories))
    return ExitCode.SUCCESS
