"""How long a worker's adapter waits: for large entries, for silent and for stopped servers."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from local_cluster.redis_servers import ServerOptions, StandaloneServers
from pelops.domain.backoff import backoff_s
from pelops.domain.endpoint import build_endpoint
from pelops.errors import OutcomeUnknown, RedisError, RedisUnavailable
from pelops.worker.server import streamed_connection
from pelops.worker.server.adapter import Outgoing
from pelops.worker.server.redis_adapter import RedisAdapter
from pelops.worker.settings import WorkerPlace
from tests.integration.redis_adapter import endpoint_of
from tests.integration.worker_adapter import (
    KEYS,
    STREAM,
    Behind,
    behind,
    ids_of,
    on_port,
    opened,
    worker_endpoint,
)
from tests.redis_fixtures import RunRedis


async def test_the_longer_a_server_is_gone_the_less_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came_s: list[float] = []
    pauses_s: list[float] = []

    def noted(*args: Any, **options: Any) -> float:
        pauses_s.append(backoff_s(*args, **options))
        return pauses_s[-1]

    monkeypatch.setattr(streamed_connection, "backoff_s", noted)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came_s.append(asyncio.get_running_loop().time())
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    adapter = RedisAdapter(
        WorkerPlace(endpoint=build_endpoint(url=f"redis://127.0.0.1:{port}"), **_ME)
    )
    for _ in range(6):
        with pytest.raises(RedisUnavailable):
            await adapter.open()
    listener.close()
    waits = [later - earlier for earlier, later in pairwise(came_s)]
    assert pauses_s[len(waits) - 1] > 4 * pauses_s[0]
    # A busy machine makes a wait longer, and none makes it shorter.
    assert all(wait >= pause / 2 for wait, pause in zip(waits, pauses_s, strict=False))


_ME: dict[str, Any] = {"keys": KEYS, "consumer": "me"}


class SlowLine:
    """A line to a server that carries a little at a time, or nothing."""

    def __init__(self, port_behind: int) -> None:
        self._behind = port_behind
        self.is_stalled = False
        self.is_over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        await asyncio.gather(self._carry(reader, behind_writer), self._carry(behind_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (data := await reader.read(50_000)) and not self.is_stalled:
            writer.write(data)
            await asyncio.sleep(0.15 if len(data) > 10_000 else 0)
        if self.is_stalled:
            await self.is_over.wait()  # to return would close the connection
        writer.close()


async def test_a_large_entry_takes_its_time_and_a_silent_server_does_not(
    redis: Behind, empty_redis: StandaloneServers
) -> None:
    line = SlowLine(empty_redis.master().port)
    listener = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    endpoint = on_port(worker_endpoint(empty_redis), listener.sockets[0].getsockname()[1])
    body = "x" * 1_000_000
    async with opened(endpoint, patience_s=1.5) as adapter:
        (entry_id,) = await redis.add(body=body)
        (delivered,) = await adapter.read(100, 1000)  # which takes far longer than its patience
        assert delivered.entries[0][:2] == [entry_id, [b"body", body.encode()]]
        line.is_stalled = True
        with pytest.raises(OutcomeUnknown, match="no answer"):
            await adapter.exchange(Outgoing(acks={STREAM: [entry_id]}))
        line.is_over.set()
    listener.close()


@pytest.mark.full
async def test_an_entry_of_a_hundred_megabytes_is_read_kept_and_rejected(
    empty_redis_86: StandaloneServers,
) -> None:
    async with behind(empty_redis_86) as redis, opened(endpoint_of(empty_redis_86)) as adapter:
        await redis.create()
        await redis.run("XADD", KEYS.stream, "*", "body", b"x" * 100_000_000)
        ((entry,),) = [some.entries for some in await adapter.read(100, 1000)]
        assert len(entry[1][1]) == 100_000_000
        assert (await adapter.exchange(Outgoing(keeps={STREAM: [entry[0]]}))).lost == {}
        assert await adapter.reject(STREAM, entry[0], reason="TooLarge", error="e")


async def test_a_server_that_loads_its_data_is_waited_for(run_redis: RunRedis) -> None:
    servers = run_redis("8.6", options=ServerOptions(config=_LOADS_SLOWLY))
    async with behind(servers) as redis:
        await redis.create()
        await redis.run("EVAL", _ADD_KEYS, 1, KEYS.stream)
        (entry_id,) = await redis.add()
        await redis.run("SAVE")
        async with opened(endpoint_of(servers)) as adapter:
            servers.master().kill()
            restarting = asyncio.create_task(asyncio.to_thread(servers.master().start))
            refusals: list[str] = []
            while not (found := await _tried(adapter, refusals)):
                pass
            await restarting
            assert found == [entry_id]
            assert any("LOADING" in refusal for refusal in refusals), refusals


_LOADS_SLOWLY = {
    "key-load-delay": "20000",
    "loading-process-events-interval-bytes": "1024",
    "rdbcompression": "no",
}
_ADD_KEYS = """
for i = 1, 50 do redis.call('SET', '{orders:events}:' .. i, string.rep('x', 2000)) end
"""


async def _tried(adapter: RedisAdapter, refusals: list[str]) -> list[bytes]:
    try:
        return ids_of(await adapter.read(100, 1000))
    except RedisError as error:
        refusals.append(str(error))
        return []
