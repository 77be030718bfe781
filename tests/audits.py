"""Summaries of audits for tests: `a_summary(lost=2)`, each case stating only what matters to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pelops.domain.entry_id import EntryId
from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import (
    AuditEvidence,
    AuditSummary,
    AuditVerdict,
    Window,
    build_summary,
)

CLOSED = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def a_window(number: int = 0, *, at: datetime = CLOSED, entries: int = 10) -> Window:
    """A window of ten entries; the next one begins where it ends."""
    first = number * entries
    return Window(
        number=number,
        from_id=EntryId(first),
        to_id=EntryId(first + entries),
        from_added=first,
        to_added=first + entries,
        at=at + timedelta(minutes=15 * number),
    )


def a_summary(window: Window | None = None, **changes: Any) -> AuditSummary:
    """All acknowledged, but for the statuses that are named: `lost=2`, `stuck=1`."""
    counts = {
        status: changes.pop(status.value) for status in EntryStatus if status.value in changes
    }
    window = window or a_window()
    produced = window.to_added - window.from_added
    rest = produced - sum(counts.values())
    verdict = AuditVerdict.FINDINGS if counts else AuditVerdict.BALANCED
    usual = AuditSummary(
        stream="orders:events",
        group="order-processing",
        window=window,
        produced=produced,
        archived=produced,
        counts={EntryStatus.ACKNOWLEDGED_INFERRED: rest, **counts},
        verdict=verdict,
        sentence=f"{rest} of {produced} entries were acknowledged.",
        evidence=AuditEvidence.LEDGER,
    )
    return build_summary(replace(usual, **changes))
