"""When the groups of a replica are scanned again."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from pelops.controller.runtime.cache import Name
from pelops.domain.recovery import Trigger
from pelops.policy.recovery.scan_interval import (
    Standstill,
    Unfinished,
    count_standstill,
    decide_due,
    decide_wait,
    next_scan,
)


class ScanSchedule:
    """Remembers the groups that are scanned before their interval is over."""

    def __init__(self) -> None:
        self._early: dict[Name, timedelta] = {}
        self._standstills: dict[Name, Standstill] = {}

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._early.pop(name, None)
        self._standstills.pop(name, None)

    def due(self, name: Name, interval: timedelta, trigger: Trigger, *, rank: int) -> timedelta:
        """The age up to which a former scan is enough; 0 if this replica planned an early one."""
        early = self._early.pop(name, None)
        if early is not None and rank == 0:
            return timedelta()
        return decide_due(min(interval, early or interval), is_timer=trigger is Trigger.SCAN)

    def plan_early(self, name: Name, wait: timedelta) -> timedelta:
        """Plan a scan after `wait`, before the interval is over."""
        self._early[name] = wait
        return wait

    def until_next(
        self, interval: timedelta, *, scanned_at: datetime, now: datetime, rank: int
    ) -> timedelta:
        """The wait by the interval alone."""
        return next_scan(
            interval, scanned_at=scanned_at, now=now, rank=rank, jitter=random.random()
        )

    def after(self, name: Name, left: Unfinished, usual: timedelta, *, rank: int) -> timedelta:
        """The wait after a scan that left this unfinished, `usual` at most."""
        standstill = count_standstill(self._standstills.pop(name, None), left)
        if standstill is not None:
            self._standstills[name] = standstill
        wait = decide_wait(left, standstill, usual, rank=rank)
        return usual if wait >= usual else self.plan_early(name, wait)
