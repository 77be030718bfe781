"""The status of every entry of a round, for all groups at once, as the frames of one Spark plan.

A round is one window of each stream. `pelops_sides` has the constants of each group (`cases`),
`pelops_known` the driver's facts about single entries, `pelops_entries` the archived entries. The
key of a row is `g` (the group), `copy` (whether it is in the retry stream), `ms` and `seq`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from pelops.domain.outcome import COPYING_KINDS, ENDING_KINDS, LETTER_STATUSES, EntryStatus
from pelops.pipeline.archive.tables import MOST_HERE, local_frame
from pelops.policy.audit.classification import OPEN_STATUSES, EntryFacts, Proof, Why, list_rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TYPES: Final = {"bool": "BOOLEAN", "int": "BIGINT"}
# The columns that the rules read: the fields of EntryFacts.
FACTS: Final = ", ".join(
    f"{field.name} {_TYPES.get(str(field.type), 'STRING')}" for field in fields(EntryFacts)
)
# The columns of a row that has a status.
CLASSIFIED: Final = (
    "g", "copy", "ms", "seq", "window", "origin", "status", "why", "status_before", "root_ms",
    "root_seq", "retry_count", "consumer", "idle_ms", "delivery_count", "act_at_ms", "act_idle_ms",
    "new_ms", "new_seq", "reason", "copy_ms", "copy_seq", "copy_in_retry", "proof",
)  # fmt: skip
CLASSIFIED_SCHEMA: Final = (
    "g INT, copy BOOLEAN, ms BIGINT, seq BIGINT, window INT, origin STRING, status STRING,"
    " why STRING, status_before STRING, root_ms BIGINT, root_seq BIGINT, retry_count INT,"
    " consumer STRING, idle_ms BIGINT, delivery_count BIGINT, act_at_ms BIGINT,"
    " act_idle_ms BIGINT, new_ms BIGINT, new_seq BIGINT, reason STRING, copy_ms BIGINT,"
    " copy_seq BIGINT, copy_in_retry BOOLEAN, proof STRING"
)


class RowOrigin:
    """Where a row comes from."""

    WINDOW: Final = "window"  # archived, of this window
    GONE: Final = "gone"  # of this window, removed before the archive
    COPY: Final = "copy"  # in the group's retry stream
    EARLIER: Final = "earlier"  # open since an earlier window; or pending, but in no window
    MOVED: Final = "moved"  # of an earlier window: its dead letter was moved
    FOLLOWED: Final = "followed"  # of an earlier window: its copy is still open


def words(values: object) -> str:
    """Texts as a list of SQL literals."""
    return ", ".join(f"'{one}'" for one in values)  # type: ignore[attr-defined]


COPIED: Final = words((EntryStatus.REQUEUED, EntryStatus.REDRIVEN))  # a copy continues it
DONE: Final = words((EntryStatus.ACKNOWLEDGED_INFERRED, EntryStatus.ACKNOWLEDGED_PROVEN))
IS_OPEN: Final = (
    f"(status IN ({words(sorted(OPEN_STATUSES))}) OR coalesce(why = '{Why.BODY_GONE}', false))"
)


def at_or_before(name: str) -> str:
    """An SQL condition: the row's entry is at or before an ID of its side."""
    return f"(ms < s.{name}_ms OR (ms = s.{name}_ms AND seq <= s.{name}_seq))"


def outcome_column() -> Column:
    """A struct of `status` and `why` for a row with the columns of `FACTS`.

    Only `act` and `proof` may be null.
    """
    from pyspark.sql import functions as F  # noqa: N812

    facts = SimpleNamespace(**{field.name: F.col(field.name) for field in fields(EntryFacts)})
    chosen = None
    for condition, outcome in list_rules(facts):
        column = F.struct(
            F.lit(outcome.status.value).alias("status"), F.lit(outcome.why.value).alias("why")
        )
        if condition is True:
            assert chosen is not None
            return chosen.otherwise(column)
        chosen = F.when(condition, column) if chosen is None else chosen.when(condition, column)
    raise AssertionError("the last rule always holds")


