"""Two streams on one fleet for some minutes: the number settles where both are served."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from pelops.policy.scaling.autoscaler import Autoscaler
from pelops.policy.scaling.backlog import Backlog
from pelops.policy.scaling.demand import measure_demand
from pelops.policy.scaling.meter import Meter
from tests.builders import NOW, workload
from tests.scaling_cases import auto, owing

PER_WORKER = 50.0  # entries a second, of all streams together
MINUTES = 15
SETTLED_S = 600


class Fleet:
    """Workers that share their time between streams by what waits there."""

    def __init__(self, arrivals: list[float], combine: str) -> None:
        self.arrivals = arrivals
        self.spec = auto(maxReplicas=40, combine=combine)
        self.waiting = [0.0] * len(arrivals)
        self.meters = [Meter() for _ in arrivals]
        self.autoscaler = Autoscaler()
        self.replicas = 0
        self.random = Random(1)

    def look(self, second: int) -> list[Backlog]:
        """What is seen a second later."""
        self.waiting = [w + a for w, a in zip(self.waiting, self.arrivals, strict=True)]
        capacity, total = PER_WORKER * self.replicas, sum(self.waiting)
        done = min(capacity, total)
        seen = []
        for number, arrivals in enumerate(self.arrivals):
            share = done * self.waiting[number] / total if total else 0.0
            self.waiting[number] -= share
            busy = share / capacity if capacity else 0.0
            is_full = done >= capacity
            drawn = [is_full or self.random.random() < busy for _ in range(self.replicas)]
            seen.append(
                owing(
                    at=NOW + timedelta(seconds=second),
                    undelivered=int(self.waiting[number]),
                    held=2 * sum(drawn),
                    holding=sum(drawn),
                    added=1_000 + int(arrivals * second),
                )
            )
        return seen

    def decide(self, second: int) -> None:
        """Scale by what is seen."""
        own, *rest = self.look(second)
        size, now = self.replicas, float(second)
        shown = workload(wished=size, current=size, ready=size)
        others = []
        for number, backlog in enumerate(rest, start=1):
            meter, name = self.meters[number], f"s{number}"
            meter.observe(backlog, ready=size, workers=size, now=now)
            others.append(measure_demand(auto(), backlog, meter, name=name, ready=size, now=now))
        decision = self.autoscaler.observe(
            self.spec, shown, own, now=now, name="s0", others=tuple(others)
        )
        if decision.is_change and decision.replicas is not None:
            self.replicas = decision.replicas
            self.autoscaler.record_write(before=size, after=self.replicas, now=now)


@pytest.mark.parametrize("arrivals", [[200.0], [100.0, 100.0], [50.0, 150.0], [20.0] * 10], ids=str)
def test_the_sum_settles_at_what_all_streams_need_together(arrivals: list[float]) -> None:
    fleet = Fleet(arrivals, "Sum")
    sizes = []
    for second in range(MINUTES * 60):
        fleet.decide(second)
        sizes.append(fleet.replicas)
    # 200 entries a second are the work of four workers, and no worker is busy all the time.
    assert set(sizes[SETTLED_S:]) == {5}
    assert sum(fleet.waiting) == 0
