"""What became of what users added: chains of copies followed from the first entry to the last.

A requeued entry is acknowledged and goes on as a copy that names its root. The balance of roots
leaves the copies out, and gives each root the outcome of its last copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.pipeline.engine import Column, DataFrame
from pelops.pipeline.engine import functions as F  # noqa: N812
from pelops.pipeline.reconcile import Case, count_statuses
from pelops.pipeline.snapshot import bounded
from pelops.pipeline.work import write_sorted
from pelops.policy.classification import ENDING_ACTS, OPEN_STATUSES

_ROOTS: Final = "ms BIGINT, seq BIGINT, window INT, copy_ms BIGINT, copy_seq BIGINT, status STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The balance of roots of one window."""

    counts: Mapping[EntryStatus, int]
    open: int  # requeued roots of this and earlier windows whose last copy is not done with


def follow_roots(case: Case, counts: Mapping[EntryStatus, int], copies: int) -> Roots:
    """Follow requeued roots, and write them with their outcomes; `counts` are of all entries."""
    path = f"{case.directory}/roots"
    before = _before(case)
    asked = counts.get(EntryStatus.REQUEUED, 0) or before is not None
    judged = (
        _judge(case, _asked(case, before))
        if asked
        else case.work.session.createDataFrame([], _ROOTS)
    )
    outcomes, still = {}, 0
    if write_sorted(case.work, judged, path, "ms", "seq"):
        rows = case.work.load(path).coalesce(1)
        outcomes = count_statuses(rows.where(F.col("window") == case.work.plan.window.number))
        still = rows.where(F.col("status").isin([str(one) for one in OPEN_STATUSES])).count()
    own = _without_copies(case, counts, copies) if copies else dict(counts)
    own[EntryStatus.REQUEUED] = own.get(EntryStatus.REQUEUED, 0) - sum(outcomes.values())
    total = {status: own.get(status, 0) + outcomes.get(status, 0) for status in EntryStatus}
    return Roots(counts={status: n for status, n in total.items() if n}, open=still)


def _without_copies(
    case: Case, counts: Mapping[EntryStatus, int], copies: int
) -> dict[EntryStatus, int]:
    kept = case.work.load(f"{case.directory}/exceptions")
    of_copies = count_statuses(kept.where(F.col("root_ms").isNotNull()))
    inferred = EntryStatus.ACKNOWLEDGED_INFERRED
    of_copies[inferred] = of_copies.get(inferred, 0) + copies - sum(of_copies.values())
    return {status: n - of_copies.get(status, 0) for status, n in counts.items()}


def _before(case: Case) -> DataFrame | None:
    """The roots of the last window; None when it had none."""
    plan = case.work.plan
    path = case.work.place.before.part(f"{case.group_part}/roots")
    if plan.window.number == 0 or not case.work.run.storage.exists(path):
        return None
    return case.work.load(path) if case.work.count(path) else None


def _asked(case: Case, old: DataFrame | None) -> DataFrame:
    """Requeued roots of this window, and those that earlier ones left open."""
    kept = case.work.load(f"{case.directory}/exceptions")
    requeued = (F.col("status") == str(EntryStatus.REQUEUED)) & F.col("root_ms").isNull()
    new = kept.where(requeued).select(
        "ms", "seq", "window", F.col("new_ms").alias("copy_ms"), F.col("new_seq").alias("copy_seq")
    )
    if old is None:
        return new
    still = old.where(F.col("status").isin([str(one) for one in OPEN_STATUSES]))
    return new.unionByName(still.select("ms", "seq", "window", "copy_ms", "copy_seq"))


def _judge(case: Case, asked: DataFrame) -> DataFrame:
    ends = _last_acts_by_root(case)
    known = asked.join(ends, ["ms", "seq"], "left")
    moved = F.col("end.kind") == str(LedgerKind.REQUEUED)
    placed = known.withColumns(
        {
            "copy_ms": F.when(moved, F.col("end.new_ms")).otherwise(F.col("copy_ms")),
            "copy_seq": F.when(moved, F.col("end.new_seq")).otherwise(F.col("copy_seq")),
        }
    )
    pending = _pending(case).select(
        F.col("ms").alias("copy_ms"), F.col("seq").alias("copy_seq"), "idle_ms", "has_body"
    )
    retried = _retried(case)
    found = placed.join(pending, ["copy_ms", "copy_seq"], "left").join(
        retried, ["copy_ms", "copy_seq"], "left"
    )
    status = _status(case).alias("status")
    return found.select("ms", "seq", "window", "copy_ms", "copy_seq", status)


