"""What Redis holds of a group: its ledger, dead letters, copies and unprocessed entries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.history import REDRIVES, Copy, Letter, Move, Place, Source

_ID = re.compile(r"^\d+-\d+$")
PAGE = 5000
ENTRIES = (Source.STREAM, Source.RETRY)
Fields = Mapping[str, str]
Rows = list[tuple[str, Fields]]


@dataclass(slots=True)
class Findings:
    """The records of one group, read also before a fault removed them. Times in ms, from Redis."""

    names: dict[Place, str] = field(default_factory=dict)  # unique name by ID
    copies: dict[Place, Copy] = field(default_factory=dict)
    moves: dict[tuple[str, str, str], Move] = field(default_factory=dict)  # by kind and both IDs
    letters: dict[Place, Letter] = field(default_factory=dict)
    positions: dict[str, str] = field(default_factory=dict)  # of re-created groups, by ledger ID
    acts: list[tuple[str, Fields]] = field(default_factory=list)


def read_all(server: Any, lane: GroupUnderFault, into: Findings, *, offset_ns: int) -> None:
    """Add what the streams of a lane hold now. `offset_ns`: local clock less that of Redis."""
    keys = lane.keys
    for source, key in ((Source.STREAM, keys.stream), (Source.RETRY, keys.retry)):
        take_entries(_read(server, key), source, into, offset_ns=offset_ns)
    for ledger in (keys.ledger, keys.worker_ledger):
        take_ledger(_read(server, ledger), lane, into, offset_ns=offset_ns)
    # A dead letter that a redrive moved does not count any more, unless it is still there.
    for move in into.moves.values():
        into.letters.pop(move.place, None)
    for source, key in ((Source.DEAD_LETTER, keys.dead_letter), (Source.DISCARDED, keys.discarded)):
        take_dead_letters(_read(server, key), source, into, offset_ns=offset_ns)


def take_entries(rows: Rows, source: Source, into: Findings, *, offset_ns: int) -> None:
    """Note the entries of a stream."""
    for entry_id, fields in rows:
        unique = fields.get("unique", "")
        into.names[source, entry_id] = unique
        if "_retry_count" in fields:
            into.copies[source, entry_id] = Copy(
                place=(source, entry_id),
                at_ns=_at_ns(entry_id, offset_ns),
                unique=unique,
                root_id=fields.get("_original_id", ""),
                retries=int(fields["_retry_count"]),
            )


def take_dead_letters(rows: Rows, source: Source, into: Findings, *, offset_ns: int) -> None:
    """Note dead letters, or discarded ones; one without a body is known by its root's ID."""
    for letter_id, fields in rows:
        root = fields.get("_original_id", "")
        lost = (into.names.get((where, root)) for where in ENTRIES)
        unique = fields.get("unique") or next((name for name in lost if name), "")
        into.names[source, letter_id] = unique
        into.letters[source, letter_id] = Letter(
            letter_id=letter_id,
            source=source,
            at_ns=_at_ns(letter_id, offset_ns),
            unique=unique,
            root_id=root,
            reason=fields.get("_reason", ""),
        )


def take_ledger(rows: Rows, lane: GroupUnderFault, into: Findings, *, offset_ns: int) -> None:
    """Note what the ledger reports entries, one by one."""
    sources = sources_of(lane)
    for ledger_id, fields in rows:
        kind = fields.get("kind", "")
        into.acts.append((ledger_id, fields))
        if kind == "group-created":
            into.positions[ledger_id] = fields.get("position", "")
        source = sources.get(fields.get("stream", ""), Source.STREAM)
        target = sources.get(fields.get("target", "")) if kind in REDRIVES else None
        for entry_id, text in fields.items():
            if _ID.match(entry_id):
                new_id, _, retries, deliveries, idle_ms = text.split()
                into.moves[kind, ledger_id, entry_id] = Move(
                    kind=kind,
                    at_ns=_at_ns(ledger_id, offset_ns),
                    place=(source, entry_id),
                    new_id=None if new_id == "-" else new_id,
                    consumer=fields.get("consumer", ""),
                    actor=fields.get("actor", ""),
                    idle_ms=int(idle_ms),
                    deliveries=int(deliveries),
                    retries=int(retries),
                    reason=fields.get("reason", ""),
                    target=target,
                )


def sources_of(lane: GroupUnderFault) -> dict[str, Source]:
    """The kinds of the streams of a lane, by key."""
    keys = lane.keys
    return {
        keys.stream: Source.STREAM,
        keys.retry: Source.RETRY,
        keys.dead_letter: Source.DEAD_LETTER,
        keys.discarded: Source.DISCARDED,
    }


def read_owed(server: Any, lane: GroupUnderFault) -> frozenset[str] | None:
    """The names of what is undelivered or pending; None when there is no group."""
    keys = lane.keys
    names: set[str] = set()
    read = [keys.stream, *([keys.retry] if lane.strategy == "RetryStream" else [])]
    for key in read:
        owed = _owed_ids(server, key, keys.group)
        if owed is None:
            return None
        names |= _names_of(server, key, owed)
    return frozenset(names)


def _names_of(server: Any, key: str, ids: set[str]) -> set[str]:
    pipeline = server.pipeline(transaction=False)
    for one in ids:
        pipeline.xrange(key, one, one)
    bodies = [rows_of(answer) for answer in (pipeline.execute() if ids else ())]
    found = zip(ids, bodies, strict=True)
    return {rows[0][1]["unique"] if rows else f"body of {one}" for one, rows in found}


def rows_of(answer: Any) -> Rows:
    """An answer of XRANGE as text."""
    return [
        (entry_id.decode(), _texts((fields or {}).items())) for entry_id, fields in answer or ()
    ]


def measure_offset(server: Any, clock: Any) -> int:
    """This machine's clock less that of Redis, in ns; the middle of the best of a few looks."""
    best = (1 << 62, 0)
    for _ in range(5):
        before = clock()
        seconds, microseconds = server.time()
        after = clock()
        redis_ns = seconds * 1_000_000_000 + microseconds * 1000
        best = min(best, (after - before, (before + after) // 2 - redis_ns))
    return best[1]


def _owed_ids(server: Any, key: str, group: str) -> set[str] | None:
    try:
        groups = server.xinfo_groups(key)
    except ResponseError:
        return None
    ours = next((one for one in groups if one["name"] == group.encode()), None)
    if ours is None:
        return None
    pending = server.xpending_range(key, group, "-", "+", 100_000)
    position = ours["last-delivered-id"].decode()
    undelivered = server.xrange(key, f"({position}", "+")
    found = [one["message_id"] for one in pending] + [one[0] for one in undelivered]
    return {one.decode() for one in found}


def _read(server: Any, key: str) -> Rows:
    found: Rows = []
    start = "-"
    while True:
        try:
            page = rows_of(server.xrange(key, start, "+", PAGE))
        except ResponseError:
            return found
        found += page
        if len(page) < PAGE:
            return found
        start = f"({page[-1][0]}"


def _texts(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}


def _at_ns(entry_id: str, offset_ns: int) -> int:
    return int(entry_id.partition("-")[0]) * 1_000_000 + offset_ns
