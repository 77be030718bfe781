"""What each status and verdict is called, and what it means, for people."""

from __future__ import annotations

from typing import Final

from pelops.domain.audit import EntryStatus, Evidence, Verdict

TITLES: Final = {
    EntryStatus.ACKNOWLEDGED_PROVEN: "Acknowledged, proven",
    EntryStatus.ACKNOWLEDGED_INFERRED: "Acknowledged, inferred",
    EntryStatus.IN_FLIGHT: "In flight",
    EntryStatus.UNDELIVERED: "Undelivered",
    EntryStatus.REQUEUED: "Requeued",
    EntryStatus.STUCK: "Stuck",
    EntryStatus.DEAD_LETTERED: "Dead-lettered",
    EntryStatus.PAYLOAD_GONE: "Payload gone",
    EntryStatus.INDETERMINATE: "Indeterminate",
    EntryStatus.LOST: "Lost, proven",
}  # in the order in which they are shown: from what is well to what is not

MEANINGS: Final = {
    EntryStatus.ACKNOWLEDGED_PROVEN: "Redis' append-only file or a worker says so",
    EntryStatus.ACKNOWLEDGED_INFERRED: "delivered, and no longer pending",
    EntryStatus.IN_FLIGHT: "delivered not long ago, still with a worker",
    EntryStatus.UNDELIVERED: "in the stream, not yet given to the group",
    EntryStatus.REQUEUED: "copied to be tried again; the copy is counted for itself",
    EntryStatus.STUCK: "pending for longer than the limit",
    EntryStatus.DEAD_LETTERED: "given up, and kept with its reason",
    EntryStatus.PAYLOAD_GONE: "its body was trimmed or deleted while it was pending",
    EntryStatus.INDETERMINATE: "gone, and nothing tells whether it was delivered before",
    EntryStatus.LOST: "never delivered, and gone",
}

VERDICTS: Final = {
    Verdict.BALANCED: ("✓", "Balanced"),
    Verdict.UNKNOWN: ("?", "Unknown"),
    Verdict.FINDINGS: ("!", "Findings"),
    Verdict.FAILING: ("✕", "Not accounted for"),
}

EVIDENCE: Final = {
    Evidence.AOF: "append-only files and the ledger",
    Evidence.LEDGER: "the operator's ledger",
    Evidence.NONE: "the stream alone",
}
