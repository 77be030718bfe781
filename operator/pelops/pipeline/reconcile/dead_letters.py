"""Dead letters of entries that were audited: a later window finds the entry that a letter was.

The ledger reports that a letter was redriven, discarded or restored by the ID of the letter. Each
window keeps the entries whose letters can still be moved. So an entry of an earlier window gets a
new status in the window in which its letter was moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pelops.domain.audit import EntryStatus
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.windows import milliseconds
from pelops.pipeline.engine.sql import IDS, Column, DataFrame, bounded, unite_by_name
from pelops.pipeline.engine.sql import functions as F  # noqa: N812
from pelops.pipeline.reconcile.letter_moves import follow_letters
from pelops.pipeline.reconcile.reopened import Reopened
from pelops.pipeline.reconcile.retry_copies import PART as RETRIED
from pelops.pipeline.reconcile.retry_copies import Retried
from pelops.pipeline.reconcile.window_entries import (
    Case,
    Reconciled,
    count_statuses,
    letter_moves,
)
from pelops.pipeline.stages import write_sorted
from pelops.policy.audit.classification import LETTER_ACTS, Why

MOVED: Final = "moved"  # entries of earlier windows whose letters were moved
_PART: Final = "dead_letters"  # entries whose letters can still be moved
_ENTRY: Final = ("in_retry_stream", *IDS)
_KEPT: Final = (
    *_ENTRY, "window", "root_ms", "root_seq", "retry_count", "act", "act_at_ms", "new_ms",
    "new_seq", "reason",
)  # fmt: skip
_MOVED: Final = (*_KEPT, "in_retry", "status", "why")
_ACTS: Final = {
    EntryStatus.DEAD_LETTERED: LedgerKind.DEAD_LETTERED,
    EntryStatus.DISCARDED: LedgerKind.DISCARDED,
}
_STATUSES: Final = {LedgerKind.DEAD_LETTERED: EntryStatus.DEAD_LETTERED, **LETTER_ACTS}


def follow_dead_letters(
    case: Case, found: Reconciled, again: Reopened, retried: Retried
) -> Mapping[EntryStatus, int]:
    """Write the entries of earlier windows whose letters were moved, and those to follow later.

    Answers the statuses of the former.
    """
    kept = list(_new(case, found, again, retried))
    before = _kept_before(case, again, retried)
    counts: dict[EntryStatus, int] = {}
    if before is not None and case.letter_moves:
        followed = follow_letters(before, letter_moves(case))
        moved = followed.where(F.col("move").isNotNull()).withColumns(
            {"status": _status(), "why": F.lit(str(Why.LEDGER))}
        )
        path = f"{case.directory}/{MOVED}"
        if write_sorted(case.work, moved.select(*_MOVED), path, *_ENTRY):
            counts = count_statuses(case.work.load(path))
        before = followed.where(F.col("act") != str(LedgerKind.REDRIVEN))
    if before is not None:
        kept.append(before.select(*_KEPT).where(~_is_expired(case) & ~_is_too_old(case)))
    if kept:
        write_sorted(case.work, unite_by_name(kept), f"{case.directory}/{_PART}", *_ENTRY)
    return counts


def _new(case: Case, found: Reconciled, again: Reopened, retried: Retried) -> Iterator[DataFrame]:
    """Entries and copies that this window found dead-lettered or discarded."""
    parts = (
        ("exceptions", found.counts, False),
        ("unarchived", found.unarchived, False),
        ("settled", again.settled, False),
        (RETRIED, retried.counts, True),
    )
    for name, counts, in_retry in parts:
        if any(counts.get(status) for status in _ACTS):
            rows = case.work.load(f"{case.directory}/{name}").where(F.col("new_ms").isNotNull())
            ours = rows.where(F.col("status").isin([str(status) for status in _ACTS]))
            columns = {"in_retry_stream": F.lit(in_retry), "act": _act()}
            yield ours.withColumns(columns).select(*_KEPT)


def _kept_before(case: Case, again: Reopened, retried: Retried) -> DataFrame | None:
    """What the window before kept, without the entries that this one has audited again."""
    before = case.previous.table(case.target.group, _PART)
    # A stream that was made anew may use IDs again.
    if before is None or case.work.plan.breaks:
        return None
    judged = []
    if again.looked_at or again.missed:
        judged += [(name, False) for name in ("open", "settled")]
    if retried.counts:
        judged.append((RETRIED, True))
    rest = before.select(*_KEPT)
    for name, in_retry in judged:
        rows = case.work.load(f"{case.directory}/{name}").select(*IDS)
        again_here = rows.withColumn("in_retry_stream", F.lit(in_retry)).distinct()
        rest = rest.join(again_here, list(_ENTRY), "left_anti")
    return rest


def _is_expired(case: Case) -> Column:
    """Whether the operator has expired the dead letter: no letter up to an ID is left."""
    last = max(_expired(case.history.of(LedgerKind.DEAD_LETTERS_EXPIRED)), default=EntryId.MIN)
    ms, seq = bounded(last)
    at_ms, at_seq = F.col("new_ms"), F.col("new_seq")
    is_there = F.col("act") == str(LedgerKind.DEAD_LETTERED)
    return is_there & ((at_ms < ms) | ((at_ms == ms) & (at_seq <= seq)))


def _is_too_old(case: Case) -> Column:
    """Whether a letter was last moved before all that the archive keeps.

    The operator reports no discarded letters that it has expired.
    """
    retention = case.work.run.settings.retention
    if retention is None:
        return F.lit(False)
    return F.col("act_at_ms") < F.lit(milliseconds(case.work.plan.window.at - retention))


def _expired(events: Sequence[Mapping[str, str]]) -> Iterator[EntryId]:
    for details in events:
        try:
            yield parse_entry_id(details.get("last_id", ""))
        except InvalidSpec:
            continue


def _act() -> Column:
    chosen = F.when(F.lit(False), F.lit(""))
    for status, act in _ACTS.items():
        chosen = chosen.when(F.col("status") == str(status), F.lit(str(act)))
    return chosen


def _status() -> Column:
    chosen = F.when(F.lit(False), F.lit(""))
    for act, status in _STATUSES.items():
        chosen = chosen.when(F.col("act") == str(act), F.lit(str(status)))
    return chosen
