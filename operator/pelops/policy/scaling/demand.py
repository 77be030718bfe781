"""How many workers the backlog asks for, by each of three measures, before any limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from pelops.api.group.scaling import ScalingSpec
from pelops.domain.stream_observation import StreamObservation
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling.measurement import Backlog, Meter, Rates

# A fleet that is busy all the time has no room for chance: entries do not come evenly.
MOST_BUSY: Final = 0.85
_MOST: Final = 1e6  # replicas; a rate near zero must not ask for more than can be written down


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Workers asked for; parts of one are kept, so that tolerance can judge them."""

    by_backlog: float
    by_drain: float | None = None  # None: not asked for, or no rate is known
    by_arrivals: float | None = None  # None: no rate is known
    arrivals: float = 0.0  # the same before it is limited: less than one worker, or not proven
    is_proven: bool = False  # the rate of a worker: else arrivals are no reason to grow

    @property
    def highest(self) -> float:
        """The greatest of them."""
        return max(self.by_backlog, self.by_drain or 0.0, self.by_arrivals or 0.0)

    @property
    def unrounded(self) -> float:
        """The greatest of them, with arrivals that alone would not keep one worker busy."""
        return max(self.by_backlog, self.by_drain or 0.0, self.arrivals)

    @property
    def proven(self) -> float:
        """Of `unrounded`, what is a reason to have more workers than are ready."""
        return max(self.by_backlog, self.by_drain or 0.0, self.arrivals if self.is_proven else 0.0)


def judge_demand(scaling: ScalingSpec, backlog: Backlog, rates: Rates, *, ready: int) -> Demand:
    """What is asked for now. Total.

    Pending entries count as one worker's worth for each ready worker at most: a full buffer of
    prefetched entries is no reason for a further worker, who could not take any of them. While
    nothing else waits they count as one worker's worth in all: each has its worker already, and
    who holds them for long is kept for that reason alone (`find_busy_most`).
    """
    each = scaling.backlog_per_replica
    workers = max(1, ready) if backlog.undelivered else 1
    work = backlog.undelivered + min(backlog.held, workers * each)
    return Demand(
        by_backlog=work / each,
        by_drain=_by_drain(work, scaling.drain_within_seconds, rates),
        by_arrivals=_by_arrivals(rates, ready),
        arrivals=_served_by(rates) or 0.0,
        is_proven=rates.is_proven,
    )


def _served_by(rates: Rates) -> float | None:
    """Workers that would serve what arrives; None while a rate is not known."""
    if rates.arrivals is None or not rates.per_replica:
        return None
    return min(_MOST, rates.arrivals / (rates.per_replica * MOST_BUSY))


def _by_arrivals(rates: Rates, ready: int) -> float | None:
    wanted = _served_by(rates)
    if wanted is None:
        return None
    if wanted < 1:
        return 0.0  # whether the last worker stays is the cool-down's to say
    # A worker that was never seen with enough to do may be able to do far more: no reason to grow.
    return wanted if rates.is_proven else min(wanted, float(ready))


def _by_drain(work: int, within_s: int | None, rates: Rates) -> float | None:
    """What comes meanwhile has to be done as well."""
    if within_s is None or not rates.per_replica or not rates.is_proven:
        return None
    if work == 0:
        return 0.0
    return min(_MOST, (work / within_s + (rates.arrivals or 0.0)) / rates.per_replica)


def report_demand(demand: Demand) -> str:
    """`13 workers wanted by backlog, 9 by drain time`; what is not known is left out."""
    parts = [f"{show_workers(ceil(demand.by_backlog))} wanted by backlog"]
    if demand.by_drain is not None:
        parts.append(f"{ceil(demand.by_drain):,} by drain time")
    if demand.by_arrivals:
        parts.append(f"{ceil(demand.by_arrivals):,} by arrivals")
    return ", ".join(parts)


