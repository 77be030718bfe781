"""A worker needs each right that it has and says which one it lacks; its scripts are whole."""

from typing import Final

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.errors import PermissionDenied
from pelops.redis_streams.access import Role, acl_rules
from pelops.worker.server.adapter import Exchanged, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.worker_adapter import (
    KEYS,
    STREAM,
    USER,
    Behind,
    grant,
    ids_of,
    opened,
    worker_endpoint,
)

OF_CLIENTS: Final = {"+hello", "+auth", "+ping", "+client|setname"}  # sent by client libraries
OF_OWN_ACCORD: Final = {b"client|setinfo", b"cluster|slots"}  # asked of any server, and not needed
OF_OTHERS: Final = {"+xautoclaim"}  # of workers without our scripts
OF_COUNTS: Final = {"+hincrby"}  # without it only status counts less
WORDS: Final = [rule for rule in acl_rules(KEYS, Role.SDK_WORKER) if rule.startswith("+")]


async def act(redis: Behind, adapter: RedisAdapter) -> None:
    """All that a worker does; raises what it is refused with."""
    await adapter.begin()
    first, second, third = await redis.add(3)
    assert len(ids_of(await adapter.read(100, 1000))) == 3
    assert len(ids_of(await adapter.read_history({}, 100))) == 3
    _accept(await adapter.exchange(Outgoing(acks={STREAM: [first]}, started_ids=second)))
    _accept(await adapter.exchange(Outgoing(keeps={STREAM: [second]})))
    _accept(await adapter.exchange(Outgoing(checked_acks={STREAM: [second]})))
    await adapter.release({STREAM: [third]})
    assert await adapter.reject(STREAM, third, reason="r", error="e")
    assert await adapter.leave()


def _accept(found: Exchanged) -> None:
    if found.problem is not None:
        raise found.problem


async def test_every_word_is_needed(redis: Behind, empty_redis: StandaloneServers) -> None:
    for word in WORDS:
        if word in OF_CLIENTS | OF_OTHERS | OF_COUNTS:
            continue
        empty_redis.flush()
        await redis.create()
        await redis.run("SCRIPT", "FLUSH")
        grant(empty_redis)
        empty_redis.acl_setuser(USER, f"-{word[1:]}")
        async with opened(worker_endpoint(empty_redis)) as adapter:
            with pytest.raises(PermissionDenied):
                await act(redis, adapter)
                pytest.fail(f"{word} is not needed")


async def test_the_words_suffice(redis: Behind, empty_redis: StandaloneServers) -> None:
    await redis.run("ACL", "LOG", "RESET")
    async with opened(worker_endpoint(empty_redis)) as adapter:
        await act(redis, adapter)
    log = [dict(zip(line[::2], line[1::2], strict=True)) for line in await redis.run("ACL", "LOG")]
    assert {line[b"object"] for line in log} <= OF_OWN_ACCORD
