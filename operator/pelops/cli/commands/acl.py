"""`pelops acl`: the rights of a Redis user."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.errors import ExitCode
from pelops.domain.naming import derive_keys
from pelops.errors import InvalidSpec
from pelops.redis_streams.access import Access, Feature, UserRole, combined_rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add = parser.add_argument
    add("--stream", required=True, metavar="KEY", help="key of the stream")
    add("--group", metavar="NAME", help="name of the group; every role except producer requires it")
    add(
        "--role",
        choices=[role.value for role in UserRole],
        default="operator",
        help="who connects as the user",
    )
    features = [feature.value for feature in Feature]
    add(
        "--feature",
        action="append",
        choices=features,
        default=[],
        help="also grant the rights for this feature; may be repeated",
    )
    add("--user", metavar="NAME", default="pelops", help="name of the Redis user")
    add(
        "--also",
        nargs="+",
        action="append",
        default=[],
        metavar=("ROLE", "STREAM"),
        help="ROLE STREAM [GROUP]: also grant the rights for another stream or group, as a "
        "selector",
    )
    add_examples(
        parser,
        "# the operator",
        "pelops acl --stream orders:events --group processing --feature recovery --feature scaling",
        "",
        "# a worker with the SDK, which also adds entries to another stream",
        "pelops acl --stream orders --group g --role sdk-worker --also producer invoices",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print one line for redis-cli."""
    rules = " ".join(map(_quote, _rules(arguments)))
    console.write(f"ACL SETUSER {_quote(arguments.user)} on >PASSWORD {rules}")
    return ExitCode.SUCCESS


def _rules(arguments: argparse.Namespace) -> Sequence[str]:
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
    if role not in set(UserRole):
        raise InvalidSpec(f"unknown role {role}: must be one of {', '.join(UserRole)}")
    if group is None and role != UserRole.PRODUCER:
        raise InvalidSpec(f"role {role} requires --group, or GROUP after --also")
    keys = derive_keys(stream, "any" if group is None else group)
    return Access(keys, UserRole(role), [Feature(name) for name in arguments.feature])


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
