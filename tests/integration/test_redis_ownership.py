"""Only one resource acts on a group: the oldest whose ownership record has not expired."""

from datetime import timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.ledger import LedgerKind
from pelops.domain.naming import derive_keys
from pelops.errors import NotOurs
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import (
    DestroyVerdict,
    ProvisionVerdict,
    destroy_group,
    provision_group,
    release_group,
)
from tests.integration.redis_adapter import (
    an_owner,
    kinds_in_ledger,
    provision,
    writes_so_far,
)

KEYS = derive_keys("orders:events", "processing")
OWNER = an_owner()


async def test_a_hold_that_is_a_third_used_up_is_renewed(server: Server) -> None:
    short = timedelta(minutes=1)
    first = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, hold=short)
    again = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, hold=short * 2)
    assert first.hold is not None
    assert again.hold is not None
    assert again.verdict == ProvisionVerdict.SETTLED
    assert again.hold.owned_until > first.hold.owned_until


async def test_the_younger_of_two_resources_gets_a_conflict_naming_the_older(
    server: Server, empty_redis: StandaloneServers
) -> None:
    older, younger = an_owner("a", age=timedelta(days=1)), an_owner("b", cluster="other")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    before = writes_so_far(empty_redis)
    refused = await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    assert refused.verdict == ProvisionVerdict.CONFLICT
    assert refused.hold is not None
    assert refused.hold.owner == older
    assert writes_so_far(empty_redis) == before


async def test_an_older_resource_that_comes_later_takes_over(server: Server) -> None:
    older, younger = an_owner("a", age=timedelta(days=1)), an_owner("b")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    refused = await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    assert (taken.verdict, refused.verdict) == (
        ProvisionVerdict.ADOPTED,
        ProvisionVerdict.CONFLICT,
    )
    assert await kinds_in_ledger(server, KEYS) == [
        LedgerKind.GROUP_CREATED,
        LedgerKind.OWNER_CHANGED,
    ]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
async def test_of_two_resources_of_one_second_the_smaller_uid_acts(
    server: Server, first: str, second: str
) -> None:
    outcomes = {}
    for uid in (first, second, first):
        outcomes[uid] = await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner(uid))
    assert outcomes["a"].verdict != ProvisionVerdict.CONFLICT
    assert outcomes["b"].verdict == ProvisionVerdict.CONFLICT


async def test_a_hold_that_ran_out_is_taken_over_by_a_younger_resource(server: Server) -> None:
    older, younger = an_owner("a", age=timedelta(days=1)), an_owner("b")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    await server.execute("HSET", KEYS.state, "owner:held_until_ms", "1")
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=younger)
    assert taken.verdict == ProvisionVerdict.ADOPTED


async def test_a_resource_that_was_deleted_and_made_again_acts_at_once(server: Server) -> None:
    old, new = an_owner("a", age=timedelta(days=1), name="orders"), an_owner("b", name="orders")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=old)
    made_again = await provision_group(server, KEYS, start=EntryId.MIN, owner=new)
    outdated = await provision_group(server, KEYS, start=EntryId.MIN, owner=old)
    assert (made_again.verdict, outdated.verdict) == (
        ProvisionVerdict.ADOPTED,
        ProvisionVerdict.CONFLICT,
    )


async def test_the_same_name_in_another_cluster_is_another_resource(server: Server) -> None:
    older = an_owner("a", age=timedelta(days=1), name="orders")
    await provision_group(server, KEYS, start=EntryId.MIN, owner=older)
    other = an_owner("b", name="orders", cluster="other")
    refused = await provision_group(server, KEYS, start=EntryId.MIN, owner=other)
    assert refused.verdict == ProvisionVerdict.CONFLICT


@pytest.mark.parametrize("damage", ["x", "", "99999999999999999"])
async def test_a_damaged_ownership_record_can_be_taken_over(server: Server, damage: str) -> None:
    await provision(server, KEYS)
    await server.execute("HSET", KEYS.state, "owner:held_until_ms", damage)
    await observe_group(server, KEYS)
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner("z"))
    assert taken.verdict == ProvisionVerdict.ADOPTED


async def test_a_released_group_stays_and_is_free_for_another(server: Server) -> None:
    await provision(server, KEYS)
    assert not await release_group(server, KEYS, an_owner("stranger"))
    assert await release_group(server, KEYS, OWNER)
    assert not await release_group(server, KEYS, OWNER)
    seen = await observe_group(server, KEYS)
    assert (seen.is_provisioned, seen.ownership) == (True, None)
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner("z"))
    assert taken.verdict == ProvisionVerdict.ADOPTED


async def test_a_group_of_another_resource_is_not_destroyed(
    server: Server, empty_redis: StandaloneServers
) -> None:
    await provision(server, KEYS)
    before = writes_so_far(empty_redis)
    kept = await destroy_group(server, KEYS, an_owner("stranger"))
    assert kept.verdict == DestroyVerdict.NOT_OWNER
    assert kept.hold is not None
    assert kept.hold.owner == OWNER
    assert writes_so_far(empty_redis) == before


async def test_a_group_that_was_never_adopted_is_not_destroyed(server: Server) -> None:
    await server.execute("XGROUP", "CREATE", KEYS.stream, KEYS.group, "0", "MKSTREAM")
    kept = await destroy_group(server, KEYS, OWNER)
    assert (kept.verdict, kept.hold) == (DestroyVerdict.NOT_OWNER, None)


async def test_a_destroyed_group_is_not_created_again_for_the_deleted_resource(
    server: Server, empty_redis: StandaloneServers
) -> None:
    """By a replica that has not heard of the deletion yet."""
    await provision(server, KEYS)
    await destroy_group(server, KEYS, OWNER)
    before = writes_so_far(empty_redis)
    with pytest.raises(NotOurs, match="was deleted"):
        await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, existed=True)
    assert writes_so_far(empty_redis) == before
    other = await provision_group(server, KEYS, start=EntryId.MIN, owner=an_owner("new"))
    assert other.verdict == ProvisionVerdict.CREATED


async def test_a_resource_that_comes_back_with_its_uid_has_its_group_again(server: Server) -> None:
    """From a backup of etcd."""
    await provision(server, KEYS)
    await destroy_group(server, KEYS, OWNER)
    await server.execute("HINCRBY", KEYS.dead_letter_owner, "destroyed_ms", -3_600_000)
    again = await provision_group(server, KEYS, start=EntryId.MIN, owner=OWNER, existed=True)
    assert again.verdict == ProvisionVerdict.CREATED
