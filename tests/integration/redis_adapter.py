"""The operator's adapter to the servers of a test, and a few questions to what is behind it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from local_cluster.redis_servers import RedisServers
from pelops.domain.endpoint import RedisEndpoint, build_endpoint
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.ledger import parse_ledger_event
from pelops.domain.records.state import OwnerRecord
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Server
from pelops.redis_streams.group.lifecycle import ProvisionVerdict, provision_group

BORN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def endpoint_of(servers: RedisServers, **secret: str) -> RedisEndpoint:
    """The endpoint of a resource that names these servers; `secret` adds keys to its Secret."""
    fields = servers.secret() | secret
    return build_endpoint(
        secret={name.replace("_", "."): value.encode() for name, value in fields.items()},
        sentinel_master=servers.sentinel_master,
        sentinel_nodes=[f"{host}:{port}" for host, port in servers.sentinel_nodes],
    )


@asynccontextmanager
async def connected(endpoint: RedisEndpoint) -> AsyncIterator[Server]:
    """A server of a pool of its own, disconnected at the end."""
    pool = ServerPool()
    try:
        yield await pool.server(endpoint)
    finally:
        await pool.close()


def an_owner(
    uid: str = "uid-1",
    *,
    age: timedelta = timedelta(),
    cluster: str = "c",
    name: str | None = None,
) -> OwnerRecord:
    """A resource, by default named after its uid; the greater its age, the older."""
    return OwnerRecord(
        uid=uid, cluster=cluster, namespace="shop", name=name or f"of-{uid}", created=BORN - age
    )


def writes_so_far(servers: RedisServers) -> int:
    """How many writes the server has counted."""
    return int(servers.master().info("persistence")["rdb_changes_since_last_save"])


async def provision(server: Server, keys: GroupKeys) -> ProvisionVerdict:
    """Provision a group from the stream's beginning for the usual owner."""
    return (await provision_group(server, keys, start=EntryId.MIN, owner=an_owner())).verdict


async def add(server: Server, stream: str, entry_id: str = "*") -> EntryId:
    """Add an entry; its ID."""
    return parse_entry_id(await server.execute("XADD", stream, entry_id, "f", "v", key=stream))


async def deliver(server: Server, keys: GroupKeys, count: int, consumer: str = "worker") -> None:
    """Have a consumer read new entries and not acknowledge them."""
    group = ("GROUP", keys.group, consumer, "COUNT", count)
    await server.execute("XREADGROUP", *group, "STREAMS", keys.stream, ">", key=keys.stream)


async def kinds_in_ledger(server: Server, keys: GroupKeys) -> list[str]:
    """The kinds of the ledger's events, the oldest first."""
    entries = await server.execute("XRANGE", keys.ledger, "-", "+", key=keys.ledger)
    events = [
        parse_ledger_event(
            parse_entry_id(entry_id), dict(zip(pairs[::2], pairs[1::2], strict=True))
        )
        for entry_id, pairs in entries
    ]
    return [event.kind for event in events]
