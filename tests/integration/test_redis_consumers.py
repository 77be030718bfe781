"""How many consumers a group has, and what each of them holds."""

from __future__ import annotations

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.naming import derive_keys
from pelops.errors import WrongType
from pelops.redis_streams.recovery.consumers import count_consumers, list_consumers
from tests.integration.redis_adapter import add, connected, deliver, endpoint_of, provision


async def test_consumers_are_counted_whether_the_group_is_there_or_not(
    any_redis: StandaloneServers, key_prefix: str
) -> None:
    keys = derive_keys(f"{key_prefix}orders", "workers")
    async with connected(endpoint_of(any_redis)) as server:
        assert await count_consumers(server, keys.stream, keys.group) == 0
        await provision(server, keys)
        assert await count_consumers(server, keys.stream, keys.group) == 0
        assert await count_consumers(server, keys.stream, "another") == 0
        for consumer, count in (("first", 2), ("second", 1)):
            for _ in range(count):
                await add(server, keys.stream)
            await deliver(server, keys, count, consumer)
        assert await count_consumers(server, keys.stream, keys.group) == 2
        held = {
            one.name: one.pending for one in await list_consumers(server, keys.stream, keys.group)
        }
        assert held == {"first": 2, "second": 1}


async def test_a_key_of_another_type_has_no_consumers_and_says_so(
    redis_86: StandaloneServers, key_prefix: str
) -> None:
    name = f"{key_prefix}text"
    async with connected(endpoint_of(redis_86)) as server:
        await server.execute("SET", name, "x", key=name, writes=True)
        with pytest.raises(WrongType):
            await count_consumers(server, name, "workers")


@pytest.mark.full
async def test_a_group_of_many_consumers_with_long_names_is_listed(
    redis_86: StandaloneServers, key_prefix: str
) -> None:
    keys = derive_keys(f"{key_prefix}orders", "workers")
    names = {f"{number}-{'n' * 100}" for number in range(10_000)}
    async with connected(endpoint_of(redis_86)) as server:
        await provision(server, keys)
        for name in names:
            await server.execute(
                "XGROUP", "CREATECONSUMER", keys.stream, keys.group, name,
                key=keys.stream, writes=True,
            )  # fmt: skip
        assert {one.name for one in await list_consumers(server, keys.stream, keys.group)} == names
