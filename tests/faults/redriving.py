"""Dead letters are discarded, restored and redriven while replicas die and Redis hangs.

The dead letters are of entries that were never processed, so each of them is to have its effect
once. Some stay among the discarded ones.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

from redis.exceptions import RedisError

from local_cluster.redis_servers import CommandFailed
from pelops.domain.records.ledger import LETTER_FIELDS
from pelops.domain.recovery import LetterReason
from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.history import Produced, Source
from tests.faults.world import World

LETTERS = 120
PER_SECOND = 60
RESTORED = 40  # of the discarded ones, which are a half
BATCHES = 3
ADDED_S = 30.0
FINISHED_S = 90.0
ENDS = ("Complete", "Failed")

_numbers = itertools.count(1)


def redrive(world: World, dice: random.Random) -> str:
    """Add dead letters to a lane; discard a half, restore a part of these, redrive what is left.

    Meanwhile replicas are killed, or Redis is paused.
    """
    lane = dice.choice(world.lanes)
    done: list[str] = []
    for _ in range(BATCHES):  # a fault by hand may take away what was not moved yet
        batch = f"batch-{next(_numbers)}"
        moved, text = _move_batch(world, lane, dice, batch)
        done.append(text)
        if moved:
            return "; ".join(done)
    raise RuntimeError(f"no dead letter was moved: {'; '.join(done)}")


def _move_batch(
    world: World, lane: GroupUnderFault, dice: random.Random, batch: str
) -> tuple[int, str]:
    """How many dead letters of a new batch were redriven, and what was done meanwhile."""
    _add_letters(world, lane, batch)
    hows: list[str] = []
    moved = 0
    for action, most in (("Discard", LETTERS // 2), ("Restore", RESTORED), ("Redrive", LETTERS)):
        moved, how = _run(world, lane, dice, batch, action=action, maxEntries=most)
        hows.append(f"{action} of {moved} while {how}")
    return moved, f"{lane.name}, {batch}: {', '.join(hows)}"


def _add_letters(world: World, lane: GroupUnderFault, batch: str) -> None:
    """Add them, under other names each time that no answer comes: those may be there, too."""
    until = time.monotonic() + ADDED_S
    for attempt in itertools.count(1):
        names = [f"{lane.name}-{batch}-{attempt}-{number}" for number in range(1, LETTERS + 1)]
        answers: list[bytes | None] = [None] * LETTERS
        try:
            pipeline = world.connect().pipeline(transaction=True)
            for number, name in enumerate(names, start=1):
                pipeline.xadd(lane.keys.dead_letter, _letter(lane, name, f"{number}-1", batch))
            answers = pipeline.execute()
        except (RedisError, OSError, CommandFailed):
            if time.monotonic() > until:
                raise
        _remember(world, lane, names, answers)
        if answers[0]:
            return
        time.sleep(0.2)


def _remember(
    world: World, lane: GroupUnderFault, names: list[str], answers: list[bytes | None]
) -> None:
    produced = world.producers[lane.name].produced
    for name, answer in zip(names, answers, strict=True):
        entry_id = answer.decode() if answer else None
        produced[name] = Produced(
            unique=name, entry_id=entry_id, at_ns=time.time_ns(), source=Source.DEAD_LETTER
        )


def _letter(lane: GroupUnderFault, name: str, root: str, batch: str) -> dict[str, str]:
    known = {
        "original_id": root,
        "stream": lane.stream,
        "group": lane.keys.group,
        "consumer": "nobody",
        "delivery_count": "4",
        "retry_count": "3",
        "reason": LetterReason.MAX_RETRIES,
        "error": f"{batch} failed",
    }
    marks = {f"_{one}": known.get(one, "1760000000000") for one in LETTER_FIELDS}
    return {"unique": name, "nature": "ok", **marks}


def _run(
    world: World, lane: GroupUnderFault, dice: random.Random, batch: str, **spec: Any
) -> tuple[int, str]:
    """Create a redrive, do harm while it moves dead letters, and wait for its end.

    Returns how many it moved, and what was done meanwhile.
    """
    name = f"{batch}-{spec['action'].lower()}"
    until = time.monotonic() + FINISHED_S
    manifest = {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": "StreamRedrive",
        "metadata": {"name": name},
        "spec": {
            "groupRef": {"name": lane.name},
            "selection": {"errorContains": f"{batch} failed"},
            "ratePerSecond": PER_SECOND,
            **spec,
        },
    }
    while True:
        try:
            world.resources.apply_raw(manifest)
            break
        except Exception:  # the API server may be a victim, too
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
    time.sleep(dice.uniform(0.2, 1.5))
    how = _harm(world, dice)
    while not (status := _end_of(world, name)):
        if time.monotonic() > until:
            text = f"{name} had not ended after {FINISHED_S:.0f} s"
            world.unreported.setdefault(lane.name, []).append(text)
            raise TimeoutError(text)
        time.sleep(0.3)
    return status.get("moved", 0), how


def _harm(world: World, dice: random.Random) -> str:
    how = dice.choice(["replicas were killed", "Redis was paused", "nothing was done"])
    if how == "replicas were killed":
        world.fleets[0].kill(dice, dice.choice([1, 2, 3]))
        time.sleep(dice.uniform(0, 1))
        world.fleets[0].replace()
    elif how == "Redis was paused":
        server = world.servers.master()
        server.pause()
        time.sleep(dice.uniform(0.5, 3))
        server.resume()
    return how


def _end_of(world: World, name: str) -> dict[str, Any]:
    """The status of a redrive that has ended; else empty."""
    try:
        found = world.resources.get("srd", name) or {}
    except OSError:
        return {}
    status: dict[str, Any] = found.get("status") or {}
    conditions = status.get("conditions") or ()
    has_ended = any(one["type"] in ENDS and one["status"] == "True" for one in conditions)
    return status if has_ended else {}
