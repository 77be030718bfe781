"""How many workers the backlog requires, by each of three measures, before any limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from pelops.api.group.scaling import ScalingSpec
from pelops.domain.stream_observation import StreamObservation
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling.measurement import Backlog, Meter, Rates

# Entries do not arrive evenly, so workers need spare capacity.
MOST_BUSY: Final = 0.85
_MOST: Final = 1e6  # replicas; with a rate near zero the demand would exceed any valid number


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Workers required, not rounded, so that the tolerance can be applied."""

    by_backlog: float
    by_drain: float | None = None  # None: not configured, or no rate is known
    by_arrivals: float | None = None  # None: no rate is known
    arrivals: float = 0.0  # `by_arrivals` before limits: may be below 1, or not proven
    is_proven: bool = False  # the rate per worker; if not, arrivals add no workers

    @property
    def highest(self) -> float:
        """The greatest of them."""
        return max(self.by_backlog, self.by_drain or 0.0, self.by_arrivals or 0.0)

    @property
    def unrounded(self) -> float:
        """The greatest of them, including arrivals that would not keep one worker busy."""
        return max(self.by_backlog, self.by_drain or 0.0, self.arrivals)

    @property
    def proven(self) -> float:
        """The part of `unrounded` that justifies more workers than are ready."""
        return max(self.by_backlog, self.by_drain or 0.0, self.arrivals if self.is_proven else 0.0)


def judge_demand(scaling: ScalingSpec, backlog: Backlog, rates: Rates, *, ready: int) -> Demand:
    """Return the demand now. Total.

    Pending entries count for at most `backlogPerReplica` per ready worker, because a further worker
    could not take prefetched entries. While nothing is undelivered, they count for one worker in
    total: each already has its worker, and `find_busy_most` keeps workers that hold entries.
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
    """Return the workers required for the arrival rate; None while a rate is not known."""
    if rates.arrivals is None or not rates.per_replica:
        return None
    return min(_MOST, rates.arrivals / (rates.per_replica * MOST_BUSY))


def _by_arrivals(rates: Rates, ready: int) -> float | None:
    wanted = _served_by(rates)
    if wanted is None:
        return None
    if wanted < 1:
        return 0.0  # the cool-down decides whether the last worker stays
    # A worker that was never fully busy may have far more capacity, so do not add workers.
    return wanted if rates.is_proven else min(wanted, float(ready))


def _by_drain(work: int, within_s: int | None, rates: Rates) -> float | None:
    """Return the workers that drain the backlog in time, with entries that arrive meanwhile."""
    if within_s is None or not rates.per_replica or not rates.is_proven:
        return None
    if work == 0:
        return 0.0
    return min(_MOST, (work / within_s + (rates.arrivals or 0.0)) / rates.per_replica)


def report_demand(demand: Demand) -> str:
    """Return `13 workers wanted by backlog, 9 by drain time`, without unknown measures."""
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
    """The undelivered entries exceed the count; since when all of `workers` have been ready."""

    since: float
    workers: int


def watch_doubt(
    doubt: Doubt | None, backlog: Backlog, *, workers: int, ready: int, now: float
) -> Doubt | None:
    """Return the doubt after one more observation; None if the count is exact or zero. Total.

    `workers` is the wanted number. Time in which fewer are `ready` does not count, as it shows
    nothing about their capacity.
    """
    if backlog.is_exact or backlog.undelivered == 0:
        return None
    if doubt is None or doubt.workers != workers or ready < workers:
        return Doubt(since=now, workers=workers)
    return doubt


def wanted_in_doubt(doubt: Doubt | None, *, now: float) -> int:
    """Return half as many workers again if the doubt lasts `UNCOUNTED_PATIENCE_S`; 0 before."""
    if doubt is None or now - doubt.since < UNCOUNTED_PATIENCE_S:
        return 0
    return ceil(doubt.workers * STEP)


UNREADY_PATIENCE_S: Final = 120.0  # a slow start, an image to pull, a node to be added
LEAST_DEAD_LETTERS: Final = 10.0  # in the last minute; fewer are not significant
FLOOD: Final = 0.5  # share of dead letters among processed entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Fewer workers are ready than wanted, and since when no further one became ready."""

    since: float
    ready: int


def watch_shortage(
    shortage: Shortage | None, workload: WorkloadObservation, *, wished: int, now: float
) -> Shortage | None:
    """Return the shortage after one more observation; None if there is none. Total."""
    ready = workload.ready
    if ready >= wished:
        return None
    if shortage is None or ready > shortage.ready:
        return Shortage(since=now, ready=ready)
    return Shortage(since=shortage.since, ready=ready)


def find_hindrance(
    workload: WorkloadObservation, shortage: Shortage | None, *, now: float
) -> str | None:
    """Return why further workers would not help, for users; None if they may. Total."""
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
    """Return why further workers would not help this group, for users; None if they may. Total."""
    if meter.dead_lettered >= LEAST_DEAD_LETTERS and meter.dead_lettered >= FLOOD * meter.finished:
        return (
            f"{meter.dead_lettered / max(meter.finished, meter.dead_lettered):.0%} of the "
            "processed entries became dead letters: see the last fields of each dead letter for "
            "the reason"
        )
    return None


def judge_backlog(seen: StreamObservation, *, recovers: bool) -> Backlog:
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
