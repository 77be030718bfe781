"""Several groups with the same workers: who decides their number, and what each group asks for.

One resource leads: its limits, behavior and cool-down apply. The demand of resources in mode Follow
is combined with its own. While one of these backlogs is unknown, no worker is removed.

    leads      Sets a number: mode Auto or Manual, or a template without scaling. If several do, the
               one whose template creates the workers leads, or else the oldest.
    contends   Sets a number too, but does not lead. Its number is not used; recovery continues.
    follows    Mode Follow. Does not count in a dry run.
    uncounted  Mode Disabled, or no scaling.

Facts in, decision out. Times are seconds on a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil
from typing import Final

from pelops.api.group.scaling import Combine, ScalingMode
from pelops.api.group.stream_consumer_group import StreamConsumerGroupSpec
from pelops.domain.condition import Finding
from pelops.domain.workload import WorkloadObservation
from pelops.policy.scaling.demand import (
    Demand,
    Doubt,
    find_flood,
    judge_demand,
    report_backlog,
    report_demand,
    show_workers,
    wanted_in_doubt,
    watch_doubt,
)
from pelops.policy.scaling.measurement import Backlog, Meter, measure
from pelops.policy.status.reasons import Reason

_NAMED: Final = 5  # groups in a message; those that ask for most


class Role(StrEnum):
    """The role of a resource in scaling its workload."""

    LEADS = "Leads"
    CONTENDS = "Contends"
    FOLLOWS = "Follows"
    UNCOUNTED = "Uncounted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """How one resource would scale its workload; all claims are from one namespace."""

    name: str
    uid: str = ""
    created: str = ""  # RFC 3339 in UTC: sorts as text
    is_guest: bool = True  # it refers to the workload; False: its template creates it
    mode: ScalingMode | None = None  # None: no scaling, or its mode is invalid
    is_suspended: bool = False
    is_dry: bool = False  # in a dry run: no number is written, and its demand does not count
    is_ending: bool = False  # it is being deleted, and has no role any more

    @property
    def says_number(self) -> bool:
        """Whether it decides by itself, from its backlog or from spec.replicas."""
        if self.is_ending:
            return False
        if self.mode is None:
            return not self.is_guest
        return self.mode in (ScalingMode.AUTO, ScalingMode.MANUAL)

    @property
    def follows(self) -> bool:
        """Whether its demand counts: a dry run has no effect on workers."""
        return self.mode is ScalingMode.FOLLOW and not self.is_ending and not self.is_dry

    @property
    def counts(self) -> bool:
        """Whether it counts the demands of all groups, if it leads."""
        return self.mode is ScalingMode.AUTO and not self.is_suspended

    @property
    def order(self) -> tuple[bool, str, str]:
        """Sort key: the resource that leads comes first."""
        return self.is_guest, self.created, self.uid

    @property
    def rank(self) -> tuple[bool, bool, str, str]:
        """Sort key if not all are counted: those that are counted come first."""
        return not self.says_number, *self.order


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The role of one resource in scaling its workload, and the other resources with one."""

    role: Role
    uid: str = ""  # of the resource
    leader: Claim | None = None
    followers: tuple[Claim, ...] = ()  # by name
    others: tuple[Claim, ...] = ()  # all others that share the workload, by name
    is_dry: bool = False  # the resource is in a dry run: it does not count if it follows

    @property
    def is_shared(self) -> bool:
        """Whether other resources have the same workers."""
        return bool(self.others)

    @property
    def is_counted(self) -> bool:
        """Whether its backlog counts: it leads, or follows a leader that scales by backlog."""
        if self.role is Role.LEADS:
            return True
        leader = self.leader
        if self.role is not Role.FOLLOWS or leader is None or not leader.counts:
            return False
        return any(one.uid == self.uid for one in self.followers)


def decide_part(own: Claim, claims: Iterable[Claim]) -> Part:
    """Decide the role of a resource from the claims that are counted for its workload. Total.

    If there are too many resources, `own` may not be among the claims.
    """
    everyone = sorted(claims, key=lambda one: one.name)
    leader = min((one for one in everyone if one.says_number), key=_order, default=None)
    followers = (one for one in everyone if one.follows)
    return Part(
        role=_role(own, leader),
        uid=own.uid,
        leader=leader,
        followers=tuple(followers),
        others=tuple(one for one in everyone if one.uid != own.uid),
        is_dry=own.is_dry,
    )


def _order(claim: Claim) -> tuple[bool, str, str]:
    return claim.order


def _role(own: Claim, leader: Claim | None) -> Role:
    if own.says_number:
        return Role.LEADS if leader is not None and leader.uid == own.uid else Role.CONTENDS
    return Role.FOLLOWS if own.mode is ScalingMode.FOLLOW else Role.UNCOUNTED


