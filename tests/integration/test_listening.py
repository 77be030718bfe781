"""Locks that expire ask for the sweep of their group, of those who ask for it and seldom."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.recovery import lock_expiry as listening
from pelops.controller.recovery.lock_expiry import DEBOUNCE_S, UNSEEN, Listening
from pelops.controller.runtime.cache import Name
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.errors import RedisUnavailable
from pelops.redis_core.server import Server
from pelops.redis_streams.access import Feature, Role, acl_rules
from tests.builders import resource
from tests.integration.expiring import TELLING, expire, until
from tests.integration.redis_door import connected, endpoint_of

ORDERS: Final = ("shop", "orders")
BILLS: Final = ("shop", "bills")


@pytest.fixture(scope="module")
def telling() -> Iterator[StandaloneServers]:
    with start_standalone("8.6", options=TELLING) as servers:
        yield servers


class Sweeps:
    """Resources whose Redis is one server, and the sweeps that were asked for."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.asked: list[Name] = []
        self.times: list[float] = []
        self.is_reachable = True
        self.listening = Listening(self.connect, self.request)

    async def connect(self, asking: StreamConsumerGroup) -> tuple[Server, GroupKeys]:
        if not self.is_reachable:
            raise RedisUnavailable("not now")
        return self.server, derive_keys(asking.spec.stream, asking.group_name)

    def request(self, name: Name, trigger: str) -> None:
        assert trigger == "lock-expiry"
        self.asked.append(name)
        self.times.append(asyncio.get_running_loop().time())

    async def follow(self, *resources: StreamConsumerGroup) -> None:
        """Listen for these, until the servers have confirmed it."""
        await self.listening.follow(resources)
        await asyncio.gather(*(self.await_told(each) for each in resources))

    async def await_told(self, of: StreamConsumerGroup) -> None:
        """Have locks of the resource expire until a sweep is asked for, if it ever is."""
        if not listening.wants_notifications(of):
            return
        name, before = (of.metadata.namespace, of.metadata.name), len(self.asked)
        while name not in self.asked[before:]:
            await expire(self.server, lock(of.spec.stream, 0))
            await asyncio.sleep(0.05)


@pytest.fixture
async def sweeps(telling: StandaloneServers) -> AsyncIterator[Sweeps]:
    async with connected(endpoint_of(telling)) as server:
        sweeps = Sweeps(server)
        yield sweeps
        await sweeps.listening.close()


def asks(name: Name = ORDERS, *, strategy: str = "Requeue", **spec: Any) -> StreamConsumerGroup:
    """A resource that asks for notifications, of a stream of its own name."""
    recovery = {"strategy": strategy, "locks": {"keyspaceNotifications": True}}
    metadata = {"namespace": name[0], "name": name[1]}
    return resource(metadata=metadata, stream=name[1], **{"recovery": recovery, **spec})


def lock(stream: str, number: int) -> str:
    return f"lock:{{{stream}}}:{number}-1"


async def test_an_expired_lock_asks_for_the_sweep_of_its_group_alone(sweeps: Sweeps) -> None:
    await sweeps.listening.follow([asks(ORDERS), asks(BILLS)])
    await sweeps.await_told(asks(BILLS))
    for key in ("lock:{orders}:x", "lock:{other}:1-1", "lock:orders:1-1"):
        await expire(sweeps.server, key)
    await sweeps.await_told(asks(BILLS))  # in order: the others were told before
    assert set(sweeps.asked) == {BILLS}
    await sweeps.await_told(asks(ORDERS))


async def test_many_locks_at_once_ask_for_few_sweeps_and_the_last_is_not_lost(
    sweeps: Sweeps,
) -> None:
    await sweeps.follow(asks())
    for number in range(60):
        before = len(sweeps.asked)
        await expire(sweeps.server, lock("orders", number))
    await until(lambda: len(sweeps.asked) > before, "the last lock's sweep is asked for")
    gaps = [later - earlier for earlier, later in zip(sweeps.times, sweeps.times[1:], strict=False)]
    assert min(gaps) > DEBOUNCE_S * 0.99
    assert len(sweeps.asked) < 60


