"""Who wrote the replicas of a workload: Pelops, or another client.

One write of another is taken for a `kubectl scale` and is corrected. A second within ten minutes is
a fight, and Pelops then leaves the replicas alone for `PAUSE_AFTER_OTHERS_S`. Times are seconds on
a monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pelops.domain.workload import Target, WorkloadObservation

STALE_S: Final = 5.0  # how long an observation may still show the number before a write
FIGHT_S: Final = 600.0  # two foreign writes within this time are a fight
PAUSE_AFTER_OTHERS_S: Final = 600.0


class Replaced(NamedTuple):
    """The number of replicas before a write of Pelops."""

    replicas: int
    at: float  # of the write


@dataclass(slots=True, kw_only=True)
class ReplicaWrites:
    """What is remembered of writes to the replicas, by Pelops and by others."""

    uid: str | None = None  # of the workload: with another uid it is a new workload
    written: int | None = None  # the last write of Pelops
    replaced: tuple[Replaced, ...] = ()  # what an observation may still show
    # Numbers before and after a write whose answer was lost: it may have happened, or may still.
    unanswered: tuple[int, int] | None = None
    foreign: tuple[float, ...] = ()  # times of writes of others
    paused_until: float | None = None

    @property
    def is_paused(self) -> bool:
        """Whether Pelops leaves the replicas to another writer."""
        return self.paused_until is not None

    def observe(self, workload: WorkloadObservation, *, now: float) -> int:
        """Note one more observation of the workload. Total.

        Return by how much a write whose answer was lost has changed the replicas: 0, unless this
        observation is the first to show it.
        """
        if self.uid != workload.uid:
            self.uid = workload.uid
            self._forget_own()
        if self.paused_until is not None:
            if now >= self.paused_until:
                self._forget_own()
                self.foreign, self.paused_until = (), None
            return 0
        observed = workload.wished or 0
        if self.written is None or self.current(observed, now=now) == self.written:
            return 0
        if self.unanswered is not None and observed == self.unanswered[1]:
            before, self.written = self.unanswered
            self.unanswered = None
            return observed - before
        self._forget_own()
        self.foreign = (*(at for at in self.foreign if at > now - FIGHT_S), now)
        if len(self.foreign) > 1:
            self.paused_until = now + PAUSE_AFTER_OTHERS_S
        return 0

    def current(self, observed: int, *, now: float) -> int:
        """Return the actual replicas: the last write, if the observation is older than it."""
        if self.written is None:
            return observed
        is_old = any(one.replicas == observed and now - one.at < STALE_S for one in self.replaced)
        return self.written if is_old else observed

    def record(self, *, before: int, after: int, now: float) -> None:
        """Record that Pelops wrote the replicas."""
        recent = (one for one in self.replaced if now - one.at < STALE_S)
        self.replaced = (*recent, Replaced(replicas=before, at=now))
        self.written, self.unanswered = after, None

    def record_unanswered(self, *, before: int, after: int) -> None:
        """Record a write whose answer was lost: if `after` is observed, Pelops wrote it."""
        self.unanswered = (before, after)

    def _forget_own(self) -> None:
        self.written, self.replaced, self.unanswered = None, (), None


def report_fight(target: Target) -> str:
    """Return a message: why the replicas are not changed, and what to do."""
    return (
        f"Another controller or user changed the replicas of {target} twice within "
        f"{FIGHT_S / 60:g} minutes after Pelops had set them: Pelops does not change them for "
        f"{PAUSE_AFTER_OTHERS_S / 60:g} minutes. Stop the other controller or user (an autoscaler, "
        "spec.replicas in Git, a script), or set spec.scaling.mode: Disabled"
    )