# Archived entries of each group, and rows that earlier windows left open.
_LISTED: Final = f"""
SELECT s.g, s.copy, e.ms, e.seq, s.window,
    IF(s.copy, '{RowOrigin.COPY}', '{RowOrigin.WINDOW}') AS origin,
    e.root_ms, e.root_seq, e.retry_count, CAST(NULL AS STRING) AS status_before
FROM pelops_entries e JOIN pelops_sides s ON e.stream = s.stream
WHERE e.ms > s.owed_after_ms OR (e.ms = s.owed_after_ms AND e.seq > s.owed_after_seq)
"""
_LEFT_OPEN: Final = f"""
UNION ALL
SELECT g, copy, ms, seq, window, '{RowOrigin.EARLIER}', root_ms, root_seq, retry_count, status
FROM pelops_before WHERE {IS_OPEN}
"""
_OF_FILES: Final = """
    UNION ALL
    SELECT g, FALSE, ms, seq, FALSE, FALSE, TRUE FROM pelops_proofs WHERE is_known"""
# Entries that only the driver's frame or only append-only files name.
_UNLISTED: Final = f"""
WITH named AS (
    SELECT g, copy, ms, seq, is_pending, is_named, FALSE AS is_covered FROM pelops_known{_OF_FILES}
), alone AS (
    SELECT g, copy, ms, seq, bool_or(is_pending) AS is_pending, bool_or(is_named) AS is_named
    FROM (SELECT * FROM named LEFT ANTI JOIN pelops_listed USING (g, copy, ms, seq))
    GROUP BY g, copy, ms, seq
), placed AS (
    SELECT a.g, a.copy, a.ms, a.seq, s.window,
        CASE WHEN a.copy THEN IF(a.is_named, '{RowOrigin.COPY}', NULL)
            WHEN s.may_miss_entries AND NOT {at_or_before("after")} AND {at_or_before("upto")}
                THEN '{RowOrigin.GONE}'
            WHEN a.is_pending AND NOT {at_or_before("audited_after")} AND {at_or_before("after")}
                THEN '{RowOrigin.EARLIER}' END AS origin
    FROM alone a JOIN pelops_sides s ON a.g = s.g AND a.copy = s.copy
)
SELECT g, copy, ms, seq, IF(origin = '{RowOrigin.EARLIER}', NULL, window) AS window, origin,
    CAST(NULL AS BIGINT) AS root_ms, CAST(NULL AS BIGINT) AS root_seq,
    CAST(NULL AS INT) AS retry_count, CAST(NULL AS STRING) AS status_before
FROM placed WHERE origin IS NOT NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a round contains: parts of the plan without rows are left out."""

    rows: int  # of the round, upper bound
    has_known: bool  # `pelops_known` has rows
    has_holes: bool  # the snapshots list present entries
    has_files: bool
    has_before: bool  # earlier windows left rows open
    has_roots: bool  # copies continue entries

    ranges: frozenset[str]  # columns of sides with at least one range

    def within(self, ranges: str) -> str:
        """An SQL condition: the row's entry is in one of the ranges of its side."""
        if ranges not in self.ranges:
            return "FALSE"
        return (
            f"exists(s.{ranges}, r -> (ms > r.after_ms OR (ms = r.after_ms AND seq > r.after_seq))"
            " AND (ms < r.ms OR (ms = r.ms AND seq <= r.seq)))"
        )

    @property
    def is_few(self) -> bool:
        """Whether the rows are few enough to pass through the driver."""
        return self.rows <= MOST_HERE


