"""However replicas start, stop, die, hang and hear late: never do two decide for one key, and
one does again soon after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pelops.policy.membership import DURATION_S, VALID_S
from tests.leases import LeaseStore, RunningReplica
from tests.virtual_time import run_virtually

KEYS = [f"shop/orders-{number}" for number in range(4)]
LOOK_S = 0.1
# A death is noticed once the Lease has run out, and the others wait for a replica that then joins.
SETTLED_S = 3 * DURATION_S
RATES = (0.9, 1.0, 1.1)
assert RATES[-1] / RATES[0] < DURATION_S / VALID_S

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "stop", "kill", "restart", "pause", "resume", "outage"]),
        st.integers(0, 5),
        st.floats(0.0, 12.0),
    ),
    min_size=1,
    max_size=14,
)


@dataclass
class Fleet:
    """Replicas, and what was seen of them."""

    chance: Random
    replicas: list[RunningReplica] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)
    is_slow: bool = True

    def __post_init__(self) -> None:
        self.store = LeaseStore(self.delay)

    def delay(self) -> float:
        """Mostly milliseconds; at times longer than a replica waits."""
        slow = self.is_slow and self.chance.random() < 0.15
        return self.chance.uniform(0.0, 4.0) if slow else self.chance.uniform(0.0, 0.05)

    def start(self, identity: str | None = None) -> None:
        replica = RunningReplica(
            self.store,
            identity or f"replica-{next(self.numbers)}",
            rate=self.chance.choice(RATES),
            shows=self.chance.uniform(0.0, 1e9),
        )
        replica.start()
        self.replicas.append(replica)

    async def suffer(self, what: str, which: int) -> None:
        """Have something happen to one of them."""
        if what == "outage":
            self.store.is_away = not self.store.is_away
            return
        if what == "start" or not self.replicas:
            self.start()
            return
        replica = self.replicas[which % len(self.replicas)]
        if what == "pause":
            replica.api.pause()
        elif what == "resume":
            replica.api.resume()
        elif what == "stop":
            self.replicas.remove(replica)
            await replica.stop()
        else:
            self.replicas.remove(replica)
            await replica.kill()
            if what == "restart":  # in its pod, under its name
                self.start(replica.identity)

    def calm_down(self) -> None:
        """From now on nothing happens, and everything is answered soon."""
        self.is_slow = self.store.is_away = False
        for replica in self.replicas:
            replica.api.resume()

    def deciding(self, key: str) -> list[str]:
        return [one.identity for one in self.replicas if one.decides(key)]


@asynccontextmanager
async def watched(fleet: Fleet) -> AsyncIterator[None]:
    """Fail when two decide for one key meanwhile."""
    time = asyncio.get_running_loop().time

    async def look() -> None:
        while True:
            for key in KEYS:
                found = fleet.deciding(key)
                assert len(found) <= 1, f"{found} decide for {key} after {time():.2f} s"
            await asyncio.sleep(LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait({looking})
        for replica in fleet.replicas:
            await replica.kill()
        if not looking.cancelled():
            looking.result()


@settings(deadline=None)
@given(EVENTS, st.integers(0, 2**32))
def test_at_most_one_replica_decides_and_soon_one_does(
    events: list[tuple[str, int, float]], seed: int
) -> None:
    async def main() -> None:
        fleet = Fleet(Random(seed))
        fleet.start()
        async with watched(fleet):
            for what, which, pause_s in events:
                await fleet.suffer(what, which)
                await asyncio.sleep(pause_s)
            fleet.calm_down()
            await asyncio.sleep(SETTLED_S)
            if fleet.replicas:
                deciding = {key: fleet.deciding(key) for key in KEYS}
                assert all(len(each) == 1 for each in deciding.values()), deciding

    run_virtually(main())
