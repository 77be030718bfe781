"""When offers count as not taken, and when the next scan for them is due."""

from datetime import datetime, timedelta

import pytest

from pelops.domain.recovery import Offers
from pelops.policy.recovery.scan_interval import (
    NOT_TAKEN_AFTER,
    SOONEST,
    is_not_taken,
    until_next_scan,
)
from tests.builders import NOW, later

SECOND = timedelta(seconds=1)
LONG_AGO = NOW - NOT_TAKEN_AFTER


def open_since(
    oldest: datetime | None, taken_at: datetime | None = None, due: datetime | None = None
) -> Offers:
    return Offers(now=NOW, untaken=1, oldest=oldest, due=due or NOW + SECOND, taken_at=taken_at)


@pytest.mark.parametrize(
    ("offers", "wanted"),
    [
        (Offers(now=NOW), False),
        (open_since(LONG_AGO + SECOND), False),
        (open_since(LONG_AGO), True),
        # Busy workers take some from time to time.
        (open_since(LONG_AGO, taken_at=NOW - SECOND), False),
        (open_since(LONG_AGO, taken_at=LONG_AGO), True),
        # The clock went back.
        (open_since(LONG_AGO, taken_at=later(seconds=9)), True),
        (open_since(later(seconds=9)), False),
    ],
)
def test_offers_are_not_taken_when_one_waits_without_recent_claims(
    offers: Offers, wanted: bool
) -> None:
    assert is_not_taken(offers) is wanted


@pytest.mark.parametrize(
    ("offers", "wanted"),
    [
        (Offers(now=NOW), None),
        (open_since(NOW, due=NOW + 5 * SECOND), 5 * SECOND),
        (open_since(NOW, due=NOW), SOONEST),
        # In time to report that no worker takes it.
        (open_since(LONG_AGO + 2 * SECOND, due=NOW + 9 * SECOND), 2 * SECOND),
        (open_since(LONG_AGO, due=NOW + 9 * SECOND), 9 * SECOND),
    ],
)
def test_the_next_scan_is_when_an_offer_repeats_or_is_overdue(
    offers: Offers, wanted: timedelta | None
) -> None:
    assert until_next_scan(offers) == wanted


def test_two_pages_of_offers_are_one() -> None:
    first = Offers(now=NOW, taken={"scan": 1}, untaken=2, oldest=later(seconds=1), repeated=1)
    second = Offers(now=NOW, taken={"scan": 2, "start-up": 1}, untaken=3, oldest=NOW, due=NOW)
    both = first.plus(second)
    assert both.taken == {"scan": 3, "start-up": 1}
    assert (both.untaken, both.oldest, both.due, both.repeated) == (5, NOW, NOW, 1)
