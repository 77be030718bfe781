"""Counts of the rows of a round, for all groups at once, by four queries.

The driver builds the page and the summary of each group from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pelops.clock import LATEST_MS, is_time
from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import EXPECTED_STATUSES
from pelops.pipeline.archive.tables import local_frame
from pelops.pipeline.archive.windows import Plan
from pelops.pipeline.audit.cases import StreamCounts
from pelops.pipeline.audit.rules import IS_OPEN, RowOrigin, Scope, at_or_before, words
from pelops.pipeline.settings import ArchivedPayload
from pelops.policy.audit.classification import Why

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_ENTRIES: Final = 50  # listed in the report
MOST_DUPLICATES: Final = 20
# The worst first.
_WORST: Final = (
    EntryStatus.LOST,
    EntryStatus.PAYLOAD_GONE,
    EntryStatus.INDETERMINATE,
    EntryStatus.STUCK,
    EntryStatus.DEAD_LETTERED,
)
AGES_MS: Final = tuple(1000 * seconds for seconds in (60, 300, 900, 3600, 21_600, 86_400, 604_800))
STEPS: Final = 120  # of the timeline, approximately
_STEPS_MS: Final = (
    1, 10, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000,
    86_400_000,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The number of rows of one group with the same attributes."""

    origin: str
    copy: bool  # in the group's retry stream
    status: EntryStatus
    why: str
    outcome: EntryStatus | None  # of the last copy
    is_copy: bool  # it has a root
    is_pending: bool
    is_open: bool
    is_followed: bool  # its copy is still open
    is_earlier: bool  # not of this window
    is_known: bool  # the previous window left it open
    is_audited: bool  # it is in a window that was audited for the group
    is_in_gap: bool  # the operator recorded a loss there
    age: int  # of a stuck entry: number of `AGES_MS` that it exceeds
    rows: int
    ahead: int  # of `rows`: after the group's position
    lowest: EntryId  # lower bound of the IDs, exact to the millisecond
    oldest_ms: int | None  # the longest idle time


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The counts of one group."""

    counts: tuple[Count, ...] = ()
    worst: tuple[Mapping[str, Any], ...] = ()  # entries that need attention, the worst first

    def by_status(self, *origins: str, copy: bool | None = False) -> dict[EntryStatus, int]:
        """Numbers of rows by status; `copy` None: in both streams."""
        found: dict[EntryStatus, int] = {}
        for one in self.of(*origins, copy=copy):
            found[one.status] = found.get(one.status, 0) + one.rows
        return found

    def of(self, *origins: str, copy: bool | None = False) -> list[Count]:
        """The counts of rows from these origins."""
        return [one for one in self.counts if one.origin in origins and copy in (None, one.copy)]


def count_rows(spark: SparkSession, scope: Scope) -> dict[int, Measures]:
    """Count the rows of `pelops_rows`, by group."""
    ages = " + ".join(f"IF(idle_ms >= {edge}, 1, 0)" for edge in AGES_MS)
    gone = words((Why.LOSS_SEEN, Why.TRIMMED_MEANWHILE))
    dims = (
        "g, origin, copy, status, why, outcome, is_copy, is_pending, is_open, is_followed,"
        " is_earlier, is_known, is_audited, is_in_gap, age"
    )
    rows = spark.sql(f"""
    WITH aged AS (
        SELECT r.*, s.at_ms,
            IF(s.at_ms - r.ms > 0, least(r.idle_ms, s.at_ms - r.ms), r.idle_ms) AS idle,
            root_ms IS NOT NULL AS is_copy, consumer IS NOT NULL AS is_pending,
            {IS_OPEN} AS is_open, outcome_is_open AS is_followed,
            NOT (r.window <=> s.window) AS is_earlier,
            status_before IS NOT NULL AS is_known,
            NOT {at_or_before("audited_after")} AND {at_or_before("after")} AS is_audited,
            why IN ({gone}) AND {scope.within("gaps")} AS is_in_gap,
            NOT {at_or_before("position")} AND NOT {at_or_before("whole_after")} AS is_ahead
        FROM pelops_rows r JOIN pelops_sides s ON r.g = s.g AND r.copy = s.copy
    ), placed AS (
        SELECT *, IF(status = '{EntryStatus.STUCK}', {ages}, 0) AS age
        FROM aged
    )
    SELECT {dims}, count(*) AS rows, count_if(is_ahead) AS ahead,
        min(ms) AS lowest_ms, max(idle) AS oldest
    FROM placed GROUP BY {dims}
    """).collect()
    order = " ".join(f"WHEN '{one}' THEN {at}" for at, one in enumerate(_WORST))
    worst = spark.sql(f"""
    SELECT g, min_by(struct(ms, seq, status, why, reason, consumer, idle_ms, act_idle_ms,
            delivery_count, root_ms, root_seq, copy, origin, is_earlier, is_settled),
        struct(CASE status {order} ELSE {len(_WORST)} END, ms, seq), {MOST_ENTRIES}) AS entries
    FROM (
        SELECT r.*, NOT (r.window <=> s.window) AS is_earlier, NOT {IS_OPEN} AS is_settled
        FROM pelops_rows r JOIN pelops_sides s ON r.g = s.g AND r.copy = s.copy
        WHERE r.status NOT IN ({words(sorted(EXPECTED_STATUSES))})
            AND r.origin NOT IN ('{RowOrigin.MOVED}', '{RowOrigin.FOLLOWED}')
    ) GROUP BY g
    """).collect()
    counts: dict[int, list[Count]] = {}
    for row in rows:
        counts.setdefault(row["g"], []).append(_read_count(row.asDict()))
    entries = {row["g"]: tuple(one.asDict() for one in row["entries"]) for row in worst}
    return {
        g: Measures(counts=tuple(counts.get(g, ())), worst=entries.get(g, ()))
        for g in counts.keys() | entries.keys()
    }


def _read_count(row: dict[str, Any]) -> Count:
    outcome = row["outcome"]
    return Count(
        **{
            name: row[name]
            for name in (
                "origin", "copy", "why", "is_copy", "is_pending", "is_open", "is_followed",
                "is_earlier", "is_known", "is_audited", "is_in_gap", "age", "rows", "ahead",
            )
        },
        status=EntryStatus(row["status"]),
        outcome=None if outcome is None else EntryStatus(outcome),
        lowest=EntryId(row["lowest_ms"], 0),
        oldest_ms=row["oldest"],
    )  # fmt: skip


def count_archived(
    spark: SparkSession, begins: Mapping[tuple[str, EntryId], None]
) -> tuple[dict[str, StreamCounts], dict[tuple[str, EntryId], int]]:
    """Number of archived entries of each stream, and of those up to each given ID."""
    upto = ", ".join(
        f"count_if(ms < {one.ms} OR (ms = {one.ms} AND seq <= {one.seq})) AS c{at}"
        for at, (_, one) in enumerate(begins)
    )
    rows = spark.sql(f"""
    SELECT stream, count(*) AS entries, min(ms) AS first, max(ms) AS last
        {", " + upto if upto else ""}
    FROM pelops_entries GROUP BY stream
    """).collect()
    counts = {
        row["stream"]: StreamCounts(
            entries=row["entries"], first_ms=row["first"], last_ms=row["last"]
        )
        for row in rows
    }
    by_stream = {row["stream"]: row for row in rows}
    return counts, {
        key: by_stream[key[0]][f"c{at}"] if key[0] in by_stream else 0
        for at, key in enumerate(begins)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Entries that were added more than once to a stream, by one way of comparison."""

    keys: int = 0
    entries: int = 0  # without the first of each
    first: tuple[Mapping[str, Any], ...] = ()  # those with the most copies


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMeasures:
    """The counts of the entries of one stream."""

    step_ms: int = 1
    arrivals: Mapping[int, int] = field(default_factory=dict)  # by step
    duplicates: Mapping[str, Ways] = field(default_factory=dict)  # by way of comparison


