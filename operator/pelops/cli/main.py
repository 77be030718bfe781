"""Commands for Pelops that need no cluster: key names, ACL rules, environment, audits."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pelops.build import describe_build
from pelops.errors import InvalidSpec, PelopsError

if TYPE_CHECKING:
    from pelops.redis_streams.access import Access


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command. When the input is invalid, print why and exit with 1."""
    arguments = build_parser().parse_args(argv)
    try:
        print(arguments.run(arguments))
    except (PelopsError, OSError) as error:
        print(f"pelops: {error}", file=sys.stderr)
        sys.exit(1)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    from pelops.redis_streams.access import Feature, Role

    parser = argparse.ArgumentParser(prog="pelops", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pelops {describe_build()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    keys = commands.add_parser("keys", help="print the Redis keys of a group as JSON")
    _add_names(keys)
    keys.set_defaults(run=_run_keys)

    acl = commands.add_parser(
        "acl", help="print an ACL SETUSER line with the rights that a role requires"
    )
    acl.add_argument("--stream", required=True)
    acl.add_argument("--group", help="required for every role except producer")
    acl.add_argument("--role", choices=[role.value for role in Role], default="operator")
    features = [feature.value for feature in Feature]
    acl.add_argument("--feature", action="append", choices=features, default=[])
    acl.add_argument("--user", default="pelops")
    acl.add_argument(
        "--also",
        nargs="+",
        action="append",
        default=[],
        metavar=("ROLE", "STREAM"),
        help="ROLE STREAM [GROUP]: also grant the rights for another stream or group, as a "
        "selector",
    )
    acl.set_defaults(run=_run_acl)

    env = commands.add_parser(
        "env", help="print the environment variables that workers of a resource require"
    )
    env.add_argument(
        "--file", "-f", type=Path, required=True, help="YAML file with a StreamConsumerGroup"
    )
    env.set_defaults(run=_run_env)

    audit = commands.add_parser("audit", help="read the archive of an audit")
    _add_lookup(audit.add_subparsers(required=True, metavar="COMMAND"))
    return parser


def _add_lookup(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    add("--stream", help="stream; default: every stream of the archive")
    add("--group", help="group; default: every group")
    add("--json", action="store_true", help="print JSON")
    lookup.set_defaults(run=_run_lookup)


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stream", required=True)
    parser.add_argument("--group", required=True)


def _run_keys(arguments: argparse.Namespace) -> str:
    from pelops.domain.naming import derive_keys

    keys = derive_keys(arguments.stream, arguments.group)
    named = ("stream", "group", "slot", "dead_letter", "ledger", "state", "started")
    last = ("worker_state", "worker_ledger", "retry", "offer_stream", "audit", "discarded")
    return json.dumps({name: getattr(keys, name) for name in (*named, *last)}, indent=2)


def _run_acl(arguments: argparse.Namespace) -> str:
    rules = " ".join(map(_quote, _rules(arguments)))
    return f"ACL SETUSER {_quote(arguments.user)} on >PASSWORD {rules}"


def _rules(arguments: argparse.Namespace) -> Sequence[str]:
    from pelops.redis_streams.access import combined_rules

    asked = [(arguments.role, arguments.stream, arguments.group)]
    for words in arguments.also:
        if len(words) not in {2, 3}:
            raise InvalidSpec(
                "--also requires ROLE STREAM [GROUP], for example: --also producer invoices"
            )
        asked.append((words[0], words[1], words[2] if len(words) == 3 else None))
    return combined_rules(_read_access(arguments, *one) for one in asked)


def _read_access(
    arguments: argparse.Namespace, role: str, stream: str, group: str | None
) -> Access:
    from pelops.domain.naming import derive_keys
    from pelops.redis_streams.access import Access, Feature, Role

    if role not in set(Role):
        raise InvalidSpec(f"unknown role {role}: must be one of {', '.join(Role)}")
    if group is None and role != Role.PRODUCER:
        raise InvalidSpec(f"role {role} requires --group, or GROUP after --also")
    keys = derive_keys(stream, "any" if group is None else group)
    return Access(keys, Role(role), [Feature(name) for name in arguments.feature])


def _run_env(arguments: argparse.Namespace) -> str:
    try:
        from pelops.cli.environment import render_environment
    except ModuleNotFoundError as error:
        raise InvalidSpec(
            f"`pelops env`: the package {error.name} is not installed. Run "
            "`pip install 'pelops-operator[cli]'`"
        ) from error

    try:
        text = arguments.file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidSpec(f"{arguments.file} is not UTF-8 text") from error
    return render_environment(text)


def _run_lookup(arguments: argparse.Namespace) -> str:
    try:
        from pelops.pipeline.archive.arrow_reader import ArchiveFiles
        from pelops.pipeline.lookup import (
            LookupQuestion,
            look_up,
            read_field,
            render_histories,
            render_history,
        )
    except ModuleNotFoundError as error:
        raise InvalidSpec(
            f"the archive cannot be read: the package {error.name} is not installed. Run "
            "`pip install 'pelops-operator[spark]'`, or install pyarrow"
        ) from error
    from pelops.domain.entry_id import parse_entry_id

    asked = LookupQuestion(
        entry=None if arguments.id is None else parse_entry_id(arguments.id),
        root=None if arguments.root is None else parse_entry_id(arguments.root),
        field=None if arguments.field is None else read_field(arguments.field),
        stream=arguments.stream,
        group=arguments.group,
    )
    found = look_up(ArchiveFiles(arguments.archive), asked)
    if arguments.json:
        return json.dumps([render_history(one) for one in found], indent=2, ensure_ascii=False)
    if not found:
        what = arguments.id or arguments.root or arguments.field
        raise InvalidSpec(
            f"entry {what} is not in {arguments.archive}: it was added after the last audit, "
            "removed before the first one, or its window was removed by retention"
        )
    return render_histories(found)


def _quote(word: str) -> str:
    """Return the word as redis-cli parses it, quoted only if necessary."""
    if word and word.isprintable() and not any(character in " \"'" for character in word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(map(_escape_unprintable, escaped)) + '"'


def _escape_unprintable(character: str) -> str:
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())
