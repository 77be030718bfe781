"""A stream's counters at one moment: what windows begin and end with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerEvent, LedgerKind
from pelops.errors import InvalidSpec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """`added` entries had been added, the last of them `at_id`."""

    at_id: EntryId
    added: int
    at: datetime  # on the server's clock


def moment(at_ms: int) -> datetime:
    """The time that a number of milliseconds names, as far as a calendar reaches."""
    return EPOCH + min(at_ms, 253_370_764_800_000) * MILLISECOND


def milliseconds(at: datetime) -> int:
    """Milliseconds since 1970."""
    return (at - EPOCH) // MILLISECOND


def read_bookmark(event: LedgerEvent, stream: str) -> Bookmark | None:
    """The bookmark of a stream that an event of the ledger is; None for any other event."""
    details = event.details
    if event.kind != LedgerKind.BOOKMARK or details.get("stream") != stream:
        return None
    added = details.get("entries_added", "")
    try:
        at_id = parse_entry_id(details.get("last_generated", ""))
    except InvalidSpec:
        return None
    if not (added.isascii() and added.isdigit()):
        return None
    return Bookmark(at_id=at_id, added=int(added), at=moment(event.entry_id.ms))


def render_bookmark(bookmark: Bookmark) -> dict[str, Any]:
    """The bookmark as a JSON object."""
    return {
        "at_id": str(bookmark.at_id),
        "added": bookmark.added,
        "at_ms": milliseconds(bookmark.at),
    }


def parse_bookmark(found: Mapping[str, Any]) -> Bookmark:
    """What `render_bookmark` made."""
    return Bookmark(
        at_id=parse_entry_id(found["at_id"]), added=found["added"], at=moment(found["at_ms"])
    )
