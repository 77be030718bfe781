"""A write of the replicas ends with the right to write."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pelops.controller.group.group_observer import RedisObservation
from pelops.controller.group.victims import Victims
from pelops.controller.runtime.events import Reporter
from pelops.controller.scaling.scale_writes import ScaleWrites
from pelops.controller.scaling.scaled_resources import Scaled, ScaledResources
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.workload import Target, WorkloadObservation
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.status.reasons import Reason
from tests.builders import resource
from tests.leases import LeaseApi, LeaseStore
from tests.virtual_time import run_virtually

TARGET = Target(api_version="apps/v1", kind="Deployment", namespace="shop", name="workers")
ANSWER_S = 10.0


@dataclass
class SlowTargets(Targets):
    """The API server answers late; notes which writes it answered, and which were given up."""

    written: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)

    async def scale(self, target: Target, replicas: int) -> None:
        try:
            await asyncio.sleep(ANSWER_S)
        except asyncio.CancelledError:
            self.given_up.append(replicas)
            raise
        self.written.append(replicas)


def write(*, ends_s: float) -> tuple[SlowTargets, Scaled, float]:
    """Write while this replica decides until then: what became of it, and when it was over."""
    targets = SlowTargets()
    scaled = Scaled(resource=resource(scaling={"mode": "Auto"}), manifest={})

    async def main() -> float:
        now = asyncio.get_running_loop().time
        api = LeaseApi(LeaseStore())
        reporter = Silent(api, STREAM_CONSUMER_GROUP, identity="one")
        resources, victims = Deciding(ends_s), Victims(api, WorkloadCache())
        writes = ScaleWrites(resources, targets, victims, reporter, now)
        workload = WorkloadObservation(target=TARGET, exists=True)
        decision = ScalingDecision(replicas=3, reason=Reason.SCALED, message="", current=1)
        await writes.carry_out(scaled, decision, workload, RedisObservation())
        return now()

    return targets, scaled, run_virtually(main())


class Deciding(ScaledResources):
    """This replica decides until then."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s

    def is_current(self, scaled: Scaled) -> bool:
        return True

    def left_s(self) -> float:
        return self.ends_s - asyncio.get_running_loop().time()


class Silent(Reporter):
    """Reports nothing."""

    async def report(self, *_: object) -> None:
        return


def test_a_slow_write_goes_on_while_the_lease_is_renewed() -> None:
    targets, scaled, _ = write(ends_s=ANSWER_S + 1)
    assert (targets.written, targets.given_up) == ([3], [])
    assert scaled.problem is None


def test_a_write_is_cancelled_when_another_replica_may_decide() -> None:
    targets, scaled, ended = write(ends_s=2.0)
    assert (targets.written, targets.given_up) == ([], [3])
    assert ended == 2.0
    assert scaled.problem is not None, "it is repeated by whoever decides then"


def test_nothing_is_sent_by_a_replica_whose_lease_has_run_out() -> None:
    targets, _, _ = write(ends_s=0.0)
    assert (targets.written, targets.given_up) == ([], [])
