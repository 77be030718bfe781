"""Checkpoints to windows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId
from pelops.pipeline.archive.redis_reader import StreamSnapshot
from pelops.pipeline.archive.windows import (
    Checkpoint,
    Replacement,
    Traces,
    beginning,
    close_windows,
    find_break,
    find_replacement,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def mark(hours: float, added: int) -> Checkpoint:
    return Checkpoint(at_id=EntryId(1000 + added), added=added, at=START + hours * HOUR)


def test_without_a_length_one_window_reaches_to_now() -> None:
    (window,) = close_windows(mark(0, 5), [mark(1, 7), mark(3, 9)], span=None, number=4)
    assert (window.number, window.from_added, window.to_added) == (4, 5, 9)


def test_as_many_windows_are_closed_as_have_passed() -> None:
    marks = [mark(n / 4, n) for n in range(1, 10)]
    windows = close_windows(mark(0, 0), marks, span=HOUR, number=0)
    assert [(one.from_added, one.to_added) for one in windows] == [(0, 4), (4, 8)]


def test_a_run_that_is_a_little_early_closes_its_window() -> None:
    assert len(close_windows(mark(0, 0), [mark(0.95, 3)], span=HOUR, number=0)) == 1
    assert not close_windows(mark(0, 0), [mark(0.5, 3)], span=HOUR, number=0)


def test_a_checkpoint_that_contradicts_the_others_is_left_out() -> None:
    marks = [mark(1, 8), mark(1.5, 6), mark(2, 9)]
    windows = close_windows(mark(0, 0), marks, span=HOUR / 2, number=0)
    assert [one.to_added for one in windows] == [8, 9]


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 100)), max_size=20), st.floats(0.1, 9))
def test_windows_join_without_a_gap_and_without_overlap(
    reported: list[tuple[float, int]], length: float
) -> None:
    begin = mark(0, 10)
    windows = close_windows(begin, [mark(*one) for one in reported], span=length * HOUR, number=7)
    ends = [begin.at_id, *(one.to_id for one in windows)]
    added = [begin.added, *(one.to_added for one in windows)]
    assert [one.from_id for one in windows] == ends[:-1]
    assert [one.from_added for one in windows] == added[:-1]
    assert [one.number for one in windows] == list(range(7, 7 + len(windows)))
    assert added == sorted(added)


def seen(
    at: EntryId, added: int, *, first: EntryId | None = None, length: int = 0
) -> StreamSnapshot:
    return StreamSnapshot(last_generated=at, added=added, first=first, length=length, exists=True)


def test_a_stream_that_went_back_is_another_one() -> None:
    known = mark(0, 5)
    assert find_break(known, seen(known.at_id, 5)) is None
    assert "went back" in str(find_break(known, seen(known.at_id, 4)))
    assert "went back" in str(find_break(known, seen(known.at_id.before(), 9)))


def test_a_stream_with_more_entries_than_added_was_created_again() -> None:
    known = mark(0, 5)
    first, last = EntryId(known.at_id.ms + 1), EntryId(known.at_id.ms + 9)
    assert find_break(known, seen(last, 9, first=first, length=4)) is None
    assert find_break(known, seen(last, 9, first=known.at_id, length=5)) is None
    assert "created again" in str(find_break(known, seen(last, 9, first=first, length=5)))


def test_an_archive_begins_before_the_first_entry_that_is_left() -> None:
    look = StreamSnapshot(length=3, added=10, first=EntryId(7, 0), last_generated=EntryId(9))
    begin = beginning(look, mark(0, 10))
    assert (begin.at_id, begin.added) == (EntryId(7, 0).before(), 7)


def traces(**changes: Any) -> Traces:
    """Nothing that was archived is left, and the server is the same."""
    usual = Traces(
        was_there=True, is_same=None, max_deleted=EntryId.MIN, restarted=False,
        began_empty=False, ledger_is_left=False,
    )  # fmt: skip
    return replace(usual, **changes)


KNOWN = mark(0, 5)
FIRST, LAST = EntryId(KNOWN.at_id.ms + 1), EntryId(KNOWN.at_id.ms + 9)
TRIMMED = seen(LAST, 50, first=FIRST, length=45)  # only archived entries are trimmed
BEYOND = seen(LAST, 50, first=FIRST, length=4)


def test_a_stream_that_was_only_trimmed_is_the_same_one() -> None:
    assert find_replacement(KNOWN, TRIMMED, traces()) == Replacement()
    assert find_replacement(KNOWN, TRIMMED, traces(restarted=True, ledger_is_left=True)) == (
        Replacement()
    )
    # After a restart that kept its data, nothing was added since.
    still = seen(KNOWN.at_id, KNOWN.added)
    assert find_replacement(KNOWN, still, traces(restarted=True)) == Replacement()


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (traces(is_same=False), "differs from the archived one"),
        (traces(max_deleted=EntryId(1)), "max-deleted-entry-id went back"),
        (traces(restarted=True, began_empty=True), "restarted without its data"),
    ],
)
def test_a_stream_that_was_filled_beyond_the_archived_one_is_another(
    found: Traces, why: str
) -> None:
    assert why in str(find_replacement(KNOWN, TRIMMED, found).broken)


def test_an_entry_that_nothing_can_have_removed_shows_another_stream() -> None:
    older = replace(TRIMMED, first=KNOWN.at_id.before())
    assert "although it was not deleted" in str(find_replacement(KNOWN, older, traces()).broken)
    deleted = replace(older, max_deleted=KNOWN.at_id)
    assert find_replacement(KNOWN, deleted, traces()) == Replacement()
    assert find_replacement(KNOWN, older, traces(was_there=False)) == Replacement()


def test_causes_that_cannot_be_distinguished_are_a_doubt() -> None:
    assert "was trimmed beyond" in str(find_replacement(KNOWN, BEYOND, traces()).doubt)
    assert find_replacement(KNOWN, BEYOND, traces(ledger_is_left=True)) == Replacement()
    restarted = traces(restarted=True)
    assert find_replacement(KNOWN, TRIMMED, restarted) == Replacement()
    assert "server process" in str(find_replacement(KNOWN, BEYOND, restarted).doubt)
