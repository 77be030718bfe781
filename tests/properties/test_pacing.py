"""Properties of the waits between scans: none is nothing, none is longer than usual."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from pelops.policy.recovery.scan_interval import SOON, Unfinished, count_standstill, decide_wait

COUNTS = st.integers(0, 3)
WAITS = st.timedeltas(timedelta(), timedelta(days=2))
LEFT = st.builds(
    Unfinished,
    retry_batch=st.sampled_from(["", "1-1", "1-1 2-1"]),
    waiting=COUNTS,
    under_way=COUNTS,
    young=COUNTS,
    moved=COUNTS,
    earliest=st.none() | WAITS,
    has_unconfirmed_ends=st.booleans(),
)
USUAL = st.timedeltas(SOON, timedelta(days=1))
RANKS = st.integers(0, 5)


@given(looks=st.lists(LEFT, min_size=1, max_size=20), usual=USUAL, rank=RANKS)
def test_a_wait_is_more_than_nothing_and_never_longer_than_usual(
    looks: list[Unfinished], usual: timedelta, rank: int
) -> None:
    standstill = None
    for left in looks:
        standstill = count_standstill(standstill, left)
        assert timedelta() < decide_wait(left, standstill, usual, rank=rank) <= usual


@given(left=LEFT, usual=USUAL, rank=RANKS, scans=st.integers(2, 15))
def test_while_nothing_changes_waits_never_become_shorter(
    left: Unfinished, usual: timedelta, rank: int, scans: int
) -> None:
    standstill, waits = None, []
    for _ in range(scans):
        standstill = count_standstill(standstill, left)
        waits.append(decide_wait(left, standstill, usual, rank=rank))
    assert waits == sorted(waits)


@given(left=LEFT, usual=USUAL, ranks=st.tuples(RANKS, RANKS))
def test_a_replica_of_lower_rank_never_waits_longer(
    left: Unfinished, usual: timedelta, ranks: tuple[int, int]
) -> None:
    standstill = count_standstill(None, left)
    first, later = (decide_wait(left, standstill, usual, rank=rank) for rank in sorted(ranks))
    assert first <= later
