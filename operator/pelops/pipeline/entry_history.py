"""The history of one entry: what happened to it and its copies, and how a terminal shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from pelops.clock import EPOCH, from_ms, is_time
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.outcome import EntryStatus, describe_event

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to an entry."""

    at: datetime | None  # None: unknown
    window: int | None  # of the audit or archive that reports it
    entry: str  # the ID: of the entry, or of a copy
    what: str
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryHistory:
    """What happened to one entry and its copies, for one group."""

    stream: str
    group: str
    root: str
    status: str | None  # of the last copy, in its newest audit
    evidence: str | None
    window: int | None  # of that audit
    events: tuple[Event, ...]  # in order


def act_event(row: Row) -> Event:
    new = "" if row["new_ms"] is None else f"{row['new_ms']}-{row['new_seq']}"
    details = [
        row["reason"] or "",
        f"was pending at {row['consumer']}" if row["consumer"] else "",
        f"idle for {_span(row['idle_ms'])}" if (row["idle_ms"] or 0) > 0 else "",
        _count(row["deliveries"], "delivery", "deliveries"),
        _count(row["retry_count"], "failed attempt", "failed attempts"),
    ]
    words = describe_event(row["kind"], new)
    return make_event(row["event_ms"], row, entry_of(row), words, _joined(details))


def file_events(row: Row) -> Iterator[Event]:
    """Events of the append-only files: the first delivery, and the last event."""
    entry = entry_of(row)
    if row["first_delivered_ms"]:
        details = f"to {row['consumer']}" if row["deliveries"] == 1 and row["consumer"] else ""
        yield make_event(row["first_delivered_ms"], row, entry, "delivered", _file(details))
    if row["kind"] == "acknowledged":
        by = f"by {row['consumer']}" if row["consumer"] else ""
        count = _count(row["deliveries"], "delivery", "deliveries")
        yield make_event(row["event_ms"], row, entry, "acknowledged", _file(_joined([by, count])))
    elif row["kind"] not in {"undelivered", "pending", "unknown"}:
        yield make_event(row["event_ms"], row, entry, row["kind"].replace("-", " "), _file(""))


def _file(details: str) -> str:
    return _joined([details, "append-only file"])


def status_events(rows: Sequence[Row]) -> Iterator[Event]:
    """Events for the status in each audit, if it differs from that of the previous audit."""
    known: dict[tuple[str, EntryId], tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda one: (one["as_of"], one["ms"], one["seq"])):
        entry = entry_of(row)
        state = (row["status"], row["consumer"], row["deliveries"])
        if known.get((row["stream"], entry)) == state:
            continue
        known[row["stream"], entry] = state
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
    label = next((text for one, text in plain.items() if one == status), status)
    return label.replace("_", " ")


def render_histories(histories: Sequence[EntryHistory]) -> str:
    """Histories as text, for a terminal."""
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
            "-"
            if event.at is None
            else event.at.strftime("%Y-%m-%d %H:%M:%S.") + _thousandths(event.at),
            "" if event.window is None else f"window {event.window}",
            event.entry if copies else "",
            f"{event.what}{'; ' if event.details else ''}{event.details}",
        )
        for event in history.events
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
                "at": None if event.at is None else event.at.isoformat(),
                "window": event.window,
                "entry": event.entry,
                "what": event.what,
                "details": event.details,
            }
            for event in history.events
        ],
    }


def when(event: Event) -> tuple[datetime, int, EntryId]:
    at = event.at or EPOCH
    return (at, -1 if event.window is None else event.window, parse_entry_id(event.entry))


def make_event(at_ms: int | None, row: Row, entry: EntryId, what: str, details: str) -> Event:
    at = None if at_ms is None else time_of(at_ms)
    return Event(at=at, window=row["window"], entry=str(entry), what=what, details=details)


def unique(events: Iterable[Event]) -> list[Event]:
    """Each event once: the parts of a ledger that two windows read may overlap."""
    first: dict[tuple[Any, ...], Event] = {}
    for event in events:
        key = (event.at, event.entry, event.what)
        known = first.get(key)
        if known is None or (event.window or 0) < (known.window or 0):
            first[key] = event
    return list(first.values())


def entry_of(row: Row) -> EntryId:
    return EntryId(row["ms"], row["seq"])


def root_of(row: Row) -> EntryId | None:
    return None if row["root_ms"] is None else EntryId(row["root_ms"], row["root_seq"])


def time_of(ms: int) -> datetime | None:
    return from_ms(ms) if is_time(ms) else None


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
