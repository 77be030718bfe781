"""Idle streams report their next entry, whatever happens to servers, rights and slots."""

import asyncio
import logging
from functools import partial
from typing import Final

import pytest

from local_cluster.redis_servers import (
    ClusterServers,
    RedisServers,
    SentinelServers,
    StandaloneServers,
)
from pelops.domain.endpoint import RedisEndpoint
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys, key_slot
from pelops.redis_core import transport
from pelops.redis_core.server import Server
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from pelops.redis_streams.scaling import idle_streams as waiting
from pelops.redis_streams.scaling import idle_streams as waking
from pelops.redis_streams.scaling.idle_streams import Waker
from tests.integration.expiring import until
from tests.integration.redis_adapter import (
    add,
    connected,
    endpoint_of,
)
from tests.integration.sleeping import Sleepers, blocked, sleeping_on
from tests.redis_fixtures import RunRedis, on_newest_unless_full

RULES: Final = (
    "~*",
    *(
        rule
        for rule in acl_rules(derive_keys("orders", "g"), UserRole.OPERATOR, {Feature.WAKE})
        if rule.startswith("+")
    ),
)


# --- servers that fail


async def test_a_server_that_was_killed_is_watched_again_once_it_is_back(
    run_redis: RunRedis,
) -> None:
    servers = run_redis()
    async with sleeping_on(endpoint_of(servers)) as sleepers:
        sleepers.watch("one", "two")
        await sleepers.are_watched(["one", "two"])
        servers.master().kill()
        await until(lambda: not sleepers.waker.is_watched("one"), "the loss is noticed")
        servers.master().start()
        await sleepers.are_watched(["one", "two"])
        await add(sleepers.server, "two")
        await sleepers.are_woken("two")


