"""The backlog of a group, judged from a look at its streams."""

from __future__ import annotations

from dataclasses import replace

from pelops.domain.records.state import GroupState, ScanReport, Totals
from pelops.domain.stream_observation import RetryObservation
from pelops.policy.scaling.backlog import measure_backlog
from tests.builders import NOW, empty_redis, group, stream


def test_the_backlog_includes_the_stream_and_its_retry_stream() -> None:
    retry = RetryObservation(exists=True, pending=2, lag=3)
    seen = stream(group=group(pending=5, lag=7), retry=retry, dead_letters=4)
    backlog = measure_backlog(seen, recovers=True)
    assert (backlog.undelivered, backlog.held, backlog.deliverable) == (10, 7, 17)
    assert (backlog.at, backlog.is_exact, backlog.dead_letters) == (NOW, True, 4)
    assert not backlog.is_empty


def test_a_group_at_the_end_of_its_stream_has_no_backlog() -> None:
    assert measure_backlog(stream(), recovers=True).is_empty


def test_an_unknown_lag_is_at_least_what_was_counted() -> None:
    seen = stream(group=group(lag=None, at_least=64))
    backlog = measure_backlog(seen, recovers=True)
    assert (backlog.undelivered, backlog.is_exact) == (64, False)


def test_an_unknown_lag_of_nothing_counted_is_no_zero() -> None:
    backlog = measure_backlog(stream(group=group(lag=None)), recovers=True)
    assert backlog.deliverable == 0
    assert not backlog.is_empty


def test_an_unknown_lag_of_the_retry_stream_is_no_zero() -> None:
    seen = stream(retry=RetryObservation(exists=True, lag=None))
    assert not measure_backlog(seen, recovers=True).is_empty


def test_a_missing_group_is_no_zero() -> None:
    backlog = measure_backlog(empty_redis(), recovers=True)
    assert not backlog.exists
    assert not backlog.is_empty


def test_entries_that_wait_for_recovery_are_no_work() -> None:
    state = GroupState(report=ScanReport(waiting=30))
    seen = stream(group=group(pending=40), state=state)
    backlog = measure_backlog(seen, recovers=True)
    assert (backlog.held, backlog.waiting) == (10, 30)


def test_an_old_report_never_hides_more_than_is_pending() -> None:
    state = GroupState(report=ScanReport(waiting=30))
    backlog = measure_backlog(stream(group=group(pending=4), state=state), recovers=True)
    assert (backlog.held, backlog.waiting) == (0, 4)


def test_without_recovery_all_that_is_pending_may_be_in_work() -> None:
    state = GroupState(report=ScanReport(waiting=30))
    backlog = measure_backlog(stream(group=group(pending=40), state=state), recovers=False)
    assert (backlog.held, backlog.waiting) == (40, 0)


def test_a_copy_of_a_stuck_entry_is_no_arrival() -> None:
    state = GroupState(totals=Totals(requeued=10))
    seen = stream(entries_added=110, state=state)
    assert measure_backlog(seen, recovers=True).added == 100
    aside = replace(seen, retry=RetryObservation(exists=True))
    assert measure_backlog(aside, recovers=True).added == 110


def test_workers_that_hold_entries_are_those_of_both_streams() -> None:
    seen = stream(group=group(pending=5, holding=2))
    assert measure_backlog(seen, recovers=True).holding == 2
    both = replace(seen, retry=RetryObservation(exists=True, pending=1, holding=1))
    assert measure_backlog(both, recovers=True).holding == 3


def test_the_number_of_holding_workers_is_unknown_if_any_count_is_missing() -> None:
    seen = stream(group=group(pending=5, holding=None))
    assert measure_backlog(seen, recovers=True).holding is None
    unknown = RetryObservation(exists=True, pending=1, holding=None)
    seen = stream(group=group(pending=5, holding=2), retry=unknown)
    assert measure_backlog(seen, recovers=True).holding is None