def _facts(listed: str, scope: Scope) -> str:
    """SQL for the facts of each row of a view, with the columns that the rules require."""
    known = "k.is_pending, k.pending_body, k.consumer, k.idle_ms AS pending_idle_ms,"
    known += " k.delivery_count, k.act AS known_act, k.new_ms, k.new_seq, k.in_retry, k.reason,"
    known += " k.act_at_ms, k.act_idle_ms, k.named_root_ms, k.named_root_seq, k.named_retry_count"
    proofs, holes = "f.act AS file_act, f.proof, f.covered", "p.ms IS NOT NULL AS is_in_list"
    joins = []
    if scope.has_known:
        joins.append(
            "LEFT JOIN pelops_known k"
            " ON l.g = k.g AND l.copy = k.copy AND l.ms = k.ms AND l.seq = k.seq"
        )
    else:
        known = _nulls(known, KNOWN_TYPES)
    if scope.has_files:
        joins.append(
            "LEFT JOIN pelops_proofs f"
            " ON NOT l.copy AND l.g = f.g AND l.ms = f.ms AND l.seq = f.seq"
        )
    else:
        proofs = "CAST(NULL AS STRING) AS file_act, CAST(NULL AS STRING) AS proof, FALSE AS covered"
    if scope.has_holes:
        joins.append(
            "LEFT JOIN pelops_present p ON s.stream = p.stream AND l.ms = p.ms AND l.seq = p.seq"
        )
    else:
        holes = "FALSE AS is_in_list"
    below = f"(origin = '{RowOrigin.WINDOW}' AND {at_or_before('reached_before')})"
    reached = f"""CASE WHEN s.exists THEN {at_or_before("position")}
        WHEN coalesce(covered, FALSE) THEN proof IS NOT NULL
        ELSE {at_or_before("last_known")} END"""
    within = scope.within
    begins = "(ms > s.begins_ms OR (ms = s.begins_ms AND seq >= s.begins_seq))"
    return f"""
    WITH joined AS (
        SELECT l.g, l.copy, l.ms, l.seq, l.window, l.origin, l.status_before, l.root_ms AS own_ms,
            l.root_seq AS own_seq, l.retry_count AS own_count, struct(s.*) AS s,
            {known}, {proofs}, {holes}
        FROM {listed} l JOIN pelops_sides s ON l.g = s.g AND l.copy = s.copy
        {" ".join(joins)}
    ), reached AS (
        SELECT *, {below} AS was_reached, {reached} AS is_reached,
            {begins} AND (NOT {at_or_before("sure_after")} OR is_in_list) AS is_there
        FROM joined
    )
    SELECT g, copy, ms, seq, window, origin, status_before,
        coalesce(own_ms, named_root_ms) AS root_ms, coalesce(own_seq, named_root_seq) AS root_seq,
        coalesce(own_count, named_retry_count) AS retry_count, consumer, delivery_count,
        coalesce(known_act, file_act) AS act, new_ms, new_seq, reason, act_at_ms, act_idle_ms,
        proof, was_reached, is_reached, s.stuck_after_ms,
        coalesce(is_pending, FALSE) AS is_pending, coalesce(pending_idle_ms, 0L) AS idle_ms,
        {at_or_before("position_after")} AS is_reached_after,
        coalesce(covered, FALSE) OR IF(is_reached, s.position_was_read, s.position_holds)
            AS position_holds,
        coalesce(pending_body, CASE WHEN was_reached THEN s.is_reached_still
            WHEN origin = '{RowOrigin.GONE}' THEN FALSE ELSE is_there END) AS has_body,
        coalesce(status_before <> '{EntryStatus.UNDELIVERED}', FALSE) AND NOT s.is_recreated
            AS was_pending,
        IF(origin = '{RowOrigin.EARLIER}', status_before IS NOT NULL AND {within("dropped_since")},
            {within("dropped")}) AS may_be_dropped,
        {within("seen")} AS loss_seen,
        {within("watched")} AND NOT {at_or_before("max_deleted")} AND NOT {within("gaps")}
            AS loss_watched,
        CAST(NULL AS BIGINT) AS copy_ms, CAST(NULL AS BIGINT) AS copy_seq, in_retry AS copy_in_retry
    FROM reached
    """


KNOWN_TYPES: Final = {
    "is_pending": "BOOLEAN", "pending_body": "BOOLEAN", "consumer": "STRING", "known_act": "STRING",
    "in_retry": "BOOLEAN", "reason": "STRING", "named_retry_count": "INT",
}  # fmt: skip


def _nulls(columns: str, types: Mapping[str, str]) -> str:
    """The same columns, all null."""
    names = [part.split(" AS ")[-1].strip().removeprefix("k.") for part in columns.split(",")]
    return ", ".join(f"CAST(NULL AS {types.get(name, 'BIGINT')}) AS {name}" for name in names)


def classify(spark: SparkSession, scope: Scope) -> list[DataFrame]:
    """Create the view `pelops_classified`: the status of every entry of the round.

    The caller must unpersist the returned frames after use.
    """
    listed = _LISTED + (_LEFT_OPEN if scope.has_before else "")
    spark.sql(listed).createOrReplaceTempView("pelops_listed")
    kept = [_keep(_classified(spark, "pelops_listed", scope), scope)]
    kept[0].createOrReplaceTempView("pelops_listed")  # the following steps read its rows
    parts = [spark.table("pelops_earlier").select(*CLASSIFIED)]
    if scope.has_known or scope.has_files:
        unlisted = _UNLISTED if scope.has_files else _UNLISTED.replace(_OF_FILES, "")
        spark.sql(unlisted).createOrReplaceTempView("pelops_unlisted")
        parts.append(_classified(spark, "pelops_unlisted", scope))
    if scope.has_before:
        parts.append(spark.sql(_FOLLOWED).select(*CLASSIFIED))
    kept.append(_keep(reduce(lambda one, other: one.unionByName(other), parts), scope))
    kept[0].unionByName(kept[1]).createOrReplaceTempView("pelops_classified")
    return kept


