"""What the ledgers say was done to entries, one row for each act on each entry.

The operator's ledger, and that of the workers, in which only what became of entries counts.

Also the events that concern a group as a whole: losses, trims, changes of its position.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import (
    KIND_FIELD,
    WORKER_KINDS,
    LedgerEvent,
    LedgerKind,
    parse_ledger_event,
)
from pelops.domain.naming import derive_keys
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.archive.stream_entries import LAST_HELD
from pelops.pipeline.engine.sql import Column, DataFrame, bounded
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.stages import Content, WindowWork, run_stage, write_sorted

_ACT: Final = (
    "kind STRING, in_stream STRING, target STRING, ms BIGINT, seq BIGINT, new_ms BIGINT,"
    " new_seq BIGINT, root_ms BIGINT, root_seq BIGINT, retry_count INT, deliveries BIGINT,"
    " idle_ms BIGINT, reason STRING, consumer STRING, event_ms BIGINT, event_seq BIGINT"
)
Fields: TypeAlias = Sequence[tuple[bytes, bytes]]
_TEXT: Final = 512  # characters kept of a reason
_PAGE: Final = 100  # an event holds up to a batch of entries
# Of the group as a whole: kept in the marker, since there are few.
_REPORTED: Final = {
    LedgerKind.DATA_LOSS,
    LedgerKind.TRIMMED,
    LedgerKind.POSITION_CHANGED,
    LedgerKind.GROUP_CREATED,
    LedgerKind.GROUP_ADOPTED,
    LedgerKind.PENDING_DROPPED,
    LedgerKind.DEAD_LETTERS_EXPIRED,
}
LETTER_MOVES: Final = (LedgerKind.REDRIVEN, LedgerKind.DISCARDED, LedgerKind.RESTORED)
_FIELDS: Final = "ARRAY<STRUCT<name: BINARY, value: BINARY>>"  # an event may repeat a name
_AFTER, _UPTO = "after", "upto"  # of PENDING_DROPPED: where the entries lay
_CONSUMERS: Final = "consumers"  # of PENDING_DROPPED: all that it names, as a JSON list
_MOST_REPORTED: Final = 10_000
_MOST_RANGES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedInWindow:
    """Pending entries that may be gone with consumers which somebody deleted."""

    at: EntryId  # the event in the ledger
    consumers: tuple[str, ...]
    at_most: int
    after: EntryId  # they lay after it, as a checkpoint from before shows
    upto: EntryId  # and not after it: the group's position at a checkpoint from later


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRange:
    """Entries of which each was delivered before it was removed, or is still there."""

    after: EntryId
    upto: EntryId

    @classmethod
    def read(cls, look: LedgerEvent) -> WatchedRange | None:
        """As a checkpoint tells; None for one of an operator that did not watch."""
        after, upto = _id_of(look, "watched_from"), _id_of(look, "last_delivered")
        return None if after is None or upto is None else cls(after=after, upto=upto)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """What a group's ledger says of the group as a whole, since the window began."""

    exists: bool  # there is a ledger
    archived: EntryId  # the last event that was read
    rows: int  # acts on entries
    events: tuple[tuple[str, Mapping[str, str]], ...]  # kind and details, in order
    checkpoints: int
    watched: tuple[WatchedRange, ...] = ()  # in order, apart from each other
    moves: int = 0  # events of `LETTER_MOVES`
    restores: int = 0  # those of them that restored dead letters

    def of(self, kind: LedgerKind) -> list[Mapping[str, str]]:
        return [details for reported, details in self.events if reported == kind]

    def dropped(self, after: EntryId) -> list[DroppedInWindow]:
        """Consumers that were deleted with entries pending, by events after this one."""
        found = [
            DroppedInWindow(
                at=parse_entry_id(details["event_id"]),
                consumers=tuple(json.loads(details[_CONSUMERS])),
                at_most=_number(details.get("at_most", "")),
                after=parse_entry_id(details[_AFTER]),
                upto=parse_entry_id(details[_UPTO]),
            )
            for details in self.of(LedgerKind.PENDING_DROPPED)
        ]
        return [one for one in found if one.at > after]


