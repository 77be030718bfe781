"""`pelops dlq`: the dead letters of a group: list, show, export, redrive, discard and restore.

The last three create a StreamRedrive and nothing else: the operator moves the dead letters.
"""

from __future__ import annotations

import argparse
import json
import re
from typing import Any, Final

from pelops.cli.command_parser import add_examples
from pelops.cli.commands.why import print_coverage, print_fields
from pelops.cli.console import Console
from pelops.cli.display.durations import parse_duration
from pelops.cli.display.tables import Cell, Column, Style, Styled
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_output_flag
from pelops.cli.inspection import Answer, Asked, add_way_flags, ask, choose_group
from pelops.cli.kubectl import GROUPS, REDRIVES, Kubectl, Object

REQUESTED_BY: Final = "pelops.dev/requested-by"
_ACTIONS: Final = {"redrive": "Redrive", "discard": "Discard", "restore": "Restore"}
REASONS: Final = (
    *("MaxRetriesExceeded", "HandlerFailed", "Undecodable", "Rejected"),
    *("PayloadGone", "StreamExhausted"),
)
_HELP: Final = {
    "list": "group dead letters by cause",
    "show": "show one dead letter",
    "export": "print dead letters as JSON lines, the oldest first",
    "redrive": "move dead letters back to the stream, to be processed again",
    "discard": "move dead letters to the discarded ones, which are kept until their retention ends",
    "restore": "move discarded dead letters back to the dead-letter stream",
}
_EXAMPLES: Final = {
    "list": ("pelops dlq list orders -n shop",),
    "show": (
        "# with the fields of the entry and their values",
        "pelops dlq show orders 1760000000000-0 -n shop --payload",
    ),
    "export": ("pelops dlq export orders -n shop --payload > dead-letters.jsonl",),
    "redrive": (
        "# what would be moved",
        "pelops dlq redrive orders -n shop --cluster 3f2a --dry-run --wait",
        "",
        "# first 10, then the rest after a minute; stop if 5 % of the entries fail again",
        "pelops dlq redrive orders --trial 10 --trial-wait 1m --stop-on-failed-again 5",
    ),
    "discard": (
        "pelops dlq discard orders -n shop --reason InvalidEntry --before 2026-11-22T08:00:00Z",
    ),
    "restore": ("pelops dlq restore orders -n shop --id 1760000000000-0",),
}
_COLUMNS: Final = (
    Column(name="REASON"),
    Column(name="ERROR (GROUPED)"),
    Column(name="DLQ", right=True),
    Column(name="RETURNED", right=True),
    Column(name="OLDEST"),
    Column(name="NEWEST", wide=True),
    Column(name="CLUSTER"),
    Column(name="SUGGESTED"),
)
_WAIT_STEP_S: Final = 1.0
_LONGEST_ERROR: Final = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands within the command."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    parsers = {
        name: commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        for name, text in _HELP.items()
    }
    for one in parsers.values():
        one.add_argument("name", metavar="NAME", help="StreamConsumerGroup")
    for name, lines in _EXAMPLES.items():
        add_examples(parsers[name], *lines)

    listed = parsers["list"]
    listed.add_argument("--deep", action="store_true", help="look at more dead letters")
    add_way_flags(listed)
    add_output_flag(listed, ("text", "wide", "json", "yaml"))
    listed.set_defaults(act=_list)

    shown = parsers["show"]
    shown.add_argument("id", metavar="ID", help="ID of the dead letter")
    _add_payload(shown)
    add_way_flags(shown)
    add_output_flag(shown, ("text", "json", "yaml"))
    shown.set_defaults(act=_show)

    exported = parsers["export"]
    _add_payload(exported)
    exported.add_argument("--after", metavar="ID", help="begin after this dead letter")
    exported.add_argument("--max", type=int, metavar="N", help="stop after N dead letters")
    add_way_flags(exported)
    add_output_flag(exported, ("json",), default="json")
    exported.set_defaults(act=_export)

    for name, action in _ACTIONS.items():
        _add_move(parsers[name], action)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command within the command."""
    return int(arguments.act(arguments, console))


def _add_payload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--discarded", action="store_true", help="look at discarded dead letters")
    parser.add_argument(
        "--payload", action="store_true", help="with the fields of the entry and their values"
    )


# -- list, show, export


def _list(arguments: argparse.Namespace, console: Console) -> int:
    name = choose_group(arguments, console)
    asked: Asked = {"command": "dlq-list", "name": name}
    words = ["dlq", "list", name]
    if arguments.deep:
        asked["deep"] = True
        words.append("--deep")
    answer = ask(arguments, console, asked, words)
    if not console.is_text:
        console.document(answer)
        return ExitCode.SUCCESS
    if not answer["groups"]:
        console.note(f"group {answer['group']} has no dead letter")
        return ExitCode.SUCCESS
    console.table(_COLUMNS, [_row(one, wide=console.is_wide) for one in answer["groups"]])
    print_coverage(answer, console)
    _suggest(answer, arguments, console)
    return ExitCode.SUCCESS


def _row(group: Answer, *, wide: bool) -> list[Cell]:
    error = group["error"]
    if not wide and len(error) > _LONGEST_ERROR:
        error = f"{error[: _LONGEST_ERROR - 1]}…"
    is_redrive = group["suggested"] == "redrive"
    return [
        group["reason"],
        error or None,
        group["letters"],
        group["returned"],
        group["oldest"],
        group["newest"],
        group["cluster"],
        Styled(group["suggested"], Style.GOOD if is_redrive else Style.WARNING),
    ]


def _suggest(answer: Answer, arguments: argparse.Namespace, console: Console) -> None:
    """The largest group, why its action is suggested, and the command for it."""
    first = answer["groups"][0]
    console.line(Styled(f"{first['cluster']}: {first['advice']}", Style.FAINT))
    namespace = getattr(arguments, "namespace", None)
    where = ("-n", namespace) if namespace else ()
    if first["suggested"] in _ACTIONS:
        words = ("dlq", first["suggested"], arguments.name, "--cluster", first["cluster"])
        console.next(*words, "--dry-run", *where)
    else:
        console.next("dlq", "show", arguments.name, first["samples"][0], "--payload", *where)


def _show(arguments: argparse.Namespace, console: Console) -> int:
    asked: Asked = {"command": "dlq-show", "name": arguments.name, "id": arguments.id}
    words = ["dlq", "show", arguments.name, arguments.id]
    answer = ask(arguments, console, *_with_flags(arguments, asked, words))
    if not console.is_text:
        console.document(answer)
        return ExitCode.SUCCESS
    (letter,) = answer["letters"]
    console.line(Styled(letter["id"], Style.STRONG), f"  in {letter['stream']}")
    parts = (
        ("reason", letter.get("reason")),
        ("error", letter.get("error")),
        ("entry", letter["rootId"]),
        ("consumer", letter.get("consumer")),
        ("deliveries", letter.get("deliveries")),
        ("failed attempts", letter["failedAttempts"]),
        ("dead-lettered", letter.get("deadLetteredAt")),
        ("redriven", f"{letter['returned']} times" if letter["returned"] else None),
        ("bytes", letter["bytes"]),
    )
    for what, value in parts:
        if value not in (None, ""):
            console.line(f"  {what:<16}{value}")
    print_fields(letter, console)
    return ExitCode.SUCCESS


def _export(arguments: argparse.Namespace, console: Console) -> int:
    after, left = arguments.after or "", arguments.max
    while left is None or left > 0:
        asked: Asked = {"command": "dlq-export", "name": arguments.name}
        words = ["dlq", "export", arguments.name]
        if after:
            asked["id"] = after
        answer = ask(arguments, console, *_with_flags(arguments, asked, words, after=after))
        if arguments.in_pod:
            console.document(answer)  # one page: the other end asks for the next one
            return ExitCode.SUCCESS
        letters = answer["letters"][:left]
        for letter in letters:
            console.write(json.dumps(letter))
        left = None if left is None else left - len(letters)
        after = answer["next"]
        if not after:
            break
    return ExitCode.SUCCESS


def _with_flags(
    arguments: argparse.Namespace, asked: Asked, words: list[str], *, after: str = ""
) -> tuple[Asked, list[str]]:
    for flag in ("payload", "discarded"):
        if getattr(arguments, flag):
            asked[flag] = True
            words.append(f"--{flag}")
    return asked, [*words, *(["--after", after] if after else [])]


# -- redrive, discard, restore


def _add_move(parser: argparse.ArgumentParser, action: str) -> None:
    parser.set_defaults(act=_move, action=action)
    chosen = parser.add_argument_group(
        "which dead letters: all of these must hold; without any, all are taken"
    )
    add = chosen.add_argument
    add("--id", action="append", metavar="ID", help="this dead letter; may be repeated")
    add(
        "--reason",
        action="append",
        metavar="WORD",
        help="with this reason, such as MaxRetriesExceeded; may be repeated",
    )
    add(
        "--cluster",
        action="append",
        metavar="ID",
        help="of this cluster of `dlq list`; may be repeated",
    )
    add("--error", metavar="TEXT", help="whose error contains this text")
    add("--error-matches", metavar="REGEX", help="whose error matches this expression (RE2)")
    add("--field", action="append", metavar="NAME=VALUE", help="with this field; may be repeated")
    add("--after", metavar="TIME", help="dead-lettered at this time or later, RFC 3339")
    add("--before", metavar="TIME", help="dead-lettered before this time, RFC 3339")
    add("--max-returned", type=int, metavar="N", help="redriven at most N times before")
    add("--plan", metavar="CONFIGMAP/KEY", help="selected by a redrive plan in a ConfigMap")
    how = parser.add_argument_group("how they are moved")
    how.add_argument("--max", type=int, metavar="N", help="move at most N dead letters")
    how.add_argument("--rate", type=int, metavar="N", help="move at most N dead letters per second")
    if action == "Redrive":
        how.add_argument(
            "--to", choices=("Stream", "RetryStream"), help="stream that gets the entries"
        )
        how.add_argument(
            "--max-backlog", type=int, metavar="N", help="wait while the backlog is above N"
        )
        how.add_argument("--trial", type=int, metavar="N", help="move N dead letters first")
        how.add_argument(
            "--trial-wait",
            type=parse_duration,
            metavar="DURATION",
            help="how long to wait after the trial",
        )
        how.add_argument(
            "--stop-on-failed-again",
            type=int,
            metavar="PERCENT",
            help="stop if a larger share of the moved entries fails again",
        )
    how.add_argument(
        "--approval", action="store_true", help="wait until someone sets spec.approved"
    )
    how.add_argument(
        "--redrive-name", metavar="NAME", help="name of the StreamRedrive; default: generated"
    )
    how.add_argument(
        "--dry-run",
        action="store_true",
        help="create it with mode DryRun: it counts dead letters and moves none",
    )
    how.add_argument("--wait", action="store_true", help="wait until the redrive is complete")
    how.add_argument(
        "--timeout",
        type=parse_duration,
        default="5m",
        metavar="DURATION",
        help="how long --wait waits; then the exit code is 124",
    )
    how.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--output",
        "-o",
        choices=("text", "json", "yaml", "name"),
        default="text",
        help="json, yaml: print the StreamRedrive and create nothing",
    )


def _move(arguments: argparse.Namespace, console: Console) -> int:
    kubectl = Kubectl.of(arguments, console)
    manifest = build_redrive(arguments, kubectl.namespace)
    for reason in arguments.reason or ():
        if meant := find_meant_reason(reason):
            console.note(f"--reason {reason}: reasons are compared in full; did you mean {meant}?")
    if console.output in {"json", "yaml"}:
        console.document(manifest)
        return ExitCode.SUCCESS
    kubectl.get(GROUPS, arguments.name)  # a wrong name fails now
    is_dry = arguments.dry_run
    what = f"{arguments.action} {_describe(manifest)} of {kubectl.namespace}/{arguments.name}?"
    if not is_dry and not console.confirm(what, yes=arguments.yes):
        raise CommandFailed("nothing was created", code=ExitCode.INTERRUPTED)
    from pelops.cli.commands.pause import find_user

    manifest["metadata"]["annotations"] = {REQUESTED_BY: find_user(kubectl)}
    created = kubectl.create(manifest, namespace=kubectl.namespace)
    name = created["metadata"]["name"]
    if console.output == "name":
        console.write(f"{REDRIVES}/{name}")
    else:
        dry = " (dry run: no dead letter moves)" if is_dry else ""
        console.line(f"streamredrive/{name} created{dry}")
    if arguments.wait:
        return _await(kubectl, name, arguments.timeout, console)
    console.note(f"follow it with: kubectl get srd {name} -n {kubectl.namespace} -w")
    return ExitCode.SUCCESS


def find_meant_reason(reason: str) -> str | None:
    """Return the reason of Pelops that is similar to this one; None if it is one, or without one.

    Handlers reject entries with their own reasons, which are not known here.

    >>> find_meant_reason("MaxRetries"), find_meant_reason("OutOfStock")
    ('MaxRetriesExceeded', None)
    """
    import difflib

    similar = difflib.get_close_matches(reason, REASONS, n=1)
    return None if reason in REASONS or not similar else similar[0]


def build_redrive(arguments: argparse.Namespace, namespace: str) -> Object:
    """Return the StreamRedrive that the flags ask for.

    Raises:
        CommandFailed: a flag has no valid value.
    """
    action: str = arguments.action
    metadata: dict[str, Any] = {"namespace": namespace}
    if arguments.redrive_name:
        metadata["name"] = arguments.redrive_name
    else:
        metadata["generateName"] = f"{arguments.name[:200]}-{action.lower()}-"
    selection = _selection(arguments)
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamRedrive",
        "metadata": metadata,
        "spec": {
            "groupRef": {"name": arguments.name},
            "action": action,
            **({"selection": selection} if selection else {}),
            **_pace(arguments),
            **({"mode": "DryRun"} if arguments.dry_run else {}),
            **({"approval": "Required"} if arguments.approval else {}),
        },
    }


_PACE: Final = {
    "max": "maxEntries",
    "rate": "ratePerSecond",
    "to": "destination",
    "max_backlog": "maxBacklog",
    "stop_on_failed_again": "stopOnFailedAgainPercent",
}


def _pace(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a StreamRedrive for number, rate and destination of dead letters."""
    given = {field: getattr(arguments, flag, None) for flag, field in _PACE.items()}
    pace: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    trial = getattr(arguments, "trial", None)
    if trial is not None:
        pace["trial"] = {"entries": trial}
        if arguments.trial_wait is not None:
            pace["trial"]["waitSeconds"] = max(1, round(arguments.trial_wait))
    elif getattr(arguments, "trial_wait", None) is not None:
        raise CommandFailed("--trial-wait needs --trial", code=ExitCode.USAGE)
    return pace


