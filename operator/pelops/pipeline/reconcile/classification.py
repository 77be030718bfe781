"""The rules of `policy/audit/classification.py` as a Spark expression; a test compares the two."""

from __future__ import annotations

from typing import Final

from pelops.domain.audit import EntryStatus
from pelops.pipeline.engine.functions import Column
from pelops.pipeline.engine.functions import functions as F  # noqa: N812
from pelops.policy.audit.classification import ENDING_ACTS, PROOFS, Outcome, Why

# The columns that the expression reads: the fields of EntryFacts.
FACTS: Final = (
    "act STRING, is_pending BOOLEAN, has_body BOOLEAN, idle_ms BIGINT, stuck_after_ms BIGINT,"
    " is_reached BOOLEAN, is_reached_after BOOLEAN, was_reached BOOLEAN, was_pending BOOLEAN,"
    " may_be_dropped BOOLEAN, position_holds BOOLEAN, loss_seen BOOLEAN, loss_watched BOOLEAN,"
    " proof STRING"
)


def outcome_column() -> Column:
    """A struct of `status` and `why` for a row with the columns of `FACTS`.

    `act` and `proof` are null when there is none; no other column ever is.
    """
    chosen: Column | None = None
    for condition, outcome in _rules():
        told = F.struct(
            F.lit(outcome.status.value).alias("status"), F.lit(outcome.why.value).alias("why")
        )
        chosen = F.when(condition, told) if chosen is None else chosen.when(condition, told)
    assert chosen is not None
    return chosen


def _rules() -> list[tuple[Column, Outcome]]:
    """Conditions in order, the first that fits decides; the last fits always."""
    pending, reached, body = F.col("is_pending"), F.col("is_reached"), F.col("has_body")
    holds = F.col("position_holds")
    return [
        *(
            (F.col("act").eqNullSafe(str(act)), Outcome(status, Why.LEDGER))
            for act, status in ENDING_ACTS.items()
        ),
        (pending & ~body, Outcome(EntryStatus.PAYLOAD_GONE, Why.BODY_GONE)),
        (
            pending & (F.col("idle_ms") >= F.col("stuck_after_ms")),
            Outcome(EntryStatus.STUCK, Why.PENDING),
        ),
        (pending, Outcome(EntryStatus.IN_FLIGHT, Why.PENDING)),
        (~reached & body, Outcome(EntryStatus.UNDELIVERED, Why.NOT_REACHED)),
        *((F.col("proof").eqNullSafe(str(proof)), told) for proof, told in PROOFS.items()),
        (~reached & ~holds, Outcome(EntryStatus.INDETERMINATE, Why.POSITION_IN_DOUBT)),
        (
            ~reached & F.col("is_reached_after"),
            Outcome(EntryStatus.INDETERMINATE, Why.PASSED_MEANWHILE),
        ),
        (~reached, Outcome(EntryStatus.LOST, Why.GONE_UNDELIVERED)),
        (~holds, Outcome(EntryStatus.INDETERMINATE, Why.POSITION_IN_DOUBT)),
        (
            F.col("may_be_dropped"),
            Outcome(EntryStatus.INDETERMINATE, Why.CONSUMER_DELETED),
        ),
        (
            F.col("was_reached") | body,
            Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.DELIVERED),
        ),
        (F.col("was_pending"), Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.SEEN_PENDING)),
        (F.col("loss_seen"), Outcome(EntryStatus.LOST, Why.LOSS_SEEN)),
        (F.col("loss_watched"), Outcome(EntryStatus.ACKNOWLEDGED_INFERRED, Why.NO_LOSS_SEEN)),
        (F.lit(True), Outcome(EntryStatus.INDETERMINATE, Why.TRIMMED_MEANWHILE)),
    ]