def read_acts(work: WindowWork) -> Content:
    """Archive the acts of every group. Answers what `read_history` reads."""
    plan, watch = work.plan, work.run.watch

    def make(directory: str) -> Content:
        content: Content = {"rows": {}, "groups": {}}
        for target in plan.targets:
            keys = derive_keys(plan.stream, target.group)
            look, workers = watch.stream(keys.ledger), watch.stream(keys.worker_ledger)
            after = plan.ledger_from.get(target.group, EntryId.MIN)
            path = f"{directory}/group={slug(target.group)}"
            events = _read_events(work, keys.ledger, after, look.last_generated)
            if workers.length:
                reported = _read_events(work, keys.worker_ledger, after, workers.last_generated)
                events = events.unionByName(_of_workers(reported))
            events = events.persist()  # Redis is read once
            try:
                rows = write_sorted(
                    work, _acts_of(events), path, "ms", "seq", "event_ms", "event_seq"
                )
                of_group = _report(events)
            finally:
                events.unpersist()
            content["rows"][target.group] = rows
            content["groups"][target.group] = {
                "exists": look.exists,
                "archived": str(look.last_generated),
                "of_workers": str(workers.last_generated),
                **of_group,
            }
        return content

    return run_stage(work, "acts", make)


def read_history(content: Mapping[str, Any], group: str) -> GroupHistory:
    """One group's part of what `read_acts` answered."""
    reported = content["groups"][group]
    return GroupHistory(
        exists=reported["exists"],
        archived=parse_entry_id(reported["archived"]),
        rows=content["rows"][group],
        events=tuple((kind, details) for kind, details in reported["events"]),
        checkpoints=reported["bookmarks"],
        # A window that an older version began has none.
        watched=tuple(
            WatchedRange(after=parse_entry_id(after), upto=parse_entry_id(upto))
            for after, upto in reported.get("watched", ())
        ),
        moves=reported.get("moves", 0),
        restores=reported.get("restores", 0),
    )


def _read_events(work: WindowWork, ledger: str, after: EntryId, last: EntryId) -> DataFrame:
    given = {
        "stream": ledger,
        "startingId": f"({after}",
        "endingId": str(min(last, LAST_HELD)),
        "duplicateFields": "keep",
        "failOnDataLoss": "false",
        "missingStream": "empty",
        "pageSize": str(_PAGE),
        **work.run.watch.place.options,
    }
    reader = work.session.read.format("redis_streams").options(**given)
    events = reader.schema(f"ms BIGINT, seq BIGINT, fields {_FIELDS}").load()
    return events.where(F.col("seq").isNotNull())


def _of_workers(events: DataFrame) -> DataFrame:
    """What workers may report of themselves: what became of entries, nothing about the group."""
    return events.where(_kind().isin([str(one) for one in WORKER_KINDS]))


def _kind() -> Column:
    named = F.filter("fields", lambda field: field["name"] == F.lit(KIND_FIELD.encode()))
    return F.try_element_at(named, F.lit(1))["value"].cast("string")


def _acts_of(events: DataFrame) -> DataFrame:
    # Without Arrow, whose way here needs pandas.
    parse = F.udf(_rows, f"ARRAY<STRUCT<{_typed()}>>", useArrow=False)
    acts = events.select(F.explode(parse("ms", "seq", "fields")).alias("act"))
    return acts.select("act.*")


def _typed() -> str:
    return ", ".join(part.strip().replace(" ", ": ", 1) for part in _ACT.split(","))


def _rows(ms: int, seq: int, fields: Fields) -> list[tuple[Any, ...]]:
    event = _event(ms, seq, fields)
    details = event.details
    stream = details.get("stream")
    target = details.get("target", stream if event.kind == LedgerKind.REQUEUED else None)
    return [
        (
            event.kind, stream, target, *bounded(one.entry_id),
            *(bounded(one.new_id) if one.new_id else (None, None)), *bounded(one.root_id),
            one.retry_count, one.deliveries, round(one.idle.total_seconds() * 1000),
            details.get("reason", "")[:_TEXT], details.get("consumer", ""), ms, seq,
        )
        for one in event.entries
        # Of an entry that the archive cannot hold nothing is reported, rather than of another.
        if bounded(one.entry_id) == (one.entry_id.ms, one.entry_id.seq)
    ]  # fmt: skip


