"""Pending entries in every shape that could make a scan hold the server for long."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.pending import (
    add_entries,
    age_entries,
    count_pending,
    deliver_in_turn,
    pending_ids,
    require,
    server_ms,
)
from benchmarks.raw_redis import RawRedis
from benchmarks.scanning_replica import ScanningReplica, worker_names
from pelops.domain.naming import GroupKeys

HOUR_MS = 3_600_000
CENTURY_MS = 876_600 * HOUR_MS
TIMEOUT_S = 300
STUCK_SHARE = 0.001
MOST_MOVED = 100_000  # of the shapes in which a scan moves everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a shape is played."""

    raw: RawRedis
    keys: GroupKeys
    replica: ScanningReplica
    workers: Sequence[str]
    pending: int


Prepare: TypeAlias = Callable[[Stage, int], None]  # before the n-th scan


def nothing(stage: Stage, number: int) -> None:
    """The data set stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A data set, and what happens before each scan."""

    name: str
    what: str
    shift_ms: int | None = None  # of IDs against the present time; None: the server's own
    first_ms: int | None = None  # of IDs that are not times
    workers: int = 10
    most_pending: int | None = None
    scans: int | None = None  # how many at most; None: as many as there is time for
    prepare: Prepare = nothing


def build(shape: Shape, stage: Stage) -> None:
    """Make the data set in an empty group, and check it."""
    raw, keys = stage.raw, stage.keys
    first_ms = shape.first_ms
    if shape.shift_ms is not None:
        first_ms = server_ms(raw) + shape.shift_ms
    add_entries(raw, keys.stream, stage.pending, first_ms=first_ms)
    deliver_in_turn(raw, keys, stage.workers, stage.pending, each=100)
    require(count_pending(raw, keys), stage.pending, f"pending entries of {shape.name}")


def workers_of(shape: Shape) -> list[str]:
    """Its consumers."""
    return worker_names(shape.workers)


def _scatter(stage: Stage, number: int) -> None:
    """Have some entries, anywhere, look stuck."""
    ids = pending_ids(stage.raw, stage.keys)
    some = random.Random(number).sample(ids, max(1, round(len(ids) * STUCK_SHARE)))
    age_entries(stage.raw, stage.keys, stage.workers[0], some, TIMEOUT_S * 1000 + 5000)


def _bury_next(stage: Stage, number: int) -> None:
    stage.replica.bury(stage.workers[number % len(stage.workers)])


def _trim_and_bury(stage: Stage, number: int) -> None:
    stage.raw.call("XTRIM", stage.keys.stream, "MAXLEN", 0)
    _bury_next(stage, number)


IDLE = Shape(name="young", what="delivered just now: nothing is stuck")
SHAPES = (
    IDLE,
    Shape(name="old-and-alive", what="created an hour ago, held by live pods", shift_ms=-HOUR_MS),
    Shape(
        name="scattered-stuck",
        what="created an hour ago, 0.1 % of them idle past the limit",
        shift_ms=-HOUR_MS,
        prepare=_scatter,
    ),
    Shape(name="explicit-past", what="IDs that are no times, from 1-1 on", first_ms=1),
    Shape(name="future", what="IDs of the next century", shift_ms=CENTURY_MS),
    Shape(name="many-consumers", what="1,000 consumers", workers=1000),
    Shape(
        name="dangling",
        what="every body trimmed, the owners die one by one",
        workers=100,
        most_pending=MOST_MOVED,
        scans=50,
        prepare=_trim_and_bury,
    ),
    Shape(
        name="dead-owners",
        what="of 100 owners one dies before each scan",
        workers=100,
        scans=50,
        prepare=_bury_next,
    ),
)
