"""When a group is swept again: by its interval, or earlier when something is about to happen.

While suspects wait for each other it is looked at quickly at first, since most are done with in no
time, and ever more rarely while nothing changes. The replica that ranks first does it; the others
come later, and find that it was done.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.controller.cache import Name
from pelops.controller.findings import Findings
from pelops.domain.recovery import Trigger
from pelops.policy.recovery import DOUBT, SOON, decide_due, next_sweep

MOST_DOUBLINGS: Final = 10
RECHECK: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Press:
    state: tuple[str, int, int]  # what would change with any progress
    rounds: int  # since it changed


class Pacing:
    """Remembers which groups are looked at earlier than their interval says, and why."""

    def __init__(self) -> None:
        self._early: dict[Name, timedelta] = {}
        self._presses: dict[Name, _Press] = {}

    def forget(self, name: Name) -> None:
        """Drop what is remembered of a resource."""
        self._early.pop(name, None)
        self._presses.pop(name, None)

    def may_repeat(self, name: Name, trigger: Trigger) -> bool:
        """Whether to offer again what nobody took: not at every look, nor in every replica."""
        is_timer = trigger in (Trigger.SWEEP, Trigger.START_UP)
        return is_timer and name not in self._presses

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

    def after(
        self, name: Name, findings: Findings, chunk: str, usual: timedelta, *, rank: int
    ) -> timedelta:
        """When to sweep again after this one, `usual` at most. `chunk` is what it began with."""
        waits = [findings.earliest or usual, DOUBT if findings.has_doubts else usual]
        if findings.is_pressing or findings.young:
            # A worker that began anew may yet write when it did, and prove what is young to be old.
            pace = SOON if findings.is_pressing else RECHECK
            waits.append(pace * self._count_rounds(name, findings, chunk) * (1 + 4 * rank))
        else:
            self._presses.pop(name, None)
        wait = min(waits)
        return usual if wait >= usual else self.come_back(name, wait)

    def _count_rounds(self, name: Name, findings: Findings, chunk: str) -> int:
        """1, and twice as many with each look that finds nothing changed."""
        state = (chunk, findings.waiting, findings.under_way + findings.young)
        before = self._presses.get(name)
        stands_still = before is not None and before.state == state and not findings.moved
        rounds = before.rounds + 1 if before is not None and stands_still else 0
        self._presses[name] = _Press(state, rounds)
        return int(2 ** min(rounds, MOST_DOUBLINGS))
