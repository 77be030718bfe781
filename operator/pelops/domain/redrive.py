"""A redrive plan: which dead letters of a group to redrive, to inspect or to discard.

A text of JSON lines. The first one is the header, and each other one a dead letter, ordered by ID:

    {"kind":"pelops.redrive-plan","version":1,"stream":"orders:events","group":"mail",...}
    {"id":"1760000009000-0","root":"1760000000000-0","cluster":"9f...","action":"redrive"}

Users may edit it: change actions or delete lines. The header's counts are those of the suggestion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pelops.clock import from_ms, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.json_fields import JsonFields, load_json_object
from pelops.errors import InvalidSpec

KIND: Final = "pelops.redrive-plan"
VERSION: Final = 1
ACTIONS: Final = ("redrive", "inspect", "discard")
_LINE_LIMIT: Final = 1024 * 1024  # bytes; a header names every cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """The action suggested for one cluster of dead letters, and why."""

    cluster: str
    letters: int
    action: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """The group that a plan is for, and a summary of its dead letters."""

    stream: str
    group: str
    dead_letter: str  # the stream that holds them
    at: datetime  # when the dead letters were read
    letters: int
    actions: Mapping[str, int] = field(default_factory=dict)  # number of dead letters by action
    clusters: tuple[PlannedCluster, ...] = ()  # the largest ones


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLetter:
    """What to do with one dead letter."""

    entry_id: EntryId  # in the dead-letter stream
    root_id: EntryId  # of the original entry
    cluster: str
    action: str


def render_plan(header: PlanHeader, letters: Iterable[PlannedLetter]) -> Iterator[str]:
    """The lines of a plan, each with a line feed. Equal plans give equal bytes."""
    yield _line(_render_header(header))
    for letter in letters:
        yield _line(
            {
                "id": str(letter.entry_id),
                "root": str(letter.root_id),
                "cluster": letter.cluster,
                "action": letter.action,
            }
        )


def parse_plan(lines: Iterable[str]) -> tuple[PlanHeader, Iterator[PlannedLetter]]:
    """The header, and an iterator over the dead letters; blank lines are skipped.

    Raises InvalidSpec when a line is malformed, when the plan has another version, or when IDs are
    repeated or out of order. The iterator raises it too.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, first = next(numbered, (1, ""))
    header = _parse_header(_load(first, number))
    return header, _parse_dead_letters(numbered)


def _render_header(header: PlanHeader) -> dict[str, Any]:
    return {
        "kind": KIND,
        "version": VERSION,
        "stream": header.stream,
        "group": header.group,
        "dead_letter": header.dead_letter,
        "at_ms": to_ms(header.at),
        "letters": header.letters,
        "actions": {action: header.actions.get(action, 0) for action in ACTIONS},
        "clusters": [
            {
                "cluster": cluster.cluster,
                "letters": cluster.letters,
                "action": cluster.action,
                "reason": cluster.reason,
            }
            for cluster in header.clusters
        ],
    }


def _parse_header(fields: JsonFields) -> PlanHeader:
    if fields.content.get("kind") != KIND:
        raise InvalidSpec("line 1 is not the header of a redrive plan")
    if fields.number("version") != VERSION:
        raise InvalidSpec(
            f"the redrive plan has version {fields.number('version')}, and this version of Pelops "
            f"reads {VERSION}"
        )
    actions = fields.inner("actions")
    clusters = fields.content.get("clusters")
    if not isinstance(clusters, list):
        raise InvalidSpec("line 1: clusters is not a list")
    return PlanHeader(
        stream=fields.text("stream"),
        group=fields.text("group"),
        dead_letter=fields.text("dead_letter"),
        at=from_ms(fields.number("at_ms")),
        letters=fields.number("letters"),
        actions={action: actions.number(action) for action in ACTIONS},
        clusters=tuple(_parse_cluster(one) for one in clusters),
    )


def _parse_cluster(value: object) -> PlannedCluster:
    if not isinstance(value, Mapping):
        raise InvalidSpec("line 1: clusters must be a list of objects")
    fields = JsonFields(content=value, at="clusters[].")
    return PlannedCluster(
        cluster=fields.text("cluster", 64),
        letters=fields.number("letters"),
        action=_action(fields),
        reason=fields.text("reason"),
    )


def _parse_dead_letters(numbered: Iterable[tuple[int, str]]) -> Iterator[PlannedLetter]:
    last: EntryId | None = None
    for number, line in numbered:
        letter = _parse_letter(line, number)
        # The ascending order excludes repeated dead letters without keeping their IDs in memory.
        if last is not None and letter.entry_id <= last:
            raise InvalidSpec(f"line {number}: {letter.entry_id} does not follow {last}")
        last = letter.entry_id
        yield letter


def _parse_letter(line: str, number: int) -> PlannedLetter:
    try:
        fields = _load(line, number)
        return PlannedLetter(
            entry_id=parse_entry_id(fields.text("id", 41)),
            root_id=parse_entry_id(fields.text("root", 41)),
            cluster=fields.text("cluster", 64),
            action=_action(fields),
        )
    except InvalidSpec as error:
        raise InvalidSpec(f"line {number}: {error}") from error


def _action(fields: JsonFields) -> str:
    action = fields.text("action", 64)
    if action not in ACTIONS:
        raise InvalidSpec(f"{fields.at}action {action!r} is none of {', '.join(ACTIONS)}")
    return action


def _load(line: str, number: int) -> JsonFields:
    return load_json_object(line, f"line {number}", limit=_LINE_LIMIT)


def _line(content: Mapping[str, Any]) -> str:
    # Escaped, because some readers end a line at a line separator of Unicode.
    return json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n"
