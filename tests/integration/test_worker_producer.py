"""What a producer adds, and what it says when it cannot know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from local_cluster.redis_servers import RedisServers, StandaloneServers
from pelops.errors import OutcomeUnknown, RedisUnavailable, WrongType
from pelops.worker import Producer, WrongWorkerSettings
from pelops.worker.producer import AddOptions, Value
from tests.integration.redis_adapter import connected, endpoint_of
from tests.integration.worker_adapter import on_port
from tests.redis_fixtures import RunRedis

STREAM = "orders"


class Cutter:
    """Between a producer and its server; swallows the next answers, and hangs up."""

    def __init__(self, port_behind: int) -> None:
        self.cuts = 0
        self._port_behind = port_behind
        self._writers: list[asyncio.StreamWriter] = []

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection("127.0.0.1", self._port_behind)
        self._writers += [writer, questions]
        back = asyncio.create_task(self._pass_back(answers, writer))
        while data := await reader.read(65536):
            questions.write(data)
        questions.close()
        await back

    async def _pass_back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await answers.read(65536):
            if self.cuts and data[:1] in b"$-*" and b"-" in data:  # an entry's ID, or a refusal
                self.cuts -= 1
                break
            writer.write(data)
        writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def cutting(servers: StandaloneServers) -> AsyncIterator[tuple[Cutter, int]]:
    cutter = Cutter(servers.master().port)
    server = await asyncio.start_server(cutter.meet, "127.0.0.1", 0)
    try:
        yield cutter, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        cutter.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def producing(
    servers: RedisServers, port: int | None = None, **adding: Any
) -> AsyncIterator[Producer]:
    endpoint = endpoint_of(servers)
    where = endpoint if port is None else on_port(endpoint, port)
    async with Producer(where, STREAM, AddOptions(**adding)) as producer:
        yield producer


async def _entries(servers: RedisServers) -> list[tuple[str, list[bytes]]]:
    async with connected(endpoint_of(servers)) as server:
        found = await server.execute("XRANGE", STREAM, "-", "+", key=STREAM)
    return [(entry_id.decode(), flat) for entry_id, flat in found]


async def test_an_entry_stands_in_the_stream_as_it_was_given(
    empty_redis: StandaloneServers,
) -> None:
    async with producing(empty_redis) as producer:
        fields: dict[str, Value] = {"a": "ä", "b": 7, "c": 1.5, "d": b"\xff"}
        first = await producer.add(fields)
        second = await producer.add([("a", "1"), ("a", "2")])
    assert await _entries(empty_redis) == [
        (first, [b"a", "ä".encode(), b"b", b"7", b"c", b"1.5", b"d", b"\xff"]),
        (second, [b"a", b"1", b"a", b"2"]),
    ]


async def test_many_entries_keep_their_order(empty_redis: StandaloneServers) -> None:
    async with producing(empty_redis) as producer:
        ids = await producer.add_many({"n": number} for number in range(1200))
    found = await _entries(empty_redis)
    assert [entry_id for entry_id, _ in found] == ids
    assert [int(flat[1]) for _, flat in found] == list(range(1200))


async def test_what_is_added_at_the_same_time_goes_together(
    empty_redis_86: StandaloneServers,
) -> None:
    async with producing(empty_redis_86) as producer:
        ids = await asyncio.gather(*(producer.add({"n": number}) for number in range(100)))
    assert len(set(ids)) == 100
    assert len({entry_id.partition("-")[0] for entry_id in ids}) < 20


async def test_a_stream_stays_about_as_long_as_it_is_to_be(empty_redis: StandaloneServers) -> None:
    async with producing(empty_redis, max_length=200) as producer:
        await producer.add_many([{"n": number} for number in range(2000)])
    assert 200 <= len(await _entries(empty_redis)) < 500


async def test_entries_that_are_too_old_are_deleted(empty_redis: StandaloneServers) -> None:
    async with connected(endpoint_of(empty_redis)) as server:
        for number in range(1, 201):
            await server.execute("XADD", STREAM, f"{number}-0", "f", "v", key=STREAM)
    async with producing(empty_redis, max_age_s=3600) as producer:
        added = await producer.add({"f": "v"})
    found = [entry_id for entry_id, _ in await _entries(empty_redis)]
    assert found[-1] == added
    assert len(found) <= 101  # whole nodes of a hundred go


async def test_an_entry_with_a_key_is_added_once(empty_redis_86: StandaloneServers) -> None:
    async with producing(empty_redis_86, max_length=1000) as producer:
        first = await producer.add({"n": 1}, key="one")
        again = await producer.add({"n": 1}, key="one")
        both = await producer.add_many([{"n": 1}, {"n": 2}], keys=["one", b"two"])
        assert producer.is_idempotent is True
    assert first == again == both[0] != both[1]
    assert len(await _entries(empty_redis_86)) == 2


async def test_producers_of_one_name_share_their_keys(empty_redis_86: StandaloneServers) -> None:
    for name in ("a", "a", "b"):
        async with producing(empty_redis_86, name=name) as producer:
            await producer.add({"n": 1}, key="one")
    assert len(await _entries(empty_redis_86)) == 2


async def test_without_idempotent_xadd_entries_are_added_with_one_warning(
    run_redis: RunRedis, caplog: pytest.LogCaptureFixture
) -> None:
    servers = run_redis("7.0")
    with caplog.at_level(logging.WARNING, "pelops.worker"):
        async with producing(servers) as producer:
            assert producer.is_idempotent is None
            ids = await producer.add_many([{"n": 1}] * 3, keys=["one", "one", None])
            await producer.add({"n": 1}, key="one")
            assert producer.is_idempotent is False
    assert len(set(ids)) == 3
    assert [entry_id for entry_id, _ in (await _entries(servers))][:3] == sorted(ids)
    assert caplog.text.count("does not support idempotent XADD") == 1


async def test_an_entry_without_a_key_whose_answer_was_lost_may_be_there(
    empty_redis_86: StandaloneServers,
) -> None:
    async with (
        cutting(empty_redis_86) as (cutter, port),
        producing(empty_redis_86, port) as producer,
    ):
        await producer.add({"n": 0})
        cutter.cuts = 1
        with pytest.raises(OutcomeUnknown):
            await producer.add({"n": 1})
        await producer.add({"n": 2})
    assert [flat[1] for _, flat in await _entries(empty_redis_86)] == [b"0", b"1", b"2"]


async def test_an_entry_with_a_key_whose_answer_was_lost_is_added_once(
    empty_redis_86: StandaloneServers,
) -> None:
    async with (
        cutting(empty_redis_86) as (cutter, port),
        producing(empty_redis_86, port) as producer,
    ):
        await producer.add({"n": 0})
        cutter.cuts = 2
        added = await producer.add({"n": 1}, key="one")
    found = await _entries(empty_redis_86)
    assert [flat[1] for _, flat in found] == [b"0", b"1"]
    assert found[1][0] == added


async def test_what_was_refused_for_a_time_is_tried_again(run_redis: RunRedis) -> None:
    servers = run_redis("8.6")
    async with connected(endpoint_of(servers)) as server, producing(servers) as producer:
        await server.execute("CONFIG", "SET", "min-replicas-to-write", "1", key=STREAM)
        adding = asyncio.create_task(producer.add({"n": 1}))
        refused = b"errorstat_NOREPLICAS"
        while refused not in await server.execute("INFO", "errorstats", key=STREAM):
            await asyncio.sleep(0.01)
        assert not adding.done()
        await server.execute("CONFIG", "SET", "min-replicas-to-write", "0", key=STREAM)
        added = await adding
    assert [entry_id for entry_id, _ in await _entries(servers)] == [added]


async def test_patience_has_an_end(empty_redis_86: StandaloneServers) -> None:
    async with cutting(empty_redis_86) as (_, port):
        pass  # the port is closed from here on
    async with producing(empty_redis_86, port, patience_s=0.2) as producer:
        with pytest.raises(RedisUnavailable):
            await producer.add({"n": 1}, key="one")


async def test_a_refused_entry_raises_and_later_entries_are_added(
    empty_redis: StandaloneServers,
) -> None:
    async with connected(endpoint_of(empty_redis)) as server:
        await server.execute("SET", STREAM, "x", key=STREAM)
        async with producing(empty_redis) as producer:
            with pytest.raises(WrongType):
                await producer.add_many([{"n": 1}, {"n": 2}])
            await server.execute("DEL", STREAM, key=STREAM)
            await producer.add({"n": 3})
    assert [flat[1] for _, flat in await _entries(empty_redis)] == [b"3"]


async def test_a_canceled_caller_does_not_affect_other_callers(
    empty_redis_86: StandaloneServers,
) -> None:
    async with producing(empty_redis_86) as producer:
        given_up = asyncio.create_task(producer.add({"n": 1}))
        other = asyncio.create_task(producer.add({"n": 2}))
        await asyncio.sleep(0)
        given_up.cancel()
        added = await other
    assert added in [entry_id for entry_id, _ in await _entries(empty_redis_86)]


@pytest.mark.parametrize("fields", [{}, {"a": None}, {"a": True}, {"a": [1]}])
async def test_invalid_fields_are_refused_without_showing_their_values(
    empty_redis_86: StandaloneServers, fields: Any
) -> None:
    async with producing(empty_redis_86) as producer:
        with pytest.raises((ValueError, TypeError)) as refused:
            await producer.add(fields)
        with pytest.raises(ValueError):
            await producer.add({"a": 1}, key="")
    assert "None" not in str(refused.value).replace("NoneType", "")
    assert await _entries(empty_redis_86) == []


def test_limits_that_cannot_be_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"max_length": 0},
        {"max_age_s": 0.0},
        {"max_age_s": float("nan")},
        {"max_length": 1, "max_age_s": 1.0},
    ]
    for limits in wrong:
        with pytest.raises(WrongWorkerSettings, match="max_"):
            AddOptions(**limits)


async def test_the_environment_says_where_to_add(empty_redis_86: StandaloneServers) -> None:
    reported = {
        "PELOPS_REDIS_URL": f"redis://127.0.0.1:{empty_redis_86.master().port}",
        "PELOPS_STREAM": STREAM,
    }
    async with Producer.from_env(reported, max_length=10) as producer:
        await producer.add({"n": 1})
    assert len(await _entries(empty_redis_86)) == 1
    for missing in reported:
        with pytest.raises(WrongWorkerSettings, match=missing):
            Producer.from_env({**reported, missing: ""})
