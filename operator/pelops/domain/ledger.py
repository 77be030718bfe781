"""The ledger: a stream beside each group that records what the operator did to it.

An event is written by the script that does the act, so neither exists without the other. Fields are
flat text; an event's time is that of its entry ID, on the server's clock. Readers ignore fields and
kinds that they do not know.

An act on many entries is one event: its details, then one pair for each entry, whose name is the
entry's ID and whose value are the words of `ENTRY_WORDS`. `EVENT_FIELDS` is what the scripts write.

A dead letter is the other record of an act: the entry itself, with `LETTER_FIELDS`.
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
_MOST_RETRIES: Final = 999_999  # the field of a copy holds six digits
_NO_ID: Final = "-"  # in place of an ID that there is not
_ENTRY: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class LedgerKind(StrEnum):
    """What was done. The value is what the scripts write."""

    GROUP_CREATED = "group-created"
    GROUP_ADOPTED = "group-adopted"  # found as it was, untouched
    OWNER_CHANGED = "owner-changed"  # another resource acts from now on
    REQUEUED = "requeued"  # new ID: the copy's
    DEAD_LETTERED = "dead-lettered"  # new ID: the dead letter's
    PAYLOAD_GONE = "payload-gone"  # the body was deleted; new ID: the dead letter's
    RELEASED = "released"  # given to whoever claims it, under its own ID
    CONSUMER_REMOVED = "consumer-removed"
    TRIMMED = "trimmed"
    DEAD_LETTERS_EXPIRED = "letters-expired"
    DATA_LOSS = "data-loss"
    PENDING_DROPPED = "pending-dropped"
    POSITION_CHANGED = "position-changed"
    CHECKPOINT = "bookmark"
    REDRIVEN = "redriven"  # dead letters moved back; new ID: the copy's
    DISCARDED = "discarded"  # dead letters set aside; new ID: in the stream of these
    RESTORED = "restored"  # discarded letters moved back; new ID: the dead letter's


# What a worker may say in the ledger of the workers, in the same format: what became of entries
# that it held. Anything else there was not written by the SDK, and counts for nothing.
WORKER_KINDS: Final = (
    LedgerKind.DEAD_LETTERED,
    LedgerKind.PAYLOAD_GONE,
    LedgerKind.CONSUMER_REMOVED,
)
_OWNER: Final = ("uid", "cluster", "namespace", "name")
# Then a pair for each entry. `target` is the stream that has the new IDs; a requeue without it was
# into the same stream.
_ACT: Final = ("stream", "consumer", "reason", "trigger", "actor", "target")
# Then a pair for each letter. `stream` is the one that it was taken from.
_MOVED_LETTERS: Final = ("stream", "target", "redrive", "requested_by", "actor")
# What each kind says beside itself, in this order. A field may be missing, or be an empty text.
EVENT_FIELDS: Final[Mapping[LedgerKind, tuple[str, ...]]] = {
    # `position` is the last-delivered-id with which it begins, `why` a CreationReason, `repeats`
    # how many entries there may have been delivered before, or "many", `from` where it was last
    # seen, `added` the stream's entries-added where the group begins at its end, else empty.
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
    # `after` is the position, `before` the first entry left. With `at_least` 0 the group passed
    # entries that were removed between two observations, and may have been given all of them.
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
        # What was removed after it, up to `last_delivered`, was delivered before.
        "watched_from",
    ),
    LedgerKind.REDRIVEN: _MOVED_LETTERS,
    LedgerKind.DISCARDED: _MOVED_LETTERS,
    LedgerKind.RESTORED: _MOVED_LETTERS,
}
# A larger delivery count says as much: too often. XCLAIM RETRYCOUNT and XNACK FATAL set 2^63 - 1,
# and the delivery after that wraps to a negative number.
MOST_DELIVERIES: Final = 2**53
# Of one entry in an act on many, separated by spaces. `new_id` is "-" when it kept its own.
ENTRY_WORDS: Final = ("new_id", "root_id", "retry_count", "deliveries", "idle_ms")


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
    if not _ENTRY.fullmatch(field) or len(words) < len(ENTRY_WORDS):
        return None
    reported = dict(zip(ENTRY_WORDS, words, strict=False))
    try:
        return LedgerEntry(
            entry_id=parse_entry_id(field),
            new_id=None if reported["new_id"] == _NO_ID else parse_entry_id(reported["new_id"]),
            root_id=parse_entry_id(reported["root_id"]),
            retry_count=min(_read_number(reported["retry_count"]), _MOST_RETRIES),
            deliveries=bound_deliveries(_read_number(reported["deliveries"])),
            idle=timedelta(milliseconds=_read_number(reported["idle_ms"])),
        )
    except (InvalidSpec, OverflowError):
        return None


def bound_deliveries(count: int) -> int:
    """A delivery count as a server reports it, `MOST_DELIVERIES` at most."""
    return count if 0 <= count <= MOST_DELIVERIES else MOST_DELIVERIES


def _read_number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InvalidSpec(f"{text!r} is not a number")
    return int(text)


# The last pairs of a dead letter, in this order, each behind spec.recovery.tuning.fieldPrefix.
LETTER_FIELDS: Final = (
    "original_id",  # of the first entry in the chain of copies
    "stream",  # that the entry was pending in: the stream, or the retry stream
    "group",
    "consumer",  # its last owner
    "delivery_count",
    "retry_count",  # failed attempts
    "reason",  # one word in CamelCase
    "error",  # for people
    "delivered_ms",  # its last delivery, on the server's clock
    "dead_lettered_ms",
)
