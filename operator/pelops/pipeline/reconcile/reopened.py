"""Entries of earlier windows that had not come to an end: looked at again, and only these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId
from pelops.pipeline.engine.sql import IDS, Column, DataFrame, small, unite_by_name, within
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.reconcile.gone_entries import may_be_dropped
from pelops.pipeline.reconcile.window_entries import (
    KEPT,
    Case,
    Reconciled,
    count_statuses,
    is_open,
    judge,
    known_entries,
    open_rows,
    was_pending,
)
from pelops.pipeline.stages import remove_part, write_sorted

_PLAIN: Final = [name for name in KEPT if name not in {"was_reached", "was_pending"}]
_OLD: Final = ("ms", "seq", "window", "bytes", "root_ms", "root_seq", "retry_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """What became of what was open, and what is open now."""

    settled: Mapping[EntryStatus, int]  # entries of earlier windows that came to an end
    open: int  # entries of this and earlier windows that have not
    looked_at: int  # entries of earlier windows that the window before left open
    pending: int  # of them
    missed: int  # pending ones of earlier windows that no window left open
    stuck_earlier: int  # of earlier windows
    bodiless_earlier: int  # of earlier windows: pending, and their bodies are gone
    lowest: str | None  # of these that are open
    lowest_undelivered: str | None
    oldest_stuck_ms: int | None  # idle time of the stuck entry that has lain for longest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """Entries of earlier windows that were judged again."""

    settled: Mapping[EntryStatus, int]
    looked_at: int = 0
    pending: int = 0
    missed: int = 0


def reopen(case: Case, found: Reconciled) -> Reopened:
    """Judge again what the last window left open, and write what this one leaves open."""
    again = _judge_again(case)
    results = ["exceptions", *(["unarchived"] if found.gone else [])]
    new = [open_rows(case.work.load(f"{case.directory}/{name}")) for name in results]
    still = unite_by_name(new)
    reported = _Again(settled={})
    if again is not None:
        path = f"{case.directory}/again"
        write_sorted(case.work, again.select(*KEPT, "status_before"), path, *IDS)
        again = case.work.load(path)
        still = still.unionByName(open_rows(again).select(*KEPT))
        reported = _count_again(case, again)
        chosen = again.where(~is_open()).select(*_PLAIN, "status_before")
        write_sorted(case.work, chosen, f"{case.directory}/settled", *IDS)
    rows = write_sorted(case.work, still.select(*KEPT), f"{case.directory}/open", *IDS)
    remove_part(case.work, f"{case.directory}/again")
    return _report(case, reported, rows)


def _count_again(case: Case, again: DataFrame) -> _Again:
    is_known = F.col("status_before").isNotNull()
    # A stream that was made anew may use IDs again.
    is_audited = within(case.audited_after, case.share.after)
    reported = again.coalesce(1).agg(
        F.count_if(is_known).alias("looked_at"),
        F.count_if(is_known & is_audited & F.col("consumer").isNotNull()).alias("pending"),
        F.count_if(~is_known).alias("missed"),
    )
    row = reported.first()
    assert row is not None
    return _Again(settled=count_statuses(again.where(~is_open())), **row.asDict())


def _judge_again(case: Case) -> DataFrame | None:
    """What the window before left open, and what is pending though no window left it open."""
    old, plan = case.previous.table(case.target.group, "open"), case.work.plan
    asked = None
    if old is not None:
        # An entry that was pending at the last look was dropped after it, or not at all.
        since = EntryId(case.previous.marker("snapshot").get("at_ms", 0), 0)
        asked = old.select(
            *_OLD,
            F.col("status").alias("status_before"),
            (was_pending() & F.lit(not plan.breaks)).alias("was_pending"),
            may_be_dropped(case.history, since).alias("may_be_dropped"),
            F.lit(False).alias("was_reached"),
        )
    missed = _missed(case, old)
    if missed is not None:
        asked = missed if asked is None else asked.unionByName(missed)
    if asked is None:
        return None
    size = case.snapshot.pending + case.history.rows
    present = case.work.read("snapshot/present").withColumn("is_present", F.lit(True))
    found = asked.join(small(known_entries(case), size), list(IDS), "left").join(
        present, list(IDS), "left"
    )
    return judge(case, found)


def _missed(case: Case, old: DataFrame | None) -> DataFrame | None:
    """Pending entries of earlier windows that the window before did not leave open."""
    begin = case.share.after
    if not case.snapshot.pending or case.audited_after >= begin:
        return None
    pending = case.work.read(f"snapshot/{case.group_part}/pending")
    earlier = pending.where(within(case.audited_after, begin)).select(*IDS)
    if old is not None:
        earlier = earlier.join(old.select(*IDS), list(IDS), "left_anti")
    nothing = {name: "bigint" for name in ("bytes", "root_ms", "root_seq")}
    nothing |= {"window": "int", "retry_count": "int", "status_before": "string"}
    asked = earlier.withColumns({name: F.lit(None).cast(kind) for name, kind in nothing.items()})
    flags = ("was_pending", "may_be_dropped", "was_reached")
    return asked.withColumns({name: F.lit(False) for name in flags})


def _report(case: Case, again: _Again, rows: int) -> Reopened:
    if not rows:
        return Reopened(
            settled=again.settled, open=0, looked_at=again.looked_at, pending=again.pending,
            missed=again.missed, stuck_earlier=0, bodiless_earlier=0,
            lowest=None, lowest_undelivered=None, oldest_stuck_ms=None,
        )  # fmt: skip
    still = case.work.load(f"{case.directory}/open").coalesce(1)
    undelivered = F.col("status") == str(EntryStatus.UNDELIVERED)
    stuck = F.col("status") == str(EntryStatus.STUCK)
    bodiless = F.col("status") == str(EntryStatus.PAYLOAD_GONE)
    # The window of an entry that was missed is not known.
    is_earlier = ~F.col("window").eqNullSafe(case.work.plan.window.number)
    reported = still.agg(
        F.count_if(stuck & is_earlier).alias("stuck_earlier"),
        F.count_if(bodiless & is_earlier).alias("bodiless_earlier"),
        F.min(F.struct("ms", "seq")).alias("lowest"),
        F.min(F.when(undelivered, F.struct("ms", "seq"))).alias("lowest_undelivered"),
        F.max(F.when(stuck, _idle(case))).alias("oldest"),
    ).first()
    assert reported is not None
    return Reopened(
        settled=again.settled,
        open=rows,
        looked_at=again.looked_at,
        pending=again.pending,
        missed=again.missed,
        stuck_earlier=reported["stuck_earlier"],
        bodiless_earlier=reported["bodiless_earlier"],
        lowest=_id_of(reported["lowest"]),
        lowest_undelivered=_id_of(reported["lowest_undelivered"]),
        oldest_stuck_ms=reported["oldest"],
    )


def _idle(case: Case) -> Column:
    """How long it has been idle: a server can be told a time of delivery before it was added."""
    age = F.lit(case.snapshot.at_ms).cast("bigint") - F.col("ms")
    return F.when(age > 0, F.least(F.col("idle_ms"), age)).otherwise(F.col("idle_ms"))


def _id_of(row: Any) -> str | None:
    return None if row is None else f"{row['ms']}-{row['seq']}"
