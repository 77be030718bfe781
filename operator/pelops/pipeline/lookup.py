"""The history of one entry in the archive: from its arrival to its end, over all windows.

A copy that the operator made of an entry belongs to it: what is asked for by the ID of a copy is
answered for the whole chain, from the entry that a user added to its last copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.domain.naming import derive_keys
from pelops.errors import InvalidSpec, PelopsError
from pelops.pipeline.archive.arrow_reader import ArchivedStream, ArchiveFiles, Row
from pelops.pipeline.archive.damage import Damage, find_archive_damage, find_missing_plans
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.errors import ArchiveUnusable

MOST_FOUND: Final = 20  # entries with the value of a field, told one by one
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_370_764_800_000  # the year 9999: later ones are no times
_PAIRS: Final = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
_LARGEST: Final = 2**63 - 1  # of a column; a larger part of an ID is archived as this


def _schema(**more: pa.DataType) -> pa.Schema:
    columns = {"ms": pa.int64(), "seq": pa.int64(), **more, "as_of": pa.int32()}
    return pa.schema(list(columns.items()))


_ROOT: Final = {"root_ms": pa.int64(), "root_seq": pa.int64(), "retry_count": pa.int32()}
_ENTRIES: Final = _schema(**_ROOT, bytes=pa.int64(), key=pa.string())
_PAYLOADS: Final = _schema(**_ROOT, fields=_PAIRS)
_ACTS: Final = _schema(
    **_ROOT,
    kind=pa.string(),
    in_stream=pa.string(),
    new_ms=pa.int64(),
    new_seq=pa.int64(),
    target=pa.string(),
    deliveries=pa.int64(),
    idle_ms=pa.int64(),
    reason=pa.string(),
    consumer=pa.string(),
    event_ms=pa.int64(),
    event_seq=pa.int64(),
)
_STATUSES: Final = _schema(
    stream=pa.string(),
    group=pa.string(),
    status=pa.string(),
    why=pa.string(),
    evidence=pa.string(),
    delivered_at=pa.timestamp("us", tz="UTC"),
    audited_at=pa.timestamp("us", tz="UTC"),
    consumer=pa.string(),
    deliveries=pa.int64(),
    reason=pa.string(),
    window=pa.int32(),
)
_EVIDENCE: Final = _schema(
    fate=pa.string(),
    act=pa.string(),
    consumer=pa.string(),
    deliveries=pa.int64(),
    first_delivered_ms=pa.int64(),
    at_ms=pa.int64(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupQuestion:
    """Which entry is asked for: by one of its ID, its root, or the value of a field."""

    entry: EntryId | None = None  # it, or any copy of it
    root: EntryId | None = None
    field: tuple[str, str] | None = None
    stream: str | None = None  # None: in every stream of the archive
    group: str | None = None  # None: for every group

    def __str__(self) -> str:
        """What is asked for, as its user wrote it."""
        if self.field is not None:
            return f"an entry with {'='.join(self.field)}"
        return f"entry {self.entry or self.root}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to an entry."""

    at: datetime | None  # None: its time is not known
    window: int | None  # whose audit or archive reports it
    entry: str  # the ID: of the entry, or of a copy
    what: str
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryHistory:
    """What happened to one entry and its copies, for one group."""

    stream: str
    group: str
    root: str
    status: str | None  # of the last copy, by the newest audit that looked at it
    evidence: str | None
    window: int | None  # of that audit
    events: tuple[Event, ...]  # in order
    damage: tuple[str, ...] = ()  # files that are missing or cut, with which there may be more


def look_up(archive: ArchiveFiles, asked: LookupQuestion) -> list[EntryHistory]:
    """The histories of all entries that are asked for, one for each group.

    Raises InvalidSpec when the archive holds no such stream, group or field, and ArchiveUnusable
    when nothing is found in an archive that is damaged: what is asked for may have been in it.
    """
    streams = archive.streams()
    damage = _find_damage(archive, streams, asked)
    lost = [one for found in damage.values() for one in found]
    archive.leave_out(one.path for one in lost)
    histories: list[EntryHistory] = []
    for stream in _choose(archive, streams, asked, lost):
        for root in _roots(archive, stream, asked):
            chain = _chain(archive, stream, root)
            groups = [one for one in stream.groups if asked.group in (None, one)]
            arrivals = list(_arrivals(archive, stream, chain))
            for group in groups:
                history = _history(archive, stream, group, chain, arrivals)
                if history is not None:
                    reported = _of_group(archive, damage[stream.name], group)
                    histories.append(replace(history, damage=reported))
    if not histories and lost:
        raise _refusal(archive, f"{asked} is not found", lost)
    return histories


