"""How soon a group is scanned again: after its interval, or earlier if a change is expected.

While suspects wait for each other, the group is scanned quickly at first, since most finish soon,
and less often while nothing changes.

Open offers to workers that claim require scans as well. An offer that no worker takes recovers
nothing. It stays in the offer stream until a worker reads it. It is repeated only in case that
worker died before it claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.recovery import Offers

SOON: Final = timedelta(milliseconds=250)  # while suspects wait for each other
RECHECK: Final = timedelta(seconds=1)  # while only the age of entries is in doubt
UNCONFIRMED_END: Final = timedelta(
    seconds=2
)  # while the API server cannot confirm the end of a process
MOST_DOUBLINGS: Final = 10
QUIET: Final = 4  # intervals between two scans of a group without pending entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What a scan left for a later one."""

    retry_batch: str = ""  # as the scan found it written
    waiting: int = 0  # suspects that wait for a retry batch or their backoff
    under_way: int = 0  # of the retry batch
    young: int = 0  # delivered so close to their worker's restart that this proves nothing
    moved: int = 0  # made deliverable again by this scan
    earliest: timedelta | None = None  # until the first of those that wait may be recovered
    has_unconfirmed_ends: bool = False  # the API server could not confirm the end of a process

    @property
    def is_pressing(self) -> bool:
        """Whether suspects wait for each other."""
        return self.waiting > 0 or self.under_way > 0


@dataclass(frozen=True, slots=True)
class Standstill:
    """For how many scans nothing has changed."""

    state: tuple[str, int, int, int]  # what would change with any progress
    rounds: int = 0  # scans in a row that changed nothing


def count_standstill(before: Standstill | None, left: Unfinished) -> Standstill | None:
    """Count scans without a change: zero after a change; None if no early scan is needed."""
    if not left.is_pressing and not left.young:
        return None
    state = (left.retry_batch, left.waiting, left.under_way, left.young)
    if before is None or before.state != state or left.moved:
        return Standstill(state)
    return Standstill(state, before.rounds + 1)


def decide_wait(
    left: Unfinished, standstill: Standstill | None, usual: timedelta, *, rank: int
) -> timedelta:
    """Return the time until the next scan: more than zero, and `usual` at most.

    The interval of early scans doubles with each one that changed nothing. The replica that ranks
    first makes them; the others are later, and find that it was done.
    """
    waits = [usual, left.earliest or usual, UNCONFIRMED_END if left.has_unconfirmed_ends else usual]
    if standstill is not None:
        # A restarted worker may still write its boot record, which proves the age of young entries.
        pace = SOON if left.is_pressing else RECHECK
        waits.append(pace * 2 ** min(standstill.rounds, MOST_DOUBLINGS) * (1 + 4 * rank))
    return min(waits)


def decide_due(interval: timedelta, *, is_timer: bool) -> timedelta:
    """Return how old another replica's scan may be to replace this one; zero for a pod's death."""
    return interval * 0.8 if is_timer else timedelta()


def may_rest(since_scan: timedelta, wait: timedelta) -> bool:
    """Whether a group without pending entries needs no scan yet, `since_scan` after the last one.

    `wait` is its usual interval.
    """
    return since_scan < (QUIET - 0.5) * wait


def next_scan(
    interval: timedelta, *, scanned_at: datetime, now: datetime, rank: int, jitter: float
) -> timedelta:
    """Return the time until this replica scans, unless triggered earlier. `jitter` is in [0, 1).

    The replica that ranks first scans after one interval. The next one follows after `QUIET`
    intervals: it finds that the first has scanned, or scans in its place.
    """
    factor = 1.0 + 0.1 * jitter + (QUIET - 1) * rank
    return max(interval * factor - (now - scanned_at), SOON)


FIRST_PAUSE: Final = timedelta(
    seconds=5
)  # before the first repetition; then twice as long each time
LONGEST_PAUSE: Final = timedelta(minutes=5)
NOT_TAKEN_AFTER: Final = timedelta(seconds=30)
SOONEST: Final = timedelta(milliseconds=250)


def is_not_taken(offers: Offers) -> bool:
    """Whether no worker takes offers: one has waited for long, and none was taken meanwhile.

    Workers that are busy with long handlers still take offers periodically.
    """
    if offers.oldest is None or offers.now - offers.oldest < NOT_TAKEN_AFTER:
        return False
    # A time in the future was written before the clock went back, and counts as none.
    taken_at = offers.taken_at
    is_recent = taken_at is not None and timedelta() <= offers.now - taken_at < NOT_TAKEN_AFTER
    return not is_recent


def until_next_scan(offers: Offers) -> timedelta | None:
    """Return the time until the offers need a scan; None if none is open."""
    if offers.oldest is None or offers.due is None:
        return None
    reported_at = max(offers.oldest, offers.taken_at or offers.oldest) + NOT_TAKEN_AFTER
    times = [offers.due, *([reported_at] if reported_at > offers.now else [])]
    return max(min(times) - offers.now, SOONEST)
