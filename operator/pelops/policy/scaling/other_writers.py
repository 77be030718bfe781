"""Whether somebody else moves the replicas that scaling writes.

One move is a person's `kubectl scale` and is corrected; a second within ten minutes is a fight, and
whoever fights is left to it for a while. Times are seconds on a clock that never jumps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pelops.domain.workload import Target, WorkloadObservation

STALE_S: Final = 5.0  # a look may still show the number before a write
FIGHT_S: Final = 600.0  # two moves within this time are a fight
HANDS_OFF_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A number that was there until we wrote another one."""

    replicas: int
    at: float  # of our write


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A write of which nobody knows whether it happened, or yet will."""

    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What is remembered of writes, ours and others'."""

    written: int | None = None  # by us, last
    left: tuple[Left, ...] = ()  # what an old look may still show
    tried: Tried | None = None  # a write whose answer was lost: it may have happened
    uid: str | None = None  # of the workload: another one was not moved, it is new
    moves: tuple[float, ...] = ()
    hands_off_until: float | None = None

    @property
    def keeps_hands_off(self) -> bool:
        """Whether the replicas are somebody else's for now."""
        return self.hands_off_until is not None


def watch_others(others: Others, workload: WorkloadObservation, *, now: float) -> Others:
    """What is remembered after one more look at the workload. Total."""
    if others.uid != workload.uid:
        others = replace(others, uid=workload.uid, written=None, left=(), tried=None)
    if others.hands_off_until is not None:
        return others if now < others.hands_off_until else Others(uid=workload.uid)
    current = workload.wished or 0
    if others.written is None or settle(others, current, now=now) == others.written:
        return others
    if others.tried is not None and current == others.tried.after:
        return replace(others, written=current, tried=None)
    recent = (*(at for at in others.moves if at > now - FIGHT_S), now)
    until = now + HANDS_OFF_S if len(recent) > 1 else None
    return replace(others, written=None, left=(), tried=None, moves=recent, hands_off_until=until)


def settle(others: Others, current: int, *, now: float) -> int:
    """The number that is there: what was just written, when the look is older than the write."""
    if others.written is None:
        return current
    is_old = any(one.replicas == current and now - one.at < STALE_S for one in others.left)
    return others.written if is_old else current


def record_write(others: Others, *, before: int, after: int, now: float) -> Others:
    """What is remembered after a write of ours."""
    left = (*(one for one in others.left if now - one.at < STALE_S), Left(replicas=before, at=now))
    return replace(others, written=after, left=left, tried=None)


def record_try(others: Others, *, before: int, after: int) -> Others:
    """What is remembered of a write whose answer was lost: seen later, it was ours."""
    return replace(others, tried=Tried(before=before, after=after))


def late_change(before: Others, after: Others) -> int:
    """By how much a write whose answer was lost moved the replicas, once it is seen that it did."""
    tried = before.tried
    if tried is None or after.tried is not None or after.written != tried.after:
        return 0
    return tried.after - tried.before


def report_fight(target: Target) -> str:
    """Why the replicas are left alone, and what to do."""
    return (
        f"somebody else moved the replicas of {target} away from what was written here twice "
        f"within {FIGHT_S / 60:g} minutes; they are left alone for {HANDS_OFF_S / 60:g} minutes. "
        "End the other one, or set spec.scaling.mode to Off"
    )
