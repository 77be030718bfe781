"""Whatever happens to a stream between two observations: what an observation says was delivered was
delivered, and what was trimmed undelivered is in a range that the ledger has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import derive_keys
from pelops.domain.state import CHECKPOINT_AT, WATCH
from pelops.policy.group.losses import find_new_loss
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_core.commands import Part
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import provision_group
from pelops.redis_streams.group.maintenance import record_loss, remember_position, trim_stream
from tests.integration.redis_adapter import an_owner, connected, endpoint_of

KEYS: Final = derive_keys("{watched}:orders", "ours")
OWNER: Final = an_owner()
SERVERS: Final = [
    ("redis_86", 50),
    ("redis_70", 15),
    pytest.param("valkey", 15, marks=pytest.mark.full),
]

COUNT = st.integers(1, 5)
USERS = [
    st.tuples(st.just("add"), COUNT),
    st.tuples(st.just("add"), COUNT),
    st.tuples(st.just("work"), COUNT),
    st.tuples(st.just("work"), COUNT),
    st.tuples(st.just("read"), COUNT),
]
OPERATOR = [
    st.tuples(st.just("observe")),
    st.tuples(st.just("remember")),
    st.tuples(st.just("remember")),
    st.tuples(st.just("retain"), st.integers(0, 3)),
]
TRIM = st.tuples(st.just("trim"), st.integers(0, 6))
DELETE = st.tuples(st.just("delete"), st.integers(0, 9))
Ops: TypeAlias = list[tuple[str, int]]


@dataclass
class Model:
    """A stream, the entries that were delivered, and those that were trimmed or deleted."""

    server: Server
    top: int = 0
    present: list[int] = field(default_factory=list)
    position: int = 0
    trimmed_undelivered: set[int] = field(default_factory=set)
    deleted_undelivered: set[int] = field(default_factory=set)
    has_deleted: bool = False
    claims: set[tuple[EntryId, EntryId]] = field(default_factory=set)

    async def run(self, *words: Part) -> Reply:
        return await self.server.execute(*words, key=KEYS.stream)

    async def apply(self, op: tuple[str, int]) -> None:
        act: Callable[..., Awaitable[None]] = getattr(self, op[0])
        await act(*op[1:])

    async def add(self, count: int) -> None:
        for _ in range(count):
            self.top += 1
            await self.run("XADD", KEYS.stream, f"{self.top}-0", "f", "v")
            self.present.append(self.top)

    async def read(self, count: int) -> list[int]:
        words = ("GROUP", KEYS.group, "w", "COUNT", count, "STREAMS", KEYS.stream, ">")
        await self.run("XREADGROUP", *words)
        found = [one for one in self.present if one > self.position][:count]
        self.position = max([self.position, *found])
        return found

    async def work(self, count: int) -> None:
        for one in await self.read(count):
            await self.run("XACK", KEYS.stream, KEYS.group, f"{one}-0")

    async def trim(self, length: int) -> None:
        await self.run("XTRIM", KEYS.stream, "MAXLEN", length)
        gone = self.present[: max(0, len(self.present) - length)]
        self.present = self.present[len(gone) :]
        self.trimmed_undelivered |= {one for one in gone if one > self.position}

    async def delete(self, pick: int) -> None:
        if self.present:
            self.has_deleted = True
            one = self.present.pop(pick % len(self.present))
            await self.run("XDEL", KEYS.stream, f"{one}-0")
            if one > self.position:
                self.deleted_undelivered.add(one)

    async def retain(self, length: int) -> None:
        plan = RetentionPlan(max_length=length, max_age=None, message="")
        await trim_stream(self.server, KEYS, OWNER, plan)
        left = await self.run("XRANGE", KEYS.stream, "-", "+")
        self.present = [parse_entry_id(one).ms for one, _ in left]

    async def observe(self) -> None:
        stream = await observe_group(self.server, KEYS)
        loss = find_new_loss(stream)
        if loss is not None:
            first = stream.first_id or stream.last_generated_id.after()
            await record_loss(self.server, KEYS, OWNER, loss, first_id=first)

    async def remember(self) -> None:
        # With a checkpoint, which also writes down a possible loss that is not yet due.
        await self.run("HSET", KEYS.state, CHECKPOINT_AT, 0)
        await remember_position(self.server, KEYS, OWNER)
        (field,) = await self.run("HMGET", KEYS.state, WATCH)
        since, position = field.split()[:2]
        self.claims.add((parse_entry_id(since), parse_entry_id(position)))

    async def recorded(self) -> list[tuple[EntryId, EntryId]]:
        """The ranges of the ledger's losses."""
        found = []
        for _, flat in await self.run("XRANGE", KEYS.ledger, "-", "+"):
            pairs = dict(zip(flat[::2], flat[1::2], strict=True))
            if pairs[b"kind"] == b"data-loss":
                after, before = pairs[b"after"], pairs[b"before"]
                found.append((parse_entry_id(after), parse_entry_id(before)))
        return found

    async def check(self) -> None:
        """Every claim is true, and every trimmed entry that the group passed is in a range."""
        for one in self.trimmed_undelivered | self.deleted_undelivered:
            assert not any(since < EntryId(one) <= upto for since, upto in self.claims)
        recorded = await self.recorded()
        if not self.has_deleted:  # else it may have been that
            passed = [one for one in self.trimmed_undelivered if one <= self.position]
            for one in passed:
                assert any(after < EntryId(one) < before for after, before in recorded)


