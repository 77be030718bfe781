"""When which fault comes: a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LATEST = 0.75  # of the time: by then each fault has come once


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault of a schedule."""

    at_s: float  # from the beginning of the phase
    fault: str
    seed: int  # of all that it decides by chance


def plan_schedule(
    every_s: Mapping[str, float], *, seconds: float, seed: int
) -> Sequence[Injection]:
    """Each fault again and again, on average as often as said; the same seed, the same schedule.

    Each comes at least once when there is time for one at all.
    """
    planned = [
        injection
        for fault, mean_s in every_s.items()
        for injection in _plan_one(fault, mean_s, seconds, seed)
    ]
    return sorted(planned, key=lambda one: (one.at_s, one.fault))


def _plan_one(fault: str, mean_s: float, seconds: float, seed: int) -> list[Injection]:
    dice = random.Random(f"{seed}-{fault}")
    found: list[Injection] = []
    at_s = min(dice.uniform(0.2, 1.0) * mean_s, LATEST * seconds)
    while at_s < seconds:
        found.append(Injection(at_s=round(at_s, 3), fault=fault, seed=dice.randrange(2**32)))
        at_s += mean_s * dice.uniform(0.5, 1.5)
    return found
