"""What to do when more is undelivered than can be counted: a group must not stay frozen at a size
because Redis lost count. Times are seconds on a clock that never jumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from pelops.domain.scaling import Backlog

PATIENCE_S: Final = 15.0
STEP: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """More is undelivered than was counted, and since when all of so many workers are at it."""

    since: float
    workers: int


def watch_doubt(
    doubt: Doubt | None, backlog: Backlog, *, workers: int, ready: int, now: float
) -> Doubt | None:
    """The doubt after one more look; None while the count is known, or nothing was counted. Total.

    `workers` are those that are asked for. Time in which not all of them are `ready` tells nothing
    of what they can do.
    """
    if backlog.is_exact or backlog.undelivered == 0:
        return None
    if doubt is None or doubt.workers != workers or ready < workers:
        return Doubt(since=now, workers=workers)
    return doubt


def wanted_in_doubt(doubt: Doubt | None, *, now: float) -> int:
    """Workers to try: half as many again when the present ones saw no end for a while; else 0."""
    if doubt is None or now - doubt.since < PATIENCE_S:
        return 0
    return ceil(doubt.workers * STEP)
