"""How long things took: recovery, attempts, ages, by what ledger and snapshot hold."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pelops.domain.ledger import LedgerKind
from pelops.pipeline.reconcile import Case

_SHARES: Final = (0.5, 0.9, 0.99, 1.0)
_MOVED: Final = [str(LedgerKind.REQUEUED), str(LedgerKind.DEAD_LETTERED), str(LedgerKind.RELEASED)]
_MOST_ATTEMPTS: Final = 20  # more are told together


def measure_times(case: Case) -> dict[str, Any]:
    """Distributions as a JSON object; a key is absent without anything to measure."""
    acts = case.work.read(f"acts/{case.group_part}").where(F.col("kind").isin(_MOVED))
    acts = acts.where(F.col("idle_ms") >= 0)
    told = {
        "recovery_ms": _shares(acts, F.col("idle_ms")),
        "age_when_moved_ms": _shares(acts, F.col("event_ms") - F.col("ms")),
        "deliveries_when_moved": _histogram(acts, F.col("deliveries")),
        "failures_when_moved": _histogram(acts, F.col("retry_count")),
    }
    if case.snapshot.before is not None:
        pending = case.work.read(f"snapshot/{case.group_part}/pending")
        told["pending_idle_ms"] = _shares(pending, F.col("idle_ms"))
        told["pending_deliveries"] = _histogram(pending, F.col("delivery_count"))
    return {name: found for name, found in told.items() if found}


def recovery_of(times: dict[str, Any]) -> tuple[int, int] | None:
    """Half and 99 of 100 of the recoveries took no longer; None without any."""
    found = times.get("recovery_ms")
    return None if found is None else (found["p50"], found["p99"])


def _shares(frame: DataFrame, value: Column) -> dict[str, int] | None:
    # Exact and of values that occur, so that a repetition tells the same.
    told = frame.agg(
        F.count(value).alias("n"),
        *(F.percentile(value, F.lit(share)).alias(f"p{share * 100:g}") for share in _SHARES),
    ).first()
    if told is None or not told["n"]:
        return None
    return {name: round(told[name]) for name in told.asDict()}


def _histogram(frame: DataFrame, value: Column) -> dict[str, int]:
    capped = F.least(value, F.lit(_MOST_ATTEMPTS).cast("bigint")).alias("attempts")
    rows = frame.groupBy(capped).count().orderBy("attempts").collect()
    return {str(row["attempts"]): row["count"] for row in rows if row["attempts"] is not None}