def _classified(spark: SparkSession, view: str, scope: Scope) -> DataFrame:
    facts = spark.sql(_facts(view, scope))
    return (
        facts.withColumn("outcome", outcome_column()).select("*", "outcome.*").select(*CLASSIFIED)
    )


def _keep(frame: DataFrame, scope: Scope) -> DataFrame:
    """Compute the rows of a frame once, so that later queries do not include its plan."""
    if scope.is_few:
        return local_frame(frame.sparkSession, frame.toArrow())
    from pyspark import StorageLevel

    is_local = (frame.sparkSession.sparkContext.master or "").startswith("local[")
    # On disk: in memory they would leave no room for the steps that read them, each of which loads
    # whole partitions. On a cluster, two executors keep each row, so that the run survives the loss
    # of one.
    level = StorageLevel.DISK_ONLY if is_local else StorageLevel.DISK_ONLY_2
    return frame.localCheckpoint(storageLevel=level)


# Rows that earlier windows closed and whose copies are still open. Their status does not change.
_FOLLOWED: Final = f"""
SELECT b.g, b.copy, b.ms, b.seq, b.window, '{RowOrigin.FOLLOWED}' AS origin, b.status, b.why,
    b.status AS status_before, b.root_ms, b.root_seq, b.retry_count,
    CAST(NULL AS STRING) AS consumer, CAST(NULL AS BIGINT) AS idle_ms,
    CAST(NULL AS BIGINT) AS delivery_count, b.act_at_ms, CAST(NULL AS BIGINT) AS act_idle_ms,
    b.new_ms, b.new_seq, b.reason, b.copy_ms, b.copy_seq, b.copy_in_retry,
    CAST(NULL AS STRING) AS proof
FROM pelops_before b LEFT ANTI JOIN pelops_earlier e
    ON b.g = e.g AND b.copy = e.copy AND b.ms = e.ms AND b.seq = e.seq
WHERE NOT {IS_OPEN}
"""
_ENDS: Final = {
    act: status
    for act, status in (*ENDING_KINDS.items(), *LETTER_STATUSES.items())
    if act not in COPYING_KINDS
}


