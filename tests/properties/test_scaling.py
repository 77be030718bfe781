"""No facts, however odd, make scaling lose its head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.behavior import Recommendation, ReplicaHistory
from pelops.policy.scaling.decision import keep_busy_workers
from pelops.policy.status.reasons import Reason
from tests.builders import NOW, pod, workload
from tests.scaling_cases import BEHAVIOR, auto, knowing, observe, owing

COUNT = st.integers(0, 30)
MANY = st.one_of(st.integers(0, 50), st.integers(0, 10**7))


@st.composite
def scalings(draw: st.DrawFn) -> dict[str, Any]:
    """spec.scaling in mode Auto."""
    low, high = sorted((draw(st.integers(0, 20)), draw(st.integers(1, 20))))
    scaling = {
        "minReplicas": low,
        "maxReplicas": max(1, high),
        "backlogPerReplica": draw(st.integers(1, 200)),
        "cooldownSeconds": draw(st.integers(0, 90)),
        "behavior": draw(BEHAVIOR),
    }
    within = draw(st.none() | st.integers(1, 600))
    return scaling if within is None else {**scaling, "drainWithinSeconds": within}


@st.composite
def backlogs(draw: st.DrawFn) -> Backlog:
    """Any backlog that may be observed."""
    return owing(
        exists=draw(st.sampled_from([True, True, True, False])),
        undelivered=draw(MANY),
        is_exact=draw(st.sampled_from([True, True, False])),
        held=draw(MANY),
        waiting=draw(COUNT),
        added=draw(st.none() | MANY),
        dead_letters=draw(COUNT),
    )


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadObservation:
    """A workload in any state."""
    crashing = pod(is_ready=False, waiting_reason="CrashLoopBackOff")
    return workload(
        exists=draw(st.sampled_from([True, True, True, False])),
        wished=draw(st.none() | COUNT),
        ready=draw(COUNT),
        failure=draw(st.sampled_from([None, None, None, "quota"])),
        pods=draw(st.sampled_from([(), (pod(),), (crashing,)])),
    )


@dataclass(frozen=True)
class Turn:
    """One look, so long after the one before."""

    after_s: float
    backlog: Backlog | None
    workload: WorkloadObservation
    is_written: bool  # else the write fails


TURNS = st.lists(
    st.builds(
        Turn,
        after_s=st.sampled_from([0.0, 0.1, 1.0, 5.0, 20.0, 300.0]),
        backlog=st.none() | backlogs(),
        workload=workloads(),
        is_written=st.booleans(),
    ),
    max_size=8,
)


def lived(spec: StreamConsumerGroupSpec, turns: list[Turn]) -> tuple[Autoscaler, float]:
    """The autoscaler after a life, and the second of its end."""
    autoscaler, now, at = Autoscaler(), 1000.0, NOW
    for turn in turns:
        now, at = now + turn.after_s, at + timedelta(seconds=turn.after_s)
        seen = None if turn.backlog is None else replace(turn.backlog, at=at)
        decision = autoscaler.observe(spec, turn.workload, seen, now=now)
        if turn.is_written and decision.is_change and decision.replicas is not None:
            autoscaler.record_write(before=decision.current, after=decision.replicas, now=now)
    return autoscaler, now


@given(scalings(), TURNS, st.none() | backlogs(), workloads(), st.none() | COUNT)
def test_the_number_is_never_out_of_its_bounds(
    scaling: dict[str, Any],
    turns: list[Turn],
    backlog: Backlog | None,
    seen: WorkloadObservation,
    busy: int | None,
) -> None:
    spec = auto(**scaling)
    autoscaler, now = lived(spec, turns)
    decision = observe(autoscaler, spec, seen, backlog, now=now)[0]
    for one in (decision, keep_busy_workers(decision, busy)):
        assert one.message
        if one.replicas is not None:
            assert scaling["minReplicas"] <= one.replicas <= scaling["maxReplicas"]


@given(scalings(), TURNS, st.none() | backlogs(), workloads())
def test_a_doubt_ends_no_worker_and_never_the_last_one(
    scaling: dict[str, Any],
    turns: list[Turn],
    backlog: Backlog | None,
    seen: WorkloadObservation,
) -> None:
    """Invariant 6."""
    spec = auto(**scaling)
    autoscaler, now = lived(spec, turns)
    decision = observe(autoscaler, spec, seen, backlog, now=now)[0]
    if decision.replicas is None or (backlog and backlog.exists and backlog.is_exact):
        return
    assert decision.replicas >= min(decision.current, scaling["maxReplicas"])
    assert decision.reason in (
        Reason.BACKLOG_UNKNOWN,
        Reason.LAG_UNKNOWN,
        Reason.SCALING_INEFFECTIVE,
    )
    if backlog is not None and backlog.exists:
        assert decision.replicas >= 1


@given(scalings(), TURNS, backlogs(), workloads())
def test_zero_replicas_require_a_backlog_that_is_certainly_zero(
    scaling: dict[str, Any], turns: list[Turn], backlog: Backlog, seen: WorkloadObservation
) -> None:
    spec = auto(**scaling)
    autoscaler, now = lived(spec, turns)
    decision = observe(autoscaler, spec, seen, backlog, now=now)[0]
    if decision.replicas == 0 and decision.current > 0:
        assert backlog.is_empty
    if decision.replicas == 0 and backlog.exists:
        assert backlog.is_empty


@given(scalings(), TURNS, st.none() | backlogs(), workloads())
def test_the_same_facts_give_the_same_answer(
    scaling: dict[str, Any],
    turns: list[Turn],
    backlog: Backlog | None,
    seen: WorkloadObservation,
) -> None:
    spec = auto(**scaling)
    autoscaler, now = lived(spec, turns)
    first = observe(autoscaler, spec, seen, backlog, now=now)
    assert observe(autoscaler, spec, seen, backlog, now=now) == first


@given(scalings(), TURNS, st.none() | backlogs(), workloads())
def test_after_the_write_there_is_nothing_to_write(
    scaling: dict[str, Any],
    turns: list[Turn],
    backlog: Backlog | None,
    seen: WorkloadObservation,
) -> None:
    """Invariant 9; also when the look is older than the write."""
    spec = auto(**scaling)
    autoscaler, now = lived(spec, turns)
    decision, autoscaler = observe(autoscaler, spec, seen, backlog, now=now)
    if not decision.is_change or decision.replicas is None:
        return
    autoscaler.record_write(before=decision.current, after=decision.replicas, now=now)
    for shown in (decision.replicas, seen.wished):
        again = observe(autoscaler, spec, replace(seen, wished=shown), backlog, now=now)[0]
        assert not again.is_change


@given(
    scalings(),
    st.lists(st.tuples(st.integers(1, 100), COUNT), max_size=6),
    workloads(),
    st.tuples(st.floats(0, 500), st.floats(0.01, 100), st.booleans()),
    st.tuples(MANY, MANY, MANY, MANY),
)
def test_more_work_never_wants_fewer_workers(
    scaling: dict[str, Any],
    past: list[tuple[int, int]],
    seen: WorkloadObservation,
    speed: tuple[float, float, bool],
    work: tuple[int, int, int, int],
) -> None:
    spec = auto(**scaling)
    recommended = tuple(
        Recommendation(at=1000.0 - ago, replicas=n) for ago, n in sorted(past, reverse=True)
    )
    meter = knowing(arrivals=speed[0], per_replica=speed[1], is_proven=speed[2])
    meter.empty_since = 900.0
    autoscaler = Autoscaler(meter=meter, history=ReplicaHistory(recommendations=recommended))

    def decide(undelivered: int, held: int) -> int:
        backlog = owing(undelivered=undelivered, held=held)
        decision = observe(autoscaler, spec, seen, backlog, now=1000.0)[0]
        return 0 if decision.replicas is None else decision.replicas

    undelivered, held, more, more_held = work
    assert decide(undelivered, held) <= decide(undelivered + more, held + more_held)


@given(scalings(), backlogs(), workloads(), COUNT)
def test_workers_that_hold_entries_stay(
    scaling: dict[str, Any], backlog: Backlog, seen: WorkloadObservation, busy: int
) -> None:
    decision = Autoscaler().observe(auto(**scaling), seen, backlog, now=1000.0)
    spared = keep_busy_workers(decision, busy)
    if decision.replicas is None or spared.replicas is None:
        return
    assert spared.replicas >= decision.replicas
    holding = min(busy, backlog.held + backlog.waiting, decision.current)
    if backlog.exists:
        assert spared.replicas >= min(holding, scaling["maxReplicas"])
    assert spared.replicas <= max(decision.replicas, busy)
