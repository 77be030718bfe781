"""Offsets: loss is reported exactly, and a limit is shared in full."""

from hypothesis import given
from hypothesis import strategies as st

from pelops.redis_core import EntryId
from pyspark_redis_streams.micro_batch.offsets import (
    Position,
    entries_lost,
    explain_loss,
    parse_offsets,
    share_limit,
)
from pyspark_redis_streams.redis.streams import ABSENT, StreamState


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_what_was_trimmed_beyond_the_position_is_counted(
    done: int, trimmed: int, kept: int
) -> None:
    added = trimmed + kept
    done = min(done, added)
    state = StreamState(
        length=kept,
        added=added,
        last_generated=EntryId(added, 0),
        first=EntryId(trimmed + 1, 0) if kept else None,
    )
    position = Position(id=EntryId(done, 0), added=done)
    assert entries_lost(position, state) == max(0, trimmed - done)


def test_a_stream_with_fewer_additions_went_back() -> None:
    position = Position(id=EntryId(5, 0), added=50)
    state = StreamState(length=10, added=10, last_generated=EntryId(9, 0), first=EntryId(1, 0))
    assert "went back" in str(explain_loss("orders", position, state))
    assert "no longer exists" in str(explain_loss("orders", position, ABSENT))


def test_an_empty_stream_that_was_never_read_has_lost_nothing() -> None:
    assert explain_loss("orders", Position(id=EntryId(0, 0), added=0), ABSENT) is None


def test_offsets_survive_a_checkpoint() -> None:
    reported = {"a": {"id": "5-1", "added": 7}, "b": {"id": "5-2", "added": 8, "estimate": True}}
    assert {name: place.render() for name, place in parse_offsets(reported).items()} == reported


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=6), st.integers(1, 500))
def test_a_limit_is_shared_in_full_and_no_share_exceeds_its_stream(
    available: dict[str, int], limit: int
) -> None:
    shares = share_limit(available, limit)
    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert all(0 <= shares[stream] <= number for stream, number in available.items())