def explain_part(part: Part, target: str) -> Finding:
    """Return which resource scales instead of one that does not lead, without changing numbers."""
    if part.leader is None:
        if part.role is Role.FOLLOWS:
            return _find(Reason.LEADER_MISSING, _LEADER_MISSING.format(target=target))
        return _find(Reason.SCALING_DISABLED, _DISABLED)
    leads = f"StreamConsumerGroup {part.leader.name} leads the scaling of {target}"
    if part.role is Role.CONTENDS:
        why = "is older" if part.leader.is_guest else "has the spec.template of the workers"
        return _find(Reason.CONFLICT, f"{leads}, because it {why}{_CONTENDS}")
    if part.role is not Role.FOLLOWS:
        return _find(Reason.SCALING_DISABLED, f"{leads}{_UNCOUNTED}")
    if part.leader.is_suspended:
        return _find(Reason.SUSPENDED, f"{leads} and is suspended: the replicas are not changed")
    if not part.leader.counts:
        return _find(Reason.FOLLOWING, f"{leads}: its spec.replicas sets the number of workers")
    if not (part.is_counted or part.is_dry):
        return _find(Reason.LEADER_MISSING, f"{leads}{_TOO_MANY}")
    counted = _DRY if part.is_dry else ", and counts the demand of this group"
    return _find(Reason.FOLLOWING, f"{leads}{counted}{_DRY_LEADER if part.leader.is_dry else ''}")


_DISABLED: Final = "Automatic scaling is disabled: Pelops does not change the replicas"
_LEADER_MISSING: Final = (
    "spec.scaling.mode is Follow, but no other resource scales {target}, so its replicas are not "
    "changed. Set spec.scaling.mode: Auto in one of the resources with this workload"
)
_CONTENDS: Final = (
    ". Only one resource can scale a workload, so Pelops ignores spec.scaling of this resource; "
    "recovery and dead letters are not affected. Set its spec.scaling.mode: Follow, so that its "
    "demand counts"
)
_TOO_MANY: Final = (
    ", and too many resources have this workload: only the oldest count, and this one does not"
)
_DRY: Final = ", and the demand of this group does not count while spec.recovery.dryRun is true"
_DRY_LEADER: Final = ". Its spec.recovery.dryRun is true, so the replicas are not changed"
_UNCOUNTED: Final = (
    ", and the backlog of this group does not count: to count it, set spec.scaling.mode: Follow"
)


