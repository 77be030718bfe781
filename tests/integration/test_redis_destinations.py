"""Redirects, slot maps, Sentinels and DNS lead nowhere that the rules do not allow."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from local_cluster.processes import free_port
from local_cluster.redis_servers import SentinelServers, StandaloneServers
from pelops.domain.destinations import CredentialGrant, parse_address_rules, parse_host_patterns
from pelops.domain.endpoint import Node, RedisEndpoint
from pelops.errors import AddressNotAllowed, CredentialsNotAllowed, InvalidReply, RedisUnavailable
from pelops.redis_core.masters import Masters
from pelops.redis_core.resolution import resolve
from pelops.redis_core.transport import Command
from tests.hostile_servers import Answer, HostileServer, hostile_server
from tests.integration.redis_adapter import connected, endpoint_of

HERE = parse_address_rules("127.0.0.1/32", "")  # 127.0.0.2 is loopback too, and is not allowed
PASSWORD = "s3cr3t"


def at(server: HostileServer, **more: Any) -> RedisEndpoint:
    """The endpoint of a hostile server; only 127.0.0.1 is allowed."""
    fields = {"password": PASSWORD, "rules": HERE, **more}
    return RedisEndpoint(node=Node(server.host, server.port), **fields)


def slots(host: str, port: int) -> bytes:
    """A reply to CLUSTER SLOTS: one node has them all."""
    return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%d\r\n" % (
        len(host),
        host.encode(),
        port,
    )


def cluster(named: bytes, reply: bytes = b"+OK\r\n") -> Answer:
    """Answers of a node of a cluster with this slot map, and one reply to all else."""

    def answer(command: list[bytes]) -> bytes:
        if command[:2] == [b"CLUSTER", b"SLOTS"]:
            return named
        return (
            b"$-1\r\n" if command[0] == b"INFO" else reply if command[0] == b"GET" else b"+OK\r\n"
        )

    return answer


async def test_a_slot_map_leads_to_no_address_that_is_not_allowed() -> None:
    with hostile_server(host="127.0.0.2") as inner:
        with hostile_server(cluster(slots("127.0.0.2", inner.port))) as server:
            async with connected(at(server)) as found:
                with pytest.raises(AddressNotAllowed, match="a loopback address"):
                    await found.execute("GET", "k", key="k")
                with pytest.raises(AddressNotAllowed):
                    await (
                        Masters(found)
                        .channel(await Masters(found).locate("k"))
                        .exchange([Command(parts=("GET", "k"))])
                    )
        assert inner.connections == 0


@pytest.mark.parametrize("kind", ["MOVED", "ASK"])
async def test_a_redirect_leads_to_no_address_that_is_not_allowed(kind: str) -> None:
    with hostile_server(host="127.0.0.2") as inner:
        redirect = f"-{kind} 12539 127.0.0.2:{inner.port}\r\n".encode()
        with hostile_server() as server:
            server.answer = cluster(slots(server.host, server.port), redirect)
            async with connected(at(server)) as found:
                # After MOVED the slot map is asked for first, which here names the server itself.
                with pytest.raises(RedisUnavailable if kind == "MOVED" else AddressNotAllowed):
                    await found.execute("GET", "k", key="k")
        assert inner.connections == 0


async def test_a_slot_map_cannot_send_credentials_to_unlisted_hosts() -> None:
    with hostile_server() as inner:
        with hostile_server(cluster(slots("127.0.0.1", inner.port))) as server:
            hosts = parse_host_patterns(f"127.0.0.1:{server.port}")
            grant = CredentialGrant(owner="Secret redis", hosts=hosts)
            async with connected(at(server, grant=grant)) as found:
                with pytest.raises(CredentialsNotAllowed, match=f"127.0.0.1:{inner.port}"):
                    await found.execute("GET", "k", key="k")
        assert inner.connections == 0


async def test_sentinels_and_masters_at_addresses_that_are_not_allowed_are_not_asked(
    redis_sentinel: SentinelServers,
) -> None:
    endpoint = endpoint_of(redis_sentinel)
    refused = RedisEndpoint(
        node=endpoint.node, sentinel=endpoint.sentinel, rules=parse_address_rules("", "")
    )
    with pytest.raises(AddressNotAllowed, match="no Sentinel returned the address of the master"):
        async with connected(refused):
            pass
    allowed = RedisEndpoint(node=endpoint.node, sentinel=endpoint.sentinel, rules=HERE)
    async with connected(allowed) as server:
        assert await server.execute("PING") == b"PONG"


async def test_a_host_that_is_no_host_is_in_no_message() -> None:
    with hostile_server(cluster(slots("foreign bytes <x>", 1))) as server:
        async with connected(at(server)) as found:
            with pytest.raises(InvalidReply) as refused:
                await found.execute("GET", "k", key="k")
    assert "foreign" not in str(refused.value)


class Names:
    """A resolver that answers each question with the next of its answers."""

    def __init__(self, *answers: list[str]) -> None:
        self.asked = 0
        self._answers = answers
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "rebound.test":
            return self._real(host, port, *args, **kwargs)
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return [one for text in answer for one in self._real(text, port, *args, **kwargs)]


async def test_a_name_that_changes_its_address_between_check_and_connection_gains_nothing(
    redis_86: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hostile_server(host="127.0.0.2") as inner:
        names = Names(["127.0.0.1"], ["127.0.0.2"])
        monkeypatch.setattr(socket, "getaddrinfo", names)
        endpoint = RedisEndpoint(node=Node("rebound.test", redis_86.master().port), rules=HERE)
        async with connected(endpoint) as server:
            assert await server.execute("PING") == b"PONG"
        assert names.asked == 1
        with pytest.raises(AddressNotAllowed):
            async with connected(endpoint):
                pass
        assert inner.connections == 0


async def test_of_several_addresses_only_those_that_are_allowed_are_tried(
    redis_86: StandaloneServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names(["127.0.0.2", "127.0.0.1"]))
    assert await resolve(Node("rebound.test", 1), HERE) == ("127.0.0.1",)
    both = parse_address_rules("127.0.0.0/8", "")
    # Only the second address has a listener.
    endpoint = RedisEndpoint(node=Node("rebound.test", redis_86.master().port), rules=both)
    async with connected(endpoint) as server:
        assert await server.execute("PING") == b"PONG"


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 300, "a..b", "x" * 64 + ".test", "\0"])
async def test_a_name_that_cannot_be_resolved_is_reported(host: str) -> None:
    with pytest.raises(RedisUnavailable, match="cannot be resolved"):
        await asyncio.wait_for(resolve(Node(host, free_port()), HERE), 20)
