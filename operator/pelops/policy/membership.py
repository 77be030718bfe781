"""Which replicas take part, and when one of them may decide alone for a key.

Each replica renews a Lease of its own and lists those of all. There is no leader and no vote: every
replica ranks the members that it knows for each key (`turn.rank_of`), and the first decides. Two
lists may differ for a while, so four rules keep two replicas from deciding for one key:

fence     A replica decides only within VALID_S of the start of its last renewal, and of its last
          LIST. Whoever was stopped, cut off or slow for longer decides nothing; it joins anew.
joining   Who has just renewed its first Lease waits DURATION_S for each other member that its LIST
          shows, as that one may not have seen it yet. Whoever lists later does see it.
newcomer  A member that a LIST shows for the first time counts VALID_S after the start of the last
          LIST without it: when no decision can rest on that older list any more. So the member that
          decided until then goes on while the newcomer waits, and ends before it begins.
expiry    A member is gone when its Lease is, or when the Lease did not change for its duration
          since it was first seen so. Who then renews it is a newcomer, and by rule 1 joins.

    S lists      l |------------- VALID_S -------------| S counts R
    R joins          c |--answer a |-------------- DURATION_S -------------| R decides

c, when R's Lease came to be, is after l, since that LIST did not show it, and before a. Hence S
ends before R begins, however late any answer is. In the same way the last renewal of a member that
dies began before others saw it: it has ended VALID_S later, and they wait DURATION_S.

What is assumed: a LIST shows every write that was answered before it was asked; clocks of two
replicas run at rates that differ by less than DURATION_S to VALID_S (what they show does not
matter, and renewTime is not read); nobody else removes the Lease of a replica that runs. A write
that was under way when the fence fell may still land: the next look of the successor mends that.

Every replica sees every difference. The first in rank writes at once; the others only when the
difference is still there after their delay, so that normally one of them writes and nobody leads.
A wrong idea of the ranks costs a delay or a repeated write, never correctness.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

STEP = timedelta(seconds=1.5)
# Of what may be late, a status and a look without need: a busy first in rank is not overtaken.
LONG_STEP = timedelta(seconds=15)


def rank_of(member: str, members: Iterable[str], key: str) -> int:
    """The place of a member for one key: 0 writes first (rendezvous hashing, Thaler 1998).

    A member that is not in the list ranks as if it were.
    """

    def weight(name: str) -> bytes:
        return hashlib.blake2b(f"{name}\0{key}".encode(), digest_size=8).digest()

    mine = weight(member)
    return sum(1 for other in set(members) if other != member and weight(other) > mine)


def wait_for_turn(
    rank: int, differing_since: datetime, now: datetime, *, step: timedelta = STEP
) -> timedelta:
    """How long this replica still leaves the difference to others; zero means write now."""
    return max(timedelta(0), differing_since + rank * step - now)


VALID_S: Final = 6.0  # how long a renewal and a LIST hold good for who made them
DURATION_S: Final = 8.0  # how long others believe a Lease; the difference is for unequal clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLease:
    """The Lease of one member as a LIST shows it."""

    name: str
    holder: str
    version: str  # another one after each renewal
    duration_s: float  # what its holder says; an older version of the operator says more
    format: int = 1  # of the groups' states that it writes: pelops/domain/state.py


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    version: str
    since: float  # when the answer that first showed this version was there
    counts_from: float
    is_expired: bool = False

    def expires(self, duration_s: float) -> float:
        return self.since + max(duration_s, DURATION_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What one replica knows of itself and the others; times are seconds on its own clock.

    A turn is a renewal and then a LIST, both told here with the start and the answer.
    """

    identity: str
    renewed_at: float = -math.inf  # start of the last renewal that was answered
    listed_at: float = -math.inf
    joined_at: float | None = None  # answer to the renewal that it joined by; None: it must join
    joins: int = 0  # how often it did
    leases: Mapping[str, SeenLease] = field(default_factory=dict)
    _known: Mapping[str, _Known] = field(default_factory=dict)
    _unaware_until: Mapping[str, float] = field(default_factory=dict)  # who may not have seen us

    def renewed(self, *, began: float, answered: float) -> Membership:
        """After a renewal. Whose validity ran out before the answer joins anew."""
        if self.joined_at is not None and answered < self.renewed_at + VALID_S:
            return replace(self, renewed_at=began)
        return replace(
            self,
            renewed_at=began,
            listed_at=-math.inf,
            joined_at=answered,
            joins=self.joins + 1,
            _unaware_until={},
        )

    def listed(self, leases: Collection[SeenLease], *, began: float, answered: float) -> Membership:
        """After a LIST. One that no renewal preceded tells nothing."""
        if self.joined_at is None:
            return self
        others = {one.holder: one for one in leases if one.holder != self.identity}
        known = {
            name: self._take(lease, began=began, answered=answered)
            for name, lease in others.items()
        }
        alive = {name for name, each in known.items() if not each.is_expired}
        if math.isinf(self.listed_at):
            unaware = {
                name: self.joined_at + max(others[name].duration_s, DURATION_S) for name in alive
            }
        else:
            unaware = {name: until for name, until in self._unaware_until.items() if name in alive}
        return replace(self, listed_at=began, leases=others, _known=known, _unaware_until=unaware)

    def _take(self, lease: SeenLease, *, began: float, answered: float) -> _Known:
        was = self._known.get(lease.holder)
        if was is not None and was.version == lease.version:
            is_expired = was.is_expired or began >= was.expires(lease.duration_s)
            return replace(was, is_expired=is_expired)
        if was is not None and not was.is_expired:
            return replace(was, version=lease.version, since=answered)
        # After joining there is no older list to decide by: listed_at is then in the endless past.
        counts_from = self.listed_at + VALID_S
        return _Known(version=lease.version, since=answered, counts_from=counts_from)

    @property
    def valid_until(self) -> float:
        """Until when this replica may decide anything."""
        return min(self.renewed_at, self.listed_at) + VALID_S

    def members(self, now: float) -> frozenset[str]:
        """Those that count, this one included."""
        counted = (
            name
            for name, each in self._known.items()
            if not each.is_expired and each.counts_from <= now
        )
        return frozenset({self.identity, *counted})

    def knows_newer(self, format_version: int) -> bool:
        """Whether another member writes a newer format: during an upgrade, or after it."""
        return any(
            lease.format > format_version
            for name, lease in self.leases.items()
            if not self._known[name].is_expired
        )

    def is_admitted(self, now: float) -> bool:
        """Whether it takes part: its Lease holds good, and all others have seen it."""
        return now < self.valid_until and all(at <= now for at in self._unaware_until.values())

    def decides(self, key: str, now: float) -> bool:
        """Whether this replica, and no other, decides for the key now."""
        return self.is_admitted(now) and rank_of(self.identity, self.members(now), key) == 0

    def next_change(self, now: float) -> float:
        """When time alone will next change what a LIST tells: a Lease that may have run out."""
        times = (
            each.expires(self.leases[name].duration_s)
            for name, each in self._known.items()
            if not each.is_expired
        )
        return min((at for at in times if at > now), default=math.inf)

    def long_dead(self, now: float, *, after_s: float) -> list[SeenLease]:
        """Leases that did not change for so long that nobody will renew them."""
        return [
            self.leases[name]
            for name, each in self._known.items()
            if each.is_expired and now - each.since >= after_s
        ]
