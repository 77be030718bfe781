"""Recovery that a server, its rights or its keys refuse leaves everything as it was."""

from typing import Final

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.errors import (
    NoSuchGroup,
    NotOurs,
    PermissionDenied,
    RedisUnavailable,
    RetryBatchChanged,
    WrongType,
)
from pelops.redis_core.server import Server
from pelops.redis_streams.access import Feature, UserRole, acl_rules
from tests.integration.recovering import (
    KEYS,
    bodies,
    look,
    pending,
    recover_all,
    snapshot,
    strand,
)
from tests.integration.recovery_moves import MOVES, Move, moves, refuses, settle_one
from tests.integration.redis_adapter import (
    connected,
    endpoint_of,
)

GRANTED: Final = acl_rules(
    KEYS, UserRole.OPERATOR, {Feature.RECOVERY, Feature.CLEANUP, Feature.DELETE_POLICY}
)
USED: Final = (  # by the scripts that move
    *("+time", "+type", "+xinfo|stream", "+xinfo|groups", "+xpending", "+xrange"),
    *("+xadd", "+xack", "+hget", "+hset", "+hdel"),
)


@moves
async def test_another_owner_of_the_group_stops_everything(server: Server, move: Move) -> None:
    await strand(server, 2)
    await server.execute("HSET", KEYS.state, "owner:uid", "uid-2", key=KEYS.state)
    await refuses(server, move, NotOurs, "another resource")


@moves
@pytest.mark.parametrize("name", ["dead_letter", "ledger"])
async def test_b3_a_key_of_another_type_stops_everything(
    server: Server, move: Move, name: str
) -> None:
    await strand(server, 2)
    key = getattr(KEYS, name)
    await server.execute("DEL", key, key=key)
    await server.execute("SET", key, "text", key=key)
    with pytest.raises(WrongType) as reported:
        await move(server)
    assert (reported.value.key, reported.value.found) == (key, "string")
    assert len(await pending(server)) == 2
    assert len(await bodies(server, KEYS.stream)) == 2


@moves
async def test_without_the_group_or_the_stream_nothing_happens(server: Server, move: Move) -> None:
    await strand(server, 2)
    destroy = ("XGROUP", "DESTROY", KEYS.stream, KEYS.group)
    await server.execute(*destroy, key=KEYS.stream)
    if move is not settle_one:
        with pytest.raises(NoSuchGroup):
            await move(server)
        await server.execute("DEL", KEYS.stream, key=KEYS.stream)
        with pytest.raises(NoSuchGroup):
            await move(server)


@pytest.mark.parametrize("word", USED)
async def test_b4_a_missing_permission_is_named_and_stops_everything(
    empty_redis: StandaloneServers, server: Server, word: str
) -> None:
    await strand(server, 3)
    rules = [rule for rule in GRANTED if rule != word]
    empty_redis.acl_setuser("pelops", "reset", "on", ">sesame", *rules, "+hincrby")
    before = await snapshot(server)
    denied: list[str | None] = []
    async with connected(endpoint_of(empty_redis, username="pelops", password="sesame")) as user:
        for move in (recover_all, MOVES["recover_entries"]):
            try:
                await move(user)
            except PermissionDenied as error:
                denied.append(error.command)
    assert denied
    assert set(denied) <= {word[1:], word[1:].partition("|")[0]}
    assert await snapshot(server) == before


@pytest.mark.parametrize("word", ["+xadd", "+xack", "+hset", "+hdel"])
async def test_b4_settling_is_refused_before_it_writes(
    empty_redis: StandaloneServers, server: Server, word: str
) -> None:
    await strand(server, 3)
    rules = [rule for rule in GRANTED if rule != word]
    empty_redis.acl_setuser("pelops", "reset", "on", ">sesame", *rules, "+hincrby")
    before = await snapshot(server)
    async with connected(endpoint_of(empty_redis, username="pelops", password="sesame")) as user:
        with pytest.raises(PermissionDenied):
            await settle_one(user)
    assert await snapshot(server) == before


async def test_a_chunk_that_another_replica_released_stops_the_rest(server: Server) -> None:
    await strand(server, 3)
    await settle_one(server)
    await refuses(server, settle_one, RetryBatchChanged, "another operator replica")
    written = (await look(server)).retry_batch.written
    await settle_one(server, written=written)
    assert len(await pending(server)) == 1


async def test_a_server_out_of_memory_moves_nothing(
    empty_redis: StandaloneServers, server: Server
) -> None:
    await strand(server, 3)
    empty_redis.cli("CONFIG", "SET", "maxmemory", "1mb")
    try:
        for move in (recover_all, settle_one):
            await refuses(server, move, RedisUnavailable, "OOM")
    finally:
        empty_redis.cli("CONFIG", "SET", "maxmemory", "0")
    await recover_all(server)
    assert await pending(server) == {}


async def test_a_server_without_enough_replicas_moves_nothing(
    empty_redis: StandaloneServers, server: Server
) -> None:
    await strand(server, 3)
    empty_redis.cli("CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        await refuses(server, recover_all, RedisUnavailable, "NOREPLICAS")
    finally:
        empty_redis.cli("CONFIG", "SET", "min-replicas-to-write", "0")


async def test_a_replica_moves_nothing(empty_redis: StandaloneServers, server: Server) -> None:
    await strand(server, 3)
    before = await snapshot(server)
    empty_redis.cli("CONFIG", "SET", "replica-serve-stale-data", "yes")
    empty_redis.cli("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(RedisUnavailable, match="READONLY"):
            await recover_all(server)
    finally:
        empty_redis.cli("REPLICAOF", "NO", "ONE")
    assert await snapshot(server) == before
