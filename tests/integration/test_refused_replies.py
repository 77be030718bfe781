"""What the operator keeps of replies that it has refused: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import weakref
from pathlib import Path

import pytest

from benchmarks.hostile_servers import HostileServersApart, answering, info
from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import InvalidReply, PelopsError
from pelops.redis_core.pool import connect_server
from pelops.redis_core.transport import NodeChannel

MIB = 1024 * 1024
AT_ONCE = 8
ROUNDS = 12


def resident_bytes() -> int:
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def channels() -> int:
    """How many there are, with those that wait for a garbage collection."""
    return sum(isinstance(one, NodeChannel) for one in gc.get_objects())


async def be_refused(endpoint: RedisEndpoint) -> None:
    """Read a reply up to the limit of 1 MiB."""
    with pytest.raises(InvalidReply, match="more than 1048576 bytes"):
        await connect_server(endpoint)


def test_the_memory_of_a_refused_reply_is_free_before_garbage_is_collected(tmp_path: Path) -> None:
    """Errors and connections refer to each other, and garbage is collected seldom."""

    async def scenario() -> int:
        await be_refused(endpoint)
        gc.collect()
        gc.disable()
        before = resident_bytes()
        for _ in range(ROUNDS):
            await asyncio.gather(*(be_refused(endpoint) for _ in range(AT_ONCE)))
        return resident_bytes() - before

    with HostileServersApart(tmp_path) as servers:
        address = servers.url("endless_reply", 1).removeprefix("redis://")
        host, _, port = address.rpartition(":")
        endpoint = RedisEndpoint(node=Node(host=host, port=int(port)))
        try:
            grown = asyncio.run(scenario())
        finally:
            gc.enable()
    assert grown < ROUNDS * AT_ONCE * MIB / 2


def test_a_closed_server_is_freed_without_garbage_collection() -> None:
    async def scenario() -> bool:
        listening = await asyncio.start_server(answering({"INFO": info()}), "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        server = await connect_server(RedisEndpoint(node=Node(host="127.0.0.1", port=port)))
        seen = weakref.ref(server)
        with contextlib.suppress(PelopsError):
            await server.execute("PING")  # an error of the server
        await server.close()
        listening.close()
        del server
        return seen() is None and channels() == before

    gc.collect()
    gc.disable()
    before = channels()
    try:
        assert asyncio.run(scenario())
    finally:
        gc.enable()
