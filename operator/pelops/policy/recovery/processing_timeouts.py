"""When a pending entry counts as stuck, and the retry rules that the resource sets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pelops.api.group.recovery import RecoverySpec
from pelops.domain.recovery import Cutoff, Death, LivenessReason
from pelops.policy.recovery.attempts import Backoff, Rules

AFTER_A_START: Final = timedelta(minutes=1)  # exceeds the clock skew of any node
EVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingTimeouts:
    """How long an entry may be idle before it counts as stuck, depending on its owner."""

    alive: timedelta  # the owner's pod is alive, or may be
    unknown: timedelta  # the owner's name matches no pod
    unlocked: timedelta | None  # the entry's lock does not exist; None: locks are not used

    @property
    def smallest(self) -> timedelta:
        """The shortest idle time at which an entry can count as stuck."""
        if self.unlocked is not None:
            return self.unlocked
        return min(self.alive, self.unknown)

    def limit(self, *, is_unknown: bool, is_unowned: bool) -> timedelta:
        """Return the timeout for one owner; zero if the entry was given back to the group."""
        if is_unowned:
            return timedelta()
        if self.unlocked is not None:
            return self.unlocked
        return self.unknown if is_unknown else self.alive


def decide_processing_timeouts(recovery: RecoverySpec) -> ProcessingTimeouts:
    """Return the timeouts that a resource sets."""
    alive = timedelta(seconds=recovery.processing_timeout_seconds)
    shorter = recovery.unmatched_consumer_timeout_seconds
    return ProcessingTimeouts(
        alive=alive,
        unknown=alive if shorter is None else timedelta(seconds=shorter),
        unlocked=timedelta(seconds=recovery.lock_free_seconds) if recovery.locks else None,
    )


def decide_rules(recovery: RecoverySpec) -> Rules:
    """Return the retry rules that a resource sets."""
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
    """Return how the owner of idle entries failed; `cutoff` is None if its name matches no pod.

    Idle entries always count as failed attempts. If the process was killed, the evidence is weaker:
    it may only have held them.
    """
    if cutoff is None or cutoff.reason is LivenessReason.ALIVE:
        return Death.CRASHED
    return Death.KILLED if cutoff.death is Death.KILLED else Death.CRASHED


def decide_process_since(cutoff: Cutoff | None, master_since: datetime | None) -> datetime | None:
    """Return since when deliveries certainly went to the process that runs now; None: unknown.

    `cutoff` is None if the owner's name matches no pod: then any process of that name counts.
    """
    if cutoff is None or cutoff.reason is LivenessReason.ALIVE:
        return EVER
    if cutoff.reason is LivenessReason.MASTER_CHANGED and master_since is not None:
        return master_since + AFTER_A_START  # its container started before that
    return None if cutoff.at is None else cutoff.at + AFTER_A_START


def counts_attempt(death: Death) -> bool:
    """Whether an entry may have caused this end of its process."""
    return death is not Death.PLANNED