def measure_streams(
    spark: SparkSession, plans: Sequence[Plan], steps: Mapping[str, int]
) -> dict[str, StreamMeasures]:
    """Duplicates of each stream, and its arrivals over time; `steps`: milliseconds of a step.

    A copy that a recovery or a redrive made is not a duplicate. Two copies of one root with the
    same numbers of failed attempts and redrives are duplicates.
    """
    ways = {plan.stream: _ways(plan) for plan in plans}
    arrivals: dict[str, dict[int, int]] = {}
    if steps:
        length = " ".join(f"WHEN {_literal(name)} THEN {step}" for name, step in steps.items())
        for row in spark.sql(f"""
        SELECT stream, step, count(*) AS rows FROM (
            SELECT stream, floor(ms / CASE stream {length} END) AS step FROM pelops_entries
            WHERE stream IN ({", ".join(map(_literal, steps))}) AND ms > 0 AND ms < {LATEST_MS}
        ) GROUP BY stream, step""").collect():
            arrivals.setdefault(row["stream"], {})[row["step"]] = row["rows"]
    duplicates = _find_duplicates(spark, plans)
    return {
        plan.stream: StreamMeasures(
            step_ms=steps.get(plan.stream, 1),
            arrivals=arrivals.get(plan.stream, {}),
            duplicates={
                way: duplicates.get((plan.stream, way), Ways()) for way in ways[plan.stream]
            },
        )
        for plan in plans
    }


