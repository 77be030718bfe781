"""The entries that the report of an audit lists one by one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.pipeline.audit.measures import Ways
from pelops.pipeline.audit.rules import RowOrigin
from pelops.pipeline.report.model import Duplicate, Duplicates, EntrySource, ExceptionalEntry


def source_of(copy: bool, origin: str, is_open: bool) -> EntrySource:
    """Where an entry comes from, as the report names it."""
    if copy:
        return EntrySource.COPY
    if origin == RowOrigin.EARLIER:
        return EntrySource.EARLIER if is_open else EntrySource.SETTLED
    return EntrySource.WINDOW


def read_entry(row: Mapping[str, Any]) -> ExceptionalEntry:
    """One row of the table of statuses, as the report lists it."""
    is_pending = row["status"] in {EntryStatus.STUCK, EntryStatus.PAYLOAD_GONE}
    idle_ms = row["idle_ms"] if is_pending else row["act_idle_ms"]
    is_silent = idle_ms is None or idle_ms < 0 or (is_pending and row["consumer"] is None)
    return ExceptionalEntry(
        entry_id=EntryId(row["ms"], row["seq"]),
        status=EntryStatus(row["status"]),
        why=row["reason"] or row["why"],
        consumer=row["consumer"] or "",
        idle=None if is_silent else timedelta(milliseconds=idle_ms),
        deliveries=row["delivery_count"],
        source=source_of(row["copy"], row["origin"], not row["is_settled"]),
        root_id=None if row["root_ms"] is None else EntryId(row["root_ms"], row["root_seq"]),
    )


def list_duplicates(ways: Mapping[str, Ways]) -> Duplicates:
    """Entries that were added more than once, by each way of comparison."""
    first = [
        Duplicate(
            by=way,
            key=str(row["value"]),
            copies=row["copies"],
            examples=tuple(EntryId(end["ms"], end["seq"]) for end in (row["first"], row["last"])),
        )
        for way, duplicates in sorted(ways.items())
        for row in duplicates.first
    ]
    return Duplicates(
        entries=sum(duplicates.entries for duplicates in ways.values()),
        first=tuple(sorted(first, key=lambda one: -one.copies)[:20]),
    )
