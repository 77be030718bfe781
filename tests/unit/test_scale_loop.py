"""Which groups are looked at together, and what holds up what."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from pelops.controller.group.group_observer import RedisObservation
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.gate import Progress
from pelops.controller.scaling.loop import MOST, ScaleLoop
from pelops.controller.scaling.pace import (
    BUSY_PER_S,
    IDLE_PER_S,
    MOST_FOR_IDLE,
    IdleGroups,
    Pace,
)
from pelops.controller.scaling.scaler import Scaler
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.kube.client import DEPLOYMENT, STREAM_CONSUMER_GROUP
from pelops.redis_streams.scaling.idle_streams import Waker
from tests.cached_objects import resource
from tests.leases import KnownMembers
from tests.virtual_time import run_virtually

LOOK_S = 0.5
LATE_S = 1_000.0


def names(prefix: str, count: int) -> list[Name]:
    """Resources; those of one prefix share a Redis."""
    return [("shop", f"{prefix}-{number}") for number in range(count)]


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Scripted(Scaler):
    """Notes what the loop asks for. A look at the Redis `hung` never ends."""

    looks: list[tuple[float, list[Name]]] = field(default_factory=list)
    turns: list[tuple[float, Name]] = field(default_factory=list)
    under_way: Counter[Name] = field(default_factory=Counter)
    overlaps: int = 0
    again_s: float | None = LATE_S
    turn_s: float = 0.0

    def endpoint_queue(self, name: Name) -> str | None:
        return None if name[1].startswith("theirs") else name[1].rpartition("-")[0]

    async def observe(self, names: Sequence[Name]) -> dict[Name, RedisObservation]:
        self.looks.append((now(), list(names)))
        if names[0][1].startswith("hung"):
            await asyncio.Event().wait()
        await asyncio.sleep(LOOK_S)
        if names[0][1].startswith("broken"):
            raise ValueError("a mistake of ours")
        return {name: RedisObservation() for name in names}

    async def scale(self, name: Name, redis: RedisObservation) -> float | None:
        self.turns.append((now(), name))
        self.under_way[name] += 1
        self.overlaps += self.under_way[name] > 1
        await asyncio.sleep(self.turn_s)
        self.under_way[name] -= 1
        return self.again_s

    async def correct_lag(self, name: Name, redis: RedisObservation) -> None:
        return


Scenario = Callable[[ScaleLoop, Scripted], Awaitable[None]]


def play(
    scenario: Scenario,
    *resources: Name,
    scaler: Scripted | None = None,
    members: KnownMembers | None = None,
) -> Scripted:
    """Run a scenario beside the loop, which knows these resources."""
    scripted = scaler or Scripted()

    async def main() -> None:
        cache = WorkloadCache(now)
        for name in resources:
            cache.put(STREAM_CONSUMER_GROUP, resource(name[1]))
        loop = ScaleLoop(scripted, cache, members or KnownMembers(), Progress(), now)
        task = asyncio.create_task(loop.run())
        await scenario(loop, scripted)
        task.cancel()
        await asyncio.wait({task})

    run_virtually(main())
    return scripted


async def settled(loop: ScaleLoop, scaler: Scripted) -> None:
    await asyncio.sleep(LATE_S / 2)


def test_groups_of_one_redis_that_are_due_are_looked_at_together() -> None:
    played = play(settled, *names("a", 20), *names("b", 20))
    for one in ("a", "b"):
        looked = [len(found) for _, found in played.looks if found[0][1].startswith(one)]
        # The first is alone; what becomes due during a look shares the next one.
        assert sum(looked) == 20
        assert len(looked) <= 4
    assert len(played.turns) == 40


def test_a_redis_that_hangs_holds_up_no_other() -> None:
    played = play(settled, *names("hung", 20), *names("well", 20))
    assert {name for _, name in played.turns} == set(names("well", 20))


def test_no_resource_ever_has_two_turns_at_once() -> None:
    (name,) = names("a", 1)

    async def scenario(loop: ScaleLoop, scaler: Scripted) -> None:
        for _ in range(50):
            loop.wake(name)
            loop.notice(DEPLOYMENT, name)
            await asyncio.sleep(0.3)

    played = play(scenario, name, scaler=Scripted(turn_s=2.0, again_s=None))
    assert played.overlaps == 0
    assert len(played.turns) > 3, "what happens during a turn is followed by another one"


def test_what_was_woken_is_in_the_next_look_however_many_wait() -> None:
    co_failed = names("a", 5 * MOST)
    woken = co_failed[-1]

    async def scenario(loop: ScaleLoop, scaler: Scripted) -> None:
        await asyncio.sleep(LATE_S / 2)
        scaler.looks.clear()
        for name in co_failed:
            loop.notice(DEPLOYMENT, name)
        await asyncio.sleep(LOOK_S)
        loop.wake(woken)
        at = now()
        await asyncio.sleep(LATE_S / 4)
        later = [found for began, found in scaler.looks if began >= at]
        first = next(index for index, found in enumerate(later) if woken in found)
        assert first == 0
        assert len(later) > 1, "others still waited"

    play(scenario, *co_failed)


def test_a_look_that_breaks_is_repeated_and_ends_nothing_else() -> None:
    played = play(settled, *names("broken", 3), *names("well", 3))
    assert {name for _, name in played.turns} == set(names("well", 3))
    assert sum(found[0][1].startswith("broken") for _, found in played.looks) > 10


def test_what_others_scale_is_not_looked_at_until_the_members_change() -> None:
    played = play(settled, *names("theirs", 3))
    assert played.looks == []


def test_a_status_that_is_written_is_no_reason_to_look() -> None:
    async def scenario(loop: ScaleLoop, scaler: Scripted) -> None:
        (name,) = names("a", 1)
        loop.notice(STREAM_CONSUMER_GROUP, name)
        await asyncio.sleep(LATE_S / 2)
        scaler.looks.clear()
        loop.notice(STREAM_CONSUMER_GROUP, name)
        await asyncio.sleep(LATE_S / 4)
        assert scaler.looks == []

    play(scenario, *names("a", 1))


def test_a_change_of_the_members_has_every_resource_looked_at_again() -> None:
    members = KnownMembers()

    async def scenario(loop: ScaleLoop, scaler: Scripted) -> None:
        await asyncio.sleep(LATE_S / 4)
        scaler.turns.clear()
        members.known = frozenset({"one", "two"})
        await asyncio.sleep(LATE_S / 4)

    played = play(scenario, *names("a", 3), members=members)
    assert {name for _, name in played.turns} == set(names("a", 3))


# --- The pace of looks when there are very many groups


def co_failed(count: int, *, is_idle: bool) -> Pace:
    """So many groups, all of one kind."""
    filled = Pace(IdleGroups(Waker(lambda _: None)))
    for number in range(count):
        filled.stretch(("shop", f"orders-{number}"), 1.0, is_idle=is_idle)
    return filled


def test_few_groups_are_looked_at_as_often_as_they_need() -> None:
    for is_idle in (True, False):
        assert co_failed(50, is_idle=is_idle).stretch(("shop", "one"), 2.0, is_idle=is_idle) == 2.0


def test_busy_groups_share_what_one_replica_can_do() -> None:
    waited = co_failed(10 * BUSY_PER_S, is_idle=False).stretch(
        ("shop", "orders-0"), 1.0, is_idle=False
    )
    assert waited == 10.0


def test_idle_groups_wait_longer_the_more_there_are_but_not_for_ever() -> None:
    many = co_failed(4 * IDLE_PER_S, is_idle=True)
    assert many.stretch(("shop", "orders-0"), 2.0, is_idle=True) == 4.0
    busy_groups = co_failed(100 * IDLE_PER_S, is_idle=True)
    assert busy_groups.stretch(("shop", "orders-0"), 2.0, is_idle=True) == 2.0 * MOST_FOR_IDLE


def test_neither_idle_nor_deleted_groups_slow_down_busy_groups() -> None:
    idle = co_failed(100 * IDLE_PER_S, is_idle=True)
    assert idle.stretch(("shop", "busy"), 1.0, is_idle=False) == 1.0
    busy = co_failed(10 * BUSY_PER_S, is_idle=False)
    for number in range(10 * BUSY_PER_S):
        busy.forget(("shop", f"orders-{number}"))
    assert busy.stretch(("shop", "one"), 1.0, is_idle=False) == 1.0
