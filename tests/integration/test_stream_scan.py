"""A scan of one stream: what moves, what stays, and what is left when it ends."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from kubernetes.aio.client import Configuration

from local_cluster.redis_servers import StandaloneServers
from pelops.api.group.recovery import BackoffSpec
from pelops.controller.recovery.findings import Findings
from pelops.controller.recovery.scan import AFTER_A_PART, GroupScan
from pelops.controller.recovery.scan_report import ScanCloser
from pelops.controller.runtime.events import Reporter
from pelops.domain.entry_id import EntryId
from pelops.domain.locks import lock_key
from pelops.domain.recovery import Cutoff, EntryVerdict, Trigger
from pelops.errors import WouldDuplicate
from pelops.kube.client import STREAM_CONSUMER_GROUP, KubeApi
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import FIRST_PAGE, finish_scan, read_fields
from pelops.redis_streams.recovery.stuck_entries import Recovered
from tests.builders import resource
from tests.integration.recovering import KEYS, bodies, ledger, look, pending, server_time, strand
from tests.integration.stream_scanning import (
    COUNTED,
    HOUR,
    LOCKS,
    a_run,
    add_old,
    died,
    make_idle,
    moved,
    scan,
)

# -- owners that died, and locks


async def test_an_entry_of_a_dead_owner_stays_while_its_lock_exists(server: Server) -> None:
    ids = await strand(server, 5)
    lock = lock_key(LOCKS.key_template, KEYS, ids[2])
    await server.execute("SET", lock, "held", key=lock)
    soon = await server_time(server) + HOUR
    findings = await scan(await a_run(server, locks=LOCKS), died(soon))
    assert set(await pending(server)) == {ids[2]}
    assert await moved(server) == [one for one in ids if one != ids[2]]
    assert findings.locked == [lock]
    await server.execute("DEL", lock, key=lock)
    await scan(await a_run(server, locks=LOCKS), died(soon))
    assert await pending(server) == {}


async def test_entries_examined_as_dead_are_not_examined_again_as_idle(
    server: Server,
) -> None:
    """Neither its suspects nor what a lock keeps; both have been idle past the limit as well."""
    locked, *suspects = ids = await add_old(server, 3, *COUNTED)
    await make_idle(server, ids)
    lock = lock_key(LOCKS.key_template, KEYS, locked)
    await server.execute("SET", lock, "held", key=lock)
    run = await a_run(server, locks=LOCKS)
    run.liveness = died(run.observation.now)
    await run.recover_dead()
    await run.recover_idle()
    (crash,) = run.crashes
    assert [one.entry_id for one in crash.suspects] == suspects
    assert run.findings.verdicts[EntryVerdict.LOCKED] == 1
    assert run.findings.locked == [lock]


async def test_what_was_delivered_after_the_cut_moves_when_it_is_idle(server: Server) -> None:
    ids = await add_old(server, 3)
    run = await a_run(server)
    long_ago = run.observation.now - 2 * HOUR
    await make_idle(server, ids[:1])
    findings = await scan(run, died(long_ago))
    assert await moved(server) == ids[:1]
    assert set(await pending(server)) == set(ids[1:])
    assert findings.young == 3


async def test_what_was_done_before_a_scan_failed_is_known(
    server: Server, empty_redis: StandaloneServers
) -> None:
    """Another group appears after the first batch, and would be given the copies of the second."""

    class Disturbed(Findings):
        def count_batch(self, owner: str, cut: Cutoff | None, batch: Recovered) -> None:
            super().count_batch(owner, cut, batch)
            empty_redis.master().cli("XGROUP", "CREATE", KEYS.stream, "other", "0")

    ids = await strand(server, 10)
    run = replace(
        await a_run(server, context={"batch": 2}), findings=Disturbed(trigger=Trigger.SCAN)
    )
    with pytest.raises(WouldDuplicate):
        await scan(run, died(run.observation.now + HOUR))
    assert await moved(server) == ids[:2]
    assert run.findings.moved == 2


async def test_the_next_scan_comes_when_the_first_of_several_waits_is_over(
    server: Server,
) -> None:
    await strand(server, 1)
    run = await a_run(server, backoff=BackoffSpec(initial_seconds=20))
    findings = await scan(run, died(run.observation.now + HOUR))
    assert findings.earliest == timedelta(seconds=20)
    findings.earliest = AFTER_A_PART
    await scan(run, died(run.observation.now + HOUR))
    assert findings.earliest == AFTER_A_PART


# -- idle entries


async def test_suspects_of_one_owner_failed_together_on_whichever_pages_they_are(
    server: Server,
) -> None:
    """Invariant 11: the only one on its page did not fail alone."""
    ids = await add_old(server, FIRST_PAGE + 1)
    await make_idle(server, [ids[0], ids[-1]])
    findings = await scan(await a_run(server, max_retries=0))
    assert await bodies(server, KEYS.dead_letter) == {}
    assert (len(await moved(server)), findings.waiting) == (1, 1)


async def test_large_bodies_that_are_idle_move_in_one_scan(server: Server) -> None:
    """A script reads 256 KiB at most; the scan continues with the rest."""
    ids = await add_old(server, 50, "f", b"v" * 40_000)
    await make_idle(server, ids)
    await scan(await a_run(server))
    assert await moved(server) == ids


async def test_missing_bodies_of_entries_that_a_worker_holds_are_noted(server: Server) -> None:
    ids = await strand(server, 4)
    await server.execute("XDEL", KEYS.stream, *map(str, ids[:2]), key=KEYS.stream)
    findings = await scan(await a_run(server))
    assert (findings.dangling, findings.lowest_dangling) == (2, ids[0])
    assert set(await pending(server)) == set(ids)


async def test_what_no_consumer_holds_is_reported_as_that(server: Server) -> None:
    """XCLAIM accepts an empty consumer name, and a delivery time in 1970."""
    (entry_id,) = await add_old(server, 1)
    claim = ("XCLAIM", KEYS.stream, KEYS.group, "", 0, str(entry_id), "TIME", 0, "JUSTID")
    await server.execute(*claim, key=KEYS.stream)
    findings = await scan(await a_run(server))
    (requeued,) = [event for event in await ledger(server) if event.kind == "requeued"]
    assert requeued.details["reason"] == "held by no consumer"
    (event,) = findings.list_events()
    assert event.note == "Requeued 1 entry that no consumer holds"


# -- the end


@pytest.fixture
async def closing() -> AsyncIterator[ScanCloser]:
    """The end of scans as far as it concerns Redis; no event can be sent."""
    api = KubeApi(Configuration(host="http://127.0.0.1:1"))
    yield ScanCloser(Reporter(api, STREAM_CONSUMER_GROUP, identity="replica-1"))
    await api.close()


async def close_scan(server: Server, closing: ScanCloser) -> None:
    """End a scan that did nothing."""
    observation = await look(server)
    findings = Findings(trigger=Trigger.SCAN)
    await closing.close(
        GroupScan(
            resource=resource(),
            server=server,
            keys=KEYS,
            observation=observation,
            findings=findings,
        )
    )


async def form_chunk(server: Server, *ids: EntryId) -> None:
    words = [word for one in ids for word in (f"try:{one}", "2 1 0")]
    retry_batch = " ".join(map(str, ids))
    await server.execute("HSET", KEYS.state, "chunk", retry_batch, *words, key=KEYS.state)


async def test_a_finished_retry_batch_is_removed_once(
    server: Server, closing: ScanCloser, empty_redis: StandaloneServers
) -> None:
    ids = await strand(server, 2)
    await form_chunk(server, *ids)
    await server.execute("XACK", KEYS.stream, KEYS.group, str(ids[0]), key=KEYS.stream)
    await close_scan(server, closing)
    assert (await look(server)).retry_batch.members == set(ids)
    await server.execute("XACK", KEYS.stream, KEYS.group, str(ids[1]), key=KEYS.stream)
    await close_scan(server, closing)
    assert (await look(server)).retry_batch.written == ""
    assert await read_fields(server, KEYS, [f"try:{one}" for one in ids]) == [None, None]
    calls = _scripts_run(empty_redis)
    await close_scan(server, closing)
    assert _scripts_run(empty_redis) - calls == 1  # the look at the beginning


async def test_a_chunk_that_another_replica_formed_meanwhile_stays(server: Server) -> None:
    ids = await strand(server, 2)
    await form_chunk(server, ids[1])
    await finish_scan(server, KEYS, uid="uid-1", target=KEYS.stream, resolved=str(ids[0]))
    assert (await look(server)).retry_batch.members == {ids[1]}


def _scripts_run(servers: StandaloneServers) -> int:
    counts = servers.master().info("commandstats")
    names = [name for name in counts if name.startswith(("cmdstat_evalsha", "cmdstat_fcall"))]
    return sum(int(counts[name].split(",")[0].removeprefix("calls=")) for name in names)
