"""Faults of workers alone: killed, stopped, terminated, cut off from Redis; each written down."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.faults.groups_under_fault import GroupUnderFault
from tests.faults.history import SECOND_NS, Event, Hindrance, Process
from tests.faults.proxy import Proxy
from tests.faults.scene import Scene, is_running, send

WAYS = ("muted", "cut", "stalled", "slow", "refused")  # in turn
SHORT, LONG = (0.2, 0.9), (1.05, 1.8)  # of a lane's time-out: in turn
OLD_ENOUGH_S = 3.0
PAGE = 1000
STUCK = 50  # who has so many old entries is cut off already
LOOK_S = 0.01
ON_THE_WAY_S = 0.3  # what was said before a stop is heard by then
SILENT = 0.4  # of the time-out: who says nothing for so long did not run


def kill(scene: Scene, dice: random.Random) -> str:
    """SIGKILL of a worker, sometimes of two at once."""
    victims = [scene.signal_some(dice, signal.SIGKILL) for _ in range(dice.choice([1, 1, 1, 2]))]
    for victim in filter(None, victims):
        scene.note_hindrance("killed", time.time_ns(), pid=victim.pid)
    return _names(victims)


def terminate(scene: Scene, dice: random.Random) -> str:
    """SIGTERM of a worker that has been at work for a while; another one is started for it."""
    reported = {one.pid for one in scene.hindrances if one.kind == "terminated"}
    before_ns = time.time_ns() - int(OLD_ENOUGH_S * SECOND_NS)
    living = [one for one in scene.living() if one.pid not in reported and one.began_ns < before_ns]
    victims = dice.sample(living, min(1, len(living)))
    for victim in victims:
        send(victim, signal.SIGTERM)
        scene.note_hindrance("terminated", time.time_ns(), pid=victim.pid)
    return _names(victims)


def stop(scene: Scene, dice: random.Random) -> str:
    """SIGSTOP and SIGCONT: as often before its time is up as after."""
    victim = scene.signal_some(dice, signal.SIGSTOP)
    if victim is None:
        return "nobody"
    began_ns, seconds = time.time_ns(), _choose_s(scene, dice, _count(scene, "stop"))
    scene.ending.wait(seconds)
    send(victim, signal.SIGCONT)
    scene.note_hindrance("stopped", began_ns, pid=victim.pid)
    return f"{victim.consumer} for {seconds:.1f} s"


def overtake(scene: Scene, dice: random.Random) -> str:
    """SIGSTOP of a worker that is in the middle of much, and SIGCONT once others have it."""
    lane, server = dice.choice(scene.lanes), scene.connect()
    victim = _find_busiest(scene, lane, server)
    if victim is None:
        return "nobody"
    began_ns = time.time_ns()
    send(victim, signal.SIGSTOP)
    time.sleep(ON_THE_WAY_S)
    held = _count_held(server, lane, victim)
    until = time.monotonic() + 2.5 * lane.timeout_s
    while time.monotonic() < until and _count_held(server, lane, victim) >= held > 0:
        time.sleep(LOOK_S)
    time.sleep(dice.uniform(0, 0.3))
    send(victim, signal.SIGCONT)
    scene.note_hindrance("stopped", began_ns, pid=victim.pid)
    return f"{victim.consumer}, which had {held}"


def _find_busiest(scene: Scene, lane: GroupUnderFault, server: Any) -> Process | None:
    """The live worker with most entries that are pending for a while."""
    seconds, _ = server.time()
    page = server.xpending_range(lane.stream, lane.keys.group, "-", (seconds - 1) * 1000, PAGE)
    counts = Counter(one["consumer"].decode() for one in page)
    busy = [one for one in scene.living(lane) if 0 < counts[one.consumer] < STUCK]
    return max(filter(is_running, busy), key=lambda one: counts[one.consumer], default=None)


def _count_held(server: Any, lane: GroupUnderFault, process: Process) -> int:
    held = server.xpending_range(
        lane.stream, lane.keys.group, "-", "+", PAGE, consumername=process.consumer
    )
    return len(held)


def cut_off(scene: Scene, dice: random.Random) -> str:
    """The workers of one wire cannot talk to Redis, or do not hear it."""
    wires = scene.wires
    count = _count(scene, "partition")
    wire, how = dice.randrange(len(wires)), WAYS[count % len(WAYS)]
    seconds = _choose_s(scene, dice, count)
    began_ns = time.time_ns()
    _hurt(scene, wires[wire], how, seconds, dice)
    scene.note_hindrance(how, began_ns, wire=wire, wires=len(wires))
    return f"wire {wire} {how}" + ("" if how == "cut" else f" for {seconds:.1f} s")


def _hurt(scene: Scene, proxy: Proxy, how: str, seconds: float, dice: random.Random) -> None:
    if how == "cut":
        proxy.cut()
    elif how == "muted":
        proxy.mute()
        scene.ending.wait(seconds)
        proxy.heal()
    elif how == "slow":
        proxy.delay(dice.uniform(0.02, 0.3))
        scene.ending.wait(seconds)
        proxy.delay(0)
    else:
        with proxy.stalling() if how == "stalled" else proxy.refusing():
            scene.ending.wait(seconds)


def find_silences(events: Iterable[Event], timeout_ns: int) -> list[Hindrance]:
    """The times in which workers that record heartbeats recorded none: they did not run."""
    last: dict[Process, int] = {}
    found: list[Hindrance] = []
    for event in events:
        before_ns = last.get(event.process, event.at_ns)
        if event.at_ns - before_ns > SILENT * timeout_ns:
            found.append(
                Hindrance(
                    kind="silent",
                    began_ns=before_ns,
                    ended_ns=event.at_ns,
                    pid=event.process.pid,
                )
            )
        last[event.process] = event.at_ns
    return found


def _count(scene: Scene, fault: str) -> int:
    """The number of earlier attempts."""
    scene.begun[fault] += 1
    return scene.begun[fault] - 1


def _choose_s(scene: Scene, dice: random.Random, count: int) -> float:
    return scene.lanes[0].timeout_s * dice.uniform(*(SHORT if count % 2 else LONG))


def _names(processes: Iterable[Process | None]) -> str:
    return ", ".join(one.consumer for one in processes if one) or "nobody"
