"""Faults of workers: ended, paused, restarted in place, deleted, declared dead while they live."""

from __future__ import annotations

import json
import random
import signal
import time
from typing import Any

from tests.faults.groups_under_fault import PROCESSING_TIMEOUT_S
from tests.faults.world import World, send

LOST = {"status": {"phase": "Failed", "reason": "NodeLost", "message": "declared by a fault"}}


def kill_worker(world: World, dice: random.Random) -> str:
    """SIGKILL of a worker, or of two at once; its container restarts in place, or its pod goes."""
    count = 2 if dice.random() < 0.2 else 1
    victims = [world.signal_some(dice, signal.SIGKILL) for _ in range(count)]
    names = [one.consumer.partition(":")[0] for one in victims if one]
    if dice.random() < 0.4 and names:
        world.kubectl("delete", "pod", names[0], "--wait=false", "--ignore-not-found")
        names[0] += " and its pod"
    return ", ".join(names)


def pause_worker(world: World, dice: random.Random) -> str:
    """SIGSTOP, and SIGCONT later: mostly before its time is up, sometimes after."""
    seconds = dice.uniform(1, 6)
    if dice.random() < 0.15:
        seconds = PROCESSING_TIMEOUT_S + dice.uniform(2, 4)
    victim = world.signal_some(dice, signal.SIGSTOP)
    if victim is None:
        return "nobody"
    world.ending.wait(seconds)
    send(victim, signal.SIGCONT)
    return f"{victim.consumer} for {seconds:.1f} s"


def ignore_offers(world: World, dice: random.Random) -> str:
    """The workers of a lane that claims read no offers for a while; one loses its pod."""
    lanes = [lane for lane in world.lanes if lane.kind == "claiming"]
    if not lanes:
        return "nobody claims"
    lane = dice.choice(lanes)
    seconds = dice.uniform(4, 12)
    world.place.deafness(lane).touch()
    try:
        living = world.living(lane)
        if living:
            name = dice.choice(living).consumer.partition(":")[0]
            how = ("--wait=false", "--ignore-not-found", "--grace-period=0", "--force")
            world.kubectl("delete", "pod", name, *how)
        world.ending.wait(seconds)
    finally:
        world.place.deafness(lane).unlink()
    return f"{lane.name} for {seconds:.1f} s"


def restart_worker(world: World, dice: random.Random) -> str:
    """Its container restarts in place: asked to end, or killed, sometimes again soon after."""
    victim = world.signal_some(dice, dice.choice([signal.SIGTERM, signal.SIGKILL]))
    if victim is None:
        return "nobody"
    if dice.random() < 0.3:
        time.sleep(dice.uniform(0.2, 0.6))
        for heir in world.living():
            if heir.consumer == victim.consumer:
                send(heir, signal.SIGKILL)
    return victim.consumer


def delete_pod(world: World, dice: random.Random) -> str:
    """kubectl delete pod: in good order, by force, or after it was declared failed alive."""
    pods = [pod for pod in world.pods() if not pod["metadata"].get("deletionTimestamp")]
    if not pods:
        return "none"
    name = str(dice.choice(pods)["metadata"]["name"])
    how = dice.choice(["graceful", "forced", "failed"])
    if how == "failed":
        _declare_failed(world, name, dice)
    forced: list[Any] = ["--grace-period=0", "--force"] if how == "forced" else []
    world.kubectl("delete", "pod", name, "--wait=false", *forced)
    return f"{name}, {how}"


def _declare_failed(world: World, name: str, dice: random.Random) -> None:
    patch = ["--subresource=status", "--type=merge", "-p", json.dumps(LOST)]
    world.kubectl("patch", "pod", name, *patch)
    time.sleep(dice.uniform(2, 5))
