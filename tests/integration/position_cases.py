"""A group with a backlog, for tests of what becomes of it when it is lost."""

from collections.abc import Iterable

from pelops.domain.entry_id import END_OF_STREAM, StartPosition
from pelops.domain.naming import derive_keys
from pelops.domain.records.ledger import GroupCreation
from pelops.redis_core.server import Server
from pelops.redis_streams.group.lifecycle import ProvisionVerdict, provision_group
from pelops.redis_streams.group.maintenance import remember_position
from tests.integration.redis_adapter import (
    add,
    an_owner,
    deliver,
    provision,
)

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()


async def add_all(server: Server, numbers: Iterable[int]) -> None:
    for number in numbers:
        await add(server, KEYS.stream, f"{number}-0")


async def acknowledge(server: Server, *numbers: int) -> None:
    ids = [f"{number}-0" for number in numbers]
    await server.execute("XACK", KEYS.stream, KEYS.group, *ids, key=KEYS.stream)


async def delivered_again(server: Server) -> list[int]:
    """What a reader of new entries is given, as numbers."""
    reply = await server.execute(
        *("XREADGROUP", "GROUP", KEYS.group, "again", "STREAMS", KEYS.stream, ">"), key=KEYS.stream
    )
    return [int(entry_id.split(b"-")[0]) for entry_id, _ in reply[0][1]] if reply else []


async def create_anew(server: Server, start: StartPosition = END_OF_STREAM) -> GroupCreation:
    outcome = await provision_group(server, KEYS, start=start, owner=OWNER)
    assert outcome.verdict == ProvisionVerdict.CREATED
    assert outcome.creation is not None
    return outcome.creation


async def with_pending_3_and_5(server: Server) -> None:
    """Ten entries: six delivered, of which 3 and 5 are pending, and that is remembered."""
    await provision(server, KEYS)
    await add_all(server, range(1, 11))
    await deliver(server, KEYS, 6)
    await acknowledge(server, 1, 2, 4, 6)
    assert await remember_position(server, KEYS, OWNER)
