"""How many workers groups require, before any limit.

The demand of a group is the greatest of three measures: its backlog, the time to drain it, and its
arrival rate. The demands of all groups with the same workers are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from pelops.api.group.scaling import Combine, ScalingSpec
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.policy.scaling.backlog import Backlog, merge_backlogs
from pelops.policy.scaling.meter import Meter, Rates

# Entries do not arrive evenly, so workers need spare capacity.
MOST_BUSY: Final = 0.85
LEAST_DEAD_LETTERS: Final = 10.0  # in the last minute; fewer are not significant
FLOOD: Final = 0.5  # share of dead letters among processed entries
_MOST: Final = 1e6  # replicas; with a rate near zero the demand would exceed any valid number
_NAMED: Final = 5  # groups in a message; those that ask for most


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDemand:
    """The workers that one group requires, not rounded, so that the tolerance can be applied."""

    name: str = ""  # of its resource
    backlog: Backlog | None = None  # None: not known
    unknown: str = "Redis cannot be observed"  # why the backlog is not known
    by_backlog: float = 0.0
    by_drain: float | None = None  # None: not configured, or no rate is known
    by_arrivals: float | None = None  # None: no rate is known
    arrivals: float = 0.0  # `by_arrivals` before limits: may be below 1, or not proven
    is_proven: bool = False  # the rate per worker; if not, arrivals add no workers
    in_doubt: int = 0  # workers to try, while more is undelivered than can be counted
    empty_since: float | None = None
    flood: str | None = None  # why further workers would not help this group
    handled_s: float | None = None  # how long a worker holds an entry on average
    recovers: bool = True

    @property
    def is_seen(self) -> bool:
        """Whether the backlog is known, at least in part."""
        return self.backlog is not None and self.backlog.exists

    @property
    def is_exact(self) -> bool:
        """Whether all of the backlog is known."""
        return self.backlog is not None and self.backlog.exists and self.backlog.is_exact

    @property
    def is_idle(self) -> bool:
        """Whether the group certainly needs no worker."""
        return self.backlog is not None and self.backlog.is_empty

    @property
    def holds(self) -> bool:
        """Whether workers may hold entries of it."""
        return self.backlog is not None and self.backlog.held + self.backlog.waiting > 0

    @property
    def highest(self) -> float:
        """The greatest of the three measures."""
        return max(self.by_backlog, self.by_drain or 0.0, self.by_arrivals or 0.0)

    @property
    def unrounded(self) -> float:
        """The greatest of them, including arrivals that would not keep one worker busy."""
        return max(self.by_backlog, self.by_drain or 0.0, self.arrivals)

    @property
    def proven(self) -> float:
        """The part of `unrounded` that justifies more workers than are ready."""
        return max(self.by_backlog, self.by_drain or 0.0, self.arrivals if self.is_proven else 0.0)

    @property
    def workers(self) -> float | None:
        """The demand before rounding; None while it is not known."""
        return self.unrounded if self.is_seen else None


def measure_demand(
    spec: StreamConsumerGroupSpec,
    backlog: Backlog | None,
    meter: Meter,
    *,
    name: str = "",
    ready: int,
    now: float,
) -> GroupDemand:
    """Return the demand of a group, after `meter` observed this backlog. Total."""
    if backlog is None:
        return GroupDemand(name=name)
    if spec.scaling is None or not backlog.exists:
        return GroupDemand(name=name, unknown="the group does not exist")
    rates, work = meter.rates, _count_work(spec.scaling, backlog, ready=ready)
    served = _served_by(rates)
    return GroupDemand(
        name=name,
        backlog=backlog,
        by_backlog=work / spec.scaling.backlog_per_replica,
        by_drain=_by_drain(work, spec.scaling.drain_within_seconds, rates),
        by_arrivals=_by_arrivals(served, rates, ready),
        arrivals=served or 0.0,
        is_proven=rates.is_proven,
        in_doubt=0 if backlog.is_exact else meter.try_workers(now=now),
        empty_since=meter.empty_since,
        flood=find_flood(meter),
        handled_s=meter.handling.mean_s,
        recovers=spec.recovery.is_enabled,
    )


def _count_work(scaling: ScalingSpec, backlog: Backlog, *, ready: int) -> int:
    """Count the entries that require workers.

    Pending entries count for at most `backlogPerReplica` per ready worker, because a further worker
    could not take prefetched entries. While nothing is undelivered, they count for one worker in
    total: each already has its worker, and workers that hold entries are kept anyway.
    """
    workers = max(1, ready) if backlog.undelivered else 1
    return backlog.undelivered + min(backlog.held, workers * scaling.backlog_per_replica)


def _served_by(rates: Rates) -> float | None:
    """Return the workers required for the arrival rate; None while a rate is not known."""
    if rates.arrivals is None or not rates.per_replica:
        return None
    return min(_MOST, rates.arrivals / (rates.per_replica * MOST_BUSY))


def _by_arrivals(served: float | None, rates: Rates, ready: int) -> float | None:
    if served is None:
        return None
    if served < 1:
        return 0.0  # the cool-down decides whether the last worker stays
    # A worker that was never fully busy may have far more capacity, so do not add workers.
    return served if rates.is_proven else min(served, float(ready))


def _by_drain(work: int, within_s: int | None, rates: Rates) -> float | None:
    """Return the workers that drain the backlog in time, with entries that arrive meanwhile."""
    if within_s is None or not rates.per_replica or not rates.is_proven:
        return None
    if work == 0:
        return 0.0
    return min(_MOST, (work / within_s + (rates.arrivals or 0.0)) / rates.per_replica)


def find_flood(meter: Meter) -> str | None:
    """Return why further workers would not help this group, for users; None if they may. Total."""
    if meter.dead_lettered >= LEAST_DEAD_LETTERS and meter.dead_lettered >= FLOOD * meter.finished:
        return (
            f"{meter.dead_lettered / max(meter.finished, meter.dead_lettered):.0%} of the "
            "processed entries became dead letters: see the last fields of each dead letter for "
            "the reason"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDemand:
    """The demands of all groups of one workload; the first is that of the resource that leads."""

    groups: tuple[GroupDemand, ...]
    combine: Combine = Combine.SUM

    @property
    def seen(self) -> tuple[GroupDemand, ...]:
        """The groups whose backlog is known, at least in part."""
        return tuple(group for group in self.groups if group.is_seen)

    @property
    def is_exact(self) -> bool:
        """Whether every backlog is known exactly; if not, no worker is removed."""
        return all(group.is_exact for group in self.groups)

    @property
    def backlog(self) -> Backlog:
        """The sum of the known backlogs, as if of one group; at least one must be known."""
        return merge_backlogs([group.backlog for group in self.seen if group.backlog is not None])

    @property
    def empty_since(self) -> float | None:
        """Since when no group has had a backlog; None: one has, or may have."""
        since = [group.empty_since for group in self.groups]
        known = [at for at in since if at is not None]
        return max(known) if known and len(known) == len(since) else None

    @property
    def in_doubt(self) -> int:
        """Workers to try, while more is undelivered than can be counted."""
        return max((group.in_doubt for group in self.seen), default=0)

    @property
    def recovers(self) -> bool:
        """Whether recovery is enabled in all groups."""
        return all(group.recovers for group in self.groups)

    @property
    def handled_s(self) -> float | None:
        """Longest average time, over the groups, that a worker holds an entry; None: not known."""
        holding = [group for group in self.seen if group.holds] or self.seen
        times = [group.handled_s for group in holding]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    @property
    def floods(self) -> tuple[GroupDemand, ...]:
        """The groups of whose entries further workers would only create dead letters."""
        return tuple(group for group in self.seen if group.flood is not None)

    def workers(self, *, ready: int) -> float:
        """Return the workers required, before rounding. Total.

        Arrivals that would not keep one worker busy count only together with those of other
        streams; for a single worker the cool-down decides. Rates that were never proven do not
        justify more workers than are ready.
        """
        return _combine_demands(self.seen, self.combine, ready)

    def workers_without_floods(self, *, ready: int) -> int:
        """Return the workers that the groups without a flood require."""
        rest = tuple(group for group in self.seen if group.flood is None)
        return ceil(_combine_demands(rest, self.combine, ready))


def _combine_demands(groups: Sequence[GroupDemand], how: Combine, ready: int) -> float:
    proven = _combine([group.proven for group in groups], how)
    asked = _combine([group.unrounded for group in groups], how)
    total = max(proven, min(asked, float(ready)))
    return total if total >= 1 else _combine([group.highest for group in groups], how)


def _combine(demands: Sequence[float], how: Combine) -> float:
    return sum(demands) if how is Combine.SUM else max(demands, default=0.0)


def report_demand(demand: WorkloadDemand, *, ready: int) -> list[str]:
    """Return clauses for users: the backlog, the demand, and what is not known."""
    backlog = demand.backlog
    if len(demand.groups) == 1:
        own = demand.groups[0]
        is_asked = not backlog.is_empty or own.highest > 0
        parts = [report_backlog(backlog), *([_report_measures(own)] if is_asked else [])]
    else:
        parts = [f"{report_backlog(backlog)}, of {len(demand.groups)} groups"]
        wanted = demand.workers(ready=ready)
        if wanted > 0:
            parts.append(f"{show_workers(ceil(wanted))} wanted by {_report_shares(demand)}")
    unseen = [group for group in demand.groups if not group.is_seen]
    if not all(group.is_exact for group in demand.seen):
        parts.append(
            "Redis does not know the number of undelivered entries, so no worker is removed"
        )
    if unseen:
        first = f"the backlog of {unseen[0].name} is unknown ({unseen[0].unknown})"
        more = f", and so is that of {len(unseen) - 1:,} more" if len(unseen) > 1 else ""
        parts.append(f"{first}{more}, so no worker is removed")
    return parts


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


def _report_measures(demand: GroupDemand) -> str:
    """`13 workers wanted by backlog, 9 by drain time`, without unknown measures."""
    parts = [f"{show_workers(ceil(demand.by_backlog))} wanted by backlog"]
    if demand.by_drain is not None:
        parts.append(f"{ceil(demand.by_drain):,} by drain time")
    if demand.by_arrivals:
        parts.append(f"{ceil(demand.by_arrivals):,} by arrivals")
    return ", ".join(parts)


def _report_shares(demand: WorkloadDemand) -> str:
    """`the sum of orders 3.2, mailing 0.4`."""
    shares = sorted(((group.unrounded, group.name) for group in demand.seen), reverse=True)
    named = ", ".join(f"{name} {show_demand(workers)}" for workers, name in shares[:_NAMED])
    more = f" and {len(shares) - _NAMED:,} more" if len(shares) > _NAMED else ""
    how = "the sum" if demand.combine is Combine.SUM else "the greatest"
    return f"{how} of {named}{more}"


def show_workers(count: int) -> str:
    """`1 worker`, `1,240 workers`."""
    return "1 worker" if count == 1 else f"{count:,} workers"


def show_demand(workers: float) -> str:
    """A demand as text with at most two decimals, such as `3.25` or `4`."""
    return f"{workers:.2f}".rstrip("0").rstrip(".")