def _ways(plan: Plan) -> list[str]:
    ways = ["root"]
    ways += ["payload"] if plan.payload is not ArchivedPayload.NONE else []
    return ways + (["key"] if plan.business_key is not None else [])


def _find_duplicates(spark: SparkSession, plans: Sequence[Plan]) -> dict[tuple[str, str], Ways]:
    of = ", ".join(_literal(plan.stream) for plan in plans)
    parts = [
        f"""SELECT stream, 'root' AS way, concat_ws('-', root_ms, root_seq, retry_count, returned)
            AS value, ms, seq FROM pelops_entries WHERE root_ms IS NOT NULL AND stream IN ({of})"""
    ]
    columns = {"payload": "CAST(hash AS STRING)", "key": "key"}
    ways = {way for plan in plans for way in _ways(plan)}
    parts += [
        f"""SELECT stream, '{way}', {column}, ms, seq FROM pelops_entries
            WHERE root_ms IS NULL AND {column} IS NOT NULL AND stream IN ({of})"""
        for way, column in columns.items()
        if way in ways
    ]
    values = f"({' UNION ALL '.join(parts)})"
    rows = spark.sql(f"""
    SELECT stream, way, count(*) AS keys, sum(copies - 1) AS entries,
        min_by(struct(value, copies), struct(-copies, value), {MOST_DUPLICATES}) AS most
    FROM (
        SELECT stream, way, value, count(*) AS copies FROM {values}
        GROUP BY stream, way, value HAVING count(*) > 1
    ) GROUP BY stream, way
    """).collect()
    most = [
        {"stream": row["stream"], "way": row["way"], **duplicate.asDict()}
        for row in rows
        for duplicate in row["most"]
    ]
    first: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    if most:
        # IDs are read only for these few: to compare IDs, Spark would sort every entry.
        local_frame(spark, pa.Table.from_pylist(most)).createOrReplaceTempView("pelops_most")
        for row in spark.sql(f"""
        SELECT stream, way, value, copies, min(struct(ms, seq)) AS first,
            max(struct(ms, seq)) AS last
        FROM {values} JOIN pelops_most USING (stream, way, value)
        GROUP BY stream, way, value, copies ORDER BY copies DESC, value
        """).collect():
            first.setdefault((row["stream"], row["way"]), []).append(row.asDict())
    return {
        key: Ways(keys=row["keys"], entries=row["entries"], first=tuple(first[key]))
        for row in rows
        for key in [(row["stream"], row["way"])]
    }


def choose_step(first_ms: int, last_ms: int) -> int:
    """The shortest step that results in at most about STEPS steps, in milliseconds."""
    span_ms = last_ms - first_ms + 1
    days = -(-span_ms // (STEPS * _STEPS_MS[-1])) * _STEPS_MS[-1]
    return next((step for step in _STEPS_MS if span_ms <= STEPS * step), days)


def are_times(values: Iterable[int]) -> list[int]:
    """The values that are valid times."""
    return [one for one in values if is_time(one)]


def _literal(text: str) -> str:
    """A text as an SQL expression, safe for any content."""
    return "decode(unhex('" + text.encode("utf-8", "surrogatepass").hex() + "'), 'UTF-8')"