def _find_damage(
    archive: ArchiveFiles, streams: Sequence[ArchivedStream], asked: LookupQuestion
) -> dict[str | None, list[Damage]]:
    """What is damaged of each stream that is asked for; of None: of those without a name."""
    found: dict[str | None, list[Damage]] = {
        one.name: find_archive_damage(archive, one)
        for one in streams
        if asked.stream in (None, one.name)
    }
    wanted = None if asked.stream is None else f"stream={slug(asked.stream)}"
    nameless = find_missing_plans(archive, streams)
    return found | {None: [one for one in nameless if wanted in (None, one.stage)]}


def _of_group(archive: ArchiveFiles, damage: Iterable[Damage], group: str) -> tuple[str, ...]:
    """What is damaged of the files that a group's history is made of."""
    ours = {f"group={slug(group)}"}
    return _reported(archive, (one for one in damage if one.groups <= ours))


def _reported(archive: ArchiveFiles, damage: Iterable[Damage]) -> tuple[str, ...]:
    return tuple(f"{archive.shown(one.path)} {one.problem}" for one in damage)


def _first(damage: Sequence[str]) -> str:
    return damage[0] + (f", and {len(damage) - 1} more" if len(damage) > 1 else "")


def _refusal(archive: ArchiveFiles, problem: str, lost: Sequence[Damage]) -> PelopsError:
    """What to raise for something that the archive does not hold, as far as it can be read."""
    if not lost:
        return InvalidSpec(problem)
    return ArchiveUnusable(
        f"{problem}, and whether it was archived is unknown: the archive is damaged: "
        f"{_first(_reported(archive, lost))}. Restore the files from a backup, and repeat the "
        "lookup"
    )


def _choose(
    archive: ArchiveFiles,
    streams: Sequence[ArchivedStream],
    asked: LookupQuestion,
    lost: Sequence[Damage],
) -> list[ArchivedStream]:
    chosen = [one for one in streams if asked.stream in (None, one.name)]
    if not chosen:
        names = ", ".join(repr(one.name) for one in streams) or "none"
        problem = f"the archive holds no stream {asked.stream!r}; it holds {names}"
        raise _refusal(archive, problem, lost)
    with_group = [one for one in chosen if asked.group is None or asked.group in one.groups]
    if not with_group:
        names = ", ".join(sorted({repr(name) for one in chosen for name in one.groups}))
        problem = f"no audit was of the group {asked.group!r}; the archive holds {names}"
        raise _refusal(archive, problem, lost)
    return with_group


def _roots(archive: ArchiveFiles, stream: ArchivedStream, asked: LookupQuestion) -> list[EntryId]:
    if asked.field is not None:
        return _roots_by_field(archive, stream, asked.field)
    if asked.root is not None:
        return [asked.root] if _is_known(archive, stream, asked.root) else []
    assert asked.entry is not None
    root = _root_of(archive, stream, asked.entry)
    return [] if root is None else [root]


def _roots_by_field(
    archive: ArchiveFiles, stream: ArchivedStream, field: tuple[str, str]
) -> list[EntryId]:
    name, value = field
    if name == stream.business_key:
        rows = archive.rows("entries", stream.name, _ENTRIES, pc.field("key") == value)
    elif stream.payload == "full":
        rows = [
            row
            for row in archive.rows("entries", stream.name, _PAYLOADS, pc.scalar(True))
            if {"name": name.encode(), "value": value.encode()} in (row["fields"] or ())
        ]
    else:
        raise InvalidSpec(
            f"the archive does not hold the field {name!r} of stream {stream.name!r}: audit with "
            f"--payload full, or with --business-key {name}"
        )
    roots = dict.fromkeys(_root(row) or _entry(row) for row in rows)
    if len(roots) > MOST_FOUND:
        raise InvalidSpec(
            f"{len(roots)} entries of stream {stream.name!r} have {name}={value}; at most "
            f"{MOST_FOUND} are shown: ask for one of them by --id, such as {next(iter(roots))}"
        )
    return list(roots)


