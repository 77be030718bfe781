"""The history of a group as a ledger records it, for tests that make it up."""

from __future__ import annotations

from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import LedgerEvent
from pelops.pipeline.archive.ledger import ACTS, GroupHistory
from pelops.pipeline.archive.windows import LedgerEnd


def history_of(*events: LedgerEvent) -> GroupHistory:
    """Events of the group as a whole, and a checkpoint; no act on any entry."""
    end = LedgerEnd(exists=True, last=EntryId.MIN, of_workers=EntryId.MIN, has_events=True)
    return GroupHistory(end=end, acts=ACTS.empty_table(), events=events, checkpoints=1)
