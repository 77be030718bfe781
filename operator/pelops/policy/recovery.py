"""When a pending entry counts as stuck, and what the resource wants done with it then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.api.recovery import RecoverySpec
from pelops.domain.liveness import Death
from pelops.policy.attempts import Backoff, Rules

SOON: Final = timedelta(milliseconds=250)  # while suspects wait for each other
DOUBT: Final = timedelta(seconds=2)  # while the API server cannot be asked about an end


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLimits:
    """How long an entry may be idle before it counts as stuck, by what is known of its owner."""

    alive: timedelta  # its pod lives, or may live
    unknown: timedelta  # its owner is no pod
    unlocked: timedelta | None  # its lock is gone, whoever owns it; None: there are no locks

    @property
    def smallest(self) -> timedelta:
        """What to look for."""
        if self.unlocked is not None:
            return self.unlocked
        return min(self.alive, self.unknown)

    def limit(self, *, is_unknown: bool, is_unowned: bool) -> timedelta:
        """The limit for one owner. What was given back to the group belongs to no process."""
        if is_unowned:
            return timedelta()
        if self.unlocked is not None:
            return self.unlocked
        return self.unknown if is_unknown else self.alive


def decide_idle_limits(recovery: RecoverySpec) -> IdleLimits:
    """The limits that a resource asks for."""
    alive = timedelta(seconds=recovery.processing_timeout_seconds)
    shorter = recovery.min_idle_seconds
    return IdleLimits(
        alive=alive,
        unknown=alive if shorter is None else timedelta(seconds=shorter),
        unlocked=timedelta(seconds=recovery.lock_free_seconds) if recovery.locks else None,
    )


def decide_rules(recovery: RecoverySpec) -> Rules:
    """What the resource says of attempts."""
    backoff = recovery.backoff
    return Rules(
        max_retries=recovery.max_retries,
        backoff=Backoff(
            initial=timedelta(seconds=backoff.initial_seconds),
            factor=backoff.factor,
            longest=timedelta(seconds=backoff.max_seconds),
        ),
    )


def decide_due(interval: timedelta, *, is_timer: bool) -> timedelta:
    """How recent a sweep of another replica must be to be enough; none is for a pod's death."""
    return interval * 0.8 if is_timer else timedelta()


def next_sweep(
    interval: timedelta, *, swept_at: datetime, now: datetime, rank: int, jitter: float
) -> timedelta:
    """When this replica looks again, if nothing calls it earlier. `jitter` lies in [0, 1).

    The replica that ranks first comes first; the others find that it has swept, and wait on.
    """
    factor = 1.0 + 0.1 * jitter + 0.15 * rank
    return max(interval * factor - (now - swept_at), SOON)


def is_charged(death: Death) -> bool:
    """Whether the end of a process may be an entry's fault."""
    return death is not Death.PLANNED
