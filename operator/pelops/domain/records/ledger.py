"""The ledger: a stream beside each group that records what the operator did to it.

The script that performs an action also writes its event, so neither exists without the other. All
fields are text. An event's time is that of its entry ID, on the server's clock. Readers ignore
unknown fields and kinds.

An action on many entries is one event: the fields of `EVENT_FIELDS`, then one pair for each entry.
The name of such a pair is the entry's ID, and its value has the words of `ENTRY_WORDS`.

A dead letter is another record of an action: the entry itself, with `LETTER_FIELDS`.
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
# How long an event is kept for an audit that has not archived it: a weekly audit may miss a run.
LEDGER_WAITS: Final = timedelta(days=14)
_MOST_RETRIES: Final = 999_999  # the field of a copy holds six digits
_NO_ID: Final = "-"  # in place of an ID that does not exist
_ENTRY: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class LedgerKind(StrEnum):
    """What was done. The value is what the scripts write."""

    GROUP_CREATED = "group-created"
    GROUP_ADOPTED = "group-adopted"  # it existed before; its position is not changed
    OWNER_CHANGED = "owner-changed"  # another resource acts from now on
    REQUEUED = "requeued"  # new ID: the copy's
    DEAD_LETTERED = "dead-lettered"  # new ID: the dead letter's
    PAYLOAD_GONE = "payload-gone"  # the body was deleted; new ID: the dead letter's
    RELEASED = "released"  # offered to workers that claim, under its own ID
    CONSUMER_REMOVED = "consumer-removed"
    TRIMMED = "trimmed"
    DEAD_LETTERS_EXPIRED = "letters-expired"
    DATA_LOSS = "data-loss"
    PENDING_DROPPED = "pending-dropped"
    POSITION_CHANGED = "position-changed"
    CHECKPOINT = "bookmark"
    REDRIVEN = "redriven"  # dead letters moved back; new ID: the copy's
    DISCARDED = "discarded"  # dead letters set aside; new ID: in the stream of these
    RESTORED = "restored"  # discarded dead letters moved back; new ID: the dead letter's


# Kinds of events that workers write to the worker ledger, in the same format. The SDK writes no
# other kinds there, so others are ignored.
WORKER_KINDS: Final = (
    LedgerKind.DEAD_LETTERED,
    LedgerKind.PAYLOAD_GONE,
    LedgerKind.CONSUMER_REMOVED,
)
_OWNER: Final = ("uid", "cluster", "namespace", "name")
# Then a pair for each entry. `target` is the stream of the new IDs; a requeue without it went into
# the same stream.
_ACT: Final = ("stream", "consumer", "reason", "trigger", "actor", "target")
# Then a pair for each dead letter. `stream` is the one that it was taken from.
_MOVED_LETTERS: Final = ("stream", "target", "redrive", "requested_by", "actor")
# The fields of each kind, in this order. A field may be missing or empty.
EVENT_FIELDS: Final[Mapping[LedgerKind, tuple[str, ...]]] = {
    # `position` is the group's first last-delivered-id; `why` is a CreationReason; `repeats` is how
    # many entries may be delivered a second time, or "many"; `from` is the last known position.
    # `added` is the stream's entries-added if the group begins at the stream's end, else empty.
    LedgerKind.GROUP_CREATED: (
        *_OWNER,
        *("stream", "position", "why", "repeats", "from", "added"),
    ),
    LedgerKind.GROUP_ADOPTED: (*_OWNER, "position"),
    LedgerKind.OWNER_CHANGED: (*_OWNER, "position"),
    LedgerKind.REQUEUED: _ACT,
    LedgerKind.DEAD_LETTERED: _ACT,
    LedgerKind.PAYLOAD_GONE: _ACT,
    LedgerKind.RELEASED: _ACT,
    LedgerKind.CONSUMER_REMOVED: ("stream", "consumer", "actor"),
    # `first_id_after` is the first entry left.
    LedgerKind.TRIMMED: ("stream", "count", "below", "first_id_after"),
    LedgerKind.DEAD_LETTERS_EXPIRED: ("count", "last_id"),  # no dead letter up to it is left
    # `after` is the position, `before` the first entry left. With `at_least` 0, entries were
    # removed between two observations, and all of them may have been delivered before.
    LedgerKind.DATA_LOSS: (
        *("at_least", "at_most", "after", "before"),
        *("cause", "undelivered", "pending", "observed_ms"),
    ),
    # `at_most` entries; `consumer` once for each that was deleted with entries pending.
    LedgerKind.PENDING_DROPPED: ("at_most", "observed_ms", "consumer"),
    LedgerKind.POSITION_CHANGED: ("from", "to", "why"),
    LedgerKind.CHECKPOINT: (
        *("stream", "entries_added", "last_generated", "last_delivered"),
        *("lowest_pending", "length", "pending", "first_id"),
        # Entries after it, up to `last_delivered`, that were removed had been delivered.
        "watched_from",
    ),
    LedgerKind.REDRIVEN: _MOVED_LETTERS,
    LedgerKind.DISCARDED: _MOVED_LETTERS,
    LedgerKind.RESTORED: _MOVED_LETTERS,
}
# Larger delivery counts are cut to this. XCLAIM RETRYCOUNT and XNACK FATAL set 2^63 - 1, and the
# delivery after that wraps to a negative number.
MOST_DELIVERIES: Final = 2**53
# The value of one entry's pair, separated by spaces. `new_id` is "-" when the entry kept its ID.
ENTRY_WORDS: Final = ("new_id", "root_id", "retry_count", "deliveries", "idle_ms")


class CreationReason(StrEnum):
    """Why a group was created at its position."""

    FIRST = "first"  # no resource acted on the group before: where the resource asks for
    CONTINUES = "continues"  # the stream is the same: where the group was last seen
    LOST_TAIL = "lost-tail"  # the stream's last entries are missing: at its end, or before
    NEW_STREAM = "new-stream"  # another stream, or nothing is known: at its beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCreation:
    """Where a group that was missing begins."""

    position: EntryId  # its last-delivered-id
    why: CreationReason
    repeats: int | None  # entries that may have been delivered before; None: too many to count


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What one action did to one of its entries."""

    entry_id: EntryId
    new_id: EntryId | None  # None: it kept its own
    root_id: EntryId  # the first of the chain of copies
    retry_count: int
    deliveries: int
    idle: timedelta  # before the action; negative: the entry had no owner


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEvent:
    """One action of the operator."""

    entry_id: EntryId
    kind: str  # a LedgerKind, or one of a newer version
    details: Mapping[str, str]
    entries: tuple[LedgerEntry, ...] = ()  # in the order of the event


