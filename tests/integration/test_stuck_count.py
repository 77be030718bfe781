"""Stuck entries are counted where nothing may be recovered; counting writes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pelops.controller.recovery.pod_evidence import ConsumerLiveness
from pelops.controller.recovery.stuck_count import MOST_COUNTED, count_stuck
from pelops.domain.locks import lock_key
from pelops.domain.recovery import Cutoff, Death, LivenessReason, OwnerMatch
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import list_consumers
from tests.builders import pod
from tests.integration.recovering import DEAD, KEYS, server_time
from tests.integration.redis_adapter import provision
from tests.integration.stream_scanning import LOCKS, a_run, add_old, died, make_idle

ALIVE = "alive"
LIVES = {
    ALIVE: ConsumerLiveness(
        cutoff=Cutoff(at=None, reason=LivenessReason.ALIVE, message="it runs"),
        match=OwnerMatch(pods=(pod(),)),
    )
}


async def counted(server: Server, liveness: dict[str, ConsumerLiveness], **recovery: Any) -> int:
    run = await a_run(server, **recovery)
    run.liveness = liveness
    return await count_stuck(run, await list_consumers(server, KEYS.stream, KEYS.group))


async def test_a_group_without_pending_entries_has_no_stuck_ones(server: Server) -> None:
    await provision(server, KEYS)
    assert await counted(server, {}) == 0


async def test_only_entries_of_dead_owners_and_idle_entries_are_stuck(
    server: Server,
) -> None:
    ids = await add_old(server, 8)
    now = await server_time(server)
    await make_idle(server, ids[:3], idle=timedelta(seconds=1))  # of the dead
    await make_idle(server, ids[3:5], owner=ALIVE)  # beyond the processing timeout
    await make_idle(server, ids[5:7], owner=ALIVE, idle=timedelta(seconds=1))
    await make_idle(server, ids[7:], owner="laptop")  # of a consumer without a known pod
    assert await counted(server, died(now) | LIVES) == 3 + 2 + 1
    assert await counted(server, LIVES) == 2 + 1


async def test_entries_delivered_before_the_restart_of_their_owner_are_stuck(
    server: Server,
) -> None:
    ids = await add_old(server, 5)
    await make_idle(server, ids[:2], idle=timedelta(minutes=2))
    await make_idle(server, ids[2:], idle=timedelta())
    began = await server_time(server) - timedelta(minutes=1)
    cutoff = Cutoff(
        at=began, reason=LivenessReason.RESTARTED, message="it began anew", death=Death.CRASHED
    )
    assert await counted(server, {DEAD: ConsumerLiveness(cutoff=cutoff, match=OwnerMatch())}) == 2


async def test_what_is_locked_is_not_stuck(server: Server) -> None:
    ids = await add_old(server, 3)
    await make_idle(server, ids)
    run = await a_run(server, locks=LOCKS)
    lock = lock_key(LOCKS.key_template, KEYS, ids[0])
    await server.execute("SET", lock, "1", key=lock)
    consumers = await list_consumers(server, KEYS.stream, KEYS.group)
    run.liveness = died(await server_time(server))
    assert await count_stuck(run, consumers) == 2


async def test_the_count_is_bounded(server: Server) -> None:
    ids = await add_old(server, MOST_COUNTED + 5_000)
    now = await server_time(server)
    assert await counted(server, died(now)) == MOST_COUNTED
    await make_idle(server, ids[:10_001], owner=ALIVE)
    assert await counted(server, LIVES) == MOST_COUNTED
