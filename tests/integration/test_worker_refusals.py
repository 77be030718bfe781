"""What a worker reports while Redis refuses it a command or a key."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.errors import PermissionDenied, RedisError, WrongType
from pelops.redis_streams.access import UserRole, acl_rules, producer_rules
from pelops.worker import Producer
from pelops.worker.server.adapter import Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.worker_adapter import (
    KEYS,
    PASSWORD,
    STREAM,
    USER,
    Behind,
    behind,
    grant,
    grant_all_but,
    opened,
    worker_endpoint,
)
from tests.serving_worker import HandlingTime, serving, until

GRANT = f"`pelops acl --role sdk-worker --stream {KEYS.stream} --group {KEYS.group}`"


@pytest.fixture
async def seen(empty_redis: StandaloneServers) -> AsyncIterator[Behind]:
    """The group, and a user with the rights of a worker."""
    grant(empty_redis)
    async with behind(empty_redis) as seen:
        await seen.create()
        yield seen


@pytest.fixture
async def way(seen: Behind, empty_redis: StandaloneServers) -> AsyncIterator[RedisAdapter]:
    """A worker's adapter under these rights."""
    async with opened(worker_endpoint(empty_redis)) as adapter:
        yield adapter


async def test_a_command_that_is_forbidden_is_named_with_what_grants_it(
    way: RedisAdapter, empty_redis: StandaloneServers
) -> None:
    grant_all_but(empty_redis, "+xreadgroup")
    with pytest.raises(PermissionDenied) as refused:
        await way.read(10, 1)
    assert refused.value.command == "xreadgroup"
    assert GRANT in str(refused.value)


async def test_a_key_that_is_forbidden_is_named(
    way: RedisAdapter, empty_redis: StandaloneServers
) -> None:
    grant_all_but(empty_redis, f"~{KEYS.started}")
    answer = await way.exchange(Outgoing(started_ids=b"1-1"))
    assert isinstance(answer.problem, PermissionDenied)
    assert answer.problem.key == KEYS.started
    assert KEYS.started in str(answer.problem)
    assert GRANT in str(answer.problem)


async def test_a_command_that_only_a_script_runs_is_named(
    way: RedisAdapter, seen: Behind, empty_redis: StandaloneServers
) -> None:
    (entry_id,) = await seen.add()
    await way.read(10, 1000)
    grant_all_but(empty_redis, "+xclaim")
    answer = await way.exchange(Outgoing(keeps={STREAM: [entry_id]}))
    assert isinstance(answer.problem, PermissionDenied)
    assert answer.problem.command == "xclaim"
    assert GRANT in str(answer.problem)


@pytest.mark.parametrize("key", [KEYS.retry, KEYS.offer_stream, KEYS.started])
async def test_a_key_of_another_type_is_named_with_its_type(
    way: RedisAdapter, seen: Behind, key: str
) -> None:
    await seen.run("SET", key, "somebody's")
    with pytest.raises(WrongType, match="rename that key") as refused:
        await _use(way)
    assert (refused.value.key, refused.value.found) == (key, "string")
    await seen.run("DEL", key)
    await _use(way)


async def _use(way: RedisAdapter) -> None:
    await way.read(10, 1)
    answer = await way.exchange(Outgoing(started_ids=b""))
    if answer.problem is not None:
        raise answer.problem


async def test_readiness_reports_a_missing_permission_until_it_is_granted(
    seen: Behind, empty_redis: StandaloneServers
) -> None:
    handling = HandlingTime()
    async with serving(worker_endpoint(empty_redis), handling) as (worker, reported):
        await until(lambda: worker.is_ready)
        grant_all_but(empty_redis, "+xreadgroup")
        await until(lambda: "xreadgroup" in worker.describe())
        assert not worker.is_ready
        assert GRANT in worker.describe()
        grant(empty_redis)
        await until(lambda: worker.is_ready)
        (entry_id,) = await seen.add()
        await until(lambda: reported.done == [entry_id.decode()])


# Producers.


async def _add(servers: StandaloneServers, stream: str = KEYS.stream) -> str:
    async with Producer(worker_endpoint(servers), stream) as producer:
        await producer.add_many([{"n": "1"}])
        return await producer.add({"n": "2"}, key="two")


def _grant_producer(servers: StandaloneServers) -> None:
    servers.acl_setuser(USER, "reset", "on", f">{PASSWORD}", *producer_rules(KEYS.stream))


async def test_a_producers_rights_suffice_for_it_and_for_nothing_else(
    seen: Behind, empty_redis: StandaloneServers
) -> None:
    _grant_producer(empty_redis)
    assert await _add(empty_redis)
    assert await seen.run("XLEN", KEYS.stream) == 2
    with pytest.raises(PermissionDenied) as refused:
        await _add(empty_redis, KEYS.ledger)
    assert refused.value.key == KEYS.ledger
    assert f"`pelops acl --role producer --stream '{KEYS.ledger}'`" in str(refused.value)
    async with opened(worker_endpoint(empty_redis)) as way:
        with pytest.raises(RedisError):
            await way.begin()
        with pytest.raises(RedisError):
            await way.read(1, 1)


async def test_a_producer_needs_the_one_right_that_it_has(
    seen: Behind, empty_redis: StandaloneServers
) -> None:
    _grant_producer(empty_redis)
    empty_redis.acl_setuser(USER, "-xadd")
    with pytest.raises(PermissionDenied, match="forbids xadd"):
        await _add(empty_redis)


def test_a_producers_rights_do_not_depend_on_a_group() -> None:
    assert acl_rules(KEYS, UserRole.PRODUCER) == producer_rules(KEYS.stream)
    patterns = [rule for rule in producer_rules(KEYS.stream) if rule.startswith("~")]
    assert patterns == [f"~{KEYS.stream}"]
