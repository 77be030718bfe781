"""A state that a newer version of Pelops wrote: read as such, and never written to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.state import FORMAT, FORMAT_VERSION
from pelops.errors import NewerFormat
from pelops.redis_core.commands import Part
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group, observe_groups
from pelops.redis_streams.group.lifecycle import destroy_group, provision_group, release_group
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.declaration import (
    OPERATOR_SCRIPTS,
    Declaration,
    Many,
    list_scripts,
    read_declaration,
)
from tests.integration.redis_adapter import an_owner, provision, writes_so_far

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()
WRITING = [name for name in list_scripts(OPERATOR_SCRIPTS) if read_declaration(name).checks_format]
# These have no state of a group among their keys: they only write what audits record.
OF_AUDITS = {"record_audit", "forget_audit"}


async def make_newer(server: Server, version: str = str(FORMAT_VERSION + 1)) -> None:
    await server.execute("HSET", KEYS.state, FORMAT, version)


async def run(server: Server, declared: Declaration) -> object:
    """Run a script with any arguments: it must refuse before it reads them."""
    single = [key for key in declared.keys if key.many is not Many.ANY]
    known = KEYS.by_name()
    keys: list[Part] = [known.get(key.name, KEYS.stream) for key in single]
    values = ["1"] * len(declared.arguments)
    return await server.execute("EVAL", declared.text, len(keys), *keys, *values, key=KEYS.stream)


def test_every_script_that_writes_to_a_group_checks_the_format() -> None:
    writing = {name for name in list_scripts(OPERATOR_SCRIPTS) if read_declaration(name).writes}
    assert set(WRITING) == writing - OF_AUDITS


@pytest.mark.parametrize("name", WRITING)
async def test_a_script_refuses_a_newer_state_and_writes_nothing(
    server: Server, empty_redis: StandaloneServers, name: str
) -> None:
    await provision(server, KEYS)
    await make_newer(server)
    script = load_script(name, Refusal)
    before = writes_so_far(empty_redis)
    answer = await run(server, script.declared)
    assert answer == [b"newer-format", str(FORMAT_VERSION + 1).encode(), KEYS.state.encode()]
    assert writes_so_far(empty_redis) == before
    with pytest.raises(NewerFormat, match=KEYS.state):
        script.read(answer)


async def test_a_newer_state_fails_only_the_observation_of_its_group(
    server: Server,
) -> None:
    other = derive_keys("orders:events", "billing")
    for keys in (KEYS, other):
        await provision(server, keys)
    await make_newer(server)
    with pytest.raises(NewerFormat, match=f"format {FORMAT_VERSION + 1} .* up to {FORMAT_VERSION}"):
        await observe_group(server, KEYS)
    seen = await observe_groups(server, [KEYS, other])
    assert isinstance(seen[KEYS], NewerFormat)
    assert not isinstance(seen[other], Exception)


@pytest.mark.parametrize("call", [release_group, destroy_group])
async def test_a_group_of_a_newer_format_is_neither_released_nor_destroyed(
    server: Server, empty_redis: StandaloneServers, call: Callable[..., object]
) -> None:
    await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER)
    await make_newer(server)
    before = writes_so_far(empty_redis)
    with pytest.raises(NewerFormat):
        await call(server, KEYS, OWNER)  # type: ignore[misc]
    assert writes_so_far(empty_redis) == before


async def test_provisioning_writes_the_format_of_this_version(server: Server) -> None:
    await provision(server, KEYS)
    assert await server.execute("HGET", KEYS.state, FORMAT) == str(FORMAT_VERSION).encode()


@pytest.mark.parametrize("written", [None, "", "1", "many", "-7", "9" * 40])
async def test_a_missing_or_damaged_format_counts_as_the_first(
    server: Server, written: str | None
) -> None:
    await provision(server, KEYS)
    await server.execute("HDEL", KEYS.state, FORMAT)
    if written is not None:
        await make_newer(server, written)
    seen = await observe_group(server, KEYS)
    assert seen.state.format == 1
    assert await provision(server, KEYS)
