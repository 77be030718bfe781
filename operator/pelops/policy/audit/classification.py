"""What became of one entry, for one group: rules over the facts that were observed.

The position is from one moment, before the pending entries were read. Entries delivered after that
moment are distinguished from entries that never were. The first rule that matches decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pelops.domain.outcome import ENDING_KINDS, LETTER_STATUSES, EntryStatus
from pelops.domain.records.ledger import LedgerKind


class Proof(StrEnum):
    """What an append-only file shows of an entry that is neither pending nor moved."""

    ACKNOWLEDGED = "acknowledged"
    DROPPED = (
        "dropped"  # its pending record was deleted with its consumer or group, and never returned
    )
    SKIPPED = "skipped"  # the position was moved past it before it was delivered
    NOACK = "noack"  # read without a pending record


class Why(StrEnum):
    """The rule that decided, for users and for grouping."""

    LEDGER = "ledger"
    PENDING = "pending"
    BODY_GONE = "body-gone"
    NOT_REACHED = "not-reached"  # it lies after the position
    GONE_UNDELIVERED = "gone-undelivered"  # trimmed or deleted before it was delivered
    POSITION_IN_DOUBT = "position-in-doubt"  # it was moved by hand, went back, or is new
    PASSED_MEANWHILE = "passed-meanwhile"  # delivered during the snapshot, then removed
    PROVEN = "proven"
    DROPPED = "dropped"
    SKIPPED = "skipped"
    NOACK = "noack"
    CONSUMER_DELETED = "consumer-deleted"  # it may have been dropped with a deleted consumer
    DELIVERED = "delivered"  # the position had passed it while it existed
    SEEN_PENDING = "seen-pending"  # it was pending in an earlier snapshot
    LOSS_SEEN = "loss-seen"  # the operator counted it among the lost
    NO_LOSS_SEEN = "no-loss-seen"  # trimmed; the operator observed no loss
    TRIMMED_MEANWHILE = (
        "trimmed-meanwhile"  # after it was archived; whether before its delivery is not known
    )


class Outcome(NamedTuple):
    """A status and what decided it."""

    status: EntryStatus
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFacts:
    """All that is known of one archived entry, as of the snapshot."""

    act: LedgerKind | None = None  # the ledger's last: of `ENDING_KINDS` or `LETTER_STATUSES`
    is_pending: bool = False
    has_body: bool = True  # the entry is in the stream
    idle_ms: int = 0  # of a pending entry
    stuck_after_ms: int = 0
    is_reached: bool = True  # at or below the position, when the snapshot began
    is_reached_after: bool = True  # when the snapshot ended
    was_reached: bool = True  # before it was read into the archive
    was_pending: bool = False  # in an earlier snapshot
    may_be_dropped: bool = False  # its ID is in a range that a deleted consumer had pending
    position_holds: bool = True  # the position only went forward, by deliveries
    loss_seen: bool = False  # the operator recorded that entries around it were lost
    loss_watched: bool = False  # the operator observed this range, and recorded no loss
    proof: Proof | None = None


PROOFS: Final = {
    Proof.ACKNOWLEDGED: Outcome(EntryStatus.ACKNOWLEDGED_PROVEN, Why.PROVEN),
    Proof.DROPPED: Outcome(EntryStatus.LOST, Why.DROPPED),
    Proof.SKIPPED: Outcome(EntryStatus.LOST, Why.SKIPPED),
    Proof.NOACK: Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.NOACK),
}
# Statuses that can still change, apart from pending entries without a body.
OPEN_STATUSES: Final = frozenset(
    {EntryStatus.IN_FLIGHT, EntryStatus.STUCK, EntryStatus.UNDELIVERED}
)


def list_rules(facts: Any) -> list[tuple[Any, Outcome]]:
    """List conditions and their outcomes: the first that holds decides, the last always holds.

    `facts` has an attribute for each field of EntryFacts: columns of a Spark or Arrow table. The
    conditions combine them with `&`, `|`, `~` and comparisons; a null condition does not hold.
    """
    pending, reached, body = facts.is_pending, facts.is_reached, facts.has_body
    return [
        *(
            (facts.act == str(act), Outcome(status, Why.LEDGER))
            for act, status in (*ENDING_KINDS.items(), *LETTER_STATUSES.items())
        ),
        (pending & ~body, Outcome(EntryStatus.PAYLOAD_GONE, Why.BODY_GONE)),
        (
            pending & (facts.idle_ms >= facts.stuck_after_ms),
            Outcome(EntryStatus.STUCK, Why.PENDING),
        ),
        (pending, Outcome(EntryStatus.IN_FLIGHT, Why.PENDING)),
        # After the position.
        (~reached & body, Outcome(EntryStatus.UNDELIVERED, Why.NOT_REACHED)),
        *((facts.proof == str(proof), outcome) for proof, outcome in PROOFS.items()),
        (~facts.position_holds, Outcome(EntryStatus.INDETERMINATE, Why.POSITION_IN_DOUBT)),
        (
            ~reached & facts.is_reached_after,
            Outcome(EntryStatus.INDETERMINATE, Why.PASSED_MEANWHILE),
        ),
        (~reached, Outcome(EntryStatus.LOST, Why.GONE_UNDELIVERED)),
        # Passed by the position, not pending, and nothing proves why.
        (facts.may_be_dropped, Outcome(EntryStatus.INDETERMINATE, Why.CONSUMER_DELETED)),
        (
            facts.was_reached | body,
            Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.DELIVERED),
        ),
        (facts.was_pending, Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.SEEN_PENDING)),
        (facts.loss_seen, Outcome(EntryStatus.LOST, Why.LOSS_SEEN)),
        (facts.loss_watched, Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.NO_LOSS_SEEN)),
        (True, Outcome(EntryStatus.INDETERMINATE, Why.TRIMMED_MEANWHILE)),
    ]
