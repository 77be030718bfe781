"""Only one resource acts on a group: the oldest whose ownership record has not expired."""

from datetime import timedelta

import pytest

from local_cluster.redis_servers import StandaloneServers
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.domain.records.ledger import LedgerKind
from pelops.domain.records.state import OwnerRecord
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


YOUNG = an_owner("b", name="orders")
OLD = an_owner("a", age=timedelta(days=1))
OF_THE_SAME_NAME = an_owner("a", age=timedelta(days=1), name="orders")
OF_ANOTHER_CLUSTER = an_owner("b", name="orders", cluster="other")
REFUSED = ProvisionVerdict.CONFLICT


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (OLD, YOUNG, REFUSED),
        (YOUNG, OLD, ProvisionVerdict.ADOPTED),
        # Of one second: the smaller UID acts.
        (an_owner("a"), an_owner("b"), REFUSED),
        (an_owner("b"), an_owner("a"), ProvisionVerdict.ADOPTED),
        # A resource that was deleted and made again acts at once.
        (OF_THE_SAME_NAME, YOUNG, ProvisionVerdict.ADOPTED),
        (YOUNG, OF_THE_SAME_NAME, REFUSED),
        # The same name in another cluster is another resource.
        (OF_THE_SAME_NAME, OF_ANOTHER_CLUSTER, REFUSED),
    ],
)
async def test_of_two_resources_one_acts_and_the_other_writes_nothing(
    server: Server,
    empty_redis: StandaloneServers,
    first: OwnerRecord,
    second: OwnerRecord,
    verdict: ProvisionVerdict,
) -> None:
    await provision_group(server, KEYS, start=EntryId.MIN, owner=first)
    before = writes_so_far(empty_redis)
    found = await provision_group(server, KEYS, start=EntryId.MIN, owner=second)
    assert found.verdict == verdict
    acts, gives_way = (first, second) if verdict == REFUSED else (second, first)
    if verdict == REFUSED:
        assert writes_so_far(empty_redis) == before
    else:
        kinds = await kinds_in_ledger(server, KEYS)
        assert kinds == [LedgerKind.GROUP_CREATED, LedgerKind.OWNER_CHANGED]
    refused = await provision_group(server, KEYS, start=EntryId.MIN, owner=gives_way)
    assert refused.verdict == REFUSED
    assert refused.hold is not None
    assert refused.hold.owner == acts


@pytest.mark.parametrize("until_ms", ["1", "x", "", "99999999999999999"])
async def test_an_expired_or_damaged_ownership_record_can_be_taken_over(
    server: Server, until_ms: str
) -> None:
    await provision_group(server, KEYS, start=EntryId.MIN, owner=OLD)
    await server.execute("HSET", KEYS.state, "owner:held_until_ms", until_ms)
    await observe_group(server, KEYS)
    taken = await provision_group(server, KEYS, start=EntryId.MIN, owner=YOUNG)
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
