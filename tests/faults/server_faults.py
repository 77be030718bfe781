"""Faults of Redis servers: killed with and without a lost sync, failed over, behind, resharded."""

from __future__ import annotations

import random
import time
from contextlib import suppress

from local_cluster.redis_servers import ClusterServers, CommandFailed, SentinelServers
from tests.faults.aof import cut_tail, find_file
from tests.faults.collecting import rows_of
from tests.faults.history import SECOND_NS, Disturbance, Source
from tests.faults.notes import PlainNote, RestartNote
from tests.faults.world import World

SYNC_S = 1.0  # what `everysec` may lose; Redis may be up to another second late


def kill_redis(world: World, dice: random.Random) -> str:
    """SIGKILL of the server and its restart; with `everysec` half the time a sync is lost, too."""
    server = world.servers.master()
    killed_ns = time.time_ns()
    server.kill()
    loses = world.setting.fsync == "everysec" and dice.random() < 0.5
    kept = cut_tail(
        find_file(server.directory),
        keep_until_s=killed_ns / SECOND_NS - SYNC_S,
        fraction=dice.random() if loses else 1,
    )
    time.sleep(dice.uniform(0, 2))
    up_ns = time.time_ns()
    server.start()
    world.notes.append(RestartNote(killed_ns=killed_ns, up_ns=up_ns, kept=kept))
    return f"{kept.cut_bytes} bytes and {len(kept.cut_ids)} names lost"


def fail_over(world: World, dice: random.Random) -> str:
    """The master is killed, and a replica takes over with what it was sent."""
    return _fail_over(world, paused_s=0.0, dice=dice)


def fail_over_with_lag(world: World, dice: random.Random) -> str:
    """The replicas hang, fall behind by seconds, and one of them takes over."""
    return _fail_over(world, paused_s=dice.uniform(0.3, 1.5), dice=dice)


def _fail_over(world: World, *, paused_s: float, dice: random.Random) -> str:
    servers = world.servers
    assert isinstance(servers, SentinelServers)
    before = servers.master_address()
    master = servers.server_at(before[1])
    replicas = [one for one in servers.servers if one is not master]
    began_ns = time.time_ns()
    if paused_s:
        for replica in replicas:
            replica.pause()
        # Else they would find all they missed in their sockets when they wake up.
        master.cli("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(paused_s)
    master.kill()
    for replica in replicas:
        replica.resume()
    servers.await_failover(before)
    master.start()
    with suppress(TimeoutError):
        servers.await_readiness()
    # Only now: until it became a replica, the former master took entries as if it still were one.
    lost = _note_failover(world, began_ns)
    return f"{lost} entries lost"


def _note_failover(world: World, began_ns: int) -> int:
    """Nothing leaves these streams, so what was added and is not there is what was lost."""
    server = world.connect()
    total = 0
    for lane in world.lanes:
        certain = [
            one
            for one in list(world.producers[lane.name].produced.values())
            if one.entry_id and one.source is Source.STREAM
        ]
        present = {entry_id for entry_id, _ in rows_of(server.xrange(lane.stream))}
        lost = frozenset(one.unique for one in certain if one.entry_id not in present)
        total += len(lost)
        disturbance = Disturbance(
            kind="failover",
            at_ns=began_ns,
            lost=lost,
            forgets_from_ns=began_ns - SECOND_NS,
            until_ns=time.time_ns(),
        )
        world.notes.append(PlainNote(lane=lane.name, disturbance=disturbance))
    return total


def move_slots(world: World, dice: random.Random) -> str:
    """A lane's slot moves to another master, slowly, while it is used."""
    servers = world.servers
    assert isinstance(servers, ClusterServers)
    lane = dice.choice(world.lanes)
    slot = lane.keys.slot
    owner = servers.owner_of(slot)
    to = dice.choice([one for one in servers.masters() if one is not owner])
    servers.begin_migration(slot, to)
    time.sleep(dice.uniform(0.1, 1.5))
    keys = [lane.keys.stream, lane.keys.ledger, lane.keys.state]
    with suppress(CommandFailed):  # some of them need not exist
        servers.migrate_keys(slot, to, *dice.sample(keys, 1))
    time.sleep(dice.uniform(0.1, 1.5))
    servers.finish_migration(slot, to)
    return f"slot {slot} of {lane.name} to {to.name}"
