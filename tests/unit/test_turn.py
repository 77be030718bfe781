"""Which replica may write first, and how long the others wait."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from pelops.policy.membership import STEP, rank_of, wait_for_turn

NOW = datetime(2024, 2, 29, tzinfo=UTC)
MEMBERS = ("a", "b", "c")


def test_who_is_alone_writes_first() -> None:
    assert rank_of("a", [], "shop/orders") == rank_of("a", ["a"], "shop/orders") == 0


def test_one_who_is_not_in_the_list_ranks_as_if_it_were() -> None:
    for key in ("shop/orders", "shop/returns", "shop/mails"):
        assert rank_of("c", ["a", "b"], key) == rank_of("c", MEMBERS, key)


def test_the_keys_are_shared_out() -> None:
    first = Counter(
        member for n in range(300) for member in MEMBERS if rank_of(member, MEMBERS, f"k{n}") == 0
    )
    assert sum(first.values()) == 300
    assert min(first.values()) > 50


def test_the_ranks_are_the_same_in_every_version() -> None:
    # Replicas of two versions run beside each other during an upgrade.
    ranks = [rank_of(member, MEMBERS, "shop/orders") for member in MEMBERS]
    assert ranks == [2, 1, 0]


@pytest.mark.parametrize(
    ("rank", "since_s", "wait_s"),
    [(0, 0.0, 0.0), (0, 60.0, 0.0), (1, 0.0, 1.5), (1, 1.0, 0.5), (2, 0.0, 3.0), (2, 9.0, 0.0)],
)
def test_each_rank_waits_one_step_longer_and_never_beyond_its_turn(
    rank: int, since_s: float, wait_s: float
) -> None:
    assert timedelta(seconds=1.5) == STEP
    since = NOW - timedelta(seconds=since_s)
    assert wait_for_turn(rank, since, NOW) == timedelta(seconds=wait_s)
