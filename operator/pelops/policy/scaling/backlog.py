"""The backlog of a group at one instant: what workers have to do, and what waits for recovery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pelops.domain.stream_observation import StreamObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a group at one instant, of its stream and of its retry stream together."""

    at: datetime  # server time of the observation
    exists: bool  # whether the group exists
    undelivered: int  # exact, or a lower bound
    is_exact: bool  # whether `undelivered` is exact
    held: int  # pending entries that workers may be processing
    waiting: int  # pending entries that wait for recovery: backoff, a retry batch, a dead owner
    added: int | None  # entries ever added, copies left out; a counter that may jump. None: unknown
    dead_letters: int  # length of the dead-letter stream
    holding: int | None = None  # consumers that hold entries; None: not known

    @property
    def deliverable(self) -> int:
        """Entries that require workers."""
        return self.undelivered + self.held

    @property
    def is_empty(self) -> bool:
        """Whether workers are certainly not needed; an unknown number is not zero."""
        return self.exists and self.is_exact and self.deliverable == 0


def measure_backlog(seen: StreamObservation, *, recovers: bool) -> Backlog:
    """Return the backlog of the group, of its stream and its retry stream together. Total.

    `recovers`: spec.recovery is enabled. If not, the last scan report is outdated, and all pending
    entries may be in work. The backlog of a missing group is unknown.
    """
    backlog = seen.backlog
    if backlog is None:
        return Backlog(
            at=seen.server_time,
            exists=False,
            undelivered=0,
            is_exact=False,
            held=0,
            waiting=0,
            added=None,
            dead_letters=seen.dead_letters,
        )
    pending = backlog.pending
    waiting = min(pending, max(0, seen.state.report.waiting)) if recovers else 0
    return Backlog(
        at=seen.server_time,
        exists=True,
        undelivered=backlog.at_least,
        is_exact=backlog.lag is not None,
        held=pending - waiting,
        waiting=waiting,
        added=_added(seen),
        dead_letters=seen.dead_letters,
        holding=_holding(seen),
    )


def _holding(seen: StreamObservation) -> int | None:
    """Count the consumers that hold entries. One that reads both streams may count twice. Too high
    a count makes a worker seem slower than it is, never faster.
    """
    if seen.group is None or seen.group.holding is None:
        return None
    if seen.retry is None:
        return seen.group.holding
    return None if seen.retry.holding is None else seen.group.holding + seen.retry.holding


def _added(seen: StreamObservation) -> int | None:
    """Count the entries ever added to the stream, without copies of stuck entries."""
    if seen.entries_added is None:
        return None
    if seen.retry is not None and not seen.retry.is_former:
        return seen.entries_added  # copies go to the retry stream
    return seen.entries_added - seen.state.totals.requeued


def merge_backlogs(backlogs: Sequence[Backlog]) -> Backlog:
    """Return the sum of the backlogs of at least one group, as if of one group."""
    if len(backlogs) == 1:
        return backlogs[0]
    return Backlog(
        at=max(one.at for one in backlogs),
        exists=all(one.exists for one in backlogs),
        undelivered=sum(one.undelivered for one in backlogs),
        is_exact=all(one.is_exact for one in backlogs),
        held=sum(one.held for one in backlogs),
        waiting=sum(one.waiting for one in backlogs),
        added=None,
        dead_letters=sum(one.dead_letters for one in backlogs),
    )


def merge_known(backlogs: Iterable[Backlog | None]) -> Backlog | None:
    """Return the sum of the backlogs that are known; None if one is unknown and the others are
    empty, or all are unknown.
    """
    listed = list(backlogs)
    known = [backlog for backlog in listed if backlog is not None]
    if not known:
        return None
    merged = merge_backlogs(known)
    return merged if len(known) == len(listed) or not merged.is_empty else None