async def test_a_server_that_hangs_is_not_watched_until_it_goes_on(
    run_redis: RunRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(waiting, "BLOCK_MS", 100)
    servers = run_redis()
    async with sleeping_on(endpoint_of(servers)) as sleepers:
        sleepers.watch("orders")
        await sleepers.are_watched(["orders"])
        servers.master().pause()
        try:
            await until(lambda: not sleepers.waker.is_watched("orders"), "it is noticed")
        finally:
            servers.master().resume()
        await sleepers.are_watched(["orders"])
        await add(sleepers.server, "orders")
        await sleepers.are_woken("orders")


async def test_a_failover_of_sentinel_is_followed(empty_sentinel: SentinelServers) -> None:
    async with sleeping_on(endpoint_of(empty_sentinel)) as sleepers:
        sleepers.watch("orders")
        await sleepers.are_watched(["orders"])
        await asyncio.to_thread(empty_sentinel.failover)
        await until(lambda: blocked(empty_sentinel) == 1, "the new master is asked")
        await add(sleepers.server, "orders")
        await sleepers.are_woken("orders")


# --- rights


def narrow(servers: RedisServers, *rules: str) -> RedisEndpoint:
    """An endpoint with the rights of a user who has only these."""
    for master in servers.masters():
        servers.cli("ACL", "SETUSER", "narrow", "reset", "on", ">sesame", *rules, port=master.port)
    return endpoint_of(servers, username="narrow", password="sesame")


async def test_without_xread_nothing_is_watched_and_that_is_said_once(
    empty_redis: StandaloneServers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger=waking.__name__)
    async with sleeping_on(narrow(empty_redis, *RULES, "-xread")) as sleepers:
        sleepers.watch("one", "two")
        waker, server = sleepers.waker, sleepers.server
        await until(lambda: not waker.watch("one", server, {"one": EntryId.MIN}), "it is refused")
        await until(lambda: not waker.watch("two", server, {"two": EntryId.MIN}), "it is refused")
        assert not waker.is_watched("one")
        sleepers.watch("three")
        await until(lambda: not waker.watch("three", server, {"three": EntryId.MIN}), "and this")
        assert [record.getMessage().count("xread") for record in caplog.records] == [1]
        assert sleepers.woken == []


def is_refused(waker: Waker, server: Server, name: str) -> bool:
    return not waker.watch("another", server, {name: EntryId.MIN})


async def test_one_stream_that_is_forbidden_or_no_stream_stops_no_other(
    empty_redis: StandaloneServers,
) -> None:
    empty_redis.cli("SET", "mine:text", "x")
    async with sleeping_on(narrow(empty_redis, "~mine:*", *RULES[1:])) as sleepers:
        sleepers.watch("mine:a", "theirs", "mine:text", "mine:b")
        waker, server = sleepers.waker, sleepers.server
        for name in ("theirs", "mine:text"):
            await until(partial(is_refused, waker, server, name), "it is left out")
            assert not waker.is_watched(name)
        await sleepers.are_watched(["mine:a", "mine:b"])
        await add(server, "mine:b")
        await sleepers.are_woken("mine:b")


async def test_a_refused_stream_is_tried_again_later(
    empty_redis: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "REFUSED_S", 0.3)
    async with sleeping_on(narrow(empty_redis, *RULES, "-xread")) as sleepers:
        waker, server = sleepers.waker, sleepers.server
        sleepers.watch("orders")
        await until(lambda: not waker.watch("orders", server, {"orders": EntryId.MIN}), "refused")
        narrow(empty_redis, *RULES)
        await until(lambda: waker.watch("orders", server, {"orders": EntryId.MIN}), "accepted")
        await sleepers.are_watched(["orders"])


@on_newest_unless_full
@pytest.mark.parametrize("missing", ["client|id", "client|unblock"])
async def test_without_client_unblock_new_streams_join_after_the_current_wait(
    empty_redis: StandaloneServers, missing: str
) -> None:
    async with sleeping_on(narrow(empty_redis, *RULES, f"-{missing}")) as sleepers:
        sleepers.watch("old")
        await sleepers.are_watched(["old"])
        for name in ("new", "newer"):
            await until(lambda: blocked(empty_redis) == 1, "the connection waits")
            sleepers.watch(name)
            await add(sleepers.server, name)
            await sleepers.are_woken(name)


async def test_a_newcomer_is_not_watched_before_the_server_was_asked_with_it(
    empty_redis: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it counted as watched, its group would be left alone until the next pass in 20 s."""
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", 100.0)
    monkeypatch.setattr(waiting, "SHORT_BLOCK_MS", 90_000)
    async with sleeping_on(narrow(empty_redis, *RULES, "-client|unblock")) as sleepers:
        sleepers.watch("old")
        await sleepers.are_watched(["old"])
        await until(lambda: blocked(empty_redis) == 1, "the connection waits")
        sleepers.watch("new")
        assert not sleepers.waker.is_watched("new")
        assert sleepers.waker.is_watched("old")
        await add(sleepers.server, "old")
        await sleepers.are_woken("old")
        await sleepers.are_watched(["new"])


@on_newest_unless_full
async def test_a_foreign_connection_is_unblocked_at_most_once(
    sleepers: Sleepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy the answer of CLIENT ID may be of another connection."""
    async with connected(sleepers.server.endpoint) as other:
        other_id = await other.execute("CLIENT", "ID")

        async def another_id(_: object) -> int:
            return int(other_id)

        monkeypatch.setattr(waiting, "_read_client_id", another_id)
        monkeypatch.setattr(waiting, "UNBLOCK_S", 0.05)
        monkeypatch.setattr(waiting, "BLOCK_MS", 1_000)
        sleepers.watch("old")
        await sleepers.are_watched(["old"])
        ended = 0
        for name in ("a", "b", "c"):
            theirs = asyncio.create_task(other.execute("BLPOP", "list", 2))
            await asyncio.sleep(0.1)
            sleepers.watch(name)
            await add(sleepers.server, name)
            await sleepers.are_woken(name)
            ended += theirs.done()
            await theirs
        assert ended <= 1


# --- a cluster


def one_name_per_slot(count: int) -> list[str]:
    names = {key_slot(f"stream-{number}"): f"stream-{number}" for number in range(10 * count)}
    return list(names.values())[:count]


async def test_streams_of_all_masters_are_watched(empty_cluster: ClusterServers) -> None:
    async with sleeping_on(endpoint_of(empty_cluster)) as sleepers:
        names = one_name_per_slot(9)
        owners = {empty_cluster.owner_of(key_slot(name)).port for name in names}
        assert len(owners) == 3
        sleepers.watch(*names)
        await sleepers.are_watched(names)
        for name in names:
            await add(sleepers.server, name)
            await sleepers.are_woken(name)


async def test_streams_of_one_slot_share_a_connection_within_the_limit(
    empty_cluster: ClusterServers,
) -> None:
    async with sleeping_on(endpoint_of(empty_cluster)) as sleepers:
        *names, last = one_name_per_slot(waking.CONNECTIONS_PER_SERVER + 1)
        tagged = [f"{{{names[0]}}}:{number}" for number in range(50)]
        sleepers.watch(*names, *tagged)
        await sleepers.are_watched([*names, *tagged])
        await until(lambda: blocked(empty_cluster) == len(names), "each slot is waited on")
        waker, server = sleepers.waker, sleepers.server
        assert not waker.watch(last, server, {last: EntryId.MIN})
        # A slot that is idle no longer makes room.
        waker.unwatch(names[3])
        await until(lambda: waker.watch(last, server, {last: EntryId.MIN}), "there is room")
        await add(server, last)
        await sleepers.are_woken(last)


async def test_a_slot_that_moves_to_another_master_is_followed(
    empty_cluster: ClusterServers,
) -> None:
    async with sleeping_on(endpoint_of(empty_cluster)) as sleepers:
        slot = key_slot("orders")
        seen = await add(sleepers.server, "orders")
        sleepers.watch("orders", after=seen)
        await sleepers.are_watched(["orders"])
        former = empty_cluster.owner_of(slot)
        target = next(each for each in empty_cluster.masters() if each.port != former.port)
        await asyncio.to_thread(empty_cluster.move_slot, slot, target)
        await until(lambda: int(target.info("clients")["blocked_clients"]) == 1, "it is asked")
        await add(sleepers.server, "orders")
        await sleepers.are_woken("orders")
