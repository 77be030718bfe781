"""`pelops why`: where one entry is, and everything that happened to it."""

from __future__ import annotations

import argparse
from typing import Any

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.display.tables import Style, Styled
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_output_flag
from pelops.cli.inspection import Answer, Asked, add_way_flags, ask, choose_group

_GOOD = frozenset({"Acknowledged", "HeldByLiveWorker", "Undelivered", "InRetryStream"})
_BAD = frozenset({"DeadLetter", "Removed", "NotDelivered", "BodyGone"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    add = parser.add_argument
    add(
        "name",
        nargs="?",
        metavar="NAME",
        help="StreamConsumerGroup; default: the only one of the namespace",
    )
    add(
        "entry",
        metavar="ID|FIELD=VALUE",
        help="ID of an entry, of a copy or of a dead letter; or a field and its value: the newest "
        "entry that has it is shown",
    )
    add("--letter", action="store_true", help="the ID is that of a dead letter")
    add("--deep", action="store_true", help="search more entries and more of the ledger")
    add("--payload", action="store_true", help="print the fields of the entry with their values")
    add(
        "--archive",
        metavar="PATH",
        help="archive of an audit, whose steps are added: a directory, or s3a://BUCKET/PREFIX",
    )
    add_way_flags(parser)
    add_output_flag(parser, ("text", "json", "yaml"))
    add_examples(
        parser,
        "# an entry, by its ID",
        "pelops why orders 1760000000000-0 -n shop",
        "",
        "# the newest entry with this value of a field",
        "pelops why orders order_id=4711 -n shop",
        "",
        "# with your own connection to Redis",
        "pelops why 1760000000000-0 --redis-url redis://localhost --stream orders --group billing",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the state of the entry and its history."""
    name = choose_group(arguments, console)
    asked, words = _question(arguments, name)
    answer = ask(arguments, console, asked, words)
    if arguments.archive:
        answer["archive"] = _look_up(arguments.archive, answer)
    if console.is_text:
        _print(answer, console, arguments, name)
    else:
        console.document(answer)
    return ExitCode.SUCCESS


def _question(arguments: argparse.Namespace, name: str) -> tuple[Asked, list[str]]:
    entry: str = arguments.entry
    asked: Asked = {"command": "why", "name": name}
    field, equals, value = entry.partition("=")
    asked |= {"field": field, "value": value} if equals else {"id": entry}
    words = ["why", *([name] if name else []), entry]
    for flag in ("letter", "deep", "payload"):
        if getattr(arguments, flag):
            asked[flag] = True
            words.append(f"--{flag}")
    if equals and not field:
        raise CommandFailed("write FIELD=VALUE with the name of a field", code=ExitCode.USAGE)
    return asked, words


def _look_up(path: str, answer: Answer) -> list[dict[str, Any]]:
    """The histories that the archive has of the same entry."""
    from pelops.domain.entry_id import parse_entry_id
    from pelops.pipeline.archive.tables import open_archive
    from pelops.pipeline.entry_history import render_history
    from pelops.pipeline.lookup import LookupQuestion, look_up

    question = LookupQuestion(
        root=parse_entry_id(answer["rootId"]), stream=answer["stream"], group=answer["group"]
    )
    return [render_history(one) for one in look_up(open_archive(path), question)]


def _print(answer: Answer, console: Console, arguments: argparse.Namespace, name: str) -> None:
    state = answer["state"]
    style = Style.GOOD if state in _GOOD else Style.BAD if state in _BAD else Style.WARNING
    doubt = "" if answer["certain"] else " (inferred)"
    console.line(Styled(answer["rootId"], Style.STRONG), "  ", Styled(_words(state), style), doubt)
    console.line(f"  {answer['message']}", indent=2)
    console.line(f"  stream {answer['stream']}, group {answer['group']}")
    _print_copies(answer, console)
    for event in answer["events"]:
        details = f": {event['details']}" if event["details"] else ""
        console.line(Styled(f"  {_clock(event['at'])}  ", Style.FAINT), f"{event['what']}{details}")
    for history in answer.get("archive", ()):
        console.line(
            f"  archive: status {history['status'] or 'unknown'}, evidence "
            f"{history['evidence'] or 'none'}"
        )
        for step in history["events"]:
            when = _clock(step["at"]) if step.get("at") else " " * 23
            details = f": {step['details']}" if step.get("details") else ""
            console.line(Styled(f"  {when}  ", Style.FAINT), f"archive: {step['what']}{details}")
    print_fields(answer["entry"], console)
    print_coverage(answer, console)
    if answer["otherMatches"]:
        console.note(f"also matching: {', '.join(answer['otherMatches'])}")
    _print_next(answer, console, arguments, name)


def _print_copies(answer: Answer, console: Console) -> None:
    if answer["id"] != answer["rootId"]:
        what = "dead letter" if answer["place"] == "dead-letter stream" else "last copy"
        console.line(f"  {what} {answer['id']} in the {answer['place']}")


def print_fields(entry: dict[str, Any] | None, console: Console) -> None:
    """Print the fields of an entry, if the answer has them."""
    for pair in (entry or {}).get("fields", ()):
        name, value = (_show(pair[part]) for part in ("name", "value"))
        console.line(f"    {name} = {value}")


def print_coverage(answer: Answer, console: Console) -> None:
    """Say on standard error what was not searched, and what limits the answer."""
    for note in answer.get("notes", ()):
        console.note(note)
    for part in answer["coverage"]:
        if not part["whole"]:
            console.note(
                f"{part['what']}: {part['searched']:,} searched, and there are more; --deep "
                "searches on"
            )


def _print_next(answer: Answer, console: Console, arguments: argparse.Namespace, name: str) -> None:
    if arguments.redis_url or not name:
        return
    namespace = getattr(arguments, "namespace", None)
    where = ("-n", namespace) if namespace else ()
    if answer["state"] == "DeadLetter":
        console.next("dlq", "redrive", name, "--id", answer["id"], *where)
    elif answer["state"] == "Discarded":
        console.next("dlq", "restore", name, "--id", answer["id"], *where)
    elif answer["pending"] is not None:
        console.next("pending", name, *where)


def _show(value: str | dict[str, str]) -> str:
    return value if isinstance(value, str) else f"base64:{value['base64']}"


def _clock(time: str) -> str:
    return time.replace("T", " ").removesuffix("Z")


def _words(state: str) -> str:
    """`HeldByDeadWorker` as `HELD BY DEAD WORKER`."""
    return "".join(f" {one}" if one.isupper() else one.upper() for one in state).strip()
