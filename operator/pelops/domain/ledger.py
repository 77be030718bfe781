"""The ledger: a stream beside each group that records what the operator did to it.

An event is written by the script that does the act, so neither exists without the other. Fields are
flat text; an event's time is that of its entry ID, on the server's clock. Readers ignore fields and
kinds that they do not know.

An act on many entries is one event: its details, then one pair for each entry, whose name is the
entry's ID and whose value is "new_id root_id retry_count deliveries idle_ms".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.errors import InvalidSpec

KIND_FIELD: Final = "kind"
LEDGER_KEPT: Final = timedelta(days=7)
# How long it waits for an audit that has not archived it: a weekly one may miss a run.
LEDGER_WAITS: Final = timedelta(days=14)
_NO_ID: Final = "-"  # in place of an ID that there is not
_ENTRY: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class LedgerKind(StrEnum):
    """What was done. The value is what the scripts write."""

    # stream, position (last-delivered-id it begins with), why (CreationReason), repeats (entries
    # there that may have been delivered before, or "many"), from (where it was last seen, or
    # empty), added (entries-added of the stream, where the group begins at its end; else empty)
    GROUP_CREATED = "group-created"
    GROUP_ADOPTED = "group-adopted"  # found as it was, untouched
    OWNER_CHANGED = "owner-changed"  # another resource acts from now on
    # These have a pair for each entry beside stream, consumer, reason, trigger, actor, and target:
    # the stream that has the new IDs. A requeue without it was into the same stream.
    REQUEUED = "requeued"  # new ID: the copy's
    DEAD_LETTERED = "dead-lettered"  # new ID: the dead letter's
    PAYLOAD_GONE = "payload-gone"  # the body was deleted; new ID: the dead letter's
    RELEASED = "released"  # given to whoever claims it, under its own ID
    CONSUMER_REMOVED = "consumer-removed"  # consumer
    TRIMMED = "trimmed"  # stream, count, below, first_id_after: the first entry left, or empty
    LETTERS_EXPIRED = "letters-expired"  # count, last_id: no dead letter up to it is left
    DATA_LOSS = "data-loss"  # at_least, at_most (or empty), after (position), before (first left)
    # at_most (entries), observed_ms, then consumer for each that was deleted with entries pending
    PENDING_DROPPED = "pending-dropped"
    POSITION_CHANGED = "position-changed"  # from, to, why
    # stream, entries_added, last_generated, last_delivered, lowest_pending, length, pending,
    # first_id (or empty)
    BOOKMARK = "bookmark"


class CreationReason(StrEnum):
    """Why a group was created where it was."""

    FIRST = "first"  # nobody acted on it before: where the resource asked for
    CONTINUES = "continues"  # the stream went on: where the group was last seen
    LOST_TAIL = "lost-tail"  # the stream lacks what was seen of it: where it ends now, or before
    NEW_STREAM = "new-stream"  # another stream, or nothing is known: at its beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCreation:
    """Where a group that was missing begins."""

    position: EntryId  # its last-delivered-id
    why: CreationReason
    repeats: int | None  # entries that may have been delivered before; None: too many to count


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What became of one entry in an act on several."""

    entry_id: EntryId
    new_id: EntryId | None  # None: it kept its own
    root_id: EntryId  # the first of the chain of copies
    retry_count: int
    deliveries: int
    idle: timedelta  # before the act; negative: it belonged to nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEvent:
    """One act of the operator."""

    entry_id: EntryId
    kind: str  # a LedgerKind, or one of a newer version
    details: Mapping[str, str]
    entries: tuple[LedgerEntry, ...] = ()  # of an act on several entries, in their order


def parse_ledger_event(entry_id: EntryId, pairs: Mapping[bytes, bytes]) -> LedgerEvent:
    """The event that a ledger's entry holds; its kind is empty when it names none."""
    texts = {
        field.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for field, value in pairs.items()
    }
    entries = {field: parse_ledger_entry(field, value) for field, value in texts.items()}
    details = {field: value for field, value in texts.items() if entries[field] is None}
    return LedgerEvent(
        entry_id=entry_id,
        kind=details.pop(KIND_FIELD, ""),
        details=details,
        entries=tuple(entry for entry in entries.values() if entry is not None),
    )


def parse_ledger_entry(field: str, value: str) -> LedgerEntry | None:
    """The pair of one entry; None for any other pair, and for one that holds something else."""
    words = value.split(" ")
    # A newer version may add words at the end.
    if not _ENTRY.fullmatch(field) or len(words) < 5:
        return None
    new_id, root_id, *numbers = words[:5]
    try:
        retries, deliveries, idle_ms = map(_read_number, numbers)
        return LedgerEntry(
            entry_id=parse_entry_id(field),
            new_id=None if new_id == _NO_ID else parse_entry_id(new_id),
            root_id=parse_entry_id(root_id),
            retry_count=retries,
            deliveries=deliveries,
            idle=timedelta(milliseconds=idle_ms),
        )
    except (InvalidSpec, OverflowError):
        return None


def _read_number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InvalidSpec(f"{text!r} is no number")
    return int(text)
