"""The limits of a redrive: its trial, and when it stops by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

FEWEST_KNOWN: Final = 10  # outcomes before their share is significant, unless all are known


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What became of the entries that a redrive moved."""

    moved: int
    failed_again: int  # are dead letters again
    unprocessed: int  # undelivered or pending; an upper bound unless `is_exact`
    lost: int = 0  # removed from the stream before a worker received them
    unknown: int = 0  # removed, and it is not known whether a worker has processed them
    is_exact: bool = True  # whether `unprocessed` is exact

    @property
    def acknowledged(self) -> int:
        """Entries that workers acknowledged; a lower bound unless the outcomes are settled."""
        others = self.failed_again + self.unprocessed + self.lost + self.unknown
        return max(0, self.moved - others)

    @property
    def is_settled(self) -> bool:
        """Whether the outcomes will not change any more."""
        return self.is_exact and self.unprocessed == 0

    @property
    def known(self) -> int:
        """Entries whose outcome is known."""
        return self.failed_again + self.acknowledged

    @property
    def failed_percent(self) -> int:
        """The share of entries that failed again among those whose outcome is known."""
        return 100 * self.failed_again // self.known if self.known else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The number of entries that are moved first, and how long to wait for their outcomes."""

    entries: int
    wait: timedelta


def fails_again(outcomes: Outcomes, *, limit_percent: int) -> bool:
    """Whether so many entries fail again that the redrive must stop.

    The share that failed among known outcomes exceeds the limit, with at least `FEWEST_KNOWN`
    outcomes, or all of them, known.
    """
    enough = outcomes.known >= min(FEWEST_KNOWN, outcomes.moved - outcomes.unknown)
    exceeds = 100 * outcomes.failed_again > limit_percent * outcomes.known
    return outcomes.failed_again > 0 and enough and exceeds


def find_limit(
    *,
    max_entries: int | None,
    trial: Trial | None,
    moved: int,
    last_moved: datetime | None,
    now: datetime,
) -> int | None:
    """Return how many dead letters may have been moved in total by now; None: any number.

    A trial ends `wait` after its last entry was moved. `now` and `last_moved` are Redis' time.
    """
    if trial is None or trial.entries == 0 or moved > trial.entries:
        return max_entries
    is_over = moved == trial.entries and last_moved is not None and now >= last_moved + trial.wait
    if is_over:
        return max_entries
    return trial.entries if max_entries is None else min(trial.entries, max_entries)
