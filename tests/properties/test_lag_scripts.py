"""Whatever was done to a stream and its group: a lag that is called exact is, and `at_least` is
never above the true lag. A repair makes the server itself right and moves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.stream_observation import GroupObservation, StreamObservation
from pelops.redis_core.commands import Part
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.group.group_observation import ObservationRequest, observe_groups
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import repair_lag
from tests.integration.redis_adapter import an_owner, connected, endpoint_of

KEYS: Final = derive_keys("{lag-scripts}:orders", "ours")
OWNER: Final = an_owner()
SERVERS: Final = [
    ("redis_86", 50),
    ("redis_70", 15),
    pytest.param("valkey", 15, marks=pytest.mark.full),
]
LOOKS: Final = (ObservationRequest(KEYS), ObservationRequest(KEYS, is_deep=True))
BOUNDS: Final = (64, 800)  # entries ahead that each of these looks counts at most

PICK = st.integers(0, 200)
ADD = st.tuples(st.just("add"), st.sampled_from([1, 1, 2, 7, 90]))
READ = st.tuples(st.just("read"), st.sampled_from([1, 2, 5, 60]))
USUAL = st.one_of(
    *(ADD, ADD, READ, READ),
    st.tuples(st.just("acknowledge"), PICK),
    st.tuples(st.just("delete"), PICK),
    st.tuples(st.just("delete_done"), PICK),
    st.tuples(st.just("trim"), st.integers(0, 100)),
    st.tuples(st.just("set_id"), PICK),
    st.tuples(st.just("repair"), st.just(0)),
)
FORGED = st.tuples(st.just("forge"), PICK)
Ops: TypeAlias = list[tuple[str, int]]


@dataclass
class Stage:
    """A stream whose IDs are the numbers from 1 on, and a group that was created at 0."""

    server: Server
    top: int = 0

    async def ask(self, *parts: Part) -> Reply:
        return await self.server.execute(*parts, key=KEYS.stream, writes=True)

    async def apply(self, op: str, number: int) -> None:
        await getattr(self, op)(number)

    async def add(self, count: int) -> None:
        lua = "for i = ARGV[1], ARGV[2] do redis.call('XADD', KEYS[1], i .. '-0', 'f', 'v') end"
        await self.ask("EVAL", lua, 1, KEYS.stream, self.top + 1, self.top + count)
        self.top += count

    async def read(self, count: int) -> None:
        words = ("GROUP", KEYS.group, "worker", "COUNT", count, "STREAMS", KEYS.stream, ">")
        await self.ask("XREADGROUP", *words)

    async def acknowledge(self, pick: int) -> None:
        if pending := await self.ask("XPENDING", KEYS.stream, KEYS.group, "-", "+", 200):
            await self.ask("XACK", KEYS.stream, KEYS.group, pending[pick % len(pending)][0])

    async def delete_done(self, pick: int) -> None:
        """Acknowledge and delete all that is pending but one, as workers do that leave nothing."""
        pending = await self.ask("XPENDING", KEYS.stream, KEYS.group, "-", "+", 200)
        done = [each[0] for index, each in enumerate(pending) if index != pick % len(pending)]
        if done:
            await self.ask("XACK", KEYS.stream, KEYS.group, *done)
            await self.ask("XDEL", KEYS.stream, *done)

    async def delete(self, pick: int) -> None:
        if entries := await self.ask("XRANGE", KEYS.stream, "-", "+"):
            await self.ask("XDEL", KEYS.stream, entries[pick % len(entries)][0])

    async def trim(self, length: int) -> None:
        await self.ask("XTRIM", KEYS.stream, "MAXLEN", length)

    async def set_id(self, pick: int) -> None:
        await self.ask("XGROUP", "SETID", KEYS.stream, KEYS.group, f"{pick % (self.top + 1)}-0")

    async def forge(self, pick: int) -> None:
        """Say that the group has read so many entries, wherever it stands."""
        _, position = await self.owed()
        read = pick % (self.top + 1)
        words = (str(position), "ENTRIESREAD", read)
        await self.ask("XGROUP", "SETID", KEYS.stream, KEYS.group, *words)

    async def repair(self, _: int) -> None:
        before = await self.owed()
        pending = await self.ask("XPENDING", KEYS.stream, KEYS.group)
        await repair_lag(self.server, KEYS, OWNER.uid)
        assert await self.owed() == before
        assert await self.ask("XPENDING", KEYS.stream, KEYS.group) == pending
        assert not (await self.look())[1].is_lag_repairable
        assert not await repair_lag(self.server, KEYS, OWNER.uid)

    async def look(self) -> list[GroupObservation]:
        """A look of each kind."""
        groups = []
        for seen in (await observe_groups(self.server, LOOKS)).values():
            assert isinstance(seen, StreamObservation)
            assert seen.group is not None
            groups.append(seen.group)
        return groups

    async def owed(self) -> tuple[int, EntryId]:
        """How many entries the group was not given, and where it stands."""
        position = (await self.look())[0].last_delivered_id
        return len(await self.ask("XRANGE", KEYS.stream, f"({position}", "+")), position


@contextmanager
def examples(
    servers: StandaloneServers,
) -> Iterator[Callable[[Callable[[Stage], Awaitable[None]]], None]]:
    """Runs one example after the other on one connection, each from an empty server."""
    with asyncio.Runner() as runner:
        connection = connected(endpoint_of(servers))
        server = runner.run(connection.__aenter__())

        async def one(example: Callable[[Stage], Awaitable[None]]) -> None:
            await server.execute("FLUSHALL")
            await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
            await example(Stage(server))

        try:
            yield lambda example: runner.run(one(example))
        finally:
            runner.run(connection.__aexit__(None, None, None))


def many(count: int) -> settings:
    """So many examples, each as long as a server may take."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(("servers", "count"), SERVERS)
def test_a_lag_that_is_called_exact_is(
    request: pytest.FixtureRequest, servers: str, count: int
) -> None:
    with examples(request.getfixturevalue(servers)) as run:

        @many(count)
        @given(st.lists(USUAL, max_size=25))
        def check(ops: Ops) -> None:
            async def example(stage: Stage) -> None:
                for op in ops:
                    await stage.apply(*op)
                    owed, _ = await stage.owed()
                    for group in await stage.look():
                        assert group.lag in (None, owed)
                        assert group.at_least <= owed

            run(example)

        check()


@pytest.mark.parametrize(("servers", "count"), SERVERS)
def test_countable_lag_is_exact_although_the_counter_was_forged(
    request: pytest.FixtureRequest, servers: str, count: int
) -> None:
    with examples(request.getfixturevalue(servers)) as run:

        @many(count)
        @given(st.lists(USUAL | FORGED, max_size=25))
        @example([("add", 1), ("forge", 1), ("read", 1)])  # Redis 7.0: a lag of -1
        def check(ops: Ops) -> None:
            async def example(stage: Stage) -> None:
                for op in ops:
                    await stage.apply(*op)
                    owed, _ = await stage.owed()
                    for group, bound in zip(await stage.look(), BOUNDS, strict=True):
                        if owed < bound:
                            assert (group.lag, group.at_least) == (owed, owed)
                        else:
                            assert group.at_least >= bound

            run(example)

        check()
