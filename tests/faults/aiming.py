"""Faults that wait for the moment in which a rule matters, where chance would seldom meet it."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.faults.data_faults import ALL
from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.history import Process, parse_id
from tests.faults.notes import DestroyNote
from tests.faults.worker_faults import LOST
from tests.faults.world import World, send

PILE_S = 1.0  # what waits after so long is more than one worker takes at once
LOADED = 8  # entries
SETTLED_S = 3.5  # what was delivered so long before a first restart moves at once
CLOSELY_S = 0.0005
NEVER = "nothing came of it"


def kill_in_mid_recovery(world: World, dice: random.Random) -> str:
    """SIGKILL of all replicas as the first of a dead worker's entries moves."""
    lane = next(lane for lane in world.lanes if not lane.reads_history)
    server = world.connect()
    loaded = _load_one(world, lane, server)
    if loaded is None:
        return NEVER
    victim, _ = loaded
    send(victim, signal.SIGSTOP)
    time.sleep(SETTLED_S)
    held = _held_by(server, lane, victim)
    send(victim, signal.SIGKILL)
    has_begun = _wait(lambda: not held <= _held_by(server, lane, victim), 6, every_s=CLOSELY_S)
    world.fleets[0].kill(dice, len(world.fleets[0].replicas))
    time.sleep(dice.uniform(0, 0.5))
    world.fleets[0].replace()
    return f"{len(held)} entries of {victim.consumer}" if has_begun else NEVER


def destroy_while_owed(world: World, dice: random.Random) -> str:
    """XGROUP DESTROY right after the death of a worker whose entries lie below the position."""
    lane = dice.choice(world.lanes)
    server = world.connect()
    loaded = _load_one(world, lane, server)
    if loaded is None:
        return NEVER
    victim, _ = loaded
    send(victim, signal.SIGSTOP)
    held = _held_by(server, lane, victim)
    is_known = bool(held) and _wait(lambda: _is_remembered(server, lane, held), 12, every_s=0.1)
    with world.data_lock:
        at_ns = time.time_ns()
        seconds, microseconds = server.time()
        send(victim, signal.SIGKILL)
        server.xgroup_destroy(lane.stream, lane.keys.group)
    at_ms = seconds * 1000 + microseconds // 1000
    world.notes.append(DestroyNote(lane=lane.name, at_ns=at_ns, at_ms=at_ms))
    return f"{len(held)} entries of {victim.consumer}{'' if is_known else ', not remembered'}"


def declare_failed(world: World, dice: random.Random) -> str:
    """A phase Failed that is not true, written over a worker that has much to do."""
    lane = dice.choice(world.lanes)
    loaded = _load_one(world, lane, world.connect())
    if loaded is None:
        return NEVER
    victim, held = loaded
    name = victim.consumer.partition(":")[0]
    patch = ["--subresource=status", "--type=merge", "-p", json.dumps(LOST)]
    world.kubectl("patch", "pod", name, *patch)
    time.sleep(dice.uniform(2, 4))
    world.kubectl("delete", "pod", name, "--wait=false")
    return f"{len(held)} entries of {victim.consumer}"


def _load_one(
    world: World, lane: GroupUnderFault, server: Any
) -> tuple[Process, frozenset[str]] | None:
    """A worker that took many entries at once, since all were paused before."""
    living = world.living(lane)
    for process in living:
        send(process, signal.SIGSTOP)
    time.sleep(PILE_S)
    for process in living:
        send(process, signal.SIGCONT)
    found: list[tuple[Process, frozenset[str]]] = []

    def look() -> bool:
        for process in living:
            held = _held_by(server, lane, process)
            if len(held) >= LOADED:
                found.append((process, held))
        return bool(found)

    return found[0] if _wait(look, 3, every_s=CLOSELY_S) else None


def _held_by(server: Any, lane: GroupUnderFault, process: Process) -> frozenset[str]:
    pending = server.xpending_range(
        lane.stream, lane.keys.group, "-", "+", ALL, consumername=process.consumer
    )
    return frozenset(one["message_id"].decode() for one in pending)


def _is_remembered(server: Any, lane: GroupUnderFault, held: frozenset[str]) -> bool:
    """Whether the operator wrote down a position above all of them."""
    seen = server.hget(lane.keys.state, "seen:last_delivered")
    return seen is not None and parse_id(seen.decode()) >= max(map(parse_id, held))


def _wait(is_so: Callable[[], bool], limit_s: float, *, every_s: float) -> bool:
    until = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(every_s)
    return True
