"""The traffic that autoscalers are tried on, and what happens to the group meanwhile."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks.scaling_sim.workers import WorkerKind
from benchmarks.scaling_sim.world import World

Act = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """A stretch in which nothing changes, from two minutes after the last disturbance on."""

    first: int  # second
    last: int
    needed: int  # replicas that serve it at 95 % of what they can do


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Traffic by the second, the workers that meet it, and what befalls the group."""

    name: str
    what: str
    arrivals: Sequence[float]  # entries added in each second; a fraction is carried on
    kind: WorkerKind = field(default_factory=WorkerKind)
    most: int = 20  # replicas
    per_replica: int = 100  # entries per replica, the target of every autoscaler
    lump_s: float = 0.0  # producers add what came in so many seconds at once; 0: as it comes
    poison_every: int = 0  # one entry of so many fails always; 0: none
    deletes: bool = False  # workers delete what they acknowledged
    befalls: Mapping[int, Act] = field(default_factory=dict)  # by second, before its arrivals
    plateaus: Sequence[Plateau] = ()

    @property
    def seconds(self) -> int:
        """How long it lasts."""
        return len(self.arrivals)


def read_csv(path: Path) -> Trace:
    """A recorded trace: lines of `second,arrivals`, with or without a header.

    Seconds that are not named had no arrivals. Raises ValueError for anything else.
    """
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row]
    if rows and rows[0][0].strip() == "second":
        rows = rows[1:]
    counts = {int(row[0]): float(row[1]) for row in rows}
    if not counts or min(counts) < 0 or min(counts.values()) < 0:
        raise ValueError(f"{path}: wanted lines of second,arrivals, none of them negative")
    arrivals = [counts.get(second, 0.0) for second in range(max(counts) + 1)]
    return Trace(name=path.stem, what=f"recorded in {path.name}", arrivals=arrivals)


def _shape(seconds: int, rate: Callable[[int], float]) -> list[float]:
    return [max(0.0, rate(second)) for second in range(seconds)]


def _at(seconds: int, counts: Mapping[int, float]) -> list[float]:
    return [counts.get(second, 0.0) for second in range(seconds)]


def _between(first: int, last: int, rate: float) -> Callable[[int], float]:
    return lambda second: rate if first <= second < last else 0.0


def _day(second: int, noise: random.Random) -> float:
    wave = 200.0 - 180.0 * math.cos(2 * math.pi * second / 1200)
    return wave * noise.uniform(0.7, 1.3)


def _daily_wave() -> list[float]:
    noise = random.Random("daily wave")
    return _shape(2400, lambda second: _day(second, noise))


def _strand(world: World) -> None:
    world.strand(3000)


_SLOW = WorkerKind(rate=1 / 40, prefetch=1, grace_s=30.0, varies=True)

