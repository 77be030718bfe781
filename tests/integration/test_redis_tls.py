"""TLS: who is trusted, and what is said about certificates that cannot be used."""

import pytest

from local_cluster.redis_servers import ServerOptions, StandaloneServers
from pelops.domain.endpoint import Node, build_endpoint
from pelops.domain.naming import derive_keys
from pelops.errors import (
    InvalidSpec,
    RedisUnavailable,
)
from pelops.redis_core.replies.wire import limit_of
from pelops.redis_core.server import Flavour, Topology
from pelops.redis_core.tls import build_ssl_context
from pelops.redis_core.transport import Login, NodeChannel
from pelops.redis_streams.group.group_observation import observe_group, observe_groups
from tests.integration.redis_adapter import connected, endpoint_of
from tests.redis_fixtures import RunRedis
from tests.serving_worker import until

KEYS = derive_keys("orders:events", "processing")


async def test_tls_with_a_client_certificate(redis_tls: StandaloneServers) -> None:
    redis_tls.flush()
    async with connected(endpoint_of(redis_tls)) as server:
        assert server.kind.flavour == Flavour.REDIS
        assert not (await observe_group(server, KEYS)).exists


async def test_a_certificate_of_an_unknown_authority_is_refused(
    redis_tls: StandaloneServers,
) -> None:
    with pytest.raises(RedisUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        async with connected(build_endpoint(url=redis_tls.url)):
            pass


async def test_a_client_certificate_that_is_missing_is_noticed(
    redis_tls: StandaloneServers,
) -> None:
    secret = redis_tls.secret()
    only_ca = build_endpoint(secret={name: secret[name].encode() for name in ("url", "ca.crt")})
    with pytest.raises(RedisUnavailable):
        async with connected(only_ca):
            pass


async def test_a_tls_connection_closed_by_the_server_is_reopened(
    redis_tls: StandaloneServers,
) -> None:
    """Its transport has no socket any more once the end is known."""
    endpoint, node = endpoint_of(redis_tls), Node("127.0.0.1", redis_tls.master().port)

    async def locate() -> Node:
        return node

    channel = NodeChannel(locate, Login.of(endpoint, build_ssl_context(endpoint)))
    try:
        connection = await channel.open_connection()
        writer = connection._writer
        assert writer is not None
        redis_tls.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: writer.get_extra_info("socket") is None)
        await connection.connect()
        await connection.send_command("PING", check_health=False)
        assert await connection.receive(limit_of("PING")) == b"PONG"
    finally:
        await channel.close()


async def test_a_plain_connection_with_a_closed_socket_is_reopened(
    redis_86: StandaloneServers,
) -> None:
    """Its socket is still there, and no file any more."""
    endpoint, node = endpoint_of(redis_86), Node("127.0.0.1", redis_86.master().port)

    async def locate() -> Node:
        return node

    channel = NodeChannel(locate, Login.of(endpoint, None))
    try:
        connection = await channel.open_connection()
        writer = connection._writer
        assert writer is not None
        writer.transport.abort()
        await until(lambda: writer.get_extra_info("socket").fileno() == -1)
        await connection.connect()
        await connection.send_command("PING", check_health=False)
        assert await connection.receive(limit_of("PING")) == b"PONG"
    finally:
        await channel.close()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"ca.crt": b"no certificate"}, "ca.crt"),
        ({"tls.crt": b"x"}, "tls.crt and tls.key"),
        ({"tls.key": b"x"}, "tls.crt and tls.key"),
    ],
)
async def test_certificates_that_cannot_be_read_are_the_users_to_change(
    redis_tls: StandaloneServers, damage: dict[str, bytes], said: str
) -> None:
    secret = {name: text.encode() for name, text in redis_tls.secret().items()} | damage
    with pytest.raises(InvalidSpec, match=said):
        async with connected(build_endpoint(secret=secret)):
            pass


async def test_plain_text_to_a_tls_port_is_unavailable(redis_tls: StandaloneServers) -> None:
    with pytest.raises(RedisUnavailable):
        async with connected(build_endpoint(url=redis_tls.url.replace("rediss", "redis"))):
            pass


@pytest.mark.parametrize("topology", ["cluster", "sentinel"])
async def test_every_node_is_spoken_to_by_tls_and_password(
    run_redis: RunRedis, topology: str
) -> None:
    options = ServerOptions(tls=True, tls_client_auth=True, password="sesame")
    servers = run_redis(topology=topology, options=options)
    async with connected(endpoint_of(servers)) as server:
        assert server.kind.topology == Topology(topology)
        seen = await observe_groups(server, [derive_keys(f"s{n}", "g") for n in range(20)])
    assert {getattr(found, "exists", found) for found in seen.values()} == {False}
