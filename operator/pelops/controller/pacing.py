"""Remembers which groups are swept earlier than by their intervals; `policy/pacing.py` says when.

The replica that ranks first does it; the others come later, and find that it was done.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from pelops.controller.versions import Name
from pelops.domain.recovery import Trigger
from pelops.policy.pacing import (
    Standstill,
    Unfinished,
    count_standstill,
    decide_due,
    decide_wait,
    next_sweep,
)


class Pacing:
    """Remembers which groups are looked at earlier than their interval says, and why."""

    def __init__(self) -> None:
        self._early: dict[Name, timedelta] = {}
        self._standstills: dict[Name, Standstill] = {}

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._early.pop(name, None)
        self._standstills.pop(name, None)

    def due(self, name: Name, interval: timedelta, trigger: Trigger, *, rank: int) -> timedelta:
        """How recent a sweep must be to be enough. What this replica wanted early is its own."""
        early = self._early.pop(name, None)
        if early is not None and rank == 0:
            return timedelta()
        return decide_due(min(interval, early or interval), is_timer=trigger is Trigger.SWEEP)

    def come_back(self, name: Name, wait: timedelta) -> timedelta:
        """Look again before the interval is over: the sweep that just began is not enough then."""
        self._early[name] = wait
        return wait

    def until_next(
        self, interval: timedelta, *, swept_at: datetime, now: datetime, rank: int
    ) -> timedelta:
        """By the interval alone."""
        return next_sweep(interval, swept_at=swept_at, now=now, rank=rank, jitter=random.random())

    def after(self, name: Name, left: Unfinished, usual: timedelta, *, rank: int) -> timedelta:
        """When to sweep again after a sweep that left this, `usual` at most."""
        standstill = count_standstill(self._standstills.pop(name, None), left)
        if standstill is not None:
            self._standstills[name] = standstill
        wait = decide_wait(left, standstill, usual, rank=rank)
        return usual if wait >= usual else self.come_back(name, wait)
