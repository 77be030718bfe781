"""What a group owes, judged from one look at its stream."""

from __future__ import annotations

from pelops.domain.observation import StreamObservation
from pelops.domain.scaling import Backlog


def judge_backlog(seen: StreamObservation, *, recovers: bool) -> Backlog:
    """What the group owes, of its stream and of its retry stream together. Total.

    `recovers` tells whether spec.recovery is on: else the last report of a sweep is old, and all
    that is pending may be in work. A group that is missing owes nothing that anybody could say.
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
    """Consumers that hold entries. One that reads both streams may count twice: too many take a
    worker for slower than it is, but never for faster.
    """
    if seen.group is None or seen.group.holding is None:
        return None
    if seen.retry is None:
        return seen.group.holding
    return None if seen.retry.holding is None else seen.group.holding + seen.retry.holding


def _added(seen: StreamObservation) -> int | None:
    """Entries that others added: a copy of a stuck one is no arrival."""
    if seen.entries_added is None:
        return None
    if seen.retry is not None and not seen.retry.is_former:
        return seen.entries_added  # copies go to the retry stream
    return seen.entries_added - seen.state.totals.requeued
