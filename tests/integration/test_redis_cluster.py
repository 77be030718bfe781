"""A cluster: keys go to their slot's node, moves are followed, migrations refuse without harm."""

import random
from collections.abc import AsyncIterator

import pytest

from local_cluster.redis_servers import ClusterServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys, derive_keys, key_slot
from pelops.errors import RedisUnavailable
from pelops.redis_core.server import Server, Topology
from pelops.redis_streams.group.group_observation import observe_group, observe_groups
from pelops.redis_streams.group.lifecycle import (
    DestroyVerdict,
    ProvisionVerdict,
    destroy_group,
    provision_group,
)
from tests.integration.redis_adapter import an_owner, connected, endpoint_of

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()
ODD_NAMES = [
    *("orders", "orders:events", "{t1}:orders", "a}b", "{}x", "a{b}{c}", "{{a}", "a{b", "}", "{"),
    *("{a}}", "}{a}", "{a", "a}", "%3A", "a:b%c", "é{ü}", "{}", "{}{a}", " {a b} "),
]


@pytest.fixture
async def server(empty_cluster: ClusterServers) -> AsyncIterator[Server]:
    async with connected(endpoint_of(empty_cluster)) as connection:
        yield connection


async def provision(server: Server, keys: GroupKeys = KEYS) -> ProvisionVerdict:
    return (await provision_group(server, keys, start=EntryId.MIN, owner=OWNER)).verdict


def another_node(cluster: ClusterServers, slot: int) -> int:
    """The port of a master that does not serve the slot."""
    owner = cluster.owner_of(slot).port
    return next(master.port for master in cluster.masters() if master.port != owner)


async def test_slots_are_those_that_the_server_computes(server: Server) -> None:
    for stream in ODD_NAMES:
        keys = derive_keys(stream, "g:1")
        for key in (stream, *keys.derived()):
            assert await server.execute("CLUSTER", "KEYSLOT", key) == key_slot(key) == keys.slot


@pytest.mark.full
async def test_slots_of_any_names_are_those_that_the_server_computes(server: Server) -> None:
    chance = random.Random(20261121)
    for _ in range(300):
        stream, group = ("".join(chance.choices("{}:%aé\0 ", k=8)) for _ in range(2))
        keys = derive_keys(stream, group)
        some = chance.choice([stream, *keys.derived()])
        assert await server.execute("CLUSTER", "KEYSLOT", some) == keys.slot


@pytest.mark.parametrize("stream", ODD_NAMES)
async def test_all_keys_of_any_stream_lie_in_one_slot(server: Server, stream: str) -> None:
    keys = derive_keys(stream, "g:1")
    assert await provision(server, keys) == ProvisionVerdict.CREATED
    assert (await observe_group(server, keys)).is_provisioned
    assert (await destroy_group(server, keys, OWNER)).verdict == DestroyVerdict.DESTROYED


async def test_the_topology_is_detected_and_all_nodes_are_used(server: Server) -> None:
    assert server.kind.topology == Topology.CLUSTER
    groups = [derive_keys(f"stream-{number}", "g") for number in range(150)]
    for keys in groups[:30]:
        assert await provision(server, keys) == ProvisionVerdict.CREATED
    seen = await observe_groups(server, groups)
    states = [getattr(found, "is_provisioned", None) for found in seen.values()]
    assert states == [True] * 30 + [False] * 120


async def test_a_slot_that_moved_is_followed(server: Server, empty_cluster: ClusterServers) -> None:
    await provision(server)
    to = empty_cluster.server_at(another_node(empty_cluster, KEYS.slot))
    empty_cluster.move_slot(KEYS.slot, to)
    assert (await observe_group(server, KEYS)).is_provisioned
    assert await provision(server) == ProvisionVerdict.SETTLED


async def test_a_settled_group_is_served_while_its_slot_begins_to_move(
    server: Server, empty_cluster: ClusterServers
) -> None:
    await provision(server)
    to = empty_cluster.server_at(another_node(empty_cluster, KEYS.slot))
    empty_cluster.begin_migration(KEYS.slot, to)
    try:
        assert (await observe_group(server, KEYS)).is_provisioned
        assert await provision(server) == ProvisionVerdict.SETTLED
        empty_cluster.migrate_keys(KEYS.slot, to, KEYS.stream)
        for attempt in (observe_group(server, KEYS), provision(server)):
            with pytest.raises(RedisUnavailable, match="being migrated"):
                await attempt
        empty_cluster.migrate_keys(KEYS.slot, to)
        assert (await observe_group(server, KEYS)).is_provisioned  # all keys are there: ASK
        assert await provision(server) == ProvisionVerdict.SETTLED
    finally:
        empty_cluster.finish_migration(KEYS.slot, to)
    assert (await observe_group(server, KEYS)).is_provisioned


async def test_a_node_that_is_down_fails_its_own_groups_only(
    server: Server, empty_cluster: ClusterServers
) -> None:
    groups = [derive_keys(f"stream-{number}", "g") for number in range(30)]
    await observe_groups(server, groups)
    down = next(
        node for node in empty_cluster.masters() if not empty_cluster.url.endswith(str(node.port))
    )
    theirs = {keys for keys in groups if empty_cluster.owner_of(keys.slot).port == down.port}
    down.stop()
    try:
        seen = await observe_groups(server, groups)
    finally:
        down.start()
        empty_cluster.await_readiness()
    failed = {keys for keys, found in seen.items() if isinstance(found, RedisUnavailable)}
    assert failed == theirs
    again = await observe_groups(server, groups)
    assert not any(isinstance(found, Exception) for found in again.values())
