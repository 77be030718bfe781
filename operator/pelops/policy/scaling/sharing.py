"""Several resources with the same workers: which one decides their number.

One resource leads: its limits, behavior and cool-down apply. The demand of resources in mode Follow
is combined with its own. While one of these backlogs is unknown, no worker is removed.

    leads      Sets a number: mode Auto or Manual, or a template without scaling. If several do, the
               one whose template creates the workers leads, or else the oldest.
    contends   Sets a number too, but does not lead. Its number is not used; recovery continues.
    follows    Mode Follow. Does not count in a dry run.
    uncounted  Mode Disabled, or no scaling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pelops.api.group.scaling import ScalingMode
from pelops.domain.condition import Finding
from pelops.policy.status.reasons import Reason


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
    def decides_replicas(self) -> bool:
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
        return not self.decides_replicas, *self.order


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
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


def decide_sharing(own: Claim, claims: Iterable[Claim]) -> Sharing:
    """Decide the role of a resource from the claims that are counted for its workload. Total.

    If there are too many resources, `own` may not be among the claims.
    """
    everyone = sorted(claims, key=lambda one: one.name)
    leader = min((one for one in everyone if one.decides_replicas), key=_order, default=None)
    followers = (one for one in everyone if one.follows)
    return Sharing(
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
    if own.decides_replicas:
        return Role.LEADS if leader is not None and leader.uid == own.uid else Role.CONTENDS
    return Role.FOLLOWS if own.mode is ScalingMode.FOLLOW else Role.UNCOUNTED


def explain_sharing(sharing: Sharing, target: str) -> Finding:
    """Return which resource scales instead of one that does not lead, without changing numbers."""
    if sharing.leader is None:
        if sharing.role is Role.FOLLOWS:
            return _find(Reason.LEADER_MISSING, _LEADER_MISSING.format(target=target))
        return _find(Reason.SCALING_DISABLED, _DISABLED)
    leads = f"StreamConsumerGroup {sharing.leader.name} leads the scaling of {target}"
    if sharing.role is Role.CONTENDS:
        why = "is older" if sharing.leader.is_guest else "has the spec.template of the workers"
        return _find(Reason.CONFLICT, f"{leads}, because it {why}{_CONTENDS}")
    if sharing.role is not Role.FOLLOWS:
        return _find(Reason.SCALING_DISABLED, f"{leads}{_UNCOUNTED}")
    if sharing.leader.is_suspended:
        return _find(Reason.SUSPENDED, f"{leads} and is suspended: the replicas are not changed")
    if not sharing.leader.counts:
        return _find(Reason.FOLLOWING, f"{leads}: its spec.replicas sets the number of workers")
    if not (sharing.is_counted or sharing.is_dry):
        return _find(Reason.LEADER_MISSING, f"{leads}{_TOO_MANY}")
    counted = _DRY if sharing.is_dry else ", and counts the demand of this group"
    return _find(
        Reason.FOLLOWING, f"{leads}{counted}{_DRY_LEADER if sharing.leader.is_dry else ''}"
    )


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
