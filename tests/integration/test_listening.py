"""Locks that expire ask for the scan of their group, of those who ask for it and seldom."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from benchmarks.hostile_servers import HostileServers
from local_cluster.redis_servers import StandaloneServers, start_standalone
from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.kinds.group_kind import with_lock_expiry
from pelops.controller.recovery.lock_expiry import DEBOUNCE_S, PROBLEM, ExpiryListener
from pelops.controller.runtime.cache import Name
from pelops.domain.endpoint import build_endpoint
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.errors import RedisUnavailable
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.keyspace_events import NOT_ENABLED
from tests.builders import manifest, resource
from tests.integration.expiring import REPORTING, expire, until
from tests.integration.redis_adapter import connected, endpoint_of

ORDERS: Final = ("shop", "orders")
BILLS: Final = ("shop", "bills")


@pytest.fixture(scope="module")
def reporting() -> Iterator[StandaloneServers]:
    with start_standalone("8.6", options=REPORTING) as servers:
        yield servers


class ScanRequests:
    """Resources whose Redis is one server, and the scans that were asked for."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.asked: list[Name] = []
        self.times: list[float] = []
        self.is_reachable = True
        self.listening = ExpiryListener(self.connect, self.request)

    async def connect(self, asking: StreamConsumerGroup) -> tuple[Server, GroupKeys]:
        if not self.is_reachable:
            raise RedisUnavailable("not now")
        return self.server, derive_keys(asking.spec.stream, asking.group_name)

    def request(self, name: Name) -> None:
        self.asked.append(name)
        self.times.append(asyncio.get_running_loop().time())

    async def follow(self, *resources: StreamConsumerGroup) -> None:
        """Listen for these, until the servers have confirmed it."""
        await self.listening.follow(resources)
        await asyncio.gather(*(self.await_reported(each) for each in resources))

    async def await_reported(self, of: StreamConsumerGroup) -> None:
        """Let locks of the resource expire until a scan is requested."""
        name, before = (of.metadata.namespace, of.metadata.name), len(self.asked)
        while name not in self.asked[before:]:
            await expire(self.server, lock(of.spec.stream, 0))
            await asyncio.sleep(0.05)


@pytest.fixture
async def scans(reporting: StandaloneServers) -> AsyncIterator[ScanRequests]:
    async with connected(endpoint_of(reporting)) as server:
        scans = ScanRequests(server)
        yield scans
        await scans.listening.follow([])


ASKING: Final = {"strategy": "Requeue", "locks": {}, "tuning": {"keyspaceNotifications": True}}


def asks(name: Name = ORDERS, **locks: str) -> StreamConsumerGroup:
    """A resource that asks for notifications, of a stream of its own name."""
    metadata = {"namespace": name[0], "name": name[1]}
    return resource(metadata=metadata, stream=name[1], recovery=ASKING | {"locks": locks})


def lock(stream: str, number: int) -> str:
    return f"lock:{{{stream}}}:{number}-1"


async def test_an_expired_lock_asks_for_the_scan_of_its_group_alone(scans: ScanRequests) -> None:
    await scans.listening.follow([asks(ORDERS), asks(BILLS)])
    await scans.await_reported(asks(BILLS))
    for key in ("lock:{orders}:x", "lock:{other}:1-1", "lock:orders:1-1"):
        await expire(scans.server, key)
    await scans.await_reported(asks(BILLS))  # in order: the others were informed before
    assert set(scans.asked) == {BILLS}
    await scans.await_reported(asks(ORDERS))


async def test_many_expired_locks_request_few_scans_including_the_last(
    scans: ScanRequests,
) -> None:
    await scans.follow(asks())
    for number in range(60):
        before = len(scans.asked)
        await expire(scans.server, lock("orders", number))
    await until(lambda: len(scans.asked) > before, "the last lock's scan is asked for")
    gaps = [later - earlier for earlier, later in zip(scans.times, scans.times[1:], strict=False)]
    assert min(gaps) > DEBOUNCE_S * 0.99
    assert len(scans.asked) < 60


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"recovery": ASKING}, 1),
        ({"recovery": ASKING | {"strategy": "Disabled"}}, 0),
        ({"recovery": ASKING, "suspend": True}, 0),
        ({"recovery": {"locks": {}}}, 0),
        ({"recovery": {"tuning": "malformed"}}, 0),
    ],
)
def test_only_resources_that_recover_ask_for_the_expiry_of_locks(
    spec: dict[str, Any], count: int
) -> None:
    assert len(list(with_lock_expiry([manifest(**spec)]))) == count


async def test_a_group_that_is_not_named_any_more_is_not_listened_for(
    scans: ScanRequests, reporting: StandaloneServers
) -> None:
    await scans.follow(asks())
    await scans.follow()
    await until(lambda: "psub=1" not in reporting.cli("CLIENT", "LIST"), "nobody is subscribed")


async def test_another_template_or_stream_is_listened_for_with_the_same_connection(
    scans: ScanRequests, reporting: StandaloneServers
) -> None:
    def connections() -> list[str]:
        lines = reporting.cli("CLIENT", "LIST").splitlines()
        return [line.split()[0] for line in lines if "psub=1" in line]

    await scans.follow(asks())
    former = connections()
    await scans.listening.follow([asks(keyTemplate="mine:$id")])
    scans.asked.clear()
    await expire(scans.server, lock("orders", 1), "mine:1-1")
    await until(lambda: scans.asked == [ORDERS], "the scan is asked for")
    assert connections() == former


async def test_an_outage_while_connecting_keeps_what_is_listened_for(scans: ScanRequests) -> None:
    await scans.follow(asks())
    scans.is_reachable = False
    await scans.follow(asks())


async def test_an_invalid_key_template_does_not_affect_other_groups(scans: ScanRequests) -> None:
    await scans.listening.follow([asks(BILLS, keyTemplate="no-id"), asks()])
    await scans.await_reported(asks())


async def test_disabled_expiry_notifications_are_a_problem_until_enabled(
    scans: ScanRequests, reporting: StandaloneServers
) -> None:
    reporting.cli("CONFIG", "SET", "notify-keyspace-events", "")
    try:
        await scans.listening.follow([asks()])
        await until(lambda: scans.listening.problem(ORDERS) is not None, "it is a problem")
        assert scans.listening.problem(ORDERS) == PROBLEM.format(NOT_ENABLED)
        assert scans.listening.problem(BILLS) is None
    finally:
        reporting.cli("CONFIG", "SET", "notify-keyspace-events", "Ex")
    await scans.follow(asks())
    assert scans.listening.problem(ORDERS) is None


async def test_ending_the_loop_ends_the_connections(
    scans: ScanRequests, reporting: StandaloneServers
) -> None:
    loop = asyncio.create_task(scans.listening.run(lambda: [asks()]))
    await scans.await_reported(asks())
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await until(lambda: "psub=1" not in reporting.cli("CLIENT", "LIST"), "nobody is subscribed")


async def test_a_server_with_malformed_replies_does_not_end_the_listening_of_others(
    scans: ScanRequests,
) -> None:
    with HostileServers() as servers:
        endpoint = build_endpoint(url=servers.url("odd_config", 1))
        async with connected(endpoint) as hostile:
            scans.server, healthy = hostile, scans.server
            await scans.listening.follow([asks(BILLS)])
            await until(lambda: servers.asked["CONFIG"] == 1, "the odd reply was sent")
            scans.server = healthy
            await scans.listening.follow([asks(ORDERS)])
            await scans.await_reported(asks(ORDERS))