def follow_roots(spark: SparkSession, scope: Scope) -> None:
    """Create the view `pelops_outcomes`: outcomes of copied entries, by their last copy.

    The ledger names the last copy, even if the entry and the copies between were trimmed before
    they were archived. If only files show a requeue, the fields that Pelops added to the copy name
    its root. The view `pelops_rows` joins the outcomes to `pelops_classified`.
    """
    if not scope.has_roots:
        spark.sql("""
        SELECT *, CAST(NULL AS STRING) AS outcome, FALSE AS outcome_is_open,
            CAST(NULL AS BIGINT) AS last_ms, CAST(NULL AS BIGINT) AS last_seq,
            CAST(NULL AS BOOLEAN) AS last_in_retry
        FROM pelops_classified""").createOrReplaceTempView("pelops_rows")
        return
    marked = """
        SELECT g, root_ms AS ms, root_seq AS seq, max(struct(ms, seq)) AS marked
        FROM (SELECT g, root_ms, root_seq, ms, seq FROM pelops_classified
            WHERE NOT copy AND root_ms IS NOT NULL AND origin IN ('window', 'gone'))
        GROUP BY g, root_ms, root_seq"""
    proofs = "SELECT g, ms, seq, proof FROM pelops_proofs"
    if not scope.has_files:
        marked = """
        SELECT 0 AS g, 0L AS ms, 0L AS seq, struct(0L AS ms, 0L AS seq) AS marked WHERE FALSE"""
        proofs = "SELECT 0 AS g, 0L AS ms, 0L AS seq, '' AS proof WHERE FALSE"
    goes_on = f"e.act IN ({words(COPYING_KINDS)})"
    ends = " ".join(f"WHEN end_act = '{act}' THEN '{status}'" for act, status in _ENDS.items())
    later, ahead = (
        f"(copy_ms > s.{name}_ms OR (copy_ms = s.{name}_ms AND copy_seq > s.{name}_seq))"
        for name in ("archived_upto", "position")
    )
    # Added, never delivered and no longer present: the position is read after both.
    lost = f"""({later} AND s.position_holds
        AND (copy_ms > s.position_after_ms
            OR (copy_ms = s.position_after_ms AND copy_seq > s.position_after_seq))
        AND (copy_ms < s.begins_ms OR (copy_ms = s.begins_ms AND copy_seq < s.begins_seq))
        AND (copy_ms < s.ends_ms OR (copy_ms = s.ends_ms AND copy_seq <= s.ends_seq)))"""
    frame = spark.sql(f"""
    WITH asked AS (
        SELECT g, ms, seq, IF(origin = '{RowOrigin.FOLLOWED}', copy_ms, new_ms) AS copy_ms,
            IF(origin = '{RowOrigin.FOLLOWED}', copy_seq, new_seq) AS copy_seq,
            coalesce(copy_in_retry, FALSE) AS in_retry
        FROM pelops_classified
        WHERE NOT copy AND root_ms IS NULL AND status IN ({COPIED})
    ), placed AS (
        SELECT a.g, a.ms, a.seq, e.act AS end_act,
            IF({goes_on}, e.new_ms, coalesce(a.copy_ms, m.marked.ms)) AS copy_ms,
            IF({goes_on}, e.new_seq, coalesce(a.copy_seq, m.marked.seq)) AS copy_seq,
            IF({goes_on}, e.in_retry, a.in_retry) AS in_retry
        FROM asked a
        LEFT JOIN pelops_ends e ON a.g = e.g AND a.ms = e.ms AND a.seq = e.seq
        LEFT JOIN ({marked}) m ON a.g = m.g AND a.ms = m.ms AND a.seq = m.seq
    ), fates AS (
        SELECT g, copy, ms, seq, status AS fate, {IS_OPEN} AS fate_is_open FROM pelops_classified
        WHERE copy OR root_ms IS NOT NULL
    ), found AS (
        SELECT a.*, f.fate, f.fate_is_open, k.idle_ms, k.pending_body, p.proof
        FROM placed a
        LEFT JOIN fates f
            ON a.g = f.g AND a.in_retry = f.copy AND a.copy_ms = f.ms AND a.copy_seq = f.seq
        LEFT JOIN (SELECT * FROM pelops_known WHERE is_pending) k
            ON a.g = k.g AND a.in_retry = k.copy AND a.copy_ms = k.ms AND a.copy_seq = k.seq
        LEFT JOIN ({proofs}) p
            ON NOT a.in_retry AND a.g = p.g AND a.copy_ms = p.ms AND a.copy_seq = p.seq
    ), classified AS (
        SELECT a.*, coalesce({later}, a.copy_ms IS NOT NULL) AS is_later,
            coalesce({ahead}, a.copy_ms IS NOT NULL) AS is_ahead,
            coalesce({lost}, FALSE) AS is_lost,
            s.stuck_after_ms
        FROM found a LEFT JOIN pelops_sides s ON a.g = s.g AND a.in_retry = s.copy
    )
    SELECT g, ms, seq, copy_ms, copy_seq, in_retry,
        CASE {ends}
            WHEN copy_ms IS NULL OR fate IN ({COPIED}) THEN '{EntryStatus.INDETERMINATE}'
            WHEN fate IS NOT NULL THEN fate
            WHEN NOT pending_body THEN '{EntryStatus.PAYLOAD_GONE}'
            WHEN idle_ms >= stuck_after_ms THEN '{EntryStatus.STUCK}'
            WHEN idle_ms IS NOT NULL THEN '{EntryStatus.IN_FLIGHT}'
            WHEN is_lost THEN '{EntryStatus.LOST}'
            WHEN is_later AND is_ahead THEN '{EntryStatus.UNDELIVERED}'
            WHEN proof = '{Proof.ACKNOWLEDGED}' THEN '{EntryStatus.ACKNOWLEDGED_PROVEN}'
            ELSE '{EntryStatus.ACKNOWLEDGED_INFERRED}' END AS outcome,
        coalesce(fate_is_open, is_later AND NOT is_lost)
            AND NOT coalesce(end_act IN ({words(_ENDS)}), FALSE) AS outcome_is_open
    FROM classified
    """)
    _keep(frame, scope).createOrReplaceTempView("pelops_outcomes")
    spark.sql(f"""
    SELECT j.*, o.outcome, coalesce(o.outcome_is_open, FALSE) AS outcome_is_open,
        o.copy_ms AS last_ms, o.copy_seq AS last_seq, o.in_retry AS last_in_retry
    FROM pelops_classified j LEFT JOIN pelops_outcomes o
        ON j.g = o.g AND NOT j.copy AND j.status IN ({COPIED}) AND j.ms = o.ms AND j.seq = o.seq
    """).createOrReplaceTempView("pelops_rows")
