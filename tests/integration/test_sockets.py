"""How many sockets the servers that resources name can make the operator hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.hostile_servers import answering, info, slot_map
from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import RedisUnavailable
from pelops.redis_core import sockets, transport
from pelops.redis_core.pool import ServerPool, connect_server
from pelops.redis_core.sockets import TENANT, Sockets

MOST = 5
MASTERS = 40


@pytest.fixture(autouse=True)
def most(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sockets]:
    """A limit that is soon reached."""
    counted = Sockets(MOST)
    monkeypatch.setattr(transport, "OPEN", counted)
    yield counted
    assert not counted.count("shop")


async def start_cluster() -> asyncio.Server:
    """Any loopback address is one of its masters, and says at once whatever it is asked."""
    replies = {"INFO": info("cluster"), "PING": b"+PONG\r\n"}
    server = await asyncio.start_server(answering(replies), "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    replies["CLUSTER SLOTS"] = slot_map(*((f"127.99.0.{at + 1}", port) for at in range(MASTERS)))
    return server


def endpoint_of(server: asyncio.Server, host: str = "127.0.0.1") -> RedisEndpoint:
    return RedisEndpoint(node=Node(host=host, port=server.sockets[0].getsockname()[1]))


def test_a_cluster_respects_the_connection_limit_of_its_namespace(
    most: Sockets,
) -> None:
    async def scenario() -> list[object]:
        TENANT.set("shop")
        cluster = await start_cluster()
        server = await connect_server(endpoint_of(cluster))
        try:
            return [
                await server.execute("PING", key=f"stream-{number}") for number in range(MASTERS)
            ]
        finally:
            assert most.count("shop") == MOST
            await server.close()
            cluster.close()

    with pytest.raises(RedisUnavailable, match="namespace shop have 5 connections"):
        asyncio.run(scenario())


def test_connections_that_ended_and_those_of_other_namespaces_are_not_counted(
    most: Sockets,
) -> None:
    async def scenario() -> None:
        alone = {"INFO": info(), "PING": b"+PONG\r\n"}
        server = await asyncio.start_server(answering(alone), "0.0.0.0", 0)
        TENANT.set("mail")
        foreign = ServerPool()
        for number in range(MOST):
            await foreign.server(endpoint_of(server, f"127.98.0.{number + 1}"))
        TENANT.set("shop")
        for number in range(3 * MOST):
            if number % MOST == 0:
                pool = ServerPool()
            await pool.server(endpoint_of(server, f"127.98.0.{number + 1}"))
            if number % MOST == MOST - 1:
                assert most.count("shop") == MOST
                with pytest.raises(RedisUnavailable):
                    await pool.server(endpoint_of(server, "127.98.1.1"))
                await pool.close()
        await foreign.close()
        server.close()

    asyncio.run(scenario())


def test_a_server_that_cannot_be_reached_takes_no_place(most: Sockets) -> None:
    async def scenario() -> None:
        TENANT.set("shop")
        server = await asyncio.start_server(answering({}), "127.0.0.1", 0)
        endpoint = endpoint_of(server)
        server.close()
        await server.wait_closed()
        for _ in range(2 * MOST):
            with pytest.raises(RedisUnavailable, match="refused"):
                await connect_server(endpoint)

    asyncio.run(scenario())


def test_the_limit_leaves_room_for_all_else_of_a_process() -> None:
    assert sockets.OPEN.most <= 1000