TRAFFIC = (
    Trace(name="step", what="10,000 at once", arrivals=_at(900, {5: 10_000})),
    Trace(
        name="ramp",
        what="up to 600/s within 10 minutes, down within 5",
        arrivals=_shape(1200, lambda s: float(min(s, (900 - s) * 2))),
    ),
    Trace(
        name="sawtooth",
        what="from 0 to 440/s within 2 minutes, again and again",
        arrivals=_shape(900, lambda s: 440 * (s % 120) / 120),
    ),
    Trace(
        name="steady",
        what="120/s",
        arrivals=_shape(900, lambda s: 120.0),
        plateaus=(Plateau(first=120, last=900, needed=3),),
    ),
    Trace(name="daily wave", what="20 to 380/s in waves, noise 30 %", arrivals=_daily_wave()),
    Trace(
        name="bursts",
        what="2,000 at once every 4 minutes, nothing between",
        arrivals=_at(1200, {second: 2000.0 for second in range(10, 1200, 240)}),
    ),
    Trace(
        name="flash crowd",
        what="20/s, for two minutes 800/s",
        arrivals=_shape(1200, lambda s: 800.0 if 300 <= s < 420 else 20.0),
    ),
    Trace(name="trickle", what="one every 7 s", arrivals=_shape(900, lambda s: float(s % 7 == 3))),
    Trace(
        name="poison",
        what="60/s for 10 minutes, one of 60 always fails",
        arrivals=_shape(1500, _between(10, 610, 60.0)),
        poison_every=60,
    ),
    Trace(
        name="poison at a peak",
        what="900/s for 2 minutes, then 20/s; one of 500 always fails",
        arrivals=_shape(1200, lambda s: 900.0 if 30 <= s < 150 else 20.0),
        poison_every=500,
    ),
    Trace(
        name="large prefetch",
        what="100/s, workers read 100 ahead",
        arrivals=_shape(900, _between(10, 800, 100.0)),
        kind=WorkerKind(prefetch=100),
    ),
    Trace(
        name="dead pod",
        what="3,000 pending with a consumer that is no pod, and 10/s",
        arrivals=_shape(900, _between(30, 700, 10.0)),
        befalls={5: _strand},
    ),
    Trace(
        name="long jobs",
        what="jobs of 16 to 64 s: 0.15/s, and 20 more every 5 minutes",
        arrivals=_shape(1200, lambda s: 20.0 if s % 300 == 60 else 0.15),
        kind=_SLOW,
        per_replica=1,
    ),
    Trace(
        name="slow start",
        what="workers take 30 s to start; 5,000 at once, then 150/s",
        arrivals=_shape(900, lambda s: 5000.0 if s == 10 else _between(60, 700, 150.0)(s)),
        kind=WorkerKind(starts_in_s=30.0),
    ),
)


def _finish(count: int, world: World) -> None:
    """Entries that the group finished before the trace begins."""
    world.group.add(count, world.now)
    world.group.deliver(count)


def _create_late(world: World) -> None:
    world.group.destroy()
    world.group.add(5000, world.now)
    world.group.create_at_end()


def _delete_ahead(world: World) -> None:
    """A producer adds three entries and deletes the second before it is delivered."""
    world.add(3)
    world.group.delete_ahead()


def _move_back(world: World) -> None:
    world.group.move_back(4000, world.now)


def _miscount(world: World) -> None:
    _finish(20_000, world)
    world.group.entries_read = 12_000


def _lose_group(world: World) -> None:
    _finish(8000, world)
    world.group.destroy()


def _restore_group(world: World) -> None:
    """A user creates it at the end and sets how many entries were read."""
    world.group.create_at_end()
    world.group.repair()


def _keep_first(world: World) -> None:
    """An entry of another group's stays at the head, whatever is deleted."""
    _finish(1, world)


LAG_CASES = (
    Trace(
        name="created at $",
        what="a group created at $ on 5,000 entries, then 3,000 at once and 10/s",
        arrivals=_shape(900, lambda s: 3000.0 if s == 30 else _between(60, 500, 10.0)(s)),
        befalls={0: _create_late},
    ),
    Trace(
        name="XDEL ahead",
        what="300/s for 30 s, one of the first is deleted before any worker runs",
        arrivals=_shape(600, _between(10, 40, 300.0)),
        befalls={11: _delete_ahead},
    ),
    Trace(
        name="SETID back",
        what="5,000 done, then set back by 4,000 by hand",
        arrivals=_at(600, {}),
        befalls={0: partial(_finish, 5000), 30: _move_back},
    ),
    Trace(
        name="delete after ack",
        what="workers delete what they acknowledged; 2,000 at once, and again",
        arrivals=_at(1200, {20: 2000.0, 450: 2000.0, 900: 2000.0}),
        deletes=True,
        befalls={0: _keep_first},
    ),
    Trace(
        name="peak on NULL lag",
        what="workers delete what they acknowledged; 200 at once, then 30,000",
        arrivals=_at(900, {20: 200.0, 300: 30_000.0}),
        deletes=True,
        befalls={0: _keep_first},
    ),
    Trace(
        name="XDEL then peak",
        what="40/s, one is deleted undelivered, then 400/s for 8 minutes",
        arrivals=_shape(900, lambda s: 400.0 if 130 <= s < 610 else _between(10, 610, 40.0)(s)),
        befalls={131: _delete_ahead},
    ),
    Trace(
        name="wrong count, quiet",
        what="entries-read 8,000 too low, no backlog, no traffic",
        arrivals=_at(900, {}),
        befalls={0: _miscount},
    ),
    Trace(
        name="wrong count, traffic",
        what="entries-read 8,000 too low, 60/s",
        arrivals=_shape(900, _between(10, 600, 60.0)),
        befalls={0: _miscount},
    ),
    Trace(
        name="group missing",
        what="a stream of 8,000 finished entries without its group for 11 minutes, then 30/s",
        arrivals=_shape(900, _between(660, 800, 30.0)),
        befalls={0: _lose_group, 655: _restore_group},
    ),
)

