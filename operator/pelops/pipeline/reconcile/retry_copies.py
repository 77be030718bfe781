"""Copies in the group's own retry stream: a status for each, as for entries of the stream.

What was produced does not count them, since nobody but the operator added them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.pipeline.engine.sql import IDS, DataFrame, at_or_before, within
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.reconcile.copies import COPYING_ACTS
from pelops.pipeline.reconcile.window_entries import (
    Case,
    count_statuses,
    is_open,
    last_acts,
    open_rows,
    outcome_column,
    was_pending,
)
from pelops.pipeline.stages import write_sorted

PART: Final = "retried"
_ROOT: Final = ("root_ms", "root_seq", "retry_count")
_REPORTED: Final = (
    *IDS,
    "window",
    *_ROOT,
    "status",
    "why",
    "idle_ms",
    "delivery_count",
    "act_at_ms",
    "reason",
    "new_ms",
    "new_seq",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """What became of the copies; nothing without a retry stream."""

    counts: Mapping[EntryStatus, int]
    open: int  # of this and earlier windows


_NOTHING: Final = Retried(counts={}, open=0)


def judge_retried(case: Case) -> Retried:
    """Give every copy its status, also those that earlier windows left open; writes all of them."""
    look = _look(case)
    if look is None:
        return _NOTHING
    path = f"{case.directory}/{PART}"
    judged = _facts(case, look).withColumn("outcome", outcome_column())
    chosen = judged.select("*", "outcome.*").select(*_REPORTED)
    if not write_sorted(case.work, chosen, path, *IDS):
        return _NOTHING
    rows = case.work.load(path)
    return Retried(counts=count_statuses(rows), open=rows.where(is_open()).count())


def _facts(case: Case, look: Mapping[str, Any]) -> DataFrame:
    reached, reached_after = _position(look, "before"), _position(look, "after")
    stream = derive_keys(case.work.plan.stream, case.target.group).retry
    part = f"snapshot/{case.group_part}"
    pending = case.work.read(f"{part}/retry_pending").withColumnRenamed("has_body", "pending_body")
    present = case.work.read(f"{part}/retry_present").withColumn("is_present", F.lit(True))
    found = (
        _copies(case)
        .join(pending.withColumn("is_pending", F.lit(True)), list(IDS), "left")
        .join(present, list(IDS), "left")
        .join(last_acts(case, stream), list(IDS), "left")
    )
    watched = case.history.exists and case.history.checkpoints > 0
    return found.withColumns(
        {
            "is_pending": F.coalesce("is_pending", F.lit(False)),
            "has_body": F.coalesce("pending_body", "is_present", F.lit(False)),
            "idle_ms": F.coalesce("idle_ms", F.lit(0).cast("bigint")),
            "stuck_after_ms": F.lit(case.target.stuck_after_ms).cast("bigint"),
            "is_reached": at_or_before(reached),
            "is_reached_after": at_or_before(reached_after),
            "was_reached": F.lit(False),
            "may_be_dropped": F.lit(False),
            "position_holds": F.lit(reached <= reached_after),
            "loss_seen": F.lit(False),
            "loss_watched": F.lit(watched),
            "proof": F.lit(None).cast("string"),
        }
    )


def _copies(case: Case) -> DataFrame:
    """Copies of this window, and those of earlier ones that had not come to an end."""
    plan = case.work.plan
    archived = case.work.read(f"retries/{case.group_part}").select(*IDS, *_ROOT)
    gone = _named(case).join(archived.select(*IDS), list(IDS), "left_anti")
    copies = archived.unionByName(gone).withColumns(
        {"window": F.lit(plan.window.number), "was_pending": F.lit(False)}
    )
    before = case.previous.table(case.target.group, PART)
    if before is None:
        return copies
    still = open_rows(before).withColumn("was_pending", was_pending())
    return copies.unionByName(still.select(*IDS, *_ROOT, "window", "was_pending"))


def _named(case: Case) -> DataFrame:
    """Copies that the ledger names: those that are done with are deleted before an archive."""
    stream = F.lit(derive_keys(case.work.plan.stream, case.target.group).retry)
    acts = case.work.read(f"acts/{case.group_part}").coalesce(1)
    is_made = F.col("kind").isin(COPYING_ACTS) & (F.col("target") == stream)
    made = acts.where(is_made).select(
        F.col("new_ms").alias("ms"), F.col("new_seq").alias("seq"), *_ROOT
    )
    reported = made.unionByName(acts.where(F.col("in_stream") == stream).select(*IDS, *_ROOT))
    reported = reported.where(within(*case.work.plan.retries[case.target.group]))
    return reported.groupBy(*IDS).agg(*(F.min(name).alias(name) for name in _ROOT))


def _look(case: Case) -> Mapping[str, Any] | None:
    content = case.work.run.storage.read_json(case.work.place.part("snapshot.json")) or {}
    found: Mapping[str, Any] | None = content.get("retries", {}).get(case.target.group)
    return found if found and found.get("before") else None


def _position(look: Mapping[str, Any], when: str) -> EntryId:
    reported = look.get(when)
    return parse_entry_id(reported["position"]) if reported else EntryId.MIN
