"""What became of one entry, for one group: a pure function of what was seen of it.

The position counts as of one moment, before the pending entries were read; what was delivered
after that moment is told apart from what never was. The first rule that fits decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from pelops.domain.audit import EntryStatus
from pelops.domain.ledger import LedgerKind


class Proof(StrEnum):
    """What an append-only file shows of an entry that is neither pending nor moved."""

    ACKNOWLEDGED = "acknowledged"
    DROPPED = (
        "dropped"  # its pending record went with a consumer or a group, and it never came back
    )
    SKIPPED = "skipped"  # the position was moved past it before it was delivered
    NOACK = "noack"  # read without a pending record


class Why(StrEnum):
    """What decided, for people and for grouping."""

    LEDGER = "ledger"
    PENDING = "pending"
    BODY_GONE = "body-gone"
    NOT_REACHED = "not-reached"  # it lies after the position
    GONE_UNDELIVERED = "gone-undelivered"  # trimmed or deleted before it was delivered
    POSITION_IN_DOUBT = "position-in-doubt"  # it was moved by hand, went back, or is new
    PASSED_MEANWHILE = "passed-meanwhile"  # delivered during the look, and gone after it
    PROVEN = "proven"
    DROPPED = "dropped"
    SKIPPED = "skipped"
    NOACK = "noack"
    CONSUMER_DELETED = "consumer-deleted"  # it may have gone with a consumer that was deleted
    DELIVERED = "delivered"  # the position had passed it while it was there
    SEEN_PENDING = "seen-pending"  # an earlier snapshot had it pending
    LOSS_SEEN = "loss-seen"  # the operator counted it among the lost
    NO_LOSS_SEEN = "no-loss-seen"  # trimmed; the operator watched, and saw none
    TRIMMED_MEANWHILE = (
        "trimmed-meanwhile"  # between archive and delivery, nobody knows in what order
    )


class Outcome(NamedTuple):
    """A status and what decided it."""

    status: EntryStatus
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFacts:
    """All that is known of one archived entry, as of the snapshot."""

    act: LedgerKind | None = None  # the ledger's last that ends it: see `ENDING_ACTS`
    is_pending: bool = False
    has_body: bool = True  # the entry is in the stream
    idle_ms: int = 0  # of a pending entry
    stuck_after_ms: int = 0
    is_reached: bool = True  # at or below the position, when the snapshot began
    is_reached_after: bool = True  # when the snapshot ended
    was_reached: bool = True  # before it was read into the archive
    was_pending: bool = False  # in an earlier snapshot
    may_be_dropped: bool = False  # it lies where entries went with a consumer that was deleted
    position_holds: bool = True  # it only went forward, by deliveries
    loss_seen: bool = False  # the operator saw all around it go before they were delivered
    loss_watched: bool = False  # the operator watched for losses, and saw none here
    proof: Proof | None = None


ENDING_ACTS: Final = {
    LedgerKind.REQUEUED: EntryStatus.REQUEUED,
    LedgerKind.DEAD_LETTERED: EntryStatus.DEAD_LETTERED,
    LedgerKind.PAYLOAD_GONE: EntryStatus.PAYLOAD_GONE,
}
PROOFS: Final = {
    Proof.ACKNOWLEDGED: Outcome(EntryStatus.ACKNOWLEDGED_PROVEN, Why.PROVEN),
    Proof.DROPPED: Outcome(EntryStatus.LOST, Why.DROPPED),
    Proof.SKIPPED: Outcome(EntryStatus.LOST, Why.SKIPPED),
    Proof.NOACK: Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.NOACK),
}
# What can still change, beside what is pending without a body: see `may_change`.
OPEN_STATUSES: Final = frozenset(
    {EntryStatus.IN_FLIGHT, EntryStatus.STUCK, EntryStatus.UNDELIVERED}
)


def may_change(outcome: Outcome) -> bool:
    """Whether a later window looks at the entry again: its worker may still acknowledge it."""
    return outcome.status in OPEN_STATUSES or outcome.why is Why.BODY_GONE


def classify_entry(facts: EntryFacts) -> Outcome:
    """The one status of an entry, and what decided it."""
    if facts.act is not None and facts.act in ENDING_ACTS:
        return Outcome(ENDING_ACTS[facts.act], Why.LEDGER)
    if facts.is_pending:
        return _classify_pending(facts)
    if not facts.is_reached:
        return _classify_unreached(facts)
    if facts.proof is not None:
        return PROOFS[facts.proof]
    return _classify_passed(facts)


def _classify_pending(facts: EntryFacts) -> Outcome:
    if not facts.has_body:
        return Outcome(EntryStatus.PAYLOAD_GONE, Why.BODY_GONE)
    is_stuck = facts.idle_ms >= facts.stuck_after_ms
    return Outcome(EntryStatus.STUCK if is_stuck else EntryStatus.IN_FLIGHT, Why.PENDING)


def _classify_unreached(facts: EntryFacts) -> Outcome:
    if facts.has_body:
        return Outcome(EntryStatus.UNDELIVERED, Why.NOT_REACHED)
    if facts.proof is not None:
        return PROOFS[facts.proof]
    if not facts.position_holds:
        return Outcome(EntryStatus.INDETERMINATE, Why.POSITION_IN_DOUBT)
    if facts.is_reached_after:
        return Outcome(EntryStatus.INDETERMINATE, Why.PASSED_MEANWHILE)
    return Outcome(EntryStatus.LOST, Why.GONE_UNDELIVERED)


def _classify_passed(facts: EntryFacts) -> Outcome:
    """Delivered, not pending, and nobody tells why."""
    if not facts.position_holds:
        return Outcome(EntryStatus.INDETERMINATE, Why.POSITION_IN_DOUBT)
    if facts.may_be_dropped:
        return Outcome(EntryStatus.INDETERMINATE, Why.CONSUMER_DELETED)
    if facts.was_reached or facts.has_body:
        return Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.DELIVERED)
    if facts.was_pending:
        return Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.SEEN_PENDING)
    if facts.loss_seen:
        return Outcome(EntryStatus.LOST, Why.LOSS_SEEN)
    if facts.loss_watched:
        return Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.NO_LOSS_SEEN)
    return Outcome(EntryStatus.INDETERMINATE, Why.TRIMMED_MEANWHILE)