_BATCHES = WorkerKind(batch=25, first_read_s=3.0, pause_s=1.0)
_CONCURRENT = WorkerKind(slots=25, first_read_s=3.0)


def _set_speed(speed: float, world: World) -> None:
    world.speed = speed


def _slow_between(first: int, last: int) -> dict[int, Act]:
    return {first: partial(_set_speed, 0.4), last: partial(_set_speed, 1.0)}


def _drift(seconds: int) -> dict[int, Act]:
    """Handlers take twice as long in the middle as in the beginning and in the end."""
    return {
        second: partial(_set_speed, 0.5 + abs(second / seconds - 0.5))
        for second in range(0, seconds, 10)
    }


# Workers read 25 at a time and acknowledge them together. They ask again 1 s after an empty read,
# and read for the first time 3 s after they are ready, unless a trace differs.
WORKERS = (
    Trace(
        name="steady for an hour",
        what="120/s for an hour",
        arrivals=_shape(3630, _between(0, 3600, 120.0)),
        kind=_BATCHES,
        plateaus=(Plateau(first=120, last=3600, needed=3),),
    ),
    Trace(
        name="plateau",
        what="6,000 at once, then 400/s",
        arrivals=_shape(1230, lambda s: 6000.0 if s == 10 else _between(20, 1200, 400.0)(s)),
        kind=_BATCHES,
        plateaus=(Plateau(first=140, last=1200, needed=9),),
    ),
    Trace(
        name="slow minute",
        what="120/s; for one minute every handler takes 2.5 times as long",
        arrivals=_shape(1230, _between(0, 1200, 120.0)),
        kind=_BATCHES,
        befalls=_slow_between(300, 360),
        plateaus=(
            Plateau(first=120, last=300, needed=3),
            Plateau(first=480, last=1200, needed=3),
        ),
    ),
    Trace(
        name="slow minute, concurrent",
        what="the same with workers that handle 25 entries side by side",
        arrivals=_shape(1230, _between(0, 1200, 120.0)),
        kind=_CONCURRENT,
        befalls=_slow_between(300, 360),
        plateaus=(
            Plateau(first=120, last=300, needed=3),
            Plateau(first=480, last=1200, needed=3),
        ),
    ),
    Trace(
        name="concurrent",
        what="400/s, workers handle 25 entries side by side",
        arrivals=_shape(1830, _between(0, 1800, 400.0)),
        kind=_CONCURRENT,
        plateaus=(Plateau(first=120, last=1800, needed=9),),
    ),
    Trace(
        name="slow pod",
        what="400/s; one of the pods is ten times as slow as the others",
        arrivals=_shape(1230, _between(0, 1200, 400.0)),
        kind=replace(_BATCHES, slow_pod=3),
        plateaus=(Plateau(first=120, last=1200, needed=10),),
    ),
    Trace(
        name="slow drift",
        what="200/s; handlers become twice as slow within 15 minutes, and quick again",
        arrivals=_shape(1830, _between(0, 1800, 200.0)),
        kind=_BATCHES,
        befalls=_drift(1800),
    ),
)

TRACES = (*TRAFFIC, *LAG_CASES, *WORKERS)
