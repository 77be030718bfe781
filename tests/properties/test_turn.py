"""Ranks: whatever the members, exactly one of them writes first."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pelops.policy.membership import STEP, rank_of, wait_for_turn
from tests.builders import NOW

MEMBERS = st.sets(st.text(max_size=30), min_size=1, max_size=12)
KEY = st.text(max_size=60)


@given(MEMBERS, KEY)
def test_the_ranks_of_all_members_are_a_permutation(members: set[str], key: str) -> None:
    ranks = sorted(rank_of(member, members, key) for member in members)
    assert ranks == list(range(len(members)))


@given(st.lists(st.text(max_size=9), min_size=1, max_size=9), KEY, st.randoms())
def test_the_order_and_repetition_of_the_list_do_not_count(
    members: list[str], key: str, chance: Random
) -> None:
    shuffled = members * 2
    chance.shuffle(shuffled)
    for member in members:
        assert rank_of(member, shuffled, key) == rank_of(member, members, key)


@given(MEMBERS, KEY, st.data())
def test_when_one_leaves_all_others_keep_their_order(
    members: set[str], key: str, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(members)))
    rest = members - {gone}
    before = sorted(rest, key=lambda member: rank_of(member, members, key))
    after = sorted(rest, key=lambda member: rank_of(member, rest, key))
    assert before == after


@given(st.integers(0, 20), st.integers(-3600, 3600))
def test_the_wait_is_never_negative_nor_shorter_for_a_later_rank(rank: int, age_s: int) -> None:
    since = NOW - timedelta(seconds=age_s)
    wait = wait_for_turn(rank, since, NOW)
    assert timedelta(0) <= wait <= wait_for_turn(rank + 1, since, NOW) <= wait + STEP
