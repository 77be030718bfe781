"""Redrives, and what is known of them, for tests that need a few of their fields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pelops.api.redrive.stream_redrive import StreamRedrive
from pelops.domain.entry_id import EntryId
from pelops.domain.records.dead_letter import SkipReason
from pelops.policy.redrive.progress import Outcomes
from pelops.policy.redrive.redrive_facts import RedriveCounts

NOW: Final = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
STARTED: Final = NOW - timedelta(seconds=10)
UNTIL: Final = EntryId(1_760_000_910_000)


def a_redrive(name: str = "after-payment-fix", **spec: Any) -> StreamRedrive:
    """A redrive of the group `order-processing` with these fields of the spec."""
    return StreamRedrive.parse(
        {
            "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1},
            "spec": {"groupRef": {"name": "order-processing"}, **spec},
        }
    )


def some_counts(
    *,
    selected: int | None = 30,
    moved: int = 30,
    skipped: dict[SkipReason, int] | None = None,
    failed_again: int = 0,
    unprocessed: int = 0,
    lost: int = 0,
    unknown: int = 0,
    has_outcomes: bool = True,
    is_exact: bool = True,
) -> RedriveCounts:
    """A redrive of 30 dead letters; by default all are moved and acknowledged."""
    outcomes = Outcomes(
        moved=moved,
        failed_again=failed_again,
        unprocessed=unprocessed,
        lost=lost,
        unknown=unknown,
        is_exact=is_exact,
    )
    return RedriveCounts(
        started=STARTED,
        now=NOW,
        until=UNTIL,
        cursor=UNTIL,
        selected=selected,
        moved=moved,
        skipped=skipped or {},
        outcomes=outcomes if has_outcomes else None,
        samples=(EntryId(1_760_000_000_000),),
    )
