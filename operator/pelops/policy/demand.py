"""How many workers what is owed asks for, by each of three measures, before any limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from pelops.api.scaling import ScalingSpec
from pelops.domain.scaling import Backlog, Rates

# A fleet that is busy all the time has no room for chance: entries do not come evenly.
MOST_BUSY: Final = 0.85
_MOST: Final = 1e6  # replicas; a rate near zero must not ask for more than can be written down


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Workers asked for; parts of one are kept, so that tolerance can judge them."""

    by_backlog: float
    by_drain: float | None = None  # None: not asked for, or no rate is known
    by_arrivals: float | None = None  # None: no rate is known

    @property
    def highest(self) -> float:
        """The greatest of them."""
        return max(self.by_backlog, self.by_drain or 0.0, self.by_arrivals or 0.0)


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
    )


def _by_arrivals(rates: Rates, ready: int) -> float | None:
    if rates.arrivals is None or not rates.per_replica:
        return None
    wanted = min(_MOST, rates.arrivals / (rates.per_replica * MOST_BUSY))
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


def tell_demand(demand: Demand) -> str:
    """`13 wanted by backlog, 9 by drain time, 4 by arrivals`; what is not known is left out."""
    parts = [f"{ceil(demand.by_backlog):,} wanted by backlog"]
    if demand.by_drain is not None:
        parts.append(f"{ceil(demand.by_drain):,} by drain time")
    if demand.by_arrivals:
        parts.append(f"{ceil(demand.by_arrivals):,} by arrivals")
    return ", ".join(parts)


def tell_backlog(backlog: Backlog) -> str:
    """`1,240 owed: 1,000 undelivered + 240 pending with live workers`."""
    later = f"; {backlog.waiting:,} more wait for recovery" if backlog.waiting else ""
    if backlog.is_nothing_owed:
        return f"nothing owed{later}"
    least = "" if backlog.is_exact else "at least "
    return (
        f"{least}{backlog.owed:,} owed: {least}{backlog.undelivered:,} undelivered + "
        f"{backlog.held:,} pending with live workers{later}"
    )