def _status(case: Case) -> Column:
    chosen = F.when(F.lit(False), F.lit(""))
    for act, status in ENDING_ACTS.items():
        if act is not LedgerKind.REQUEUED:
            chosen = chosen.when(F.col("end.kind") == str(act), F.lit(status.value))
    is_stuck = F.col("idle_ms") >= case.target.stuck_after_ms
    return (
        chosen.when(~F.col("has_body"), F.lit(EntryStatus.PAYLOAD_GONE.value))
        .when(is_stuck, F.lit(EntryStatus.STUCK.value))
        .when(F.col("idle_ms").isNotNull(), F.lit(EntryStatus.IN_FLIGHT.value))
        .when(_is_reached(case), F.lit(EntryStatus.ACKNOWLEDGED_INFERRED.value))
        .otherwise(F.lit(EntryStatus.UNDELIVERED.value))
    )


def _is_reached(case: Case) -> Column:
    """Whether the group has passed the copy, in the stream that the copy is in."""
    main = case.snapshot.before.position if case.snapshot.before else EntryId.MIN
    retry = _retry_position(case)
    return F.when(F.col("is_retry"), _not_after(retry)).otherwise(_not_after(main))


def _not_after(position: EntryId) -> Column:
    ms, seq = bounded(position)
    at_ms, at_seq = F.col("copy_ms"), F.col("copy_seq")
    return (at_ms < ms) | ((at_ms == ms) & (at_seq <= seq))


def _retry_look(case: Case) -> Mapping[str, Any] | None:
    content = case.work.run.storage.read_json(case.work.place.part("snapshot.json")) or {}
    found: Mapping[str, Any] | None = content.get("retries", {}).get(case.target.group)
    return found if found and found.get("before") else None


def _retry_position(case: Case) -> EntryId:
    look = _retry_look(case)
    return EntryId.MIN if look is None else parse_entry_id(look["before"]["position"])


def _last_acts_by_root(case: Case) -> DataFrame:
    acts = case.work.read(f"acts/{case.group_part}")
    kinds = [str(kind) for kind in ENDING_ACTS]
    last = F.max_by(F.struct("kind", "new_ms", "new_seq"), F.struct("event_ms", "event_seq"))
    ends = acts.where(F.col("kind").isin(kinds)).groupBy("root_ms", "root_seq")
    return ends.agg(last.alias("end")).withColumnsRenamed({"root_ms": "ms", "root_seq": "seq"})


def _pending(case: Case) -> DataFrame:
    """Pending entries of the stream and of the group's retry stream."""
    columns = ["ms", "seq", "idle_ms", "has_body"]
    parts = []
    if case.snapshot.before is not None:
        parts.append("pending")
    if _retry_look(case) is not None:
        parts.append("retry_pending")
    empty = case.work.session.createDataFrame(
        [], "ms BIGINT, seq BIGINT, idle_ms BIGINT, has_body BOOLEAN"
    )
    for part in parts:
        frame = case.work.read(f"snapshot/{case.group_part}/{part}")
        empty = empty.unionByName(frame.select(*columns))
    return empty


def _retried(case: Case) -> DataFrame:
    """IDs of copies in the group's retry stream."""
    if case.target.group not in case.work.plan.retries:
        empty = "copy_ms BIGINT, copy_seq BIGINT, is_retry BOOLEAN"
        return case.work.session.createDataFrame([], empty)
    frame = case.work.read(f"retries/{case.group_part}")
    return frame.select(
        F.col("ms").alias("copy_ms"), F.col("seq").alias("copy_seq"), F.lit(True).alias("is_retry")
    )
