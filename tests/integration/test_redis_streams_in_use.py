"""Streams of other users are never adopted, trimmed or deleted (invariant 14)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import derive_keys
from pelops.errors import DeadLetterStreamInUse, NotOurs, PelopsError, StreamInUse
from pelops.redis_core.server import Server
from pelops.redis_streams.group.group_observation import observe_group
from pelops.redis_streams.group.lifecycle import destroy_group, provision_group, release_group
from pelops.redis_streams.group.maintenance import expire_dead_letters, trim_retry_stream
from pelops.redis_streams.recovery.scan_calls import open_scan
from tests.integration.redis_adapter import an_owner, provision
from tests.integration.retaining import (
    DAY,
    OWNER,
    fill,
    fill_letters,
    first_and_length,
    letter_pairs,
)

MINE = derive_keys("{pay}:mine", "g", dead_letter="pay")
OLD_MS = 1_700_000_000_000


async def test_a_live_stream_is_not_emptied_as_a_dead_letter_stream(server: Server) -> None:
    """C1."""
    await fill(server, "pay", 300, ms=OLD_MS)
    await server.execute("XGROUP", "CREATE", "pay", "payers", "0")
    await server.execute("XREADGROUP", "GROUP", "payers", "p", "COUNT", 50, "STREAMS", "pay", ">")
    with pytest.raises(PelopsError, match="pay"):
        await provision(server, MINE)
    with pytest.raises(PelopsError):
        await expire_dead_letters(server, MINE, OWNER, kept=DAY)
    assert await first_and_length(server, "pay") == (f"{OLD_MS}-1", 300)


@pytest.mark.parametrize("what", ["retry", "handover", "ledger", "worker-ledger"])
async def test_a_derived_key_that_is_somebodys_stream_is_not_deleted(
    server: Server, what: str
) -> None:
    keys, owner = derive_keys("pay", "orders"), an_owner()
    taken = f"{keys.prefix}:{what}"
    await fill(server, taken, 300, ms=OLD_MS)
    with pytest.raises(PelopsError):
        await provision_group(
            server,
            keys,
            start=EntryId.MIN,
            owner=owner,
            with_retry=what == "retry",
            with_offers=what == "handover",
        )
    await destroy_group(server, keys, owner)
    assert await first_and_length(server, taken) == (f"{OLD_MS}-1", 300)


async def test_a_dead_letter_stream_with_foreign_entries_is_refused(
    server: Server,
) -> None:
    await fill(server, "pay", 3, ms=OLD_MS)
    with pytest.raises(DeadLetterStreamInUse, match="pay"):
        await provision(server, MINE)
    assert await server.execute("KEYS", "*") == [b"pay"]


async def test_a_dead_letter_stream_with_a_consumer_group_is_refused(server: Server) -> None:
    await server.execute("XGROUP", "CREATE", "pay", "payers", "0", "MKSTREAM")
    with pytest.raises(DeadLetterStreamInUse, match="payers"):
        await provision(server, MINE)
    assert await server.execute("KEYS", "*") == [b"pay"]


async def test_dead_letters_are_adopted_again_by_a_resource_of_the_same_group(
    server: Server,
) -> None:
    await provision(server, MINE)
    await fill(server, "pay", 2, ms=OLD_MS)  # not readable as dead letters: the record decides
    await release_group(server, MINE, OWNER)
    again = an_owner("uid-2")
    await provision_group(server, MINE, start=EntryId.MIN, owner=again)
    assert (await observe_group(server, MINE)).is_provisioned


async def test_dead_letters_survive_their_group_and_are_adopted_by_what_they_hold(
    server: Server,
) -> None:
    await provision(server, MINE)
    await fill_letters(server, 2, ms=OLD_MS, keys=MINE)
    await destroy_group(server, MINE, OWNER)
    await server.execute("DEL", MINE.dead_letter_owner)
    await provision_group(server, MINE, start=EntryId.MIN, owner=an_owner("uid-2"))
    assert (await observe_group(server, MINE)).is_provisioned


async def test_an_empty_dead_letter_stream_belongs_to_the_older_of_two_groups(
    server: Server,
) -> None:
    other = derive_keys("{pay}:other", "g", dead_letter="pay")
    older = an_owner("older", age=DAY)
    await provision(server, MINE)
    await provision_group(server, other, start=EntryId.MIN, owner=older)
    assert not (await observe_group(server, MINE)).is_provisioned
    with pytest.raises(NotOurs, match="shop/of-older"):
        await provision(server, MINE)
    await release_group(server, other, older)
    await provision(server, MINE)


async def test_a_dead_letter_stream_that_holds_letters_stays_with_its_group(
    server: Server,
) -> None:
    other = derive_keys("{pay}:other", "g", dead_letter="pay")
    await provision(server, MINE)
    await fill_letters(server, 1, ms=OLD_MS, keys=MINE)
    with pytest.raises(DeadLetterStreamInUse, match="pay"):
        await provision_group(server, other, start=EntryId.MIN, owner=an_owner("older", age=DAY))
    assert (await observe_group(server, MINE)).is_provisioned


async def test_only_dead_letters_of_the_group_expire_whatever_lies_between_them(
    server: Server,
) -> None:
    other = derive_keys("{pay}:other", "g", dead_letter="pay")
    await provision(server, MINE)
    kept = []
    for number in range(400):
        pairs = [
            letter_pairs(MINE),
            letter_pairs(other),
            ["f", "v"],
            letter_pairs(MINE, prefix="x-"),
        ]
        entry_id = f"{OLD_MS + number}-1"
        await server.execute("XADD", "pay", entry_id, *pairs[number % 4], key="pay")
        kept += [entry_id.encode()] if number % 4 in {1, 2} else []
    gone, after = 0, None
    for _ in range(10):
        expired = await expire_dead_letters(server, MINE, OWNER, kept=DAY, after=after)
        gone, after = gone + expired.letters, expired.next_id
    assert gone == 200
    assert [one for one, _ in await server.execute("XRANGE", "pay", "-", "+")] == kept


async def test_nothing_expires_while_a_group_reads_the_dead_letters(server: Server) -> None:
    await provision(server, MINE)
    await fill_letters(server, 5, ms=OLD_MS, keys=MINE)
    await server.execute("XGROUP", "CREATE", "pay", "triage", "0")
    assert (await expire_dead_letters(server, MINE, OWNER, kept=DAY)).letters == 0
    seen = await observe_group(server, MINE)
    assert (seen.is_provisioned, seen.dead_letter_groups) == (True, 1)
    await server.execute("XGROUP", "DESTROY", "pay", "triage")
    assert (await expire_dead_letters(server, MINE, OWNER, kept=DAY)).letters == 5


async def test_a_scan_refuses_a_dead_letter_stream_without_its_record(server: Server) -> None:
    keys = derive_keys("{pay}:mine", "g")
    await provision(server, keys)
    with pytest.raises(DeadLetterStreamInUse):  # the resource names another one now
        await open_scan(server, MINE, uid=OWNER.uid, due=timedelta(), with_retry=False)


async def test_a_foreign_hash_is_not_used_as_state(server: Server) -> None:
    keys = derive_keys("pay", "orders")
    for taken in (keys.state, keys.started, keys.worker_state):
        await server.execute("HSET", taken, "balance", "twelve")
        with pytest.raises(StreamInUse, match="balance"):
            await provision(server, keys)
        await server.execute("DEL", taken)


async def test_a_foreign_hash_is_not_deleted_with_the_group(server: Server) -> None:
    keys = derive_keys("pay", "orders")
    await server.execute("HSET", keys.audit, "balance", "twelve")
    await provision(server, keys)
    await destroy_group(server, keys, OWNER)
    assert await server.execute("HGETALL", keys.audit)


async def test_foreign_keys_named_like_worker_keys_are_not_deleted(
    server: Server,
) -> None:
    keys = derive_keys("pay", "orders")
    await provision(server, keys)
    # As before there were such keys.
    await server.execute("HDEL", keys.state, "owned:worker-state", "owned:worker-ledger")
    await server.execute("DEL", keys.worker_state, keys.worker_ledger)
    await server.execute("HSET", keys.worker_state, "balance", "twelve")
    await fill(server, keys.worker_ledger, 3, ms=OLD_MS)
    await destroy_group(server, keys, OWNER)
    assert await server.execute("HGETALL", keys.worker_state)
    assert (await first_and_length(server, keys.worker_ledger))[1] == 3


async def test_keys_written_by_workers_before_provisioning_are_adopted(
    server: Server,
) -> None:
    keys = derive_keys("pay", "orders")
    await server.execute("HSET", keys.worker_state, "boot:w-1", "5", "alone:1-1", "2")
    event = ("kind", "dead-lettered", "consumer", "w-1")
    await server.execute("XADD", keys.worker_ledger, f"{OLD_MS}-1", *event)
    await provision(server, keys)
    assert await server.execute("HGET", keys.worker_state, "boot:w-1") == b"5"
    assert (await expire_dead_letters(server, keys, OWNER, kept=DAY)).records == 1
    await destroy_group(server, keys, OWNER)
    assert not await server.execute("EXISTS", keys.worker_state)
    assert not await server.execute("EXISTS", keys.worker_ledger)


async def test_a_foreign_stream_at_a_derived_key_is_not_trimmed(
    server: Server,
) -> None:
    keys = derive_keys("pay", "orders")
    await provision(server, keys)
    ledgers = (keys.ledger, keys.worker_ledger)
    await server.execute("DEL", *ledgers)
    for taken in (*ledgers, keys.retry):
        await fill(server, taken, 200, ms=OLD_MS)
    await server.execute("XGROUP", "CREATE", keys.retry, keys.group, "$")
    await expire_dead_letters(server, keys, OWNER, kept=DAY)
    await trim_retry_stream(server, keys, OWNER)
    for taken in (*ledgers, keys.retry):
        assert (await first_and_length(server, taken))[1] == 200
