"""Copies in the group's own retry stream: a status for each, as for entries of the stream.

What was produced does not count them, since nobody but the operator added them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.pipeline.classify import outcome_column
from pelops.pipeline.engine import DataFrame
from pelops.pipeline.engine import functions as F  # noqa: N812
from pelops.pipeline.id_columns import IDS, at_or_before, within
from pelops.pipeline.reconcile import (
    Case,
    count_statuses,
    last_acts,
    open_rows,
)
from pelops.pipeline.work import write_sorted

PART: Final = "retried"
_ROOT: Final = ("root_ms", "root_seq", "retry_count")
_TOLD: Final = (
    *IDS,
    "window",
    *_ROOT,
    "status",
    "why",
    "idle_ms",
    "delivery_count",
    "act_at_ms",
    "reason",
)


def judge_retried(case: Case) -> Mapping[EntryStatus, int]:
    """Give every copy its status, also those that earlier windows left open; writes all of them.

    Answers how many have each; nothing without a retry stream.
    """
    look = _look(case)
    if look is None:
        return {}
    path = f"{case.directory}/{PART}"
    judged = _facts(case, look).withColumn("outcome", outcome_column())
    chosen = judged.select("*", "outcome.*").select(*_TOLD)
    if not write_sorted(case.work, chosen, path, *IDS):
        return {}
    return count_statuses(case.work.load(path))


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
    watched = case.history.exists and case.history.bookmarks > 0
    return found.withColumns(
        {
            "is_pending": F.coalesce("is_pending", F.lit(False)),
            "has_body": F.coalesce("pending_body", "is_present", F.lit(False)),
            "idle_ms": F.coalesce("idle_ms", F.lit(0).cast("bigint")),
            "stuck_after_ms": F.lit(case.target.stuck_after_ms).cast("bigint"),
            "is_reached": at_or_before(reached),
            "is_reached_after": at_or_before(reached_after),
            "was_reached": F.lit(False),
            "was_pending": F.lit(False),
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
    gone = _acted_on(case).join(archived.select(*IDS), list(IDS), "left_anti")
    copies = archived.unionByName(gone).withColumn("window", F.lit(plan.window.number))
    before = case.work.place.before.part(f"{case.group_part}/{PART}")
    if plan.window.number == 0 or not case.work.run.storage.exists(before):
        return copies
    return copies.unionByName(open_rows(case.work.load(before)).select(*IDS, *_ROOT, "window"))


def _acted_on(case: Case) -> DataFrame:
    """Copies that the ledger names: some are deleted before an archive sees them."""
    stream = derive_keys(case.work.plan.stream, case.target.group).retry
    ends = case.work.plan.retries[case.target.group]
    acts = case.work.read(f"acts/{case.group_part}")
    ours = acts.where((F.col("in_stream") == stream) & within(*ends)).coalesce(1)
    return ours.groupBy(*IDS).agg(*(F.max(name).alias(name) for name in _ROOT))


def _look(case: Case) -> Mapping[str, Any] | None:
    content = case.work.run.storage.read_json(case.work.place.part("snapshot.json")) or {}
    found: Mapping[str, Any] | None = content.get("retries", {}).get(case.target.group)
    return found if found and found.get("before") else None


def _position(look: Mapping[str, Any], when: str) -> EntryId:
    told = look.get(when)
    return parse_entry_id(told["position"]) if told else EntryId.MIN
