"""What the group will never be given, and what only looks like it; and a group that went back."""

from datetime import timedelta
from typing import Any

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.ledger import CreationReason, GroupCreation
from pelops.domain.observation import StreamObservation
from pelops.domain.state import GroupState, Loss, RememberedPosition
from pelops.policy.loss import assess_loss, find_new_loss
from pelops.policy.position import (
    BOOKMARK_EVERY,
    REMEMBER_EVERY,
    LastSeen,
    decide_went_back,
    needs_remembering,
    tell_creation,
)
from tests.builders import NOW, group, later, stream


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
    """Ten entries were added and three delivered; 4 to 6 are gone, and 7 is the first left."""
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


def recorded(at_least: int, *, position: int = 3, seconds_ago: int = 3600) -> Loss:
    return Loss(
        at_least=at_least,
        at_most=at_least,
        position=EntryId(position),
        seen=later(seconds=-seconds_ago),
    )


NEWS: dict[str, tuple[dict[str, Any], bool]] = {
    "never recorded": ({}, True),
    "recorded": ({"state": GroupState(loss=recorded(3))}, False),
    "acknowledged": ({"state": GroupState(acknowledged_loss=recorded(3))}, False),
    "grown": ({"state": GroupState(loss=recorded(2))}, True),
    "grown since a moment ago": ({"state": GroupState(loss=recorded(2, seconds_ago=9))}, False),
    "grown since it was acknowledged": (
        {"state": GroupState(acknowledged_loss=recorded(2, seconds_ago=9))},
        True,
    ),
    "recorded by a clock that went back": (
        {"state": GroupState(loss=recorded(2, seconds_ago=-9))},
        True,
    ),
    "another gap": ({"state": GroupState(loss=recorded(9, position=2))}, True),
    "in doubt": ({"max_deleted_id": EntryId(8)}, False),
    "none": ({"first_id": EntryId(3)}, False),
}


@pytest.mark.parametrize("case", NEWS.values(), ids=NEWS)
def test_a_loss_is_news_once(case: tuple[dict[str, Any], bool]) -> None:
    changes, is_news = case
    assert (find_new_loss(read_three_of_ten(**changes)) is not None) == is_news


def at_three(**changes: Any) -> StreamObservation:
    return read_three_of_ten(**changes)


BACK: dict[str, tuple[LastSeen | None, dict[str, Any], bool]] = {
    "never seen before": (None, {}, False),
    "where it was": (LastSeen(last_delivered_id=EntryId(3), entries_added=10), {}, False),
    "further on": (LastSeen(last_delivered_id=EntryId(2), entries_added=9), {}, False),
    "behind where it was": (LastSeen(last_delivered_id=EntryId(4)), {}, True),
    "on a stream that counts less": (
        LastSeen(last_delivered_id=EntryId(3), entries_added=11),
        {},
        True,
    ),
    "gone": (LastSeen(last_delivered_id=EntryId(4)), {"group": None}, False),
    "made anew since": (
        LastSeen(last_delivered_id=EntryId(4), at=later(seconds=-9)),
        {"state": GroupState(created_at=later(seconds=-5))},
        False,
    ),
    "made anew before": (
        LastSeen(last_delivered_id=EntryId(4), at=later(seconds=-5)),
        {"state": GroupState(created_at=later(seconds=-9))},
        True,
    ),
    "made anew lately, when a status says where it was": (
        LastSeen(last_delivered_id=EntryId(4)),
        {"state": GroupState(created_at=later(minutes=-1))},
        False,
    ),
    "made anew long ago, when a status says where it was": (
        LastSeen(last_delivered_id=EntryId(4)),
        {"state": GroupState(created_at=later(days=-1))},
        True,
    ),
}


@pytest.mark.parametrize("case", BACK.values(), ids=BACK)
def test_a_group_that_went_back(case: tuple[LastSeen | None, dict[str, Any], bool]) -> None:
    before, changes, went_back = case
    change = decide_went_back(before, at_three(**changes))
    assert (change is not None) == went_back
    if change is not None and before is not None:
        assert (change.before, change.after) == (before.last_delivered_id, EntryId(3))
        assert str(change.before) in change.message


def test_what_a_look_leaves_behind_has_not_gone_back() -> None:
    look = at_three()
    assert decide_went_back(LastSeen.of(look), look) is None
    assert LastSeen.of(at_three(group=None)) is None


JUST_NOW, LONG_AGO = NOW - REMEMBER_EVERY / 2, NOW - REMEMBER_EVERY
REMEMBERED: dict[str, tuple[dict[str, Any], bool]] = {
    "never": ({"state": GroupState()}, True),
    "never, without a group": ({"state": GroupState(), "group": None}, False),
    "as it is": (
        {"state": GroupState(seen=seen(at=LONG_AGO), bookmarked_at=JUST_NOW)},
        False,
    ),
    "elsewhere": (
        {"state": GroupState(seen=seen(at=LONG_AGO, last_delivered_id=EntryId(2)))},
        True,
    ),
    "with another lowest pending entry": (
        {"state": GroupState(seen=seen(at=LONG_AGO, lowest_pending=EntryId(2)))},
        True,
    ),
    "elsewhere a moment ago": (
        {"state": GroupState(seen=seen(at=JUST_NOW, last_delivered_id=EntryId(2)))},
        False,
    ),
    "elsewhere, by a clock that went back": (
        {"state": GroupState(seen=seen(at=later(hours=1), last_delivered_id=EntryId(2)))},
        True,
    ),
    "as it is, since the last bookmark": (
        {
            "state": GroupState(
                seen=seen(at=LONG_AGO), bookmarked_at=NOW - BOOKMARK_EVERY - REMEMBER_EVERY
            )
        },
        True,
    ),
    "as it is, and the bookmark is young": (
        {"state": GroupState(seen=seen(at=JUST_NOW), bookmarked_at=LONG_AGO)},
        False,
    ),
}


@pytest.mark.parametrize("case", REMEMBERED.values(), ids=REMEMBERED)
def test_a_position_is_remembered_when_it_has_changed(
    case: tuple[dict[str, Any], bool],
) -> None:
    changes, needs = case
    assert needs_remembering(at_three(**changes)) == needs


@pytest.mark.parametrize("why", CreationReason)
def test_a_creation_is_told_with_its_position_and_its_repeats(why: CreationReason) -> None:
    told = tell_creation(GroupCreation(position=EntryId(3), why=why, repeats=7))
    assert "at 3-0" in told
    assert ("7" in told) == (why != CreationReason.FIRST)
    many = tell_creation(GroupCreation(position=EntryId(3), why=why, repeats=None))
    assert ("more than can be counted" in many) == (why != CreationReason.FIRST)


def test_a_loss_is_seen_at_the_servers_time() -> None:
    loss = assess_loss(read_three_of_ten(server_time=NOW + timedelta(hours=1)))
    assert loss is not None
    assert loss.seen == later(hours=1)
