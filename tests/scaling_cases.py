"""Facts for tests of scaling; each case states only what matters to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.policy.scaling.behavior import Recommendation, ScalingHistory
from pelops.policy.scaling.decision import ScalingDecision, ScalingMemory, decide_replicas
from pelops.policy.scaling.measurement import Backlog, Capacity, FadingCount, HandlingTime, Meter
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


def wanting(replicas: int, *, ago_s: float = 600.0, **changes: Any) -> ScalingMemory:
    """A memory in which so many were wanted so long ago; by default no window holds it."""
    past = Recommendation(at=SECOND - ago_s, replicas=replicas)
    return replace(ScalingMemory(history=ScalingHistory(recommendations=(past,))), **changes)


def knowing(*, arrivals: float, per_replica: float, is_proven: bool = True) -> Meter:
    """A meter that knows its rates."""
    seen = FadingCount(count=arrivals * 40, seconds=40)
    return Meter(
        fast=seen,
        slow=seen,
        capacity=Capacity(
            per_replica=per_replica, proven=per_replica if is_proven else None, best=per_replica
        ),
    )


def handling(mean_s: float) -> HandlingTime:
    """Workers that are known to hold an entry for so long."""
    return HandlingTime(held_s=100 * mean_s, acknowledged=100)


def decide(
    backlog: Backlog | None,
    *,
    current: int,
    memory: ScalingMemory | None = None,
    now: float = SECOND,
    scaling: dict[str, Any] | None = None,
    **seen: Any,
) -> ScalingDecision:
    """The decision alone; by default every worker is ready."""
    shown = workload(**{"wished": current, "current": current, "ready": current, **seen})
    known = wanting(0) if memory is None else memory
    return decide_replicas(auto(**(scaling or {})), shown, backlog, known, now=now)[0]


def after(**duration: float) -> timedelta:
    """A duration, to be added to a time."""
    return timedelta(**duration)
