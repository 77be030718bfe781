"""When a stream is to be trimmed, and which limits count."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from pelops.api.group.recovery import RetentionSpec
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.upkeep import find_limits
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState
from pelops.domain.stream_observation import RetryObservation
from pelops.policy.group.retention import (
    merge_retention,
    needs_expiry,
    needs_retry_trim,
    plan_retention,
)
from tests.builders import NOW, group, later, stream

NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000
LONG = {"length": 1000, "first_id": EntryId(NOW_MS - HOUR_MS)}
LAST = group(last_delivered_id=EntryId(NOW_MS))

PLANS: dict[str, tuple[RetentionSpec | None, dict[str, Any], bool]] = {
    "no limit": (None, {}, False),
    "neither limit": (RetentionSpec(), {}, False),
    "too many": (RetentionSpec(max_length=900), {}, True),
    "about as many as may be": (RetentionSpec(max_length=901), {}, False),
    "too old": (RetentionSpec(max_age_seconds=3599), {}, True),
    "just young enough": (RetentionSpec(max_age_seconds=3600), {}, False),
    "not too many, but too old": (RetentionSpec(max_length=5000, max_age_seconds=60), {}, True),
    "no group": (RetentionSpec(max_length=1), {"group": None, "groups": 0}, False),
    "only groups of others": (RetentionSpec(max_length=1), {"group": None, "groups": 2}, True),
    "no entry": (RetentionSpec(max_length=1), {"first_id": None, "length": 0}, False),
    "nothing was delivered": (
        RetentionSpec(max_length=1),
        {"group": group(last_delivered_id=EntryId.MIN)},
        False,
    ),
    "the first is pending": (
        RetentionSpec(max_length=1),
        {"group": group(last_delivered_id=EntryId(NOW_MS), lowest_pending=LONG["first_id"])},
        False,
    ),
}


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)
def test_retention(case: tuple[RetentionSpec | None, dict[str, Any], bool]) -> None:
    spec, changes, is_planned = case
    plan = plan_retention(spec, stream(**{**LONG, "group": LAST, **changes}))
    assert (plan is not None) == is_planned
    if plan is not None and spec is not None:
        assert plan.max_length == spec.max_length
        age = spec.max_age_seconds
        assert plan.max_age == (None if age is None else timedelta(seconds=age))
        assert plan.message


MERGES: dict[str, tuple[list[RetentionSpec | None], RetentionSpec | None]] = {
    "none": ([], None),
    "one": ([RetentionSpec(max_length=5)], RetentionSpec(max_length=5)),
    "the larger of each": (
        [
            RetentionSpec(max_length=5, max_age_seconds=60),
            RetentionSpec(max_length=9, max_age_seconds=6),
        ],
        RetentionSpec(max_length=9, max_age_seconds=60),
    ),
    "no limit is the largest": (
        [RetentionSpec(max_length=5, max_age_seconds=60), RetentionSpec(max_length=9)],
        RetentionSpec(max_length=9),
    ),
    "limits that have nothing in common": (
        [RetentionSpec(max_length=5), RetentionSpec(max_age_seconds=6)],
        None,
    ),
    "who asks for nothing does not count": (
        [None, RetentionSpec(max_length=5)],
        RetentionSpec(max_length=5),
    ),
}


@pytest.mark.parametrize("case", MERGES.values(), ids=MERGES)
def test_of_several_limits_the_larger_wins(
    case: tuple[list[RetentionSpec | None], RetentionSpec | None],
) -> None:
    specs, merged = case
    assert merge_retention(specs) == merge_retention(reversed(specs)) == merged


@pytest.mark.parametrize(
    ("retry", "needs"),
    [
        (None, False),
        (RetryObservation(exists=False), False),
        (RetryObservation(exists=True), False),
        (RetryObservation(exists=True, first_id=EntryId(5)), False),
        (
            RetryObservation(exists=True, first_id=EntryId(5), last_delivered_id=EntryId(5)),
            False,
        ),
        (RetryObservation(exists=True, first_id=EntryId(5), last_delivered_id=EntryId(6)), True),
        (
            RetryObservation(
                exists=True,
                first_id=EntryId(5),
                last_delivered_id=EntryId(6),
                lowest_pending=EntryId(5),
            ),
            False,
        ),
    ],
)
def test_a_retry_stream_is_trimmed_when_copies_are_done_with(
    retry: RetryObservation | None, needs: bool
) -> None:
    assert needs_retry_trim(stream(retry=retry)) == needs
    tried = GroupState(trim_tried_at=later(seconds=-9))
    assert not needs_retry_trim(stream(retry=retry, state=tried))


@pytest.mark.parametrize(
    ("seconds_ago", "groups", "is_planned"),
    [(9, 1, False), (10, 1, True), (-9, 1, True), (10, 200, True), (149, 1000, False)],
)
def test_what_could_not_go_is_not_tried_again_at_once(
    seconds_ago: int, groups: int, is_planned: bool
) -> None:
    tried = GroupState(trim_tried_at=later(seconds=-seconds_ago))
    seen = stream(**{**LONG, "group": LAST, "groups": groups, "state": tried})
    assert (plan_retention(RetentionSpec(max_length=1), seen) is not None) == is_planned


EARLIER = NOW - timedelta(hours=1)
EXPIRIES: dict[str, tuple[int, datetime | None, datetime | None, bool]] = {
    "never looked at": (0, None, EARLIER, True),
    "looked at just now": (5, NOW - timedelta(minutes=9), EARLIER, False),
    "looked at long ago": (0, NOW - timedelta(minutes=10), EARLIER, True),
    "looked at before the clock went back": (5, later(minutes=1), EARLIER, True),
    "of a new resource": (0, None, NOW - timedelta(minutes=9), False),
    "of a new resource with dead letters": (1, None, NOW - timedelta(minutes=9), True),
    "of a resource without a time": (0, None, None, True),
}


@pytest.mark.parametrize("case", EXPIRIES.values(), ids=EXPIRIES)
def test_old_dead_letters_are_looked_for_now_and_then(
    case: tuple[int, datetime | None, datetime | None, bool],
) -> None:
    letters, expired_at, created, needed = case
    seen = stream(dead_letters=letters)
    assert needs_expiry(seen, expired_at=expired_at, created=created) is needed


# --- The limits of a stream are the larger ones of all resources on it, as far as they can be read


def manifest_of(name: str, retention: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"}
    spec = {"redis": {"url": "redis://redis"}, "stream": "orders", "retention": retention}
    return {"metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("others", "longest"),
    [
        ({"maxLength": 9}, 9),
        ({"maxLength": 3}, 5),
        ({"maxLength": "many"}, 5),
        ({"maxLength": -1}, 5),
        ("much", 5),
        ([], 5),
        (None, 5),
    ],
)
def test_of_two_limits_the_larger_counts_unless_it_is_none(others: Any, longest: int) -> None:
    mine = manifest_of("mine", {"maxLength": 5})
    limits = find_limits(StreamConsumerGroup.parse(mine), [mine, manifest_of("theirs", others)])
    assert limits is not None and limits.max_length == longest
