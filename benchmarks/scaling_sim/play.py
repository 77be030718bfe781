"""One trace through one autoscaler."""

from __future__ import annotations

import math
from typing import Protocol

from benchmarks.scaling_sim.traces import Trace
from benchmarks.scaling_sim.world import TICK_S, World


class Autoscaler(Protocol):
    """What sets the replicas."""

    name: str

    def act(self, world: World) -> None:
        """Called once a tick; does what is due by its own clocks."""


def play(trace: Trace, autoscaler: Autoscaler) -> World:
    """The world at the end of the trace."""
    world = World(trace.kind, deletes=trace.deletes)
    arriving = _Arrivals(trace)
    for tick in range(int(trace.seconds / TICK_S)):
        second = tick * TICK_S
        if second.is_integer() and int(second) in trace.befalls:
            trace.befalls[int(second)](world)
        arriving.come(world, second)
        world.step()
        autoscaler.act(world)
    return world


class _Arrivals:
    """Spreads the arrivals of a second over its ticks, and the poison over the arrivals."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._carried = 0.0
        self._until_poison = trace.poison_every

    def come(self, world: World, second: float) -> None:
        self._carried += self._trace.arrivals[int(second)] * TICK_S
        if self._trace.lump_s and second % self._trace.lump_s:
            return
        count = math.floor(self._carried + 1e-9)
        self._carried -= count
        if not self._trace.poison_every:
            world.add(count)
            return
        while count:
            sound = min(count, self._until_poison - 1)
            world.add(sound)
            count -= sound
            self._until_poison -= sound
            if count:
                world.add(1, is_poison=True)
                count -= 1
                self._until_poison = self._trace.poison_every