def _event(ms: int, seq: int, fields: Fields) -> LedgerEvent:
    # Of a name that comes again, the first counts.
    pairs = {bytes(name): bytes(value) for name, value in reversed(fields)}
    return parse_ledger_event(EntryId(ms, seq), dict(reversed(pairs.items())))


def _report(events: DataFrame) -> Content:
    kind = _kind()
    of_group = events.where(kind.isin([str(one) for one in _REPORTED]))
    rows = of_group.coalesce(1).orderBy("ms", "seq").limit(_MOST_REPORTED).collect()
    reported = [_of_group(*row) for row in rows]
    checkpoints = events.where(kind == str(LedgerKind.CHECKPOINT)).coalesce(1)
    looks = [_event(*row) for row in checkpoints.orderBy("ms", "seq").collect()]
    for kind_of, details in reported:
        if kind_of == LedgerKind.PENDING_DROPPED:
            details.update(_bounds(details, looks))
    watched = [[str(one.after), str(one.upto)] for one in join_watched(looks)]
    is_move = kind.isin([str(one) for one in LETTER_MOVES])
    moves = events.where(is_move).groupBy(kind.alias("kind")).count().collect()
    counts = {row["kind"]: row["count"] for row in moves}
    return {
        "events": reported,
        "bookmarks": len(looks),
        "watched": watched,
        "moves": sum(counts.values()),
        "restores": counts.get(LedgerKind.RESTORED, 0),
    }


def join_watched(looks: Iterable[LedgerEvent]) -> list[WatchedRange]:
    """What checkpoints, in order, say was watched: in order, and apart from each other.

    Of very many ranges the last remain. Of a stream that was made anew nothing counts that was said
    before: it may use IDs again.
    """
    found: list[WatchedRange] = []
    before = 0
    for look in looks:
        added = _number(look.details.get("entries_added", ""))
        if added < before:
            found = []
        before = added
        one = WatchedRange.read(look)
        if one is not None and one.after < one.upto:
            found.append(one)
    joined: list[WatchedRange] = []
    for one in sorted(found, key=lambda each: (each.after, each.upto)):
        if joined and one.after <= joined[-1].upto:
            last = joined.pop()
            joined.append(replace(last, upto=max(last.upto, one.upto)))
        else:
            joined.append(one)
    return joined[-_MOST_RANGES:]


def _bounds(details: Mapping[str, str], looks: Sequence[LedgerEvent]) -> dict[str, str]:
    """Between which IDs entries lay that went with a consumer.

    What was pending when the consumer was deleted was pending at a checkpoint before, or came after
    the position of then; and it was delivered before the next checkpoint.
    """
    at, observed_ms = parse_entry_id(details["event_id"]), _number(details.get("observed_ms", ""))
    after, upto = EntryId.MIN, EntryId.MAX
    for look in looks:
        position = _id_of(look, "last_delivered")
        if position is not None and look.entry_id.ms <= observed_ms:
            lowest = _id_of(look, "lowest_pending")
            after = position if lowest is None else min(position, lowest.before())
        elif position is not None and look.entry_id > at:
            upto = position
            break
    return {_AFTER: str(after), _UPTO: str(upto)}


def _id_of(look: LedgerEvent, name: str) -> EntryId | None:
    try:
        return parse_entry_id(look.details.get(name, ""))
    except InvalidSpec:
        return None


def _of_group(ms: int, seq: int, fields: Fields) -> list[Any]:
    event = _event(ms, seq, fields)
    details = {**event.details, "event_id": str(event.entry_id)}
    if event.kind == LedgerKind.PENDING_DROPPED:
        named = [bytes(value) for name, value in fields if bytes(name) == b"consumer"]
        details[_CONSUMERS] = json.dumps([name.decode("utf-8", "replace") for name in named])
    return [event.kind, details]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
