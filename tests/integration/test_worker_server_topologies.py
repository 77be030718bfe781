"""A worker's adapter to Sentinels, to a cluster whose slots move, and by TLS."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from local_cluster.redis_servers import ClusterServers, StandaloneServers
from pelops.errors import InvalidSpec, RedisUnavailable
from pelops.redis_streams.access import Feature
from pelops.worker.server.adapter import Outgoing
from pelops.worker.server.connection import wire_to
from pelops.worker.server.redis_adapter import RedisAdapter
from pelops.worker.settings import read_endpoint
from tests.integration.redis_adapter import endpoint_of
from tests.integration.worker_adapter import (
    KEYS,
    STREAM,
    Behind,
    behind,
    grant,
    ids_of,
    on_port,
    opened,
    worker_endpoint,
)


@pytest.fixture
async def cluster(empty_cluster: ClusterServers) -> AsyncIterator[Behind]:
    grant(empty_cluster, features={Feature.CLUSTER})
    async with behind(empty_cluster) as seen:
        await seen.create()
        yield seen


@pytest.fixture
async def adapter(cluster: Behind, empty_cluster: ClusterServers) -> AsyncIterator[RedisAdapter]:
    async with opened(worker_endpoint(empty_cluster)) as adapter:
        yield adapter


def another_node(servers: ClusterServers) -> int:
    """The port of a master that does not serve the group."""
    owner = servers.owner_of(KEYS.slot).port
    return next(server.port for server in servers.masters() if server.port != owner)


async def test_every_node_of_a_cluster_leads_to_the_group(
    cluster: Behind, empty_cluster: ClusterServers
) -> None:
    endpoint = worker_endpoint(empty_cluster)
    for server in empty_cluster.masters():
        (entry_id,) = await cluster.add()
        async with opened(on_port(endpoint, server.port)) as adapter:
            await adapter.begin()
            assert ids_of(await adapter.read(100, 1000)) == [entry_id]
            assert (await adapter.exchange(Outgoing(acks={STREAM: [entry_id]}))).acked == {
                STREAM: 1
            }


async def test_without_cluster_slots_a_worker_follows_redirects(
    cluster: Behind, empty_cluster: ClusterServers
) -> None:
    (entry_id,) = await cluster.add()
    empty_cluster.acl_setuser("a-worker", "-cluster|slots")
    endpoint = worker_endpoint(empty_cluster)
    async with opened(on_port(endpoint, another_node(empty_cluster))) as adapter:
        assert ids_of(await adapter.read(100, 1000)) == [entry_id]


async def test_each_stream_of_a_cluster_is_written_over_its_own_connection(
    empty_cluster: ClusterServers,
) -> None:
    for number in range(5):
        stream = f"stream-{number}"
        wire = wire_to(endpoint_of(empty_cluster), stream)
        added = [("XADD", stream, "*", "f", n) for n in range(3)]
        assert [type(reply) for reply in await wire.send(added)] == [bytes] * 3
        await wire.close()


async def test_commands_on_a_migrating_slot_either_succeed_or_have_no_effect(
    cluster: Behind, adapter: RedisAdapter, empty_cluster: ClusterServers
) -> None:
    first, second = await cluster.add(2)
    await adapter.read(100, 1000)
    to = empty_cluster.server_at(another_node(empty_cluster))
    empty_cluster.begin_migration(KEYS.slot, to)
    try:
        assert (await adapter.exchange(Outgoing(acks={STREAM: [first]}))).acked == {STREAM: 1}
        empty_cluster.migrate_keys(KEYS.slot, to, KEYS.stream)
        # The stream is there already, which only ASK says.
        assert (await adapter.exchange(Outgoing(acks={STREAM: [second]}))).acked == {STREAM: 1}
        with pytest.raises(RedisUnavailable, match="being migrated"):
            await adapter.leave()
    finally:
        empty_cluster.finish_migration(KEYS.slot, to)
    assert await adapter.leave()


async def test_certificates_come_from_the_files_that_the_variables_name(
    redis_tls: StandaloneServers,
) -> None:
    files = redis_tls.tls_files
    assert files is not None
    redis_tls.flush()
    environment = {
        "PELOPS_REDIS_URL": redis_tls.url,
        "PELOPS_REDIS_CA_FILE": str(files.ca),
        "PELOPS_REDIS_CERT_FILE": str(files.cert),
        "PELOPS_REDIS_KEY_FILE": str(files.key),
    }
    async with behind(redis_tls) as redis, opened(read_endpoint(environment)) as adapter:
        await redis.create()
        (entry_id,) = await redis.add()
        assert ids_of(await adapter.read(100, 1000)) == [entry_id]


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "PELOPS_REDIS_URL is not set"),
        ({"PELOPS_REDIS_URL": "http://secret@x"}, "PELOPS_REDIS_URL"),
        ({"PELOPS_REDIS_URL": "redis://x", "PELOPS_REDIS_USERNAME": "u"}, "PELOPS_REDIS_PASSWORD"),
        ({"PELOPS_REDIS_URL": "redis://x", "PELOPS_REDIS_CA_FILE": os.devnull + "/x"}, "CA_FILE"),
        ({"PELOPS_REDIS_SENTINEL_MASTER": "m"}, "PELOPS_REDIS_SENTINEL_NODES"),
    ],
)
def test_a_variable_that_is_wrong_is_named_and_not_shown(
    environment: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidSpec, match=named) as caught:
        read_endpoint(environment)
    assert "Secret" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_certificates_for_a_server_without_tls_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("x")
    environment = {"PELOPS_REDIS_URL": "redis://x", "PELOPS_REDIS_CA_FILE": str(tmp_path / "ca")}
    with pytest.raises(InvalidSpec, match="PELOPS_REDIS_CA_FILE"):
        read_endpoint(environment)
