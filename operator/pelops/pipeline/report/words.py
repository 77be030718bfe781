"""What each status and verdict is called, and what it means, for people."""

from __future__ import annotations

from typing import Final

from pelops.domain.audit import Certainty, EntryStatus, Evidence, Verdict

TITLES: Final = {
    EntryStatus.LOST: "Lost",
    EntryStatus.PAYLOAD_GONE: "Payload gone",
    EntryStatus.STUCK: "Stuck",
    EntryStatus.DEAD_LETTERED: "Dead-lettered",
    EntryStatus.INDETERMINATE: "Indeterminate",
    EntryStatus.REQUEUED: "Requeued",
    EntryStatus.UNDELIVERED: "Undelivered",
    EntryStatus.IN_FLIGHT: "In flight",
    EntryStatus.ACKNOWLEDGED_INFERRED: "Acknowledged, inferred",
    EntryStatus.ACKNOWLEDGED_PROVEN: "Acknowledged, proven",
}  # in the order in which they are shown: the worst first

MEANINGS: Final = {
    EntryStatus.ACKNOWLEDGED_PROVEN: "an append-only file of Redis shows it",
    EntryStatus.ACKNOWLEDGED_INFERRED: "delivered, and no longer pending",
    EntryStatus.IN_FLIGHT: "delivered recently, and held by a consumer",
    EntryStatus.UNDELIVERED: "in the stream, not yet given to the group",
    EntryStatus.REQUEUED: "added again as a copy, which has its own status",
    EntryStatus.STUCK: "pending for longer than the limit",
    EntryStatus.DEAD_LETTERED: "given up, and kept in the dead-letter stream with its reason",
    EntryStatus.PAYLOAD_GONE: "its body was trimmed or deleted while it was pending",
    EntryStatus.INDETERMINATE: "no record shows whether it was acknowledged",
    EntryStatus.LOST: "gone, and proven never to have been acknowledged",
}

# What decided, in the words of `pelops.policy.audit.classification.Why`.
REASONS: Final = {
    "ledger": "the operator did it, says the ledger",
    "pending": "pending for longer than the limit",
    "body-gone": "pending, and trimmed or deleted",
    "gone-undelivered": "trimmed or deleted before it was delivered",
    "position-in-doubt": "the group's position was moved by hand, went back, or is new",
    "passed-meanwhile": "delivered while the audit ran, and gone afterwards",
    "dropped": "its pending record went with a deleted consumer or group",
    "skipped": "the group's position was moved past it",
    "consumer-deleted": "pending until its consumer was deleted",
    "loss-seen": "the operator recorded its loss",
    "trimmed-meanwhile": "trimmed or delivered first: no record shows which",
}

VERDICTS: Final = {
    Verdict.BALANCED: ("✓", "Balanced"),
    Verdict.UNKNOWN: ("?", "Unknown"),
    Verdict.FINDINGS: ("!", "Findings"),
    Verdict.FAILING: ("✕", "Not accounted for"),
}


def name_verdict(verdict: Verdict, certainty: Certainty | None) -> str:
    """A verdict in a word; `Balanced` never without what it rests on."""
    word = VERDICTS[verdict][1]
    return f"{word}, {certainty}" if verdict is Verdict.BALANCED and certainty else word


EVIDENCE: Final = {
    Evidence.AOF: "append-only files and the ledger",
    Evidence.LEDGER: "the operator's ledger",
    Evidence.NONE: "the stream alone",
}