def parse_ledger_event(entry_id: EntryId, pairs: Mapping[bytes, bytes]) -> LedgerEvent:
    """The event from a ledger entry; its kind is empty when the entry has none."""
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
    """The pair of one entry; None for any other pair, and for a malformed one."""
    words = value.split(" ")
    # A newer version may add words at the end.
    if not _ENTRY.fullmatch(field) or len(words) < len(ENTRY_WORDS):
        return None
    named_words = dict(zip(ENTRY_WORDS, words, strict=False))
    try:
        return LedgerEntry(
            entry_id=parse_entry_id(field),
            new_id=None
            if named_words["new_id"] == _NO_ID
            else parse_entry_id(named_words["new_id"]),
            root_id=parse_entry_id(named_words["root_id"]),
            retry_count=min(_read_number(named_words["retry_count"]), _MOST_RETRIES),
            deliveries=bound_deliveries(_read_number(named_words["deliveries"])),
            idle=timedelta(milliseconds=_read_number(named_words["idle_ms"])),
        )
    except (InvalidSpec, OverflowError):
        return None


def bound_deliveries(count: int) -> int:
    """A delivery count from the server, cut to `MOST_DELIVERIES`; negative counts as too large."""
    return count if 0 <= count <= MOST_DELIVERIES else MOST_DELIVERIES


def _read_number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InvalidSpec(f"{text!r} is not a number")
    return int(text)


# The last pairs of a dead letter, in this order, each behind spec.recovery.tuning.fieldPrefix.
LETTER_FIELDS: Final = (
    "original_id",  # of the first entry in the chain of copies
    "stream",  # where the entry was pending: the stream, or the retry stream
    "group",
    "consumer",  # its last owner
    "delivery_count",
    "retry_count",  # failed attempts
    "reason",  # one word in CamelCase
    "error",  # for people
    "delivered_ms",  # its last delivery, on the server's clock
    "dead_lettered_ms",
)