def _is_known(archive: ArchiveFiles, stream: ArchivedStream, entry: EntryId) -> bool:
    return bool(
        archive.rows("entries", stream.name, _ENTRIES, _is(entry))
        or archive.rows("statuses", stream.name, _STATUSES, _is(entry))
        or archive.rows("acts", stream.name, _ACTS, _is(entry) | _has_root(entry))
    )


def _root_of(archive: ArchiveFiles, stream: ArchivedStream, entry: EntryId) -> EntryId | None:
    """The entry that a user added; None when the archive has nothing of this ID.

    Of a copy that was gone before the archive, and of a dead letter, only the ledger tells.
    """
    acts = archive.rows("acts", stream.name, _ACTS, _is(entry) | _is(entry, "new_"))
    copied = [row for row in acts if row["kind"] in _COPYING and _entry(row) != entry]
    archived = (row for row, _ in _archived(archive, stream, _is(entry)))
    for row in (*copied, *archived, *acts):
        return _root(row) or entry
    return entry if _is_known(archive, stream, entry) else None


def _archived(
    archive: ArchiveFiles, stream: ArchivedStream, wanted: Any
) -> Iterator[tuple[Row, bool]]:
    """Entries and copies that were archived; of each whether it lies in a group's retry stream."""
    for table, in_retry in (("entries", False), ("retries", True)):
        for row in archive.rows(table, stream.name, _ENTRIES, wanted):
            yield row, in_retry


def _chain(archive: ArchiveFiles, stream: ArchivedStream, root: EntryId) -> dict[EntryId, bool]:
    """The IDs of an entry and its copies; of each whether it lies in a group's retry stream."""
    chain = {root: False}
    for row, in_retry in _archived(archive, stream, _has_root(root)):
        chain.setdefault(_entry(row), in_retry)
    retry = {derive_keys(stream.name, group).retry for group in stream.groups}
    for row in archive.rows("acts", stream.name, _ACTS, _has_root(root)):
        if row["kind"] not in _OF_LETTERS:
            chain.setdefault(_entry(row), row["in_stream"] in retry)
        if row["kind"] in _COPYING and row["new_ms"] is not None:
            chain.setdefault(EntryId(row["new_ms"], row["new_seq"]), row["target"] in retry)
    return dict(sorted(chain.items()))


def _arrivals(
    archive: ArchiveFiles, stream: ArchivedStream, chain: Iterable[EntryId]
) -> Iterator[Event]:
    """When the entry and its copies were added; of what was gone before it was archived, its ID."""
    seen = set()
    for row, _ in _archived(archive, stream, _any(chain)):
        entry, root = _entry(row), _root(row)
        if entry in seen:
            continue
        seen.add(entry)
        what = "added" if root is None else f"added as a copy of {root}"
        yield _event(row["ms"], row, entry, what, f"{row['bytes']} bytes")
    for entry in chain:
        if entry not in seen:
            yield Event(
                at=_time(entry.ms),
                window=None,
                entry=str(entry),
                what="added",
                details="deleted or trimmed before it was archived",
            )


def _history(
    archive: ArchiveFiles,
    stream: ArchivedStream,
    group: str,
    chain: dict[EntryId, bool],
    arrivals: Sequence[Event],
) -> EntryHistory | None:
    """What a group's audits report the entry; None when they tell nothing."""
    directory, wanted = f"group={slug(group)}", _any(chain)

    def of_group(table: str, schema: pa.Schema, wanted: Any = wanted) -> list[Row]:
        rows = archive.rows_by_group(table, stream.name, schema, wanted)
        return [row for name, row in rows if name == directory]

    # A letter may have the ID of an entry of another chain.
    is_of_letter = pc.field("kind").isin(sorted(_OF_LETTERS))
    root = next(iter(chain))
    acts = (wanted & ~is_of_letter) | (_has_root(root) & is_of_letter)
    of_ours = wanted & (pc.field("group") == group)
    statuses = archive.rows("statuses", stream.name, _STATUSES, of_ours)
    events = [
        *arrivals,
        *_unique(map(_act_event, of_group("acts", _ACTS, acts))),
        *_unique(one for row in of_group("evidence", _EVIDENCE) for one in _file_events(row)),
        *_status_events(statuses),
    ]
    if len(events) == len(arrivals) and not _was_audited(archive, stream, group):
        return None
    last = max(statuses, key=_order, default=None)
    return EntryHistory(
        stream=stream.name,
        group=group,
        root=str(next(iter(chain))),
        status=None if last is None else last["status"],
        evidence=None if last is None else last["evidence"],
        window=None if last is None else last["as_of"],
        events=tuple(sorted(events, key=_when)),
    )


