"""What the group will never be given, and what only looks like it; and a group that went back."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.ledger import CreationReason, GroupCreation
from pelops.domain.records.state import GroupState, Loss, LossCause, RememberedPosition
from pelops.domain.stream_observation import RetryObservation, StreamObservation
from pelops.policy.group.losses import assess_loss, find_new_loss, find_vanished
from pelops.policy.group.position import (
    CHECKPOINT_EVERY,
    REMEMBER_EVERY,
    LastSeen,
    choose_newest,
    decide_went_back,
    needs_remembering,
    read_status,
    report_creation,
)
from tests.builders import NOW, empty_redis, group, later, resource, stream


def seen(**changes: Any) -> RememberedPosition:
    usual: dict[str, Any] = {
        "last_delivered_id": EntryId(3),
        "lowest_pending": None,
        "entries_added": 10,
        "last_generated_id": EntryId(10),
        "at": later(seconds=-60),
    }
    return RememberedPosition(**{**usual, **changes})


def read_three_of_ten(**changes: Any) -> StreamObservation:
    """Ten entries were added and three delivered; 4 to 6 were trimmed, and 7 is the first left."""
    usual: dict[str, Any] = {
        "length": 4,
        "first_id": EntryId(7),
        "last_generated_id": EntryId(10),
        "entries_added": 10,
        "group": group(last_delivered_id=EntryId(3), entries_read=3, lag=None),
    }
    return stream(**{**usual, **changes})


def lost_count() -> Any:
    return group(last_delivered_id=EntryId(3), entries_read=None, lag=None)


LOSSES: dict[str, tuple[dict[str, Any], tuple[int, int | None] | None]] = {
    "trimmed before delivery": ({}, (3, 3)),
    "all that was left": ({"length": 0, "first_id": None}, (7, 7)),
    "deleted by hand among them": ({"max_deleted_id": EntryId(8)}, (0, 2)),
    "a single one, deleted by hand": (
        {"length": 6, "first_id": EntryId(5), "max_deleted_id": EntryId(4)},
        None,
    ),
    "only what was delivered was deleted": ({"max_deleted_id": EntryId(3)}, (3, 3)),
    "one that was delivered is left": ({"first_id": EntryId(3)}, None),
    "nothing was removed": ({"entries_added": 4, "group": lost_count()}, None),
    "nothing is undelivered": (
        {"group": group(last_delivered_id=EntryId(10), entries_read=3)},
        None,
    ),
    "ahead of the stream": ({"group": group(last_delivered_id=EntryId(11))}, None),
    "no group": ({"group": None}, None),
    "no stream": ({"group": None, "entries_added": None, "first_id": None}, None),
    "a count that is too high": (
        {"group": group(last_delivered_id=EntryId(3), entries_read=9)},
        None,
    ),
    "an unknown count": ({"group": lost_count()}, None),
    "an unknown count of a group that has not moved": (
        {"group": lost_count(), "state": GroupState(seen=seen(entries_added=3))},
        (3, None),
    ),
    "an unknown count of a group that has moved": (
        {
            "group": lost_count(),
            "state": GroupState(seen=seen(entries_added=3, last_delivered_id=EntryId(2))),
        },
        None,
    ),
    "an unknown count and deletions by hand": (
        {
            "group": lost_count(),
            "max_deleted_id": EntryId(8),
            "state": GroupState(seen=seen(entries_added=3)),
        },
        None,
    ),
}


@pytest.mark.parametrize("case", LOSSES.values(), ids=LOSSES)
def test_a_loss(case: tuple[dict[str, Any], tuple[int, int | None] | None]) -> None:
    changes, bounds = case
    loss = assess_loss(read_three_of_ten(**changes))
    assert (None if loss is None else (loss.at_least, loss.at_most)) == bounds
    if loss is not None:
        assert (loss.position, loss.seen) == (EntryId(3), NOW)
        assert loss.is_certain == (loss.at_least > 0)


def knowing(**state: Any) -> StreamObservation:
    """The stream of `read_three_of_ten`, whose group has this state."""
    return read_three_of_ten(state=GroupState(**state))


def recorded(at_least: int, *, position: int = 3, seconds_ago: int = 3600) -> Loss:
    known = Loss(at_least=at_least, at_most=at_least, position=EntryId(position), seen=NOW)
    return replace(known, seen=later(seconds=-seconds_ago))


NEWS: dict[str, tuple[StreamObservation, bool]] = {
    "never recorded": (read_three_of_ten(), True),
    "recorded": (knowing(loss=recorded(3)), False),
    "acknowledged": (knowing(acknowledged_loss=recorded(3)), False),
    "grown": (knowing(loss=recorded(2)), True),
    "grown since a moment ago": (knowing(loss=recorded(2, seconds_ago=9)), False),
    "grown since acknowledged": (knowing(acknowledged_loss=recorded(2, seconds_ago=9)), True),
    "recorded by a clock that went back": (knowing(loss=recorded(2, seconds_ago=-9)), True),
    "another gap": (knowing(loss=recorded(9, position=2)), True),
    "in doubt": (read_three_of_ten(max_deleted_id=EntryId(8)), False),
    "none": (read_three_of_ten(first_id=EntryId(3)), False),
}


@pytest.mark.parametrize("case", NEWS.values(), ids=NEWS)
def test_a_loss_is_news_once(case: tuple[StreamObservation, bool]) -> None:
    observed, is_news = case
    assert (find_new_loss(observed) is not None) == is_news


def last(**changes: Any) -> LastSeen:
    """A second ago: ten entries, of which three were delivered and one is pending."""
    usual: dict[str, Any] = {
        "last_delivered_id": EntryId(3),
        "entries_added": 10,
        "at": later(seconds=-1),
        "last_generated_id": EntryId(10),
        "lowest_pending": EntryId(2),
        "undelivered": 7,
        "pending": 1,
    }
    return LastSeen(**{**usual, **changes})


def another_stream(added: int = 2, first: int = 11, **changes: Any) -> StreamObservation:
    """A stream of the same name that holds new entries; by default without a group."""
    usual: dict[str, Any] = {
        "length": added,
        "first_id": EntryId(first),
        "last_generated_id": EntryId(first + added - 1),
        "entries_added": added,
        "groups": 0,
        "group": None,
    }
    return stream(**{**usual, **changes})


GONE, TAIL = LossCause.STREAM_GONE, LossCause.TAIL_LOST
RETRY = LossCause.RETRY_STREAM_GONE
NO_RETRY = RetryObservation(exists=False)


class Vanished(NamedTuple):
    before: LastSeen | None
    now: StreamObservation
    lost: tuple[LossCause, int, int] | None  # how, and how many undelivered and pending entries


VANISHED: dict[str, Vanished] = {
    "the stream is missing": Vanished(last(), empty_redis(), (GONE, 7, 1)),
    "only pending entries went": Vanished(last(undelivered=0), empty_redis(), (GONE, 0, 1)),
    "nothing was left to do": Vanished(last(undelivered=0, pending=0), empty_redis(), None),
    "nothing is known": Vanished(None, empty_redis(), None),
    "another stream has its name": Vanished(last(), another_stream(), (GONE, 7, 1)),
    "a worker made the group anew": Vanished(last(), another_stream(group=group()), (GONE, 7, 1)),
    "an empty stream has its name": Vanished(
        last(),
        another_stream(0, length=0, first_id=None, last_generated_id=EntryId.MIN),
        (GONE, 7, 1),
    ),
    "the end of the stream is missing": Vanished(last(), another_stream(6, first=1), (TAIL, 4, 0)),
    "more than what was undelivered is missing": Vanished(
        last(), another_stream(2, first=1), (TAIL, 7, 1)
    ),
    "an end is missing of which all was delivered": Vanished(
        last(undelivered=0), another_stream(6, first=1), None
    ),
    "the group alone is gone": Vanished(last(), another_stream(10, first=1), None),
    "more was added": Vanished(last(), another_stream(12, first=1, group=group()), None),
    "another stream has more entries by now": Vanished(last(), another_stream(15), (GONE, 7, 1)),
    "another stream was trimmed by less than there was": Vanished(
        last(), another_stream(15, first=13, length=6), (GONE, 7, 1)
    ),
    "all that was there was trimmed, and more was added": Vanished(
        last(), another_stream(15, first=11, length=5), None
    ),
    "all was trimmed": Vanished(
        last(),
        stream(
            length=0,
            first_id=None,
            entries_added=10,
            last_generated_id=EntryId(10),
            group=group(last_delivered_id=EntryId(3)),
        ),
        None,
    ),
    "another replica made the group anew": Vanished(
        last(), another_stream(state=GroupState(created_at=NOW)), None
    ),
    "another replica recorded it": Vanished(
        last(), another_stream(state=GroupState(loss_found_at=NOW)), None
    ),
    "an earlier loss was recorded": Vanished(
        last(), another_stream(state=GroupState(loss_found_at=later(minutes=-1))), (GONE, 7, 1)
    ),
    "a status says it, and it was recorded lately": Vanished(
        last(at=None), another_stream(state=GroupState(loss_found_at=later(minutes=-1))), None
    ),
    "a status that knows no counters": Vanished(
        LastSeen(last_delivered_id=EntryId(3), undelivered=7), empty_redis(), (GONE, 7, 0)
    ),
    "the retry stream is missing": Vanished(
        last(retry_undelivered=5, retry_pending=2),
        another_stream(10, first=1, group=group(), retry=NO_RETRY),
        (RETRY, 5, 2),
    ),
    "the retry stream is missing and had nothing": Vanished(
        last(), another_stream(10, first=1, group=group(), retry=NO_RETRY), None
    ),
    "both are missing": Vanished(
        last(retry_undelivered=5), empty_redis(retry=NO_RETRY), (GONE, 12, 1)
    ),
    "the retry stream lost its group alone": Vanished(
        last(retry_undelivered=5),
        another_stream(10, first=1, group=group(), retry=RetryObservation(exists=False, length=5)),
        None,
    ),
}


@pytest.mark.parametrize("case", VANISHED.values(), ids=VANISHED)
def test_what_is_gone_with_a_stream(case: Vanished) -> None:
    loss = find_vanished(case.before, case.now)
    assert (None if loss is None else (loss.cause, loss.undelivered, loss.pending)) == case.lost
    if loss is not None and case.before is not None:
        assert (loss.position, loss.observed) == (EntryId(3), case.before.at)
        assert not loss.is_certain, "what workers did since then nobody knows"


def test_what_is_gone_lies_between_the_lowest_unfinished_entry_and_the_end() -> None:
    loss = find_vanished(last(), empty_redis())
    assert loss is not None
    assert (loss.after, loss.before) == (EntryId(2).before(), EntryId(10, 1))


def test_a_loss_that_is_gone_is_no_gap_of_the_next_stream() -> None:
    reported = Loss(at_least=0, at_most=None, position=EntryId(3), seen=NOW, cause=GONE)
    assert find_new_loss(read_three_of_ten(state=GroupState(loss=reported))) is not None


REMEMBERS = GroupState(seen=seen(pending=1, undelivered=7))
NEWEST: dict[str, tuple[LastSeen | None, LastSeen | None, GroupState, str]] = {
    "nothing": (None, None, GroupState(), "nothing"),
    "the replica's own": (last(), None, REMEMBERS, "memory"),
    "another replica's": (last(at=later(minutes=-5)), None, REMEMBERS, "state"),
    "the state": (None, None, REMEMBERS, "state"),
    "a status that is ahead": (None, last(at=None, entries_added=11), REMEMBERS, "status"),
    "a status that is behind": (None, last(at=None, entries_added=9), REMEMBERS, "state"),
    "a status alone": (None, last(at=None), GroupState(), "status"),
    "a status that may be older than the group": (
        None,
        last(at=None, entries_added=11),
        replace(REMEMBERS, created_at=later(minutes=-1)),
        "state",
    ),
    "a status that may be older than a recorded loss": (
        None,
        last(at=None, entries_added=11),
        replace(REMEMBERS, loss_found_at=later(minutes=-1)),
        "state",
    ),
}


@pytest.mark.parametrize("case", NEWEST.values(), ids=NEWEST)
def test_the_newest_observation_counts(
    case: tuple[LastSeen | None, LastSeen | None, GroupState, str],
) -> None:
    memory, status, state, expected = case
    remembered = None if state.seen is None else LastSeen.remembered(state.seen)
    named = {"nothing": None, "memory": memory, "status": status, "state": remembered}
    assert choose_newest(memory, status, stream(state=state)) == named[expected]


def test_a_loss_soon_after_the_creation_is_found_though_a_status_is_ahead() -> None:
    state = replace(REMEMBERS, created_at=later(minutes=-5))
    seen_now = another_stream(state=state)
    before = choose_newest(None, last(at=None, entries_added=11), seen_now)
    loss = find_vanished(before, seen_now)
    assert loss is not None
    assert (loss.cause, loss.undelivered, loss.pending) == (GONE, 7, 1)


def test_a_status_of_an_older_generation_gives_only_the_position() -> None:
    reported = {
        "observedGeneration": 1,
        "group": {"lastDeliveredId": "3-0", "lag": 7, "pending": 1},
        "stream": {"length": 10, "entriesAdded": 10, "lastGeneratedId": "10-0"},
    }
    assert read_status(resource(status=reported)) == last(at=None, lowest_pending=None)
    changed = resource(status=reported, metadata={"generation": 2})
    assert read_status(changed) == LastSeen(last_delivered_id=EntryId(3))
    assert read_status(resource()) is None


class Back(NamedTuple):
    before: LastSeen | None
    has_gone_back: bool
    now: StreamObservation = read_three_of_ten()


def at(number: int, **changes: Any) -> LastSeen:
    """A group whose position was this."""
    return LastSeen(last_delivered_id=EntryId(number), **changes)


def made_anew(**ago: float) -> StreamObservation:
    """A group that was created again before now."""
    return read_three_of_ten(state=GroupState(created_at=later(**ago)))


BACK: dict[str, Back] = {
    "never seen before": Back(None, False),
    "where it was": Back(at(3, entries_added=10), False),
    "further on": Back(at(2, entries_added=9), False),
    "behind where it was": Back(at(4), True),
    "on a stream that counts less": Back(at(3, entries_added=11), True),
    "gone": Back(at(4), False, read_three_of_ten(group=None)),
    "made anew since": Back(at(4, at=later(seconds=-9)), False, made_anew(seconds=-5)),
    "made anew before": Back(at(4, at=later(seconds=-5)), True, made_anew(seconds=-9)),
    "made anew lately, when a status says where it was": Back(at(4), False, made_anew(minutes=-1)),
    "made anew long ago, when a status says where it was": Back(at(4), True, made_anew(days=-1)),
}


@pytest.mark.parametrize("case", BACK.values(), ids=BACK)
def test_a_group_that_went_back(case: Back) -> None:
    change = decide_went_back(case.before, case.now)
    assert (change is not None) == case.has_gone_back
    if change is not None and case.before is not None:
        assert (change.before, change.after) == (case.before.last_delivered_id, EntryId(3))
        assert str(change.before) in change.message


def test_what_a_look_leaves_behind_has_not_gone_back() -> None:
    look = read_three_of_ten()
    assert decide_went_back(LastSeen.of(look), look) is None
    assert LastSeen.of(read_three_of_ten(group=None)) is None


JUST_NOW, LONG_AGO = NOW - REMEMBER_EVERY / 2, NOW - REMEMBER_EVERY


def state(checkpointed_at: datetime | None = None, **position: Any) -> GroupState:
    """The state of a group whose remembered position is this."""
    return GroupState(seen=seen(**position), checkpointed_at=checkpointed_at)


FORGOTTEN = NOW - CHECKPOINT_EVERY - REMEMBER_EVERY
REMEMBERED: dict[str, tuple[GroupState, bool]] = {
    "never": (GroupState(), True),
    "as it is": (state(JUST_NOW, at=LONG_AGO), False),
    "elsewhere": (state(at=LONG_AGO, last_delivered_id=EntryId(2)), True),
    "with another lowest pending entry": (state(at=LONG_AGO, lowest_pending=EntryId(2)), True),
    "with other numbers of pending entries": (state(at=LONG_AGO, pending=1), True),
    "with more entries": (state(at=LONG_AGO, entries_added=9), True),
    "elsewhere a moment ago": (state(at=JUST_NOW, last_delivered_id=EntryId(2)), False),
    "elsewhere, by a clock that went back": (
        state(at=later(hours=1), last_delivered_id=EntryId(2)),
        True,
    ),
    "as it is, since the last bookmark": (state(FORGOTTEN, at=LONG_AGO), True),
    "as it is, and the bookmark is young": (state(LONG_AGO, at=JUST_NOW), False),
}


@pytest.mark.parametrize("case", REMEMBERED.values(), ids=REMEMBERED)
def test_a_position_is_remembered_when_it_has_changed(case: tuple[GroupState, bool]) -> None:
    known, needs = case
    assert needs_remembering(read_three_of_ten(state=known)) == needs
    assert not needs_remembering(read_three_of_ten(state=known, group=None))


@pytest.mark.parametrize("why", CreationReason)
def test_a_creation_is_reported_with_its_position_and_its_repeats(why: CreationReason) -> None:
    reported = report_creation(GroupCreation(position=EntryId(3), why=why, repeats=7))
    assert "at 3-0" in reported
    assert ("7" in reported) == (why != CreationReason.FIRST)
    many = report_creation(GroupCreation(position=EntryId(3), why=why, repeats=None))
    assert (": unknown" in many) == (why != CreationReason.FIRST)
    # What was delivered since the last observation is delivered again too.
    assert ("at least 7" in reported) == (why != CreationReason.FIRST)
    nothing = report_creation(GroupCreation(position=EntryId(3), why=why, repeats=0))
    assert ("0 known" in nothing) == (why != CreationReason.FIRST)


def test_a_loss_is_seen_at_the_servers_time() -> None:
    loss = assess_loss(read_three_of_ten(server_time=NOW + timedelta(hours=1)))
    assert loss is not None
    assert loss.seen == later(hours=1)
