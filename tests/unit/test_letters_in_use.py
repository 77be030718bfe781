"""A dead-letter stream that another resource names as its stream."""

from __future__ import annotations

import pytest

from pelops.policy.group.provisioning import StreamUser, decide_dead_letters_in_use
from pelops.policy.status.reasons import Reason
from tests.builders import NOW, later

OWN = StreamUser(created=NOW, uid="b", name="shop/mine")
OLDER = StreamUser(created=later(seconds=-1), uid="c", name="pay/older")
SAME_TIME = StreamUser(created=NOW, uid="a", name="pay/of-the-same-second")
YOUNGER = StreamUser(created=later(seconds=1), uid="a", name="pay/younger")


@pytest.mark.parametrize("other", [OLDER, SAME_TIME, YOUNGER], ids=lambda one: one.name)
def test_the_stream_of_any_resource_is_not_adopted(other: StreamUser) -> None:
    found = decide_dead_letters_in_use(OWN, [other], key="pay", is_adopted=False)
    assert found is not None
    assert (found.reason, found.is_terminal) == (Reason.DEAD_LETTER_STREAM_IN_USE, True)
    assert other.name in found.message
    assert "pay" in found.message


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([OLDER], OLDER.name),
        ([SAME_TIME], SAME_TIME.name),
        ([YOUNGER], ""),
        ([YOUNGER, OLDER], OLDER.name),
        ([], ""),
    ],
)
def test_an_adopted_resource_conflicts_only_with_older_ones(
    others: list[StreamUser], named: str
) -> None:
    found = decide_dead_letters_in_use(OWN, others, key="pay", is_adopted=True)
    assert (found is None) == (not named)
    assert found is None or named in found.message


def test_without_another_resource_nothing_is_refused() -> None:
    assert decide_dead_letters_in_use(OWN, [], key="pay", is_adopted=False) is None