def show_workers(count: int) -> str:
    """`1 worker`, `1,240 workers`."""
    return "1 worker" if count == 1 else f"{count:,} workers"


def report_backlog(backlog: Backlog) -> str:
    """`backlog 1,240: 1,000 undelivered + 240 pending with live workers`."""
    later = f"; {backlog.waiting:,} more wait for recovery" if backlog.waiting else ""
    if backlog.is_empty:
        return f"no backlog{later}"
    least = "" if backlog.is_exact else "at least "
    return (
        f"backlog {least}{backlog.deliverable:,}: {least}{backlog.undelivered:,} undelivered + "
        f"{backlog.held:,} pending with live workers{later}"
    )


UNCOUNTED_PATIENCE_S: Final = 15.0
STEP: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """More is undelivered than was counted, and since when all of so many workers are at it."""

    since: float
    workers: int


def watch_doubt(
    doubt: Doubt | None, backlog: Backlog, *, workers: int, ready: int, now: float
) -> Doubt | None:
    """The doubt after one more look; None while the count is known, or nothing was counted. Total.

    `workers` are those that are asked for. Time in which not all of them are `ready` tells nothing
    of what they can do.
    """
    if backlog.is_exact or backlog.undelivered == 0:
        return None
    if doubt is None or doubt.workers != workers or ready < workers:
        return Doubt(since=now, workers=workers)
    return doubt


def wanted_in_doubt(doubt: Doubt | None, *, now: float) -> int:
    """Workers to try: half as many again when the present ones saw no end for a while; else 0."""
    if doubt is None or now - doubt.since < UNCOUNTED_PATIENCE_S:
        return 0
    return ceil(doubt.workers * STEP)


UNREADY_PATIENCE_S: Final = 120.0  # a slow start, an image to pull, a node to be added
LEAST_DEAD_LETTERS: Final = 10.0  # fewer dead letters in the last minute are chance
FLOOD: Final = 0.5  # of what is processed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Fewer workers are ready than are there to be, and since when no further one became so."""

    since: float
    ready: int


def watch_shortage(
    shortage: Shortage | None, workload: WorkloadObservation, *, wished: int, now: float
) -> Shortage | None:
    """The shortage after one more look; None while there is none. Total."""
    ready = workload.ready
    if ready >= wished:
        return None
    if shortage is None or ready > shortage.ready:
        return Shortage(since=now, ready=ready)
    return Shortage(since=shortage.since, ready=ready)


def find_hindrance(
    workload: WorkloadObservation, shortage: Shortage | None, *, now: float
) -> str | None:
    """Why further workers would not help, for people; None when they may. Total."""
    if workload.failure is not None:
        return f"pods cannot be created: {workload.failure}"
    if workload.ready == 0 and any(p.waiting_reason == "CrashLoopBackOff" for p in workload.pods):
        return "all workers crash: see the condition WorkloadReady"
    if shortage is not None and now - shortage.since >= UNREADY_PATIENCE_S:
        return (
            f"only {workload.ready} of {workload.wished} workers are ready, and none became ready "
            f"in the last {UNREADY_PATIENCE_S:g} s: see the condition WorkloadReady"
        )
    return None


def find_flood(meter: Meter) -> str | None:
    """Why further workers would not help this group, for people; None when they may. Total."""
    if meter.dead_lettered >= LEAST_DEAD_LETTERS and meter.dead_lettered >= FLOOD * meter.finished:
        return (
            f"{meter.dead_lettered / max(meter.finished, meter.dead_lettered):.0%} of the "
            "processed entries became dead letters: see the last fields of each dead letter for "
            "the reason"
        )
    return None


def judge_backlog(seen: StreamObservation, *, recovers: bool) -> Backlog:
    """The backlog of the group, of its stream and of its retry stream together. Total.

    `recovers` tells whether spec.recovery is on: else the last report of a scan is old, and all
    that is pending may be in work. A group that is missing has no backlog that anybody could say.
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
