"""Groups with one workload in one replica: who is looked at, who decides, and who is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import GroupObserver, RedisObservation
from pelops.controller.runtime.cache import Name
from pelops.controller.scaling.pace import IdleGroups, Pace
from pelops.controller.scaling.scale_writes import ScaleWrites
from pelops.controller.scaling.scaled_resources import Scaled, ScaledResources
from pelops.controller.scaling.scaler import LATE_S, Scaler
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.condition import Finding
from pelops.domain.workload import WorkloadObservation
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.policy.scaling.decision import ScalingDecision
from pelops.policy.status.reasons import Reason
from tests.builders import empty_redis, group, manifest, stream, workload
from tests.leases import KnownMembers

LEAD, MAILING = ("shop", "lead"), ("shop", "mailing")
UNREACHABLE = Finding(reason=Reason.REDIS_UNREACHABLE, message="nothing answers")
FOREIGN = Finding(reason=Reason.CONFLICT, message="of another")


class Shown(GroupObserver):
    """Shows one workload."""

    def __init__(self) -> None:
        self.workload = workload(wished=0, current=0, ready=0)

    async def observe_redis(
        self,
        resources: Sequence[StreamConsumerGroup],
        *,
        deep: Collection[str] = (),
        with_consumers: bool = False,
    ) -> list[RedisObservation]:
        raise AssertionError("nothing here observes Redis alone")

    async def observe_workload(
        self, resource: StreamConsumerGroup
    ) -> tuple[WorkloadObservation, Finding | None]:
        return self.workload, None


class Noted(ScaleWrites):
    """Writes nothing, and remembers what would be written."""

    def __init__(self) -> None:
        self.decisions: list[tuple[str, ScalingDecision]] = []

    async def carry_out(
        self,
        scaled: Scaled,
        decision: ScalingDecision,
        workload: WorkloadObservation,
        redis: RedisObservation,
    ) -> ScalingDecision:
        self.decisions.append((scaled.name[1], decision))
        return decision


class Watching(IdleGroups):
    """Knows who wants to be woken."""

    def __init__(self) -> None:
        self.watched: set[Name] = set()

    def watch(self, name: Name, redis: RedisObservation) -> bool:
        self.watched.add(name)
        return True

    def unwatch(self, name: Name) -> None:
        self.watched.discard(name)


@dataclass
class Play:
    """A scaler, a clock, and what came of it."""

    now: float = 1_000.0
    cache: WorkloadCache = field(default_factory=WorkloadCache)
    members: KnownMembers = field(default_factory=KnownMembers)
    observer: Shown = field(default_factory=Shown)
    writes: Noted = field(default_factory=Noted)
    idle: Watching = field(default_factory=Watching)
    woken: list[Name] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        pace = Pace(self.idle)
        self.scaler = Scaler(
            ScaledResources(self.cache, self.members, pace.forget),
            self.observer,
            self.writes,
            pace,
            lambda: self.now,
            make_due=lambda _: None,
            note=lambda *_: None,
            wake=self.woken.append,
        )

    def declare(self, name: Name, mode: str, **spec: Any) -> None:
        """Declare a resource whose workers are the Deployment `workers`."""
        self.version += 1
        metadata = {
            "name": name[1],
            "uid": f"uid-{name[1]}",
            "resourceVersion": str(self.version),
            "generation": self.version,
        }
        scaling = {"mode": mode, "backlogPerReplica": 10}
        target = {"target_ref": None, "targetRef": {"name": "workers"}}
        seen = manifest(metadata=metadata, scaling=scaling, **target, **spec)
        self.cache.put(STREAM_CONSUMER_GROUP, seen)

    def look(self, name: Name, lag: int | None = 0, **seen: Any) -> float | None:
        """Look at a group that has this lag: seconds until the next look."""
        self.scaler.endpoint_queue(name)
        shown = RedisObservation(stream=stream(group=group(lag=lag)))
        shown = replace(shown, **seen)
        return asyncio.run(self.scaler.scale(name, shown))

    @property
    def last(self) -> ScalingDecision:
        """What was decided last."""
        return self.writes.decisions[-1][1]


@pytest.fixture
def play() -> Play:
    played = Play()
    played.declare(LEAD, "Auto")
    played.declare(MAILING, "Follow")
    return played


def test_only_the_leader_decides_for_all(play: Play) -> None:
    play.look(LEAD)
    play.look(MAILING, lag=12)
    play.look(LEAD, lag=12)
    assert {name for name, _ in play.writes.decisions} == {"lead"}
    assert set(play.members.keys) == {"shop/apps/Deployment/workers"}, "one for all that share it"
    assert play.last.replicas == 3
    assert play.scaler.demands(MAILING) is None, "it leads nobody"
    assert play.scaler.demands(LEAD) == {"lead": 1.2, "mailing": 1.2}


def test_before_the_others_were_looked_at_nothing_is_known_of_them(play: Play) -> None:
    play.observer.workload = workload(wished=3, current=3, ready=3)
    play.look(LEAD)
    assert (play.last.replicas, play.last.reason) == (3, Reason.LAG_UNKNOWN)
    assert play.scaler.demands(LEAD) == {"lead": 0.0, "mailing": None}


def test_the_leader_is_woken_by_changes_and_not_by_each_observation(play: Play) -> None:
    play.look(LEAD)
    play.look(MAILING)
    assert play.woken == [LEAD], "it is known for the first time"
    play.look(MAILING)
    assert play.woken == [LEAD]
    play.look(MAILING, lag=3)
    assert play.woken == [LEAD, LEAD], "it needs a worker"
    play.look(MAILING, lag=40)
    assert play.woken == [LEAD, LEAD], "then it is looked at often"
    play.look(MAILING, stream=None, problem=UNREACHABLE)
    assert play.woken == [LEAD] * 3, "it is not known any more"
    play.look(LEAD)
    assert play.last.replicas == 0, "nobody else has a backlog, and no worker runs"


def test_what_is_not_looked_at_again_is_not_known_any_more(play: Play) -> None:
    play.observer.workload = workload(wished=2, current=2, ready=2)
    play.look(LEAD)
    wait_s = play.look(MAILING)
    assert wait_s is not None
    play.look(LEAD)
    assert play.last.reason is Reason.SCALED
    play.now += 2 * wait_s + LATE_S
    play.look(LEAD)
    assert (play.last.replicas, play.last.reason) == (2, Reason.LAG_UNKNOWN)


def test_groups_are_watched_while_scaled_to_zero(play: Play) -> None:
    play.look(LEAD)
    play.look(MAILING)
    play.look(LEAD)
    assert play.idle.watched == {LEAD, MAILING}
    play.observer.workload = workload(wished=1, current=1, ready=1)
    play.look(MAILING)
    play.look(LEAD)
    assert play.idle.watched == set()


def test_one_group_with_work_has_the_others_looked_at_as_often(play: Play) -> None:
    play.observer.workload = workload(wished=1, current=1, ready=1)
    play.look(LEAD)
    play.look(MAILING, lag=5)
    for name in (LEAD, MAILING):
        wait_s = play.look(name, lag=5 if name == MAILING else 0)
        assert wait_s is not None and wait_s < 1.2


def test_a_group_that_another_resource_acts_on_is_left_out(play: Play) -> None:
    play.observer.workload = workload(wished=2, current=2, ready=2)
    play.look(LEAD)
    play.look(MAILING, problem=FOREIGN)
    play.look(LEAD)
    assert play.last.reason is not Reason.LAG_UNKNOWN
    assert play.scaler.demands(LEAD) == {"lead": 0.0}


def test_a_group_that_is_being_made_keeps_the_workers_that_are(play: Play) -> None:
    play.observer.workload = workload(wished=2, current=2, ready=2)
    play.look(MAILING, stream=replace(stream(), ledger_exists=False))
    play.look(LEAD)
    assert (play.last.replicas, play.last.reason) == (2, Reason.LAG_UNKNOWN)
    play.look(MAILING)
    play.look(LEAD, stream=replace(stream(), ledger_exists=False))
    assert (play.last.replicas, play.last.reason) == (2, Reason.LAG_UNKNOWN)
    play.look(LEAD, stream=empty_redis())
    assert "the group does not exist" in play.last.message


def test_one_that_is_suspended_ends_no_worker(play: Play) -> None:
    play.observer.workload = workload(wished=2, current=2, ready=2)
    play.declare(MAILING, "Follow", suspend=True)
    play.look(LEAD)
    assert (play.last.replicas, play.last.reason) == (2, Reason.LAG_UNKNOWN)
    assert "it is suspended" in play.last.message


def test_with_an_autoscaler_on_the_workload_no_demand_is_counted(play: Play) -> None:
    play.observer.workload = workload(autoscaler="hpa")
    play.look(LEAD)
    assert play.last.reason is Reason.SCALED_BY_AUTOSCALER
    assert cast(float, play.look(MAILING, lag=100)) >= 4
    assert play.scaler.demands(LEAD) == {"lead": None, "mailing": None}
