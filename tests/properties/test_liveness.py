"""No timeline of a pod, however unlucky, lets a live process be recovered prematurely.

An entry that was read again before a failover may have been delivered at any time: then there must
be no cutoff at all.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.recovery import LivenessReason, PodEvidence
from pelops.policy.recovery.liveness import decide_cutoff
from tests.properties.pod_timelines import (
    CLOCK,
    SKEW_S,
    PodReports,
    Process,
    assert_no_premature_recovery,
    decide,
    kubelets,
    moment,
    ms,
    near,
)


@given(kubelets(), st.data())
def test_a_container_that_restarts_is_never_recovered_prematurely_whatever_its_sidecar_does(
    reported: PodReports, data: st.DataObject
) -> None:
    """Invariant 2, and A3."""
    look = data.draw(near(reported), label="look")
    seen: dict[str, datetime] = {}
    live = reported.pod(look)
    if data.draw(st.booleans(), label="the start was watched"):
        begun = [one.start for one in reported.worker if one.start <= look - reported.lag]
        seen = {"worker": moment(begun[-1] + reported.lag)} if begun else {}
    evidence = PodEvidence(consumer="w-1", live=live, first_seen=seen)
    named = "worker" if not reported.sidecar or data.draw(st.booleans(), label="named") else None
    assert_no_premature_recovery(
        decide(evidence, look, container=named), list(reported.worker), look
    )


@given(kubelets(), ms(0, 0.2), st.data())
def test_a_worker_that_writes_when_it_began_is_never_recovered_prematurely(
    reported: PodReports, until_first_read: float, data: st.DataObject
) -> None:
    look = data.draw(near(reported), label="look")
    begun = [one for one in reported.worker if one.start + until_first_read <= look]
    boot = moment(begun[-1].start + until_first_read) if begun else None
    evidence = PodEvidence(consumer="w-1", live=reported.pod(look), boot=boot)
    cutoff = decide(evidence, look)
    readers = [replace(one, start=one.start + until_first_read) for one in reported.worker]
    assert_no_premature_recovery(cutoff, readers, look)
    if cutoff.reason is LivenessReason.BOOTED:
        assert cutoff.at == boot


@given(kubelets(), ms(0, 5), st.data())
def test_entries_read_again_before_a_failover_are_never_recovered(
    reported: PodReports, seen_after: float, data: st.DataObject
) -> None:
    look, failover = (
        data.draw(near(reported), label="look"),
        data.draw(near(reported), label="failover"),
    )
    evidence = PodEvidence(consumer="w-1", live=reported.pod(look))
    cutoff = decide_cutoff(
        evidence,
        server_time=moment(look),
        skew=timedelta(seconds=SKEW_S),
        master_since=moment(failover + seen_after),
        container="worker",
    )
    assert_no_premature_recovery(cutoff, list(reported.worker), look)
    holders = [one for one in reported.worker if one.start <= failover < one.end and one.end > look]
    if failover <= look and holders:
        assert cutoff.at is None


@given(CLOCK, ms(0, 3), ms(0.5, 60), st.sampled_from([10.0, 20.0, 300.0]), ms(0, 9))
def test_entries_of_a_container_in_crash_loop_back_off_are_stuck(
    clock: float, lag: float, end: float, pause: float, later: float
) -> None:
    worker = (Process(start=0, end=end, back_off=pause), Process(start=end + pause))
    reported = PodReports(clock=clock, lag=lag, worker=worker)
    look = end + lag + 0.001 + min(later, pause - lag - 0.1)
    cutoff = decide(PodEvidence(consumer="w-1", live=reported.pod(look)), look)
    assert cutoff.at is not None
    assert cutoff.at >= moment(end)


@given(CLOCK, ms(0, 3), ms(0.5, 60), st.sampled_from([0.0, 10.0, 300.0]), ms(4, 60))
def test_all_but_the_last_seconds_is_free_after_a_restart(
    clock: float, lag: float, end: float, pause: float, later: float
) -> None:
    worker = (Process(start=0, end=end, back_off=pause), Process(start=end + pause))
    reported = PodReports(clock=clock, lag=lag, worker=worker)
    look = end + pause + later
    cutoff = decide(PodEvidence(consumer="w-1", live=reported.pod(look)), look)
    assert cutoff.at is not None
    late = timedelta() if pause else timedelta(seconds=2 * SKEW_S + 1)
    assert cutoff.at >= moment(end) - late
