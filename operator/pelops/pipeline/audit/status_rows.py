"""The rows of the table `statuses`: every entry, for every group, with the evidence for its status.

The audit of a window (`as_of`) writes a row for each entry of that window. It also writes one for
each entry of an earlier window that was open, whose dead letter was moved, or whose copy was open.
Of the rows of one entry and group, the one with the highest `as_of` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pelops.clock import LATEST_MS
from pelops.domain.outcome import EntryStatus
from pelops.pipeline.archive.tables import SCHEMAS, STATUSES
from pelops.pipeline.audit.rules import IS_OPEN, words
from pelops.policy.audit.classification import Why

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Basis(StrEnum):
    """The evidence for a status."""

    FILE = "append-only-file"
    LEDGER = "ledger"
    SNAPSHOT = "snapshot"  # the state of Redis at the audit
    INFERRED = "inferred"
    NONE = "none"


BASES: Final[Mapping[Why, Basis]] = {
    Why.LEDGER: Basis.LEDGER,
    Why.LOSS_SEEN: Basis.LEDGER,
    Why.PENDING: Basis.SNAPSHOT,
    Why.BODY_GONE: Basis.SNAPSHOT,
    Why.NOT_REACHED: Basis.SNAPSHOT,
    Why.GONE_UNDELIVERED: Basis.SNAPSHOT,
    Why.PROVEN: Basis.FILE,
    Why.DROPPED: Basis.FILE,
    Why.SKIPPED: Basis.FILE,
    Why.NOACK: Basis.FILE,
    Why.DELIVERED: Basis.INFERRED,
    Why.SEEN_PENDING: Basis.INFERRED,
    Why.NO_LOSS_SEEN: Basis.INFERRED,
    Why.POSITION_IN_DOUBT: Basis.NONE,
    Why.PASSED_MEANWHILE: Basis.NONE,
    Why.TRIMMED_MEANWHILE: Basis.NONE,
    Why.CONSUMER_DELETED: Basis.LEDGER,
}
_PENDING: Final = words((EntryStatus.IN_FLIGHT, EntryStatus.STUCK, EntryStatus.PAYLOAD_GONE))


def _id(name: str) -> str:
    return f"IF({name}_ms IS NULL, NULL, concat({name}_ms, '-', {name}_seq))"


def _time(ms: str) -> str:
    return f"IF({ms} > 0 AND {ms} < {LATEST_MS}, timestamp_millis({ms}), NULL)"


def _basis() -> str:
    by_basis: dict[Basis, list[str]] = {}
    for why, basis in BASES.items():
        by_basis.setdefault(basis, []).append(str(why))
    cases = [f"WHEN why IN ({words(whys)}) THEN '{basis}'" for basis, whys in by_basis.items()]
    return f"CASE {' '.join(cases)} ELSE '{Basis.NONE}' END"


_COLUMNS: Final[Mapping[str, str]] = {
    "date": "CAST(timestamp_millis(s.closed_ms) AS DATE)",
    "run": "0L",  # set by the archive
    "stream": "s.stream",
    "window": "r.window",
    "group": "s.grp",
    "id": "concat(ms, '-', seq)",
    "ms": "ms",
    "seq": "seq",
    "root": _id("root"),
    "status": "status",
    "why": "why",
    "evidence": _basis(),
    "outcome": "outcome",
    "added_at": _time("ms"),
    "delivered_at": f"IF(status IN ({_PENDING}) AND delivery_count IS NOT NULL, "
    + _time("(s.at_ms - idle_ms)")
    + ", NULL)",
    "acted_at": _time("act_at_ms"),
    "audited_at": "timestamp_millis(s.closed_ms)",
    "consumer": "consumer",
    "deliveries": "delivery_count",
    "retry_count": "retry_count",
    "new_id": _id("new"),
    "last_copy": _id("last"),
    "last_copy_stream": "IF(last_ms IS NULL, NULL, l.stream)",
    "is_open": f"{IS_OPEN} OR outcome_is_open",
    "reason": "reason",
    "as_of": "s.window",
}


def status_rows(spark: SparkSession) -> DataFrame:
    """The rows of `pelops_rows` with the columns of the table."""
    chosen = ", ".join(f"{_COLUMNS[name]} AS `{name}`" for name in SCHEMAS[STATUSES].names)
    return spark.sql(f"""
    SELECT {chosen} FROM pelops_rows r
    JOIN pelops_sides s ON r.g = s.g AND r.copy = s.copy
    LEFT JOIN pelops_sides l ON r.g = l.g AND r.last_in_retry = l.copy
    """)


def before_rows(spark: SparkSession) -> DataFrame:
    """Rows that the previous windows left open, for each side, from `pelops_statuses`.

    That view has the rows of the runs that audited these windows.
    """
    return spark.sql("""
    SELECT s.g, s.copy, b.ms, b.seq, b.window, b.status, b.why, b.retry_count, b.reason,
        try_cast(split_part(b.root, '-', 1) AS BIGINT) AS root_ms,
        try_cast(split_part(b.root, '-', 2) AS BIGINT) AS root_seq,
        unix_millis(b.acted_at) AS act_at_ms,
        try_cast(split_part(b.new_id, '-', 1) AS BIGINT) AS new_ms,
        try_cast(split_part(b.new_id, '-', 2) AS BIGINT) AS new_seq,
        try_cast(split_part(b.last_copy, '-', 1) AS BIGINT) AS copy_ms,
        try_cast(split_part(b.last_copy, '-', 2) AS BIGINT) AS copy_seq,
        b.last_copy_stream IS NOT NULL AND b.last_copy_stream <> b.stream AS copy_in_retry
    FROM pelops_statuses b JOIN pelops_sides s
        ON b.stream = s.stream AND b.`group` = s.grp AND b.run = s.run_before
    WHERE b.is_open AND b.as_of = s.window - 1
    """)
