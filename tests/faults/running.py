"""One phase: the faults come by their schedule, then everything is healed and drained."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from tests.faults.assembling import assemble_history
from tests.faults.building import open_world
from tests.faults.collecting import read_owed
from tests.faults.data_faults import end_other_groups
from tests.faults.faults import FAULTS
from tests.faults.history import History
from tests.faults.phases import Phase
from tests.faults.scene import Scene
from tests.faults.schedule import Injection, plan_schedule
from tests.faults.wire_probes import KIND, probe_wires
from tests.faults.world import Ground

TEND_S = 4.0
LOOK_S = 0.5
AT_ONCE = 6
Say = Callable[[str], None]


@dataclass(slots=True)
class Script:
    """The faults of one phase, under way."""

    world: Scene
    say: Say
    done: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    _locks: defaultdict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock)
    )

    def run(self, phase: Phase) -> None:
        """Inject all that is planned; return when the last one is over and the time is up."""
        planned = plan_schedule(phase.every_s, seconds=phase.seconds, seed=phase.setting.seed)
        for fault in phase.every_s:
            self._locks[FAULTS[fault].domain]  # made here, by one thread
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for injection in planned:
                self._wait_until(injection.at_s)
                pool.submit(self._inject, injection)
            self._wait_until(phase.seconds)
            self.world.ending.set()

    def problems(self) -> tuple[str, ...]:
        """Faults that could never be done: the run has not shown what it was to show."""
        return tuple(
            f"{fault} could not be done: {why}"
            for fault, why in self.failed.items()
            if not self.done[fault]
        )

    def _inject(self, injection: Injection) -> None:
        fault = FAULTS[injection.fault]
        try:
            with self._locks[fault.domain] if fault.domain else nullcontext():
                if self.world.ending.is_set() and self.done[injection.fault]:
                    return  # it waited for others until the time was up
                what = fault.inject(self.world, random.Random(injection.seed))
        except Exception as error:
            self.failed[injection.fault] = repr(error)[:300]
            self.say(f"{injection.fault} failed: {error!r}"[:300])
            return
        self.done[injection.fault] += 1
        self.say(f"{time.monotonic() - self.began:6.1f} s  {injection.fault}: {what}")

    def _wait_until(self, at_s: float) -> None:
        tended = time.monotonic()
        while (left := self.began + at_s - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
            if time.monotonic() - tended > TEND_S and left > LOOK_S:
                self.world.tend()
                tended = time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one phase has shown."""

    name: str
    histories: tuple[History, ...]
    faults: int
    seconds: float


def run_phase(ground: Ground, phase: Phase, say: Say) -> Outcome:
    """Run a phase to its end, with operators."""
    return run_phase_in(open_world(ground, phase.setting), phase, say)


def run_phase_in(opening: AbstractContextManager[Scene], phase: Phase, say: Say) -> Outcome:
    """Run a phase to its end."""
    began = time.monotonic()
    say(f"phase {phase.about}")
    with opening as world, _probed(world):
        say(f"everything is up after {time.monotonic() - began:.1f} s")
        script = Script(world, say)
        if phase.every_s:
            script.run(phase)
        for producer in world.producers.values():
            producer.stop()
        world.heal()
        end_other_groups(world)
        say("healed; draining")
        limit_s = phase.drain_s if phase.every_s else max(phase.drain_s, phase.seconds)
        owed = drain(world, limit_s)
        histories = tuple(
            assemble_history(world, lane, owed=owed[lane.name], problems=script.problems())
            for lane in world.lanes
        )
    faults = sum(script.done.values()) + sum(_poison(history) for history in histories)
    return Outcome(
        name=phase.setting.name,
        histories=histories,
        faults=faults,
        seconds=time.monotonic() - began,
    )


def _probed(world: Scene) -> AbstractContextManager[None]:
    """Where every fault of a worker is written down: whatever else kept it from Redis, too."""
    if not world.setting.reports_hindrances:
        return nullcontext()
    wires = world.wires

    def note(wire: int, began_ns: int) -> None:
        world.note_hindrance(KIND, began_ns, wire=wire, wires=len(wires))

    return probe_wires(wires, min(lane.timeout_s for lane in world.lanes), note)


def drain(world: Scene, limit_s: float) -> dict[str, frozenset[str]]:
    """What each lane still owes: nothing, or what is left when it is no less for `limit_s`."""
    until, tended = time.monotonic() + limit_s, time.monotonic()
    least = math.inf
    while True:
        owed = {lane.name: _owed(world, lane.name) for lane in world.lanes}
        if sum(map(len, owed.values())) < least:
            least, until = sum(map(len, owed.values())), time.monotonic() + limit_s
        if not any(owed.values()) or time.monotonic() > until:
            time.sleep(LOOK_S)  # a worker writes down an acknowledgement after its answer
            return owed
        time.sleep(LOOK_S)
        if time.monotonic() - tended > TEND_S:
            world.tend()
            tended = time.monotonic()


def _owed(world: Scene, name: str) -> frozenset[str]:
    lane = next(lane for lane in world.lanes if lane.name == name)
    try:
        owed = read_owed(world.connect(), lane)
    except RedisError as error:
        return frozenset({f"nobody knows: {error}"[:100]})
    return frozenset({"there is no group"}) if owed is None else owed


def _poison(history: History) -> int:
    return sum(one.is_poison for one in history.produced.values())
