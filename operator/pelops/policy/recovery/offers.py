"""When an offer to workers that claim is repeated, and when nobody seems to take any.

An offer that nobody takes recovers nothing. It waits in the offer stream until a worker reads
it, so it is repeated only in case that it was read and lost: by a worker that died before it
claimed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pelops.domain.recovery import Offers

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
