"""Which lag can be believed, what a group's state says, and what provisioning left undone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import (
    FIXED_FIELDS,
    DroppedConsumers,
    GroupState,
    Loss,
    LossCause,
    RememberedPosition,
    RetryWait,
    ScanReport,
    Totals,
    WentBack,
    parse_state,
)
from pelops.domain.stream_observation import Ahead, RetryObservation, decide_lag
from tests.builders import group, stream

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = EntryId(1), EntryId(9)
FULL: dict[str, str | None] = {
    "master:since_ms": "1000",
    "sweep:done_ms": "2000",
    "sweep:report": '{"reason": "SlotMigrating", "waiting": 3, "unmatched": ["w-1"], "new": [1]}',
    "bookmark:at_ms": "3000",
    "group:created_ms": "4000",
    "group:format": "1",
    "trim:at_ms": "9000",
    "seen:last_delivered": "6-0",
    "seen:lowest_pending": "3-0",
    "seen:entries_added": "10",
    "seen:last_generated": "10-0",
    "seen:at_ms": "5000",
    "back:since_ms": "6000",
    "back:from": "6-0",
    "back:to": "2-0",
    "back:hold_until_ms": "7000",
    "loss:at_least": "3",
    "loss:at_most": "",
    "loss:position": "6-0",
    "loss:seen_ms": "8000",
    "loss:cause": "stream-gone",
    "loss:undelivered": "177",
    "loss:pending": "11",
    "loss:observed_ms": "7000",
    "loss:found_ms": "8000",
    "dropped:at_most": "11",
    "dropped:consumer": "jane",
    "dropped:consumers": "1",
    "dropped:observed_ms": "7000",
    "dropped:found_ms": "8000",
    "dropped:seen_ms": "8000",
    "seen:pending": "2",
    "seen:undelivered": "4",
    "total:requeued": "1",
    "total:released": "2",
    "total:dead_lettered": "3",
    "total:payload_gone": "4",
    "total:trimmed": "5",
    "total:redriven": "6",
    "total:discarded": "7",
    "total:restored": "8",
    "retry:waits": "5-0 6-0 10000",
}


def at(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def test_a_state_is_read_field_by_field() -> None:
    assert set(FULL) == set(FIXED_FIELDS)
    assert parse_state(FULL) == GroupState(
        seen=RememberedPosition(
            last_delivered_id=EntryId(6),
            lowest_pending=EntryId(3),
            entries_added=10,
            last_generated_id=EntryId(10),
            at=at(5),
            pending=2,
            undelivered=4,
        ),
        back=WentBack(since=at(6), before=EntryId(6), after=EntryId(2), delay_until=at(7)),
        loss=Loss(
            at_least=3,
            at_most=None,
            position=EntryId(6),
            seen=at(8),
            cause=LossCause.STREAM_GONE,
            undelivered=177,
            pending=11,
            observed=at(7),
        ),
        loss_found_at=at(8),
        dropped=DroppedConsumers(at_most=11, consumer="jane", consumers=1, observed=at(7)),
        dropped_found_at=at(8),
        totals=Totals(
            requeued=1,
            released=2,
            dead_lettered=3,
            payload_gone=4,
            trimmed=5,
            redriven=6,
            discarded=7,
            restored=8,
        ),
        report=ScanReport(reason="SlotMigrating", waiting=3, unmatched=("w-1",)),
        scanned_at=at(2),
        checkpointed_at=at(3),
        master_since=at(1),
        created_at=at(4),
        trim_tried_at=at(9),
        retry_wait=RetryWait(first_undelivered=EntryId(5), position=EntryId(6), at=at(10)),
    )


def test_what_was_never_written_is_absent() -> None:
    assert parse_state({}) == parse_state(dict.fromkeys(FIXED_FIELDS)) == GroupState()


@pytest.mark.parametrize("field", FIXED_FIELDS)
@pytest.mark.parametrize(
    "damage",
    [
        "9" * 400,
        "[" * 100_000,
        *("", "x", "-1", "nan", "1e9", "²", "6", "6-0-0", "\0", "\ud800", "[]"),
    ],
)
def test_a_damaged_field_leaves_the_other_fields_readable(field: str, damage: str) -> None:
    state = parse_state({**FULL, field: damage})
    spoilt = [name for name in ("seen", "back", "loss", "dropped") if getattr(state, name) is None]
    assert spoilt in ([], [field.partition(":")[0]])


def test_a_time_beyond_all_calendars_is_still_a_time() -> None:
    assert parse_state({"sweep:done_ms": "9" * 19}).scanned_at is not None


def test_a_position_without_its_lowest_pending_entry_is_not_remembered() -> None:
    assert parse_state({**FULL, "seen:lowest_pending": None}).seen is None
    nothing_pending = parse_state({**FULL, "seen:lowest_pending": ""}).seen
    assert nothing_pending is not None
    assert nothing_pending.lowest_pending is None


def test_an_acknowledged_loss_is_known_and_not_reported() -> None:
    state = parse_state({**FULL, "loss:seen_ms": None})
    assert state.loss is None
    assert state.acknowledged_loss is not None
    assert state.acknowledged_loss.at_least == 3


def test_the_first_master_was_the_master_from_the_beginning() -> None:
    assert parse_state({"master:since_ms": "0"}).master_since is None


def test_a_group_is_provisioned_with_all_of_its_streams() -> None:
    assert stream().is_provisioned
    assert stream(retry=RetryObservation(exists=True)).is_provisioned
    assert not stream(retry=RetryObservation(exists=False)).is_provisioned
    assert not stream(has_offer_stream=False).is_provisioned


def lag(
    reported: int | None,
    ahead: Ahead | None,
    delivered: EntryId = FIRST,
    generated: EntryId = LAST,
) -> int | None:
    """What is believed of the lag in a stream of 100 entries."""
    ends = {"last_delivered_id": delivered, "last_generated_id": generated}
    return decide_lag(reported, **ends, length=100, ahead=ahead)


@pytest.mark.parametrize(
    ("reported", "ahead", "believed"),
    [
        (5, Ahead(5, is_all=True), 5),
        (None, Ahead(5, is_all=True), 5),
        (7, Ahead(5, is_all=True), 5),
        (7, Ahead(0, is_all=True), 0),  # what lay ahead was trimmed
        (0, Ahead(5, is_all=True), 5),
        (70, Ahead(64, is_all=False), 70),
        (64, Ahead(64, is_all=False), 64),
        (63, Ahead(64, is_all=False), None),
        (101, Ahead(64, is_all=False), None),  # more than the stream holds
        (-76, Ahead(64, is_all=False), None),
        (None, Ahead(64, is_all=False), None),
        (5, None, None),  # the entries ahead are not counted
        (0, None, None),
    ],
)
def test_a_lag_is_believed_only_when_it_can_be(
    reported: int | None, ahead: Ahead | None, believed: int | None
) -> None:
    assert lag(reported, ahead) == believed


@pytest.mark.parametrize("reported", [None, -76, 0, 5])
@pytest.mark.parametrize(
    ("delivered", "generated", "believed"),
    [
        (EntryId(9), EntryId(9), 0),  # at its very end: no entry is undelivered
        (EntryId.MIN, EntryId.MIN, 0),
        (EntryId(10), EntryId(9), None),  # ahead of the stream: new entries are skipped
    ],
)
def test_an_unknown_lag_is_never_zero_but_at_the_end(
    reported: int | None, delivered: EntryId, generated: EntryId, believed: int | None
) -> None:
    """Invariant 6."""
    for ahead in (None, Ahead(0, is_all=True)):
        assert lag(reported, ahead, delivered, generated) == believed


def test_a_known_lag_is_the_lower_bound_of_undelivered_entries() -> None:
    assert group(lag=5).at_least == 5
    assert group(lag=None, at_least=64).at_least == 64
    assert replace(group(lag=None, at_least=64), lag=3).at_least == 3
    assert RetryObservation(exists=True, lag=2).at_least == 2
    assert RetryObservation(exists=True, lag=None).at_least == 0
