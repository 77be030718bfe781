"""What became of an entry: the words of ledger, audits, inspections and redrives.

    LedgerKind    what was done to entries; the operator's scripts and the workers record it
    EntryStatus   what became of an entry by an audit, from the ledger and snapshots
    EntryState    where an entry is now, by `pelops why`

Programs show the same event in the same words: `describe_event`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pelops.domain.records.ledger import LedgerKind


class EntryStatus(StrEnum):
    """What became of an entry, for one group."""

    ACKNOWLEDGED_PROVEN = "acknowledged_proven"  # shown by an AOF or by a worker's record
    ACKNOWLEDGED_INFERRED = "acknowledged_inferred"  # at or before the position, not pending
    IN_FLIGHT = "in_flight"  # pending for less than the limit
    STUCK = "stuck"  # pending for longer than the limit
    UNDELIVERED = "undelivered"  # after the group's position, and still in the stream
    DEAD_LETTERED = "dead_lettered"
    REQUEUED = "requeued"  # copied; the copy has a status of its own
    REDRIVEN = "redriven"  # its dead letter was copied back; the copy has a status of its own
    DISCARDED = "discarded"  # its dead letter was discarded, and was not restored
    PAYLOAD_GONE = "payload_gone"  # pending, and its body was deleted or trimmed
    LOST = "lost"  # proven: deleted or trimmed before it was delivered
    INDETERMINATE = "indeterminate"  # delivered and then trimmed, or lost: no evidence decides


class EntryState(StrEnum):
    """Where one entry is, for one group."""

    UNDELIVERED = "Undelivered"
    HELD_BY_LIVE_WORKER = "HeldByLiveWorker"
    HELD_BY_DEAD_WORKER = "HeldByDeadWorker"
    HELD_BY_UNKNOWN_CONSUMER = "HeldByUnknownConsumer"  # no evidence of its process
    IDLE_TOO_LONG = "IdleTooLong"  # beyond the processing timeout, without proof of a dead worker
    WAITING_FOR_BACKOFF = "WaitingForBackoff"
    WAITING_FOR_RETRY_BATCH = "WaitingForRetryBatch"  # a suspect, and other suspects go first
    IN_RETRY_BATCH = "InRetryBatch"
    LOCKED = "Locked"
    OFFERED = "Offered"  # to workers that claim
    IN_RETRY_STREAM = "InRetryStream"  # a copy that was not delivered yet
    BODY_GONE = "BodyGone"  # pending, and deleted from its stream
    DEAD_LETTER = "DeadLetter"
    DISCARDED = "Discarded"
    ACKNOWLEDGED = "Acknowledged"
    NOT_DELIVERED = "NotDelivered"  # the group's position passed it without a delivery
    REMOVED = "Removed"  # deleted or trimmed before it was delivered
    INDETERMINATE = "Indeterminate"
    NEVER_EXISTED = "NeverExisted"


# Events after which an entry is not pending any more, with its status then.
ENDING_KINDS: Final[Mapping[LedgerKind, EntryStatus]] = {
    LedgerKind.REQUEUED: EntryStatus.REQUEUED,
    LedgerKind.DEAD_LETTERED: EntryStatus.DEAD_LETTERED,
    LedgerKind.PAYLOAD_GONE: EntryStatus.PAYLOAD_GONE,
}
# The status of an entry whose dead letter was moved since. A restored one is dead-lettered again.
LETTER_STATUSES: Final[Mapping[LedgerKind, EntryStatus]] = {
    LedgerKind.REDRIVEN: EntryStatus.REDRIVEN,
    LedgerKind.DISCARDED: EntryStatus.DISCARDED,
}
# Events of dead letters: their IDs are not those of entries.
LETTER_KINDS: Final = (*LETTER_STATUSES, LedgerKind.RESTORED)
# Events that add a copy to the stream or to the group's retry stream.
COPYING_KINDS: Final = (LedgerKind.REQUEUED, LedgerKind.REDRIVEN)

_EVENTS: Final[Mapping[str, str]] = {
    LedgerKind.REQUEUED: "requeued as {new}",
    LedgerKind.DEAD_LETTERED: "dead-lettered as {new}",
    LedgerKind.PAYLOAD_GONE: "dead-lettered as {new}: its body was deleted or trimmed",
    LedgerKind.RELEASED: "offered to workers that claim",
    LedgerKind.PENDING_DROPPED: "removed from the PEL with its consumer",
    LedgerKind.REDRIVEN: "redriven from the dead-letter stream as {new}",
    LedgerKind.DISCARDED: "dead letter discarded as {new}",
    LedgerKind.RESTORED: "discarded dead letter restored as {new}",
}


def describe_event(kind: str, new_id: str = "") -> str:
    """What the ledger records about an entry, for people; an unknown kind is returned as it is.

    `new_id` is the ID that the entry got.
    """
    return _EVENTS.get(kind, kind).format(new=new_id or "another entry")