def _selection(arguments: argparse.Namespace) -> dict[str, Any]:
    selection: dict[str, Any] = {
        "ids": arguments.id,
        "reasons": arguments.reason,
        "clusters": arguments.cluster,
        "errorContains": arguments.error,
        "errorMatches": arguments.error_matches,
        "fields": [_field(one) for one in arguments.field or ()],
        "deadLetteredAfter": _time(arguments.after, "--after"),
        "deadLetteredBefore": _time(arguments.before, "--before"),
        "maxReturned": arguments.max_returned,
        "planRef": _plan(arguments.plan),
    }
    return {name: value for name, value in selection.items() if value not in (None, [])}


def _field(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CommandFailed(f"--field {text}: write NAME=VALUE", code=ExitCode.USAGE)
    return {"name": name, "value": value}


def _plan(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    name, slash, key = text.partition("/")
    if not (name and slash and key):
        raise CommandFailed(f"--plan {text}: write CONFIGMAP/KEY", code=ExitCode.USAGE)
    return {"name": name, "key": key}


_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def _time(text: str | None, flag: str) -> str | None:
    if text is not None and not _RFC3339.fullmatch(text):
        raise CommandFailed(
            f"{flag} {text}: write a time such as 2026-11-22T08:00:00Z", code=ExitCode.USAGE
        )
    return text


def _describe(manifest: Object) -> str:
    """What the user is asked to confirm."""
    selection = manifest["spec"].get("selection")
    letters = "all dead letters" if selection is None else "the dead letters with"
    most = manifest["spec"].get("maxEntries")
    shown = "" if selection is None else f" {json.dumps(selection)}"
    return f"{letters}{shown}{'' if most is None else f', at most {most:,}'}"


def _await(kubectl: Kubectl, name: str, timeout_s: float, console: Console) -> int:
    """Follow a redrive to its end: 0 when it is complete, 1 when it failed, 124 on the timeout."""
    import time

    deadline = time.monotonic() + timeout_s
    shown = ""
    while True:
        status = kubectl.get(REDRIVES, name).get("status") or {}
        message = status.get("message") or ""
        if message and message != shown:
            console.note(message)
            shown = message
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        if conditions.get("Complete", {}).get("status") == "True":
            console.line(
                f"selected {status.get('selected', 0):,}, moved {status.get('moved', 0):,}, "
                f"skipped {status.get('skipped', 0):,}"
            )
            if status.get("samples"):
                console.line(f"first: {', '.join(status['samples'])}")
            return ExitCode.SUCCESS
        if conditions.get("Failed", {}).get("status") == "True":
            console.note(conditions["Failed"].get("message") or "the redrive failed")
            return ExitCode.PROBLEM
        if time.monotonic() >= deadline:
            waits = conditions.get("Ready", {}).get("message") or "it is not complete"
            console.note(f"no end within {timeout_s:g} s: {waits}")
            return ExitCode.TIMEOUT
        time.sleep(_WAIT_STEP_S)