@pytest.mark.parametrize(
    "changed",
    [
        {"strategy": "Off"},
        {"suspend": True},
        {"recovery": {"strategy": "Requeue", "locks": {}}},
        {"recovery": {"strategy": "Requeue"}},
    ],
)
async def test_who_does_not_ask_any_more_is_not_listened_for(
    sweeps: Sweeps, telling: StandaloneServers, changed: dict[str, Any]
) -> None:
    await sweeps.follow(asks())
    await sweeps.follow(asks(**changed))
    await until(lambda: "psub=1" not in telling.cli("CLIENT", "LIST"), "nobody is subscribed")


async def test_another_template_or_stream_is_listened_for_with_the_same_connection(
    sweeps: Sweeps, telling: StandaloneServers
) -> None:
    def connections() -> list[str]:
        lines = telling.cli("CLIENT", "LIST").splitlines()
        return [line.split()[0] for line in lines if "psub=1" in line]

    await sweeps.follow(asks())
    former = connections()
    locks = {"keyspaceNotifications": True, "keyTemplate": "mine:$id"}
    await sweeps.listening.follow([asks(recovery={"strategy": "Requeue", "locks": locks})])
    sweeps.asked.clear()
    await expire(sweeps.server, lock("orders", 1), "mine:1-1")
    await until(lambda: sweeps.asked == [ORDERS], "the sweep is asked for")
    assert connections() == former


async def test_an_outage_while_connecting_keeps_what_is_listened_for(sweeps: Sweeps) -> None:
    await sweeps.follow(asks())
    sweeps.is_reachable = False
    await sweeps.follow(asks())


async def test_a_template_that_cannot_be_concerns_nobody_else(sweeps: Sweeps) -> None:
    locks = {"keyspaceNotifications": True, "keyTemplate": "no-id"}
    broken = asks(BILLS, recovery={"strategy": "Requeue", "locks": locks})
    await sweeps.listening.follow([broken, asks()])
    await sweeps.await_told(asks())


async def test_a_server_that_tells_nothing_is_a_problem_until_it_is_mended(
    sweeps: Sweeps, telling: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "RECHECK_S", 0)
    telling.cli("CONFIG", "SET", "notify-keyspace-events", "")
    try:
        await sweeps.listening.follow([asks()])
        assert sweeps.listening.problem(ORDERS) == UNSEEN
        assert sweeps.listening.problem(BILLS) is None
    finally:
        telling.cli("CONFIG", "SET", "notify-keyspace-events", "Ex")
    await sweeps.follow(asks())
    assert sweeps.listening.problem(ORDERS) is None


@pytest.mark.parametrize("features", [(), (Feature.EXPIRY_EVENTS,)])
async def test_a_right_that_is_missing_is_a_problem_and_an_unknown_setting_is_none(
    telling: StandaloneServers, features: tuple[Feature, ...]
) -> None:
    rules = acl_rules(derive_keys("orders", "g"), Role.OPERATOR, features)
    telling.acl_setuser("pelops", "reset", "on", ">sesame", *rules)
    async with (
        connected(endpoint_of(telling, username="pelops", password="sesame")) as limited,
        connected(endpoint_of(telling)) as root,
    ):
        sweeps = Sweeps(limited)
        try:
            await sweeps.listening.follow([asks()])
            if features:
                sweeps.server = root  # which may make keys
                await sweeps.await_told(asks())
                assert sweeps.listening.problem(ORDERS) is None
            else:
                said = "cannot be seen: the ACL of the Redis user forbids psubscribe"
                await until(
                    lambda: said in (sweeps.listening.problem(ORDERS) or ""), "the right is named"
                )
        finally:
            await sweeps.listening.close()


async def test_ending_the_loop_ends_the_connections(
    sweeps: Sweeps, telling: StandaloneServers
) -> None:
    loop = asyncio.create_task(sweeps.listening.run(lambda: [asks()]))
    await sweeps.await_told(asks())
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await until(lambda: "psub=1" not in telling.cli("CLIENT", "LIST"), "nobody is subscribed")
