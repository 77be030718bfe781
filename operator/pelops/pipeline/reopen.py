"""Entries of earlier windows that had not come to an end: looked at again, and only these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pelops.domain.audit import EntryStatus
from pelops.domain.ledger import LedgerKind
from pelops.pipeline.engine import Column, DataFrame
from pelops.pipeline.engine import functions as F  # noqa: N812
from pelops.pipeline.id_columns import IDS
from pelops.pipeline.reconcile import (
    KEPT,
    Case,
    count_statuses,
    judge,
    known_entries,
    open_rows,
    small,
)
from pelops.pipeline.work import write_sorted
from pelops.policy.classification import OPEN_STATUSES

_PLAIN = [name for name in KEPT if name not in {"was_reached", "was_pending"}]
_OLD = ("ms", "seq", "window", "bytes", "root_ms", "root_seq", "retry_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """What became of what was open, and what is open now."""

    settled: Mapping[EntryStatus, int]  # entries of earlier windows that came to an end
    open: int  # entries of this and earlier windows that have not
    stuck_earlier: int  # of earlier windows
    lowest: str | None  # of these that are open
    lowest_undelivered: str | None
    oldest_stuck_ms: int | None  # idle time of the stuck entry that has lain for longest


def reopen(case: Case) -> Reopened:
    """Judge again what the last window left open, and write what this one leaves open."""
    again = _judge_again(case)
    new = open_rows(case.work.load(f"{case.directory}/exceptions"))
    settled: dict[EntryStatus, int] = {}
    still = new
    if again is not None:
        path = f"{case.directory}/again"
        write_sorted(case.work, again.select(*KEPT, "status_before"), path, *IDS)
        again = case.work.load(path)
        still = new.unionByName(open_rows(again).select(*KEPT))
        settled = count_statuses(again.where(~_is_open()))
        settled_path = f"{case.directory}/settled"
        chosen = again.where(~_is_open()).select(*_PLAIN, "status_before")
        write_sorted(case.work, chosen, settled_path, *IDS)
    rows = write_sorted(case.work, still.select(*KEPT), f"{case.directory}/open", *IDS)
    case.work.run.storage.remove(f"{case.directory}/again")
    return _tell(case, settled, rows)


def _judge_again(case: Case) -> DataFrame | None:
    plan = case.work.plan
    if plan.window.number == 0:
        return None
    before = case.work.place.before
    path = before.part(f"{case.group_part}/open")
    if not case.work.run.storage.exists(path) or not case.work.count(path):
        return None
    old = case.work.load(path)
    removed = bool(case.history.of(LedgerKind.CONSUMER_REMOVED)) or bool(plan.breaks)
    was_pending = F.col("status").isin(str(EntryStatus.IN_FLIGHT), str(EntryStatus.STUCK))
    asked = old.select(
        *_OLD,
        F.col("status").alias("status_before"),
        (was_pending & F.lit(not removed)).alias("was_pending"),
        F.lit(False).alias("was_reached"),
    )
    size = case.snapshot.pending + case.history.rows
    present = case.work.read("snapshot/present").withColumn("is_present", F.lit(True))
    found = asked.join(small(known_entries(case), size), list(IDS), "left").join(
        present, list(IDS), "left"
    )
    return judge(case, found)


def _is_open() -> Column:
    return F.col("status").isin([str(one) for one in OPEN_STATUSES])


def _tell(case: Case, settled: Mapping[EntryStatus, int], rows: int) -> Reopened:
    if not rows:
        return Reopened(
            settled=settled, open=0, stuck_earlier=0,
            lowest=None, lowest_undelivered=None, oldest_stuck_ms=None,
        )  # fmt: skip
    still = case.work.load(f"{case.directory}/open").coalesce(1)
    undelivered = F.col("status") == str(EntryStatus.UNDELIVERED)
    stuck = F.col("status") == str(EntryStatus.STUCK)
    is_earlier = F.col("window") < case.work.plan.window.number
    told = still.agg(
        F.count_if(stuck & is_earlier).alias("stuck_earlier"),
        F.min(F.struct("ms", "seq")).alias("lowest"),
        F.min(F.when(undelivered, F.struct("ms", "seq"))).alias("lowest_undelivered"),
        F.max(F.when(stuck, F.col("idle_ms"))).alias("oldest"),
    ).first()
    assert told is not None
    return Reopened(
        settled=settled,
        open=rows,
        stuck_earlier=told["stuck_earlier"],
        lowest=_id_of(told["lowest"]),
        lowest_undelivered=_id_of(told["lowest_undelivered"]),
        oldest_stuck_ms=told["oldest"],
    )


def _id_of(row: Any) -> str | None:
    return None if row is None else f"{row['ms']}-{row['seq']}"
