"""How long things took: recovery, attempts, ages, by what ledger and snapshot hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from pelops.domain.ledger import LedgerKind
from pelops.pipeline.engine.sql import Column, DataFrame, Row
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.reconcile.window_entries import Case

_SHARES: Final = (0.5, 0.9, 0.99, 1.0)
_MOVED: Final = [str(LedgerKind.REQUEUED), str(LedgerKind.DEAD_LETTERED), str(LedgerKind.RELEASED)]
_MOST_ATTEMPTS: Final = 20  # more are reported together


def measure_times(case: Case) -> dict[str, Any]:
    """Distributions as a JSON object; a key is absent without anything to measure."""
    reported: dict[str, Any] = {}
    if case.history.rows:
        reported |= _of_acts(case.work.read(f"acts/{case.group_part}"))
    if case.snapshot.pending:
        reported |= _of_pending(case.work.read(f"snapshot/{case.group_part}/pending"))
    return {name: found for name, found in reported.items() if found}


def recovery_of(times: dict[str, Any]) -> tuple[int, int] | None:
    """Half and 99 of 100 of the recoveries took no longer; None without any."""
    found = times.get("recovery_ms")
    return None if found is None else (found["p50"], found["p99"])


def _of_acts(acts: DataFrame) -> dict[str, Any]:
    moved = acts.where(F.col("kind").isin(_MOVED) & (F.col("idle_ms") >= 0))
    values = {"recovery_ms": F.col("idle_ms"), "age_when_moved_ms": F.col("event_ms") - F.col("ms")}
    counts = {"deliveries_when_moved": "deliveries", "failures_when_moved": "retry_count"}
    return _shares(moved, values) | _histograms(moved, counts)


def _of_pending(pending: DataFrame) -> dict[str, Any]:
    shares = _shares(pending, {"pending_idle_ms": F.col("idle_ms")})
    return shares | _histograms(pending, {"pending_deliveries": "delivery_count"})


def _shares(frame: DataFrame, values: Mapping[str, Column]) -> dict[str, Any]:
    # Exact and of values that occur, so that a repetition tells the same.
    asked = [
        F.struct(
            F.count(value).alias("n"),
            *(F.percentile(value, F.lit(share)).alias(f"p{share * 100:g}") for share in _SHARES),
        ).alias(name)
        for name, value in values.items()
    ]
    row = frame.coalesce(1).agg(*asked).first()
    return {} if row is None else {name: _reported(row[name]) for name in values}


def _reported(found: Row) -> dict[str, int] | None:
    return {name: round(value) for name, value in found.asDict().items()} if found["n"] else None


def _histograms(frame: DataFrame, columns: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """How often each number occurs, for every column by itself."""
    most = F.lit(_MOST_ATTEMPTS).cast("bigint")
    capped = [F.least(F.col(name).cast("bigint"), most).alias(name) for name in columns.values()]
    rows = frame.coalesce(1).groupBy(*capped).count().collect()
    found = {}
    for reported, name in columns.items():
        numbers: Counter[int] = Counter()
        for row in rows:
            if row[name] is not None:
                numbers[row[name]] += row["count"]
        found[reported] = {str(number): numbers[number] for number in sorted(numbers)}
    return found
