"""When a pending entry counts as stuck, and the rules that the resource sets for it then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pelops.api.group.recovery import RecoverySpec
from pelops.domain.recovery import Cutoff, Death, LivenessReason
from pelops.policy.recovery.attempts import Backoff, Rules

AFTER_A_START: Final = timedelta(minutes=1)  # more than the clock of any node is off
EVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingTimeouts:
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


def decide_processing_timeouts(recovery: RecoverySpec) -> ProcessingTimeouts:
    """The limits that a resource asks for."""
    alive = timedelta(seconds=recovery.processing_timeout_seconds)
    shorter = recovery.unmatched_consumer_timeout_seconds
    return ProcessingTimeouts(
        alive=alive,
        unknown=alive if shorter is None else timedelta(seconds=shorter),
        unlocked=timedelta(seconds=recovery.lock_free_seconds) if recovery.locks else None,
    )


def decide_rules(recovery: RecoverySpec) -> Rules:
    """What the resource says of attempts."""
    backoff = recovery.backoff
    if backoff is None:
        return Rules(max_retries=recovery.max_retries)
    return Rules(
        max_retries=recovery.max_retries,
        backoff=Backoff(
            initial=timedelta(seconds=backoff.initial_seconds),
            factor=backoff.factor,
            longest=timedelta(seconds=backoff.max_seconds),
        ),
    )


def decide_idle_death(cutoff: Cutoff | None) -> Death:
    """How the owner of idle entries failed; `cut` is None when its name is no pod's.

    These always count as failed attempts, but an end may explain it better: a worker that lives has
    failed on its own, one that was killed may just have held them.
    """
    if cutoff is None or cutoff.reason is LivenessReason.ALIVE:
        return Death.CRASHED
    return Death.KILLED if cutoff.death is Death.KILLED else Death.CRASHED


def decide_process_since(cutoff: Cutoff | None, master_since: datetime | None) -> datetime | None:
    """From when on entries were certainly delivered to the process that runs now; None: unknown.

    `cut` is None when the owner's name is no pod's: then whatever answers to the name counts.
    """
    if cutoff is None or cutoff.reason is LivenessReason.ALIVE:
        return EVER
    if cutoff.reason is LivenessReason.MASTER_CHANGED and master_since is not None:
        return master_since + AFTER_A_START  # its container started before that
    return None if cutoff.at is None else cutoff.at + AFTER_A_START


def counts_attempt(death: Death) -> bool:
    """Whether the end of a process may be an entry's fault."""
    return death is not Death.PLANNED
