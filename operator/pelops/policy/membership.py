"""Which operator replicas are members, and when one of them may decide alone for a key.

Each replica renews its own Lease and lists the Leases of all replicas. There is no leader and no
vote: for each key, every replica ranks the members that it knows (`rank_of`), and the first one
decides. Two lists may differ for a while, so four rules prevent two replicas from deciding for the
same key:

Fence     A replica decides only within VALID_S of the start of its last renewal and of its last
          LIST. After a longer stop, partition or delay it decides nothing, and must join again.
Joining   After the first renewal of its Lease, a replica waits DURATION_S for each other member in
          its LIST, because that member may not have listed the new Lease yet.
Newcomer  A member that appears in a LIST for the first time counts VALID_S after the start of the
          last LIST without it. By then no decision can rest on that older LIST. The replica that
          decided until then continues while the newcomer waits, and stops before it starts.
Expiry    A member has left when its Lease was deleted, or has not changed for its duration since
          this version was first listed. If it renews the Lease later, it is a newcomer and joins.

    S lists      l |------------- VALID_S -------------| S counts R
    R joins          c |--answer a |-------------- DURATION_S -------------| R decides

R's Lease is created at c: after l, because the LIST of S does not contain it, and before a. So S
stops before R starts, however late any answer arrives. Likewise, the last renewal of a member that
dies began before others listed it: its validity ends VALID_S later, and they wait DURATION_S.

Assumptions: a LIST contains every write that was answered before the LIST was sent; the clocks of
two replicas run at rates that differ by less than DURATION_S to VALID_S (their absolute time does
not matter, and renewTime is not read); no other client deletes the Lease of a running replica. A
write that was in progress when the fence expired may still land. The next observation of the
successor corrects it.

Every replica detects every difference. The first in rank writes at once. The others write only if
the difference still exists after their delay, so normally one replica writes, without a leader.
A wrong ranking costs a delay or a repeated write, never correctness.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

STEP = timedelta(seconds=1.5)
# For writes and passes that may be late, so that no replica overtakes a busy first one.
LONG_STEP = timedelta(seconds=15)


def rank_of(member: str, members: Iterable[str], key: str) -> int:
    """Return a member's rank for one key: 0 writes first (rendezvous hashing, Thaler 1998).

    A member that is not in the list is ranked as if it were.
    """

    def weight(name: str) -> bytes:
        return hashlib.blake2b(f"{name}\0{key}".encode(), digest_size=8).digest()

    mine = weight(member)
    return sum(1 for other in set(members) if other != member and weight(other) > mine)


def wait_for_turn(
    rank: int, differing_since: datetime, now: datetime, *, step: timedelta = STEP
) -> timedelta:
    """Return how long this replica leaves a difference to the others; zero: write now."""
    return max(timedelta(0), differing_since + rank * step - now)


VALID_S: Final = 6.0  # how long a renewal and a LIST are valid for the replica that made them
DURATION_S: Final = 8.0  # how long others trust a Lease; longer because clock rates differ


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLease:
    """The Lease of one member as a LIST shows it."""

    name: str
    holder: str
    version: str  # changes with each renewal
    duration_s: float  # set by its holder; longer in older versions of the operator
    format: int = 1  # format of the group states that it writes: pelops/domain/records/state.py


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    version: str
    since: float  # when the answer that first contained this version arrived
    counts_from: float
    is_expired: bool = False

    def expires(self, duration_s: float) -> float:
        return self.since + max(duration_s, DURATION_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What one replica knows of itself and the others; times are seconds on its own clock.

    Each pass renews the Lease, then lists all: call `renewed`, then `listed`.
    """

    identity: str
    renewed_at: float = -math.inf  # start of the last renewal that was answered
    listed_at: float = -math.inf
    joined_at: float | None = None  # when the renewal that joined was answered; None: must join
    joins: int = 0  # how often it joined
    leases: Mapping[str, SeenLease] = field(default_factory=dict)
    _known: Mapping[str, _Known] = field(default_factory=dict)
    # Members that may not have listed this replica's Lease, and until when.
    _unaware_until: Mapping[str, float] = field(default_factory=dict)

    def renewed(self, *, began: float, answered: float) -> Membership:
        """Record a renewal. If the validity expired before its answer, the replica joins again."""
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
        """Record a LIST; ignored before the first renewal."""
        if self.joined_at is None:
            return self
        others = {one.holder: one for one in leases if one.holder != self.identity}
        known = {
            name: self._update(lease, began=began, answered=answered)
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

    def _update(self, lease: SeenLease, *, began: float, answered: float) -> _Known:
        was = self._known.get(lease.holder)
        if was is not None and was.version == lease.version:
            is_expired = was.is_expired or began >= was.expires(lease.duration_s)
            return replace(was, is_expired=is_expired)
        if was is not None and not was.is_expired:
            return replace(was, version=lease.version, since=answered)
        # After joining there is no older LIST to decide by: listed_at is minus infinity then.
        counts_from = self.listed_at + VALID_S
        return _Known(version=lease.version, since=answered, counts_from=counts_from)

    @property
    def valid_until(self) -> float:
        """The time until which this replica may decide."""
        return min(self.renewed_at, self.listed_at) + VALID_S

    def members(self, now: float) -> frozenset[str]:
        """Return the members that count, including this replica."""
        counted = (
            name
            for name, each in self._known.items()
            if not each.is_expired and each.counts_from <= now
        )
        return frozenset({self.identity, *counted})

    def knows_newer(self, format_version: int) -> bool:
        """Whether another member writes a newer format, as during an upgrade."""
        return any(
            lease.format > format_version
            for name, lease in self.leases.items()
            if not self._known[name].is_expired
        )

    def is_admitted(self, now: float) -> bool:
        """Whether this replica is a member: its Lease is valid, and all others have listed it."""
        return now < self.valid_until and all(at <= now for at in self._unaware_until.values())

    def decides(self, key: str, now: float) -> bool:
        """Whether only this replica decides for the key now."""
        return self.is_admitted(now) and rank_of(self.identity, self.members(now), key) == 0

    def next_change(self, now: float) -> float:
        """Return when the next Lease may expire; infinity if none can."""
        times = (
            each.expires(self.leases[name].duration_s)
            for name, each in self._known.items()
            if not each.is_expired
        )
        return min((at for at in times if at > now), default=math.inf)

    def long_dead(self, now: float, *, after_s: float) -> list[SeenLease]:
        """Return the expired Leases that have not changed for `after_s`."""
        return [
            self.leases[name]
            for name, each in self._known.items()
            if each.is_expired and now - each.since >= after_s
        ]
