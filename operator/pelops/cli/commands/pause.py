"""`pelops pause`: suspend a group, and say who did it and why."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.display.group_facts import PAUSE_REASON, PAUSED_AT, PAUSED_BY, read_group
from pelops.cli.errors import ExitCode
from pelops.cli.kubectl import GROUPS, Kubectl, KubectlFailed, Object


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("name", metavar="NAME", help="StreamConsumerGroup")
    parser.add_argument(
        "--reason", metavar="TEXT", help="why, for the people who find the group paused"
    )
    add_examples(
        parser,
        'pelops pause orders -n shop --reason "schema migration"',
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Set spec.suspend, with annotations that say who, when and why."""
    kubectl = Kubectl.of(arguments, console)
    resource = kubectl.get(GROUPS, arguments.name)
    group = read_group(resource)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if group.is_suspended and arguments.reason is None:
        console.note(f"streamconsumergroup/{group.name} is paused already")
    else:
        _warn_of_others(resource, console)  # the change makes kubectl the owner of the field
        suspend(
            kubectl,
            arguments.name,
            value=True,
            annotations={
                PAUSED_BY: find_user(kubectl),
                PAUSED_AT: now,
                PAUSE_REASON: arguments.reason,
            },
        )
        console.line(
            f"streamconsumergroup/{group.name} paused (nothing is recovered, scaled or trimmed; "
            "workers keep running)"
        )
    console.next("resume", group.name, "-n", group.namespace)
    return ExitCode.SUCCESS


def suspend(
    kubectl: Kubectl, name: str, *, value: bool, annotations: dict[str, str | None]
) -> None:
    """Set spec.suspend and the annotations in one request; None removes an annotation."""
    change = {"metadata": {"annotations": annotations}, "spec": {"suspend": value}}
    kubectl.patch(GROUPS, name, change)


def find_user(kubectl: Kubectl) -> str:
    """Return the name that the API server knows the user by, or `unknown`.

    The annotation is a note for people: who may change the resource may write another name. The
    audit log of the API server is the proof.
    """
    try:
        return kubectl.run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").strip()
    except KubectlFailed:
        return "unknown"


def _warn_of_others(resource: Object, console: Console) -> None:
    """Name other clients that apply spec.suspend, and so may change it back."""
    for entry in resource["metadata"].get("managedFields") or ():
        owned = entry.get("fieldsV1", {}).get("f:spec", {})
        if "f:suspend" in owned and entry.get("operation") == "Apply":
            console.note(
                f"{entry.get('manager')} applies spec.suspend too, and can set it back: change it "
                "there as well"
            )
