"""How soon a group is scanned again: by its interval, or earlier when something is about to happen.

While suspects wait for each other it is scanned quickly at first, since most are done with in no
time, and ever more rarely while nothing changes.

Offers to workers that claim call for a scan as well. An offer that nobody takes recovers nothing.
It waits in the offer stream until a worker reads it, so it is repeated only in case that it was
read and lost: by a worker that died before it claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.recovery import Offers

SOON: Final = timedelta(milliseconds=250)  # while suspects wait for each other
RECHECK: Final = timedelta(seconds=1)  # while only the age of entries is in doubt
DOUBT: Final = timedelta(seconds=2)  # while the API server cannot be asked about an end
MOST_DOUBLINGS: Final = 10
QUIET: Final = 4  # intervals between two scans of a group of which nothing is pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What a scan left that a later one may get on with."""

    retry_batch: str = ""  # as the scan found it written
    waiting: int = 0  # suspects that wait for their turn or their backoff
    under_way: int = 0  # of the retry batch
    young: int = 0  # delivered so shortly before their worker began anew that this proves nothing
    moved: int = 0  # made deliverable again by this scan
    earliest: timedelta | None = None  # when the first of those that wait may move
    has_doubts: bool = False  # the API server could not be asked about an end

    @property
    def is_pressing(self) -> bool:
        """Whether suspects are in each other's way."""
        return self.waiting > 0 or self.under_way > 0


@dataclass(frozen=True, slots=True)
class Standstill:
    """How long the same has been left."""

    state: tuple[str, int, int, int]  # what would change with any progress
    rounds: int = 0  # scans in a row that changed nothing


def count_standstill(before: Standstill | None, left: Unfinished) -> Standstill | None:
    """Zero rounds when anything has changed; None when nothing calls for an early look."""
    if not left.is_pressing and not left.young:
        return None
    state = (left.retry_batch, left.waiting, left.under_way, left.young)
    if before is None or before.state != state or left.moved:
        return Standstill(state)
    return Standstill(state, before.rounds + 1)


def decide_wait(
    left: Unfinished, standstill: Standstill | None, usual: timedelta, *, rank: int
) -> timedelta:
    """How long until the next scan: more than nothing, and never more than `usual`.

    The pace of early looks halves with each round that changed nothing. The replica that ranks
    first does them; the others come later, and find that it was done.
    """
    waits = [usual, left.earliest or usual, DOUBT if left.has_doubts else usual]
    if standstill is not None:
        # A worker that began anew may yet write when it did, and prove what is young to be old.
        pace = SOON if left.is_pressing else RECHECK
        waits.append(pace * 2 ** min(standstill.rounds, MOST_DOUBLINGS) * (1 + 4 * rank))
    return min(waits)


def decide_due(interval: timedelta, *, is_timer: bool) -> timedelta:
    """How recent a scan of another replica must be to be enough; none is for a pod's death."""
    return interval * 0.8 if is_timer else timedelta()


def may_rest(since_scan: timedelta, wait: timedelta) -> bool:
    """Whether a group of which nothing is pending needs no scan yet, so long after the last one.

    `wait` is how long it was to wait then: its usual interval.
    """
    return since_scan < (QUIET - 0.5) * wait


def next_scan(
    interval: timedelta, *, scanned_at: datetime, now: datetime, rank: int, jitter: float
) -> timedelta:
    """When this replica looks again, if nothing calls it earlier. `jitter` lies in [0, 1).

    The replica that ranks first comes after one interval. The next one comes after `QUIET`: it
    finds that the first has scanned, or scans in its place.
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
    """Whether no worker takes offers: one waits for long, and nothing was taken meanwhile.

    Workers that are busy with long handlers take some now and then.
    """
    if offers.oldest is None or offers.now - offers.oldest < NOT_TAKEN_AFTER:
        return False
    # A time in the future was written before the clock went back, and counts as none.
    taken_at = offers.taken_at
    is_recent = taken_at is not None and timedelta() <= offers.now - taken_at < NOT_TAKEN_AFTER
    return not is_recent


def until_next_scan(offers: Offers) -> timedelta | None:
    """How long until the offers are worth a look; None when none is open."""
    if offers.oldest is None or offers.due is None:
        return None
    reported_at = max(offers.oldest, offers.taken_at or offers.oldest) + NOT_TAKEN_AFTER
    looks = [offers.due, *([reported_at] if reported_at > offers.now else [])]
    return max(min(looks) - offers.now, SOONEST)