def _order(row: Row) -> tuple[int, int, int]:
    """What counts is informed of the last copy, by the newest audit."""
    return (row["ms"], row["seq"], row["as_of"])


def _when(event: Event) -> tuple[datetime, int, EntryId]:
    at = event.at or _EPOCH
    return (at, -1 if event.window is None else event.window, parse_entry_id(event.entry))


def _was_audited(archive: ArchiveFiles, stream: ArchivedStream, group: str) -> bool:
    return group in stream.groups and archive.has("statuses", stream.name)


_COPYING: Final = frozenset({LedgerKind.REQUEUED, LedgerKind.REDRIVEN})
# Acts on dead letters: their IDs are not those of entries.
_OF_LETTERS: Final = frozenset({LedgerKind.REDRIVEN, LedgerKind.DISCARDED, LedgerKind.RESTORED})
_ACT_WORDS: Final = {
    LedgerKind.REQUEUED: "requeued as {new}",
    LedgerKind.DEAD_LETTERED: "dead-lettered as {new}",
    LedgerKind.PAYLOAD_GONE: "dead-lettered as {new}: the entry had been deleted or trimmed",
    LedgerKind.REDRIVEN: "redriven from the dead-letter stream as {new}",
    LedgerKind.DISCARDED: "dead letter discarded as {new}",
    LedgerKind.RESTORED: "discarded dead letter restored as {new}",
    LedgerKind.RELEASED: "released to the next worker that claims it",
    LedgerKind.PENDING_DROPPED: "removed from the PEL with its consumer",
}


def _act_event(row: Row) -> Event:
    new = "" if row["new_ms"] is None else f"{row['new_ms']}-{row['new_seq']}"
    words = next((text for kind, text in _ACT_WORDS.items() if kind == row["kind"]), row["kind"])
    details = [
        row["reason"] or "",
        f"was pending at {row['consumer']}" if row["consumer"] else "",
        f"idle for {_span(row['idle_ms'])}" if (row["idle_ms"] or 0) > 0 else "",
        _count(row["deliveries"], "delivery", "deliveries"),
        _count(row["retry_count"], "failed attempt", "failed attempts"),
    ]
    return _event(row["event_ms"], row, _entry(row), words.format(new=new), _joined(details))


def _file_events(row: Row) -> Iterator[Event]:
    """What the append-only files tell: the first delivery, and the last thing that happened."""
    entry = _entry(row)
    if row["first_delivered_ms"]:
        details = f"to {row['consumer']}" if row["deliveries"] == 1 and row["consumer"] else ""
        yield _event(row["first_delivered_ms"], row, entry, "delivered", _file(details))
    if row["fate"] == "acknowledged":
        by = f"by {row['consumer']}" if row["consumer"] else ""
        count = _count(row["deliveries"], "delivery", "deliveries")
        yield _event(row["at_ms"], row, entry, "acknowledged", _file(_joined([by, count])))
    elif row["fate"] not in {"undelivered", "pending", "unknown"}:
        yield _event(row["at_ms"], row, entry, row["fate"].replace("-", " "), _file(""))


def _file(details: str) -> str:
    return _joined([details, "append-only file"])


def _status_events(rows: Sequence[Row]) -> Iterator[Event]:
    """What each audit found; one that found the same as the audit before it says nothing new."""
    known: dict[tuple[str, EntryId], tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda one: (one["as_of"], one["ms"], one["seq"])):
        entry = _entry(row)
        reported = (row["status"], row["consumer"], row["deliveries"])
        if known.get((row["stream"], entry)) == reported:
            continue
        known[row["stream"], entry] = reported
        if row["delivered_at"] is not None and row["consumer"]:
            count = _count(row["deliveries"], "delivery", "deliveries")
            yield Event(
                at=row["delivered_at"],
                window=row["as_of"],
                entry=str(entry),
                what=f"delivered to {row['consumer']}",
                details=_joined([count, "pending at the time of the audit"]),
            )
        yield Event(
            at=row["audited_at"],
            window=row["as_of"],
            entry=str(entry),
            what=f"found {_words(row['status'])}",
            details=_joined([f"evidence: {row['evidence']}", row["why"]]),
        )


