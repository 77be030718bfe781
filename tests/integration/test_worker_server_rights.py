"""A worker needs each right that it has and names one that is missing; its scripts run whole."""

from typing import Final

import pytest
from redis import Redis
from redis import exceptions as redis_errors

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.naming import derive_keys
from pelops.errors import PermissionDenied
from pelops.redis_streams.access import Access, UserRole, acl_rules, combined_rules
from pelops.worker.server.adapter import Exchanged, Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from tests.integration.worker_adapter import (
    KEYS,
    PASSWORD,
    STREAM,
    USER,
    Behind,
    behind,
    grant_all_but,
    ids_of,
    opened,
    worker_endpoint,
)

DENIED: Final = "(?i)no permissions|NOPERM|ACL failure|executing the script can't"
OF_CLIENTS: Final = {"+hello", "+auth", "+ping", "+client|setname"}  # sent by client libraries
OF_OWN_ACCORD: Final = {b"client|setinfo", b"cluster|slots"}  # asked of any server, and not needed
OF_OTHERS: Final = {"+xautoclaim"}  # of workers without the SDK's scripts
OF_RUNS_ALONE: Final = {"+hincrby"}  # of workers without an operator
RULES: Final = acl_rules(KEYS, UserRole.SDK_WORKER)
WORDS: Final = sorted(
    {part for rule in RULES for part in rule.strip("()").split() if part[0] == "+"}
)


async def act(redis: Behind, adapter: RedisAdapter, stream: bytes = STREAM) -> None:
    """All that a worker does; raises what it is refused with."""
    await adapter.begin()
    first, second, third = await redis.add(3)
    assert len(ids_of(await adapter.read(100, 1000))) == 3
    assert len(ids_of(await adapter.read_history({}, 100))) == 3
    _accept(await adapter.exchange(Outgoing(acks={stream: [first]}, started_ids=second)))
    _accept(await adapter.exchange(Outgoing(keeps={stream: [second]})))
    _accept(await adapter.exchange(Outgoing(checked_acks={stream: [second]})))
    await adapter.release({stream: [third]})
    assert await adapter.reject(stream, third, reason="r", error="e")
    assert await adapter.leave()


def _accept(found: Exchanged) -> None:
    if found.problem is not None:
        raise found.problem


async def test_every_word_is_needed(redis: Behind, empty_redis: StandaloneServers) -> None:
    for word in WORDS:
        if word in OF_CLIENTS | OF_OTHERS | OF_RUNS_ALONE:
            continue
        empty_redis.flush()
        await redis.create()
        await redis.run("SCRIPT", "FLUSH")
        grant_all_but(empty_redis, word)
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


def as_worker(servers: StandaloneServers) -> Redis:
    node = worker_endpoint(servers).node
    return Redis(host=node.host, port=node.port, username=USER, password=PASSWORD)


EVERY_KEY: Final = tuple(KEYS.by_name().values())
OPERATORS: Final = (KEYS.state, KEYS.ledger, KEYS.audit)
FOREIGN: Final = (*OPERATORS, "{orders:events}:other:worker-ledger", "orders:events:2", "a")
WRITES: Final = {
    "XADD": ("*", "kind", "dead-lettered"),
    "HSET": ("owner:uid", "mine"),
    "HDEL": ("owner:uid",),
    "XTRIM": ("MAXLEN", "0"),
    "XDEL": ("0-1",),
    "DEL": (),
    "SET": ("v",),
    "EXPIRE": ("1",),
    "RENAME": ("{orders:events}:gone",),
}
# Beside what the SDK writes there, nothing may be written at all.
ALLOWED: Final = {
    "XADD": {KEYS.dead_letter, KEYS.worker_ledger, KEYS.offer_stream},
    "HSET": {KEYS.started, KEYS.worker_state},
    "HDEL": {KEYS.started, KEYS.worker_state},
}
IN_A_SCRIPT: Final = "return redis.call(unpack(ARGV))"
HIDDEN: Final = "return redis.call('{0}', '{1}'{2})"


async def test_every_write_that_a_worker_does_not_need_is_refused(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    """Directly and in scripts, whether the script names the key or hides it."""
    with as_worker(empty_redis) as worker:
        for command, rest in WRITES.items():
            for key in (*EVERY_KEY, *FOREIGN):
                if key in ALLOWED.get(command, set()):
                    continue
                words = "".join(f", '{one}'" for one in rest)
                for parts in (
                    (command, key, *rest),
                    ("EVAL", IN_A_SCRIPT, 1, key, command, key, *rest),
                    ("EVAL", IN_A_SCRIPT, 0, command, key, *rest),
                    ("EVAL", HIDDEN.format(command, key, words), 0),
                ):
                    with pytest.raises(redis_errors.ResponseError, match=DENIED):
                        worker.execute_command(*parts)
                        pytest.fail(f"{parts} was not refused")
    present = {key for key in OPERATORS if await redis.run("EXISTS", key)}
    assert not present


async def test_a_worker_reads_and_names_no_key_of_the_operator(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    for key in OPERATORS:
        await redis.run("HSET", key, "owner:uid", "theirs")
    with as_worker(empty_redis) as worker:
        for key in OPERATORS:
            for parts in (("HGET", key, "f"), ("XRANGE", key, "-", "+"), ("TYPE", key)):
                with pytest.raises(redis_errors.ResponseError, match=DENIED):
                    worker.execute_command(*parts)


async def test_a_user_of_two_groups_works_in_both(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    other = derive_keys("refunds", "checks")
    rules = combined_rules(
        [
            Access(KEYS, UserRole.SDK_WORKER),
            Access(other, UserRole.SDK_WORKER),
            Access(derive_keys("invoices", "any"), UserRole.PRODUCER),
        ]
    )
    empty_redis.acl_setuser(USER, "reset", "on", f">{PASSWORD}", *rules)
    empty_redis.acl_setuser(USER, f">{PASSWORD}", *rules)  # twice is as once
    async with opened(worker_endpoint(empty_redis)) as adapter:
        await act(redis, adapter)
    async with behind(empty_redis, other) as seen:
        await seen.create()
        async with opened(worker_endpoint(empty_redis), keys=other) as adapter:
            await act(seen, adapter, stream=other.stream.encode())
    with as_worker(empty_redis) as worker:
        assert worker.xadd("invoices", {"a": 1})
        with pytest.raises(redis_errors.ResponseError, match=DENIED):
            worker.xadd("refunds", {"a": 1})
