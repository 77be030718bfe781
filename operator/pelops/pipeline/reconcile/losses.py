"""What the operator saw lost: gaps between a position and the first entry that was left."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LedgerKind
from pelops.errors import InvalidSpec
from pelops.pipeline.engine.functions import Column, DataFrame
from pelops.pipeline.engine.functions import functions as F  # noqa: N812
from pelops.pipeline.engine.id_columns import at_or_before, within
from pelops.pipeline.reconcile.ledger import GroupHistory
from pelops.policy.audit.classification import Why


def loss_watched(history: GroupHistory, max_deleted: EntryId) -> Column:
    """Whether the operator watched, and told of no loss around an entry.

    It watches trimming. What users delete (XDEL, up to `max_deleted`) it counts as no loss.
    """
    is_watched = history.exists and history.checkpoints > 0
    watched = F.lit(is_watched) & ~at_or_before(max_deleted)
    for details in history.of(LedgerKind.DATA_LOSS):
        after, before = gap_of(details)
        watched = watched & ~within(after, before)
    return watched


def loss_seen(history: GroupHistory) -> Column:
    """Whether the operator counted an entry among the lost: the bounds of a gap hold no other."""
    seen = F.lit(False)
    for details in history.of(LedgerKind.DATA_LOSS):
        if details.get("at_least", "") == details.get("at_most"):
            seen = seen | within(*gap_of(details))
    return seen


def may_be_dropped(history: GroupHistory, since: EntryId = EntryId.MIN) -> Column:
    """Whether an entry may have gone with a consumer, by events after `since`."""
    ranges = [within(one.after, one.upto) for one in history.dropped(since)]
    return reduce(or_, ranges, F.lit(False))


def count_in_gaps(history: GroupHistory, kept: DataFrame) -> int:
    """Of entries that were archived, those that are gone where the operator saw a loss."""
    gaps = [within(*gap_of(details)) for details in history.of(LedgerKind.DATA_LOSS)]
    if not gaps:
        return 0
    gone = F.col("why").isin(str(Why.LOSS_SEEN), str(Why.TRIMMED_MEANWHILE))
    return kept.where(gone & reduce(or_, gaps)).count()


def gap_of(details: Mapping[str, str]) -> tuple[EntryId, EntryId]:
    """After and up to which entries were lost, as the ledger tells; else all there is."""
    try:
        after = parse_entry_id(details.get("after", ""))
        text = details.get("before", "")
        return after, parse_entry_id(text).before() if text else EntryId.MAX
    except InvalidSpec:
        return EntryId.MIN, EntryId.MAX