def _find(reason: Reason, message: str) -> Finding:
    return Finding(reason=reason, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is remembered of one group between two observations."""

    meter: Meter = field(default_factory=Meter)
    doubt: Doubt | None = None
    empty_since: float | None = None


def watch_group(
    watched: Watched,
    backlog: Backlog | None,
    workload: WorkloadObservation,
    *,
    workers: int,
    now: float,
) -> Watched:
    """Return what is remembered after one more observation. Total.

    `backlog` is None if the group could not be observed. `workers` is the wanted number. Workers
    may be so fast that no observation finds a backlog, so entries that were added and finished
    between two observations reset `empty_since` as well.
    """
    if backlog is None or not backlog.exists:
        return replace(watched, empty_since=None)
    last = watched.meter.last
    is_silent = last is None or last.added == backlog.added
    since = watched.empty_since if is_silent else None
    if not backlog.is_empty:
        since = None
    elif since is None:
        since = now
    ready = workload.ready
    doubt = watch_doubt(watched.doubt, backlog, workers=workers, ready=ready, now=now)
    meter = measure(watched.meter, backlog, ready=ready)
    return Watched(meter=meter, doubt=doubt, empty_since=since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The demand of one group."""

    name: str = ""  # of its resource
    backlog: Backlog | None = None  # None: not known
    demand: Demand = field(default_factory=lambda: Demand(by_backlog=0.0))
    in_doubt: int = 0  # workers to try, while more is undelivered than can be counted
    empty_since: float | None = None
    flood: str | None = None  # why further workers would not help this group
    handled_s: float | None = None  # how long a worker holds an entry on average
    recovers: bool = True
    unknown: str = "Redis cannot be observed"  # why the backlog is not known

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
    def workers(self) -> float | None:
        """The demand before rounding; None while it is not known."""
        return self.demand.unrounded if self.is_seen else None

    @property
    def holds(self) -> bool:
        """Whether workers may hold entries of it."""
        return self.backlog is not None and self.backlog.held + self.backlog.waiting > 0


def contribute(
    spec: StreamConsumerGroupSpec,
    backlog: Backlog | None,
    watched: Watched,
    *,
    ready: int,
    now: float,
) -> Contribution:
    """Return the demand of a group now, after `watch_group`. Total."""
    if spec.scaling is None or backlog is None or not backlog.exists:
        if backlog is None:
            return Contribution()
        return Contribution(unknown="the group does not exist")
    return Contribution(
        backlog=backlog,
        demand=judge_demand(spec.scaling, backlog, watched.meter.rates, ready=ready),
        in_doubt=0 if backlog.is_exact else wanted_in_doubt(watched.doubt, now=now),
        empty_since=watched.empty_since,
        flood=find_flood(watched.meter),
        handled_s=watched.meter.handling.mean_s,
        recovers=spec.recovery.is_enabled,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The demands of all groups of one workload; the backlog of at least one is known."""

    groups: tuple[Contribution, ...]
    combine: Combine = Combine.SUM

    @property
    def seen(self) -> tuple[Contribution, ...]:
        """The groups whose backlog is known, at least in part."""
        return tuple(one for one in self.groups if one.is_seen)

    @property
    def is_exact(self) -> bool:
        """Whether every backlog is known exactly; if not, no worker is removed."""
        return all(one.is_exact for one in self.groups)

    @property
    def backlog(self) -> Backlog:
        """The sum of the known backlogs, as if of one group."""
        return merge_backlogs([one.backlog for one in self.seen if one.backlog is not None])

    @property
    def empty_since(self) -> float | None:
        """Since when no group has had a backlog; None: one has, or may have."""
        since = [one.empty_since for one in self.groups]
        known = [at for at in since if at is not None]
        return max(known) if known and len(known) == len(since) else None

    @property
    def in_doubt(self) -> int:
        """Workers to try, while more is undelivered than can be counted."""
        return max((one.in_doubt for one in self.seen), default=0)

    @property
    def recovers(self) -> bool:
        """Whether recovery is enabled in all groups."""
        return all(one.recovers for one in self.groups)

    @property
    def handled_s(self) -> float | None:
        """Longest average time, over the groups, that a worker holds an entry; None: not known."""
        holding = [one for one in self.seen if one.holds] or self.seen
        times = [one.handled_s for one in holding]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    def demand(self, *, ready: int) -> float:
        """Return the workers required, before rounding. Total.

        Arrivals that would not keep one worker busy count only together with those of other
        streams; for a single worker the cool-down decides. Rates that were never proven do not
        justify more workers than are ready.
        """
        return _combine_demands(self.seen, self.combine, ready)

    @property
    def floods(self) -> tuple[Contribution, ...]:
        """The groups of whose entries further workers would only create dead letters."""
        return tuple(one for one in self.seen if one.flood is not None)

    def unflooded(self, *, ready: int) -> int:
        """Return the workers that the groups without a flood require."""
        rest = tuple(one for one in self.seen if one.flood is None)
        return ceil(_combine_demands(rest, self.combine, ready))


def _combine_demands(groups: Sequence[Contribution], how: Combine, ready: int) -> float:
    demands = [one.demand for one in groups]
    proven = _combine([one.proven for one in demands], how)
    asked = _combine([one.unrounded for one in demands], how)
    total = max(proven, min(asked, float(ready)))
    return total if total >= 1 else _combine([one.highest for one in demands], how)


def _combine(demands: Sequence[float], how: Combine) -> float:
    return sum(demands) if how is Combine.SUM else max(demands, default=0.0)


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


def merge_known(own: Backlog | None, others: Iterable[Contribution]) -> Backlog | None:
    """Return the sum of the backlogs of several groups; None if one of them is not known and the
    others are empty.
    """
    backlogs = [own, *(one.backlog for one in others)]
    known = [one for one in backlogs if one is not None]
    if not known:
        return None
    merged = merge_backlogs(known)
    return merged if len(known) == len(backlogs) or not merged.is_empty else None


def report_demands(demands: Demands, *, ready: int) -> list[str]:
    """Return clauses for users: the backlog, the demand, and what is not known."""
    backlog = demands.backlog
    if len(demands.groups) == 1:
        demand = demands.groups[0].demand
        is_asked = not backlog.is_empty or demand.highest > 0
        parts = [report_backlog(backlog), *([report_demand(demand)] if is_asked else [])]
    else:
        parts = [f"{report_backlog(backlog)}, of {len(demands.groups)} groups"]
        wanted = demands.demand(ready=ready)
        if wanted > 0:
            parts.append(f"{show_workers(ceil(wanted))} wanted by {_report_shares(demands)}")
    unseen = [one for one in demands.groups if not one.is_seen]
    if not all(one.is_exact for one in demands.seen):
        parts.append(
            "Redis does not know the number of undelivered entries, so no worker is removed"
        )
    if unseen:
        first = f"the backlog of {unseen[0].name} is unknown ({unseen[0].unknown})"
        more = f", and so is that of {len(unseen) - 1:,} more" if len(unseen) > 1 else ""
        parts.append(f"{first}{more}, so no worker is removed")
    return parts


def _report_shares(demands: Demands) -> str:
    """`the sum of orders 3.2, mailing 0.4`."""
    shares = sorted(((one.demand.unrounded, one.name) for one in demands.seen), reverse=True)
    named = ", ".join(f"{name} {show_demand(demand)}" for demand, name in shares[:_NAMED])
    more = f" and {len(shares) - _NAMED:,} more" if len(shares) > _NAMED else ""
    how = "the sum" if demands.combine is Combine.SUM else "the greatest"
    return f"{how} of {named}{more}"


def show_demand(workers: float) -> str:
    """A demand as text with at most two decimals, such as `3.25` or `4`."""
    return f"{workers:.2f}".rstrip("0").rstrip(".")
