"""Facts for tests of scaling; each case states only what matters to it."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.behavior import Recommendation, ReplicaHistory
from pelops.policy.scaling.capacity import Capacity, FadingCount
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.scaling.demand import GroupDemand, measure_demand
from pelops.policy.scaling.meter import HandlingTime, Meter
from tests.builders import NOW, resource, workload

SECOND = 1000.0  # of the clock that never jumps

POLICY = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["Pods", "Percent"]),
        "value": st.integers(1, 200),
        "periodSeconds": st.integers(1, 90),
    }
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "stabilizationWindowSeconds": st.integers(0, 90),
        "policies": st.lists(POLICY, min_size=1, max_size=3),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "tolerancePercent": st.integers(0, 100),
    },
)
BEHAVIOR = st.fixed_dictionaries({}, optional={"scaleUp": RULES, "scaleDown": RULES})


def auto(**scaling: Any) -> StreamConsumerGroupSpec:
    """A spec in mode Auto with at most 10 workers, 100 entries each."""
    return resource(scaling={"mode": "Auto", **scaling}).spec


def owing(**changes: Any) -> Backlog:
    """The backlog of a group; by default nothing is undelivered or pending."""
    usual = Backlog(
        at=NOW,
        exists=True,
        undelivered=0,
        is_exact=True,
        held=0,
        waiting=0,
        added=1_000,
        dead_letters=0,
    )
    return replace(usual, **changes)


def wanting(replicas: int, *, ago_s: float = 600.0, **known: Any) -> Autoscaler:
    """An autoscaler that wanted so many so long ago; by default no window holds it.

    `known` are fields of its meter, or the `meter` itself.
    """
    past = Recommendation(at=SECOND - ago_s, replicas=replicas)
    meter = replace(known.pop("meter", Meter()), **known)
    return Autoscaler(history=ReplicaHistory(recommendations=(past,)), meter=meter)


def knowing(*, arrivals: float | None, per_replica: float | None, is_proven: bool = True) -> Meter:
    """A meter that knows its rates."""
    seen = FadingCount() if arrivals is None else FadingCount(count=arrivals * 40, seconds=40)
    return Meter(
        fast=seen,
        slow=seen,
        capacity=Capacity(
            per_replica=per_replica,
            proven=per_replica if is_proven else None,
            best=per_replica or 0.0,
        ),
    )


def handling(mean_s: float) -> HandlingTime:
    """Workers that are known to hold an entry for so long."""
    return HandlingTime(held_s=100 * mean_s, acknowledged=100)


def observe(
    autoscaler: Autoscaler,
    spec: StreamConsumerGroupSpec,
    seen: WorkloadObservation,
    backlog: Backlog | None,
    **more: Any,
) -> tuple[ScalingDecision, Autoscaler]:
    """The decision after one more observation, and the autoscaler then; the one given is not
    changed.
    """
    after_it = copy.deepcopy(autoscaler)
    return after_it.observe(spec, seen, backlog, **more), after_it


def demand_of(
    backlog: Backlog, meter: Meter | None = None, *, ready: int = 8, **scaling: Any
) -> GroupDemand:
    """The demand of a group of which this is known, without any other observation."""
    return measure_demand(auto(**scaling), backlog, meter or Meter(), ready=ready, now=SECOND)


def decide(
    backlog: Backlog | None,
    *,
    current: int,
    memory: Autoscaler | None = None,
    now: float = SECOND,
    scaling: dict[str, Any] | None = None,
    **seen: Any,
) -> ScalingDecision:
    """The decision alone; by default every worker is ready."""
    shown = workload(**{"wished": current, "current": current, "ready": current, **seen})
    known = wanting(0) if memory is None else memory
    return observe(known, auto(**(scaling or {})), shown, backlog, now=now)[0]


def after(**duration: float) -> timedelta:
    """A duration, to be added to a time."""
    return timedelta(**duration)