def check_histories(
    servers: StandaloneServers, count: int, ops: st.SearchStrategy[Ops], then: Callable[..., None]
) -> None:
    servers.flush()
    servers.cli("CONFIG", "SET", "stream-node-max-entries", "2")
    with asyncio.Runner() as runner:
        connection = connected(endpoint_of(servers))
        server = runner.run(connection.__aenter__())

        async def live(history: Ops) -> None:
            await server.execute("FLUSHALL")
            await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
            model = Model(server)
            for op in (*history, ("remember",)):
                await model.apply(op)  # type: ignore[arg-type]
            await model.check()
            then(model, await model.recorded())

        @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(ops)
        def check(history: Ops) -> None:
            runner.run(live(history))

        try:
            check()
        finally:
            runner.run(connection.__aexit__(None, None, None))
            servers.cli("CONFIG", "SET", "stream-node-max-entries", "100")


@pytest.mark.parametrize(("servers", "count"), SERVERS)
def test_what_is_said_to_be_delivered_was_delivered(
    request: pytest.FixtureRequest, servers: str, count: int
) -> None:
    ops = st.lists(st.one_of(*USERS, *OPERATOR, TRIM, TRIM, DELETE), max_size=40)
    check_histories(request.getfixturevalue(servers), count, ops, lambda model, recorded: None)


@pytest.mark.parametrize(("servers", "count"), SERVERS)
def test_where_only_the_operator_trims_the_watch_has_no_gap(
    request: pytest.FixtureRequest, servers: str, count: int
) -> None:
    def then(model: Model, recorded: list[tuple[EntryId, EntryId]]) -> None:
        assert recorded == []
        assert {since for since, _ in model.claims} == {EntryId.MIN}
        assert max(upto for _, upto in model.claims) == EntryId(model.position)

    ops = st.lists(st.one_of(*USERS, *OPERATOR), max_size=40)
    check_histories(request.getfixturevalue(servers), count // 2, ops, then)


@pytest.mark.parametrize(("servers", "count"), SERVERS)
def test_what_users_delete_is_no_loss(
    request: pytest.FixtureRequest, servers: str, count: int
) -> None:
    def then(model: Model, recorded: list[tuple[EntryId, EntryId]]) -> None:
        assert recorded == []

    ops = st.lists(st.one_of(*USERS, *OPERATOR, DELETE), max_size=40)
    check_histories(request.getfixturevalue(servers), count // 3, ops, then)