def _words(status: str) -> str:
    plain = {
        EntryStatus.ACKNOWLEDGED_PROVEN: "acknowledged, proven",
        EntryStatus.ACKNOWLEDGED_INFERRED: "acknowledged, inferred",
        EntryStatus.DEAD_LETTERED: "dead-lettered",
        EntryStatus.PAYLOAD_GONE: "pending without its payload",
    }
    reported = next((text for one, text in plain.items() if one == status), status)
    return reported.replace("_", " ")


def render_histories(histories: Sequence[EntryHistory]) -> str:
    """Histories for a terminal."""
    return "\n\n".join(map(_render, histories))


def _render(history: EntryHistory) -> str:
    now = "no audit has a status for it" if history.status is None else _words(history.status)
    by = "" if history.window is None else f" (window {history.window}, {history.evidence})"
    head = f"{history.stream} / {history.group}: entry {history.root} is {now}{by}"
    if history.status is None:
        head = f"{history.stream} / {history.group}: entry {history.root}: {now}"
    copies = {one.entry for one in history.events} - {history.root}
    rows = [
        (
            "-" if one.at is None else one.at.strftime("%Y-%m-%d %H:%M:%S.") + _thousandths(one.at),
            "" if one.window is None else f"window {one.window}",
            one.entry if copies else "",
            f"{one.what}{'; ' if one.details else ''}{one.details}",
        )
        for one in history.events
    ]
    widths = [max((len(row[place]) for row in rows), default=0) for place in range(3)]
    lines = [
        "  ".join(
            text.ljust(width)
            for text, width in zip(row, [*widths, 1], strict=True)
            if width  # a column without any text is left out
        )
        for row in rows
    ]
    if history.damage:
        reported = _first(history.damage)
        lines.append(f"the archive is damaged, so that events may be missing here: {reported}")
    return "\n".join([head, *(f"  {line.rstrip()}" for line in lines)])


def render_history(history: EntryHistory) -> dict[str, Any]:
    """A history as a JSON object."""
    return {
        "stream": history.stream,
        "group": history.group,
        "root": history.root,
        "status": history.status,
        "evidence": history.evidence,
        "window": history.window,
        "events": [
            {
                "at": None if one.at is None else one.at.isoformat(),
                "window": one.window,
                "entry": one.entry,
                "what": one.what,
                "details": one.details,
            }
            for one in history.events
        ],
        "damage": list(history.damage),
    }


def read_field(text: str) -> tuple[str, str]:
    """`KEY=VALUE` as a pair. Raises InvalidSpec."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise InvalidSpec(f"{text!r} names no field: write it as --field KEY=VALUE")
    return name, value


def _event(at_ms: int | None, row: Row, entry: EntryId, what: str, details: str) -> Event:
    at = None if at_ms is None else _time(at_ms)
    return Event(at=at, window=row["as_of"], entry=str(entry), what=what, details=details)


def _unique(events: Iterable[Event]) -> list[Event]:
    """Each event once: two windows read the same part of a ledger, where one ends."""
    first: dict[tuple[Any, ...], Event] = {}
    for one in events:
        key = (one.at, one.entry, one.what)
        known = first.get(key)
        if known is None or (one.window or 0) < (known.window or 0):
            first[key] = one
    return list(first.values())


def _entry(row: Row) -> EntryId:
    return EntryId(row["ms"], row["seq"])


def _root(row: Row) -> EntryId | None:
    return None if row["root_ms"] is None else EntryId(row["root_ms"], row["root_seq"])


def _is(entry: EntryId, prefix: str = "") -> Any:
    ms, seq = min(entry.ms, _LARGEST), min(entry.seq, _LARGEST)
    return (pc.field(f"{prefix}ms") == ms) & (pc.field(f"{prefix}seq") == seq)


def _has_root(root: EntryId) -> Any:
    return _is(root, "root_")


def _any(entries: Iterable[EntryId]) -> Any:
    return reduce(or_, map(_is, entries))


def _time(ms: int) -> datetime | None:
    return _EPOCH + timedelta(milliseconds=ms) if 0 < ms < _LAST_MS else None


def _thousandths(at: datetime) -> str:
    return f"{at.microsecond // 1000:03d}"


def _span(ms: int) -> str:
    seconds = ms / 1000
    for limit, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * limit:
            return f"{seconds / limit:.1f} {unit}"
    return f"{seconds:.1f} s"


def _count(number: int | None, one: str, many: str) -> str:
    return "" if not number else f"{number} {one if number == 1 else many}"


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(part for part in parts if part)
