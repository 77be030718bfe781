"""Idle streams report their next entry, within one server."""

import asyncio
from collections.abc import Hashable

import pytest

from local_cluster.redis_servers import (
    StandaloneServers,
)
from pelops.domain.entry_id import EntryId
from pelops.redis_core import transport
from pelops.redis_streams.scaling import idle_streams as waiting
from pelops.redis_streams.scaling.idle_streams import Waker
from tests.integration.expiring import until
from tests.integration.redis_adapter import (
    add,
)
from tests.integration.sleeping import Sleepers, blocked


@pytest.fixture
def endless_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocking reads that end within a test only when a test ends them."""
    monkeypatch.setattr(transport, "ANSWER_TIMEOUT_S", 100.0)
    monkeypatch.setattr(waiting, "BLOCK_MS", 90_000)


async def test_an_entry_wakes_only_its_stream_and_only_once(
    sleepers: Sleepers, empty_redis: StandaloneServers
) -> None:
    names = [f"stream-{number}" for number in range(300)]
    sleepers.watch(*names)
    await sleepers.are_watched(names)
    await until(lambda: blocked(empty_redis) == 2, "two connections wait")
    await add(sleepers.server, "stream-7")
    await sleepers.are_woken("stream-7")
    assert not sleepers.waker.is_watched("stream-7")
    await add(sleepers.server, "stream-7")
    await add(sleepers.server, "stream-299")
    await sleepers.are_woken("stream-299")


async def test_an_entry_added_between_observation_and_watch_is_not_missed(
    sleepers: Sleepers,
) -> None:
    seen = await add(sleepers.server, "orders")
    await add(sleepers.server, "orders")
    sleepers.watch("orders", after=seen)
    await sleepers.are_woken("orders")


async def test_an_observed_entry_does_not_wake_its_watch(sleepers: Sleepers) -> None:
    seen = await add(sleepers.server, "orders")
    sleepers.watch("orders", after=seen)
    sleepers.watch("other")
    await add(sleepers.server, "other")
    await sleepers.are_woken("other")


async def test_watches_of_one_stream_wake_at_their_own_position(
    sleepers: Sleepers,
) -> None:
    first = await add(sleepers.server, "orders", "5-0")
    assert sleepers.waker.watch("early", sleepers.server, {"orders": first})
    assert sleepers.waker.watch("late", sleepers.server, {"orders": EntryId(9)})
    assert sleepers.waker.watch("retry", sleepers.server, {"orders": EntryId(9), "again": first})
    await add(sleepers.server, "orders", "7-0")
    await sleepers.are_woken("early")
    await add(sleepers.server, "again", "7-0")
    await sleepers.are_woken("retry")
    await add(sleepers.server, "orders", "11-0")
    await sleepers.are_woken("late")


@pytest.mark.usefixtures("endless_waits")
async def test_newcomers_join_a_wait_that_is_under_way(
    sleepers: Sleepers, empty_redis: StandaloneServers
) -> None:
    sleepers.watch("old")
    await sleepers.are_watched(["old"])
    for number in range(5):
        await until(lambda: blocked(empty_redis) == 1, "the connection waits")
        sleepers.watch(f"new-{number}")
        await add(sleepers.server, f"new-{number}")
        await sleepers.are_woken(f"new-{number}")
    assert blocked(empty_redis) <= 1
    await add(sleepers.server, "old")
    await sleepers.are_woken("old")


async def test_a_removed_watch_is_not_woken(sleepers: Sleepers) -> None:
    sleepers.watch("gone", "here")
    await sleepers.are_watched(["gone", "here"])
    sleepers.waker.unwatch("gone")
    sleepers.waker.unwatch("never watched")
    assert not sleepers.waker.is_watched("gone")
    await add(sleepers.server, "gone")
    await add(sleepers.server, "here")
    await sleepers.are_woken("here")


async def test_to_watch_again_replaces_what_was_watched(sleepers: Sleepers) -> None:
    sleepers.watch("token")
    assert sleepers.waker.watch("token", sleepers.server, {"other": EntryId.MIN})
    await add(sleepers.server, "token")
    await add(sleepers.server, "other")
    await sleepers.are_woken("token")


async def test_a_deleted_and_recreated_stream_wakes_its_watch(sleepers: Sleepers) -> None:
    seen = await add(sleepers.server, "orders")
    sleepers.watch("orders", after=seen)
    await sleepers.are_watched(["orders"])
    await sleepers.server.execute("DEL", "orders")
    await add(sleepers.server, "orders")
    await sleepers.are_woken("orders")


async def test_a_mistake_of_a_subscriber_ends_nothing(
    sleepers: Sleepers, caplog: pytest.LogCaptureFixture
) -> None:
    def wake(token: Hashable) -> None:
        sleepers.woken.append(token)
        raise ValueError("a mistake")

    sleepers.waker = waker = Waker(wake)
    sleepers.watch("one", "two")
    await add(sleepers.server, "one")
    await sleepers.are_woken("one")
    await add(sleepers.server, "two")
    await sleepers.are_woken("two")
    await waker.close()
    assert "a mistake" in caplog.text


async def test_closing_leaves_no_task_and_no_connection(
    sleepers: Sleepers, empty_redis: StandaloneServers
) -> None:
    before = asyncio.all_tasks()
    running = asyncio.create_task(sleepers.waker.run())
    names = [f"stream-{number}" for number in range(600)]
    sleepers.watch(*names)
    await sleepers.are_watched(names)
    sleepers.watch("newcomer")
    await sleepers.waker.close()
    await running
    assert asyncio.all_tasks() == before
    await until(lambda: blocked(empty_redis) == 0, "nobody waits")
    assert not sleepers.waker.watch("orders", sleepers.server, {"orders": EntryId.MIN})


async def test_an_unused_connection_is_closed(
    sleepers: Sleepers, empty_redis: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LINGER_S", 0.01)
    before = len(empty_redis.cli("CLIENT", "LIST").splitlines())
    for _ in range(3):
        sleepers.watch("orders")
        await add(sleepers.server, "orders")
        await sleepers.are_woken("orders")
        await until(
            lambda: len(empty_redis.cli("CLIENT", "LIST").splitlines()) == before,
            "the connection ends",
        )


async def test_a_thousand_idle_streams_cost_four_connections_and_little_memory(
    sleepers: Sleepers, empty_redis: StandaloneServers
) -> None:
    def used() -> int:
        return int(empty_redis.master().info("memory")["used_memory"])

    before = used()
    names = [f"stream-{number}" for number in range(1_000)]
    sleepers.watch(*names)
    await sleepers.are_watched(names)
    await until(lambda: blocked(empty_redis) == 4, "four connections wait")
    assert used() - before < 2_000_000
