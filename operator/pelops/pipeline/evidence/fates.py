"""What files can say of one entry and one group."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pelops.domain.ledger import LedgerKind
from pelops.policy.audit.classification import Proof


class Fate(IntEnum):
    """The last thing that the files say of an entry; the value is how it is kept."""

    UNDELIVERED = 0
    PENDING = 1
    ACKNOWLEDGED = 2
    CONSUMER_REMOVED = 3  # with its pending record: nobody acknowledged it
    GROUP_DESTROYED = 4
    BODY_MISSED = 5  # a claim found no body, and dropped the record
    REFERENCE_DELETED = 6  # deleted or trimmed together with the record (DELREF)
    STREAM_DELETED = 7
    READ_WITHOUT_RECORD = 8  # NOACK: the position passed it, and no record was made
    SKIPPED = 9  # the position was set past it
    BEFORE_GROUP = 10  # the group began after it, or was created when it was gone already
    # A claim dropped its record, or renewed it: its body may have been there. Or the stream's name
    # was given to something else.
    UNKNOWN = 11


class AcknowledgementKind(IntEnum):
    """Whose acknowledgement it was."""

    WORKER = 0
    REQUEUED = 1
    DEAD_LETTERED = 2
    PAYLOAD_GONE = 3
    OTHER = 4  # with a record in the ledger that names another kind


class Removal(IntEnum):
    """Whether the stream still held the entry at the end of the files."""

    PRESENT = 0
    DELETED = 1
    TRIMMED = 2
    STREAM_DELETED = 3
    UNKNOWN = 4  # trimmed by length, after a command of which the files do not tell the effect


# The acts of the operator that end an entry. Tables name them as the ledger does.
ENDING_ACTS: Final = {
    AcknowledgementKind.REQUEUED: LedgerKind.REQUEUED,
    AcknowledgementKind.DEAD_LETTERED: LedgerKind.DEAD_LETTERED,
    AcknowledgementKind.PAYLOAD_GONE: LedgerKind.PAYLOAD_GONE,
}
ACTS: Final = {kind.value: act for act, kind in ENDING_ACTS.items()}
# What is proven; an entry that waits, or whose end is an act of the operator, needs no proof.
PROOFS: Final = {
    Fate.ACKNOWLEDGED: Proof.ACKNOWLEDGED,
    Fate.CONSUMER_REMOVED: Proof.DROPPED,
    Fate.GROUP_DESTROYED: Proof.DROPPED,
    Fate.BODY_MISSED: Proof.DROPPED,
    Fate.REFERENCE_DELETED: Proof.DROPPED,
    Fate.STREAM_DELETED: Proof.DROPPED,
    Fate.READ_WITHOUT_RECORD: Proof.NOACK,
    Fate.SKIPPED: Proof.SKIPPED,
}


def name_of(member: IntEnum) -> str:
    """What tables call it."""
    return member.name.lower().replace("_", "-")


def prove(
    fate: Fate, act: AcknowledgementKind, removal: Removal, *, is_covered: bool
) -> Proof | None:
    """What the files prove of an entry at or below the position; None proves nothing.

    Never delivered is only proven of an entry that was added before the eyes of the files.
    """
    if fate is Fate.ACKNOWLEDGED and act is not AcknowledgementKind.WORKER:
        return None
    if fate is Fate.UNDELIVERED:
        is_gone = removal in {Removal.DELETED, Removal.TRIMMED, Removal.STREAM_DELETED}
        return Proof.SKIPPED if is_gone and is_covered else None
    return PROOFS.get(fate)
