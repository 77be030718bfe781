"""The retry stream in what is shown of a group, the alarms about it, and when it is emptied."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import pytest

from pelops.controller.group.group_status import compare, measure_group, render_status
from pelops.controller.runtime.kind import Difference, PreviousStatus
from pelops.domain.condition import Condition
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import GroupState, RetryWait, Totals
from pelops.domain.stream_observation import RetryObservation, StreamObservation
from pelops.metrics import GROUP_FACTS, STREAM_FACTS, forget_group
from pelops.policy.recovery.retry_stream import NOTED_AFTER, UNREAD_AFTER, needs_return, plan_note
from pelops.policy.scaling.backlog import measure_backlog
from pelops.policy.status.alarms import decide_alarms
from pelops.policy.status.conditions import decide_conditions
from pelops.policy.status.facts import Facts
from tests.builders import NOW, facts, group, resource, stream, workload

NOW_MS = int(NOW.timestamp() * 1000)
RETRY = {"strategy": "RetryStream"}
FIRST = EntryId(NOW_MS - 40_000)  # the copy that waits first
POSITION = EntryId(1700000000000)  # of the group on the stream


def retry(**changes: Any) -> RetryObservation:
    return RetryObservation(
        **{"exists": True, "length": 3, "lag": 3, "first_undelivered": FIRST, **changes}
    )


def both(*, state: GroupState | None = None, **changes: Any) -> StreamObservation:
    """A stream with nothing to do, and a retry stream with what is given."""
    group_changes = changes.pop("group", {})
    return stream(retry=retry(**changes), group=group(**group_changes), state=state or GroupState())


def former(**changes: Any) -> StreamObservation:
    return both(is_former=True, **changes)


def rendered(seen: StreamObservation, **more: Any) -> dict[str, Any]:
    found = facts(resource=resource(recovery=RETRY), stream=seen, **more)
    return render_status(
        found, decide_conditions(found), PreviousStatus(status={}, generation=1), NOW
    )


# --- what is shown


def test_lag_pending_and_oldest_are_those_of_both_streams() -> None:
    older, newer = EntryId(NOW_MS - 90_000), EntryId(NOW_MS - 30_000)
    seen = both(
        group={"lag": 4, "pending": 5, "lowest_pending": newer}, pending=2, lowest_pending=older
    )
    status = rendered(seen)
    shown = status["group"]
    assert (shown["lag"], shown["lagKnown"], shown["pending"]) == (7, True, 7)
    assert shown["oldestPendingTime"] == "2026-05-04T03:00:31Z"
    assert status["summary"]["lag"] == "7"
    assert status["retryStream"] == {
        "name": "{orders:events}:order-processing:retry",
        "lag": 3,
        "lagKnown": True,
        "pending": 2,
        "oldestPendingTime": "2026-05-04T03:00:31Z",
    }
    assert "retryStream" not in rendered(stream())


def test_a_lag_that_is_unknown_in_one_stream_is_unknown() -> None:
    """Invariant 6: unknown lag is never zero."""
    seen = rendered(both(lag=None, at_least=9, group={"lag": 4}))
    assert (seen["group"]["lag"], seen["group"]["lagKnown"]) == (13, False)
    assert seen["summary"]["lag"] == ">=13"
    assert rendered(both(lag=None))["summary"]["lag"] == "unknown"
    assert rendered(both(group={"lag": None}))["summary"]["lag"] == ">=3"


def test_changes_of_retry_stream_numbers_alone_are_written_rarely() -> None:
    before, after = rendered(both()), rendered(both(lag=4, pending=1))
    assert compare(after, before) is Difference.NUMBERS


def number(found: float | None) -> float:
    assert found is not None
    return found


def test_metrics_have_the_total_and_the_values_of_each_stream() -> None:
    name = ("shop", "order-processing")
    lowest = EntryId(NOW_MS - 60_000)
    measure_group(name, both(group={"lag": 4, "pending": 5}, pending=2, lowest_pending=lowest))
    totals = {fact: GROUP_FACTS[fact].value(*name) for fact in STREAM_FACTS}
    assert totals == {"lag": 7, "pending": 7, "oldest": pytest.approx(60)}
    for fact in ("lag", "pending"):
        parts = [number(STREAM_FACTS[fact].value(*name, one)) for one in ("main", "retry")]
        assert sum(parts) == totals[fact]
    measure_group(name, both(lag=None))
    assert math.isnan(number(GROUP_FACTS["lag"].value(*name)))
    assert STREAM_FACTS["lag"].value(*name, "main") == 0
    measure_group(name, None)
    parts = [number(STREAM_FACTS["lag"].value(*name, one)) for one in ("main", "retry")]
    assert all(map(math.isnan, parts))
    measure_group(name, stream())
    assert STREAM_FACTS["lag"].value(*name, "retry") is None
    forget_group(*name)
    assert STREAM_FACTS["lag"].value(*name, "main") is None


@pytest.mark.parametrize("seen", [both(), both(lag=0, pending=2), former(), both(lag=None)])
def test_work_in_the_retry_stream_alone_keeps_workers(seen: StreamObservation) -> None:
    """Invariant 6."""
    assert not measure_backlog(seen, recovers=True).is_empty


def test_with_both_streams_empty_the_backlog_is_empty() -> None:
    empty: dict[str, Any] = {"lag": 0, "first_undelivered": None}
    for seen in (both(**empty), former(**empty)):
        assert measure_backlog(seen, recovers=True).is_empty


def test_copies_are_not_arrivals_even_beside_a_former_retry_stream() -> None:
    state = GroupState(totals=Totals(requeued=2))
    assert measure_backlog(both(state=state), recovers=True).added == 3
    assert measure_backlog(former(state=state), recovers=True).added == 1


def test_the_group_of_a_former_retry_stream_is_not_recreated() -> None:
    assert former(exists=False).is_provisioned
    assert not both(exists=False).is_provisioned


# --- whether workers read it


def asked(seen: StreamObservation, **more: Any) -> Facts:
    return facts(**{"resource": resource(recovery=RETRY), "stream": seen, **more})


def alarm_of(found: Facts, kind: str) -> Condition | None:
    return next((one for one in decide_alarms(found) if one.type == kind), None)


def unread(found: Facts) -> Condition | None:
    return alarm_of(found, "RetryStreamNotRead")


GIVEN_SINCE = {"last_delivered_id": EntryId(1700000000001), "pending": 4, "lag": 7}


def noted(at: datetime) -> GroupState:
    """The state after the wait of the first copy was noted at this time."""
    return GroupState(retry_wait=RetryWait(first_undelivered=FIRST, position=POSITION, at=at))


WAITING = noted(NOW - UNREAD_AFTER)


def test_workers_that_read_only_the_main_stream_raise_an_alarm() -> None:
    alarm = unread(asked(both(state=WAITING, group=GIVEN_SINCE)))
    assert alarm is not None
    assert (alarm.status, alarm.reason) == ("True", "RetryStreamNotRead")
    for words in ("{orders:events}:order-processing:retry", "PELOPS_RETRY_STREAM", "XREADGROUP"):
        assert words in alarm.message


def test_workers_that_wait_at_the_empty_stream_do_not_read_it() -> None:
    assert unread(asked(both(state=WAITING)))


def test_the_alarm_is_reported_while_the_resource_is_ready() -> None:
    conditions = {one.type: one for one in decide_conditions(asked(both(state=WAITING)))}
    assert conditions["Ready"].is_true
    assert conditions["RetryStreamNotRead"].is_true


QUIET: dict[str, Facts] = {
    "workers are busy with what they hold": asked(both(state=WAITING, group={"pending": 4})),
    "workers are busy with copies": asked(both(state=WAITING, pending=1)),
    "nobody is there to read": asked(
        both(state=WAITING, group=GIVEN_SINCE), workload=workload(ready=0)
    ),
    "workers do not read at all": asked(both(state=WAITING, group={"lag": 7})),
    "the lag of the stream is unknown": asked(both(state=WAITING, group={"lag": None})),
    "another copy waits first by now": asked(
        both(state=WAITING, first_undelivered=EntryId(FIRST.ms + 1), group=GIVEN_SINCE)
    ),
    "it was read": asked(both(state=WAITING, lag=0, first_undelivered=None, group=GIVEN_SINCE)),
    "it is not noted": asked(both(group=GIVEN_SINCE)),
    "it was noted just now": asked(
        both(state=noted(NOW - UNREAD_AFTER + timedelta(seconds=1)), group=GIVEN_SINCE)
    ),
    "the clock went back": asked(both(state=noted(NOW + UNREAD_AFTER), group=GIVEN_SINCE)),
    "it is no longer asked for": asked(
        former(state=WAITING, group=GIVEN_SINCE), resource=resource()
    ),
}


@pytest.mark.parametrize("found", QUIET.values(), ids=QUIET)
def test_nothing_is_said_without_proof(found: Facts) -> None:
    assert unread(found) is None


def test_without_declared_workers_only_deliveries_raise_the_alarm() -> None:
    alone = resource(recovery=RETRY, template=None)
    assert not alone.spec.has_workers
    none = workload(exists=False, ready=0)
    assert not unread(asked(both(state=WAITING), resource=alone, workload=none))
    given = both(state=WAITING, group=GIVEN_SINCE)
    assert unread(asked(given, resource=alone, workload=none))


def test_a_waiting_copy_is_noted_once_while_workers_may_read() -> None:
    fresh = EntryId(NOW_MS - NOTED_AFTER // timedelta(milliseconds=1) + 1)
    assert plan_note(both(), may_read=True) is True
    assert plan_note(both(state=WAITING), may_read=True) is None
    assert plan_note(both(first_undelivered=fresh), may_read=True) is None
    assert plan_note(both(), may_read=False) is None
    assert plan_note(both(lag=0, first_undelivered=None), may_read=True) is None
    assert plan_note(stream(), may_read=True) is None


def test_a_note_is_removed_when_no_copy_waits_for_workers() -> None:
    read = both(state=WAITING, lag=0, first_undelivered=None)
    assert plan_note(read, may_read=True) is False
    assert plan_note(both(state=WAITING), may_read=False) is False
    assert plan_note(former(state=WAITING), may_read=True) is False


# --- what is left when it is no longer asked for


def left(found: Facts) -> str:
    alarm = alarm_of(found, "RetryStreamNotEmpty")
    return alarm.message if alarm else ""


OFF = resource(recovery={"strategy": "Disabled"})
RELEASE = resource(recovery={"strategy": "Release"})


@pytest.mark.parametrize("of", [resource(), RELEASE])
def test_undelivered_copies_of_a_former_retry_stream_go_back(of: Any) -> None:
    assert needs_return(of.spec.recovery, former())
    assert needs_return(of.spec.recovery, former(exists=False))
    for seen in (
        former(lag=0, pending=2, first_undelivered=None),
        both(),
        stream(),
        former(lag=None, at_least=0),
    ):
        assert not needs_return(of.spec.recovery, seen)


def test_no_copy_goes_back_where_it_would_be_repeated_or_undelivered() -> None:
    recovery, seen = resource().spec.recovery, former()
    others = stream(retry=seen.retry, groups=2)
    assert not needs_return(recovery, others)
    assert not needs_return(OFF.spec.recovery, seen)
    ahead = former(group={"last_delivered_id": EntryId(1800000000000)})
    assert not needs_return(recovery, ahead)


def test_what_stays_is_reported_until_it_is_empty() -> None:
    for seen in (former(), former(lag=0, pending=2, first_undelivered=None)):
        others = stream(retry=seen.retry, groups=2)
        assert "its other groups would receive them" in left(facts(stream=others))
        assert "strategy is Disabled" in left(facts(stream=seen, resource=OFF))
        suspended = facts(stream=seen, resource=resource(suspend=True))
        assert "when spec.suspend is false" in left(suspended)
    empty = stream(retry=retry(is_former=True, lag=0, first_undelivered=None, length=0), groups=2)
    assert not left(facts(stream=empty))
    assert not left(facts(stream=both(), resource=resource(recovery=RETRY)))


def test_pending_copies_of_a_former_retry_stream_raise_no_alarm() -> None:
    assert not left(facts(stream=former(lag=0, pending=2, first_undelivered=None)))
    assert "moves them back" in left(facts(stream=former()))
    assert "moves them back" in left(facts(stream=former(lag=None, at_least=0)))
