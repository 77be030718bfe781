"""The steps of a run between which its archive is written, and what may befall it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import pytest

from pelops.pipeline import rounds, run
from pelops.pipeline.archive.tables import ENTRIES, EVENTS, STATUSES, Archive


class Step(StrEnum):
    """What is done; in the order in which it is done."""

    CLAIMED = "claimed"  # the run has its number
    ENTRIES = "entries"  # and the entries are archived, which no row says yet
    ARCHIVED = "archived"  # and the rows of `windows` say so
    EVENTS = "events"  # and the events of the ledgers are archived
    STATUSES = "statuses"  # and so are the statuses; the run has not ended
    AUDITED = "audited"  # and it has ended; no report is written


_STEPS: Final[dict[Step, tuple[Any, str]]] = {
    Step.CLAIMED: (Archive, "claim"),
    Step.ENTRIES: (rounds, "archive_entries"),
    Step.ARCHIVED: (rounds, "archive_round"),
    Step.EVENTS: (rounds._Round, "_archive_events"),
    Step.STATUSES: (Archive, "append_frame"),
    Step.AUDITED: (run, "audit_round"),
}
# The tables that such a run has written to, beside `windows`.
WRITTEN: Final = {
    Step.CLAIMED: set[str](),
    Step.ENTRIES: {ENTRIES},
    Step.ARCHIVED: {ENTRIES},
    Step.EVENTS: {ENTRIES, EVENTS},
    Step.STATUSES: {ENTRIES, EVENTS, STATUSES},
    Step.AUDITED: {ENTRIES, EVENTS, STATUSES},
}


@contextmanager
def then(step: Step, act: Callable[[], object]) -> Iterator[None]:
    """Within the block, something happens right after a step of a run."""
    owner, name = _STEPS[step]
    whole = getattr(owner, name)

    def happen(*given: Any, **named: Any) -> Any:
        answer = whole(*given, **named)
        if name != "append_frame" or STATUSES in given:
            act()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, happen)
        yield
