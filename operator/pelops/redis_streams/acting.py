"""What the scripts of one sweep have in common: their keys, their refusals, their needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import Verdict
from pelops.errors import ChunkChanged, PositionAhead, WouldDuplicate
from pelops.redis_streams.scripts import Need
from pelops.redis_streams.sweeping import raise_refusal, to_ms
from pelops.redis_streams.transport import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What all scripts of one sweep have in common."""

    keys: GroupKeys
    source: str  # the stream that is swept: the stream itself, or the retry stream
    target: str  # where copies go
    uid: str  # of the resource that acts
    field_prefix: str
    batch: int
    actor: str  # this replica
    trigger: str
    allows_others: bool  # whether other groups may see the copies: no, but for a stream of our own
    former_retry: str = ""  # a retry stream to which copies went before; empty: there is none

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of every script that moves."""
        keys = self.keys
        return (self.source, self.target, keys.dead_letter, keys.ledger, keys.state)


def ms_or_zero(moment: datetime | None) -> int:
    """As the scripts take a moment that there may not be."""
    return 0 if moment is None else to_ms(moment)


def read_stays(stays: Sequence[Sequence[bytes]]) -> tuple[tuple[EntryId, Verdict], ...]:
    """What stayed where it is, and why."""
    return tuple((parse_entry_id(one), Verdict(verdict.decode())) for one, verdict in stays)


def raise_act_refusal(act: Act, verdict: bytes, details: list[Reply]) -> None:
    """Raise what a verdict means that says why nothing was moved."""
    if verdict == b"would-duplicate":
        raise WouldDuplicate(
            f"the stream {act.target} has {details[0].decode()} consumer groups, and each would "
            "be given the copy of a stuck entry"
        )
    if verdict == b"position-ahead":
        delivered = details[0].decode()
        raise PositionAhead(
            f"the group {act.keys.group} stands at {delivered}, beyond the end of {act.target}"
        )
    if verdict == b"chunk-changed":
        raise ChunkChanged("another replica has released suspects meanwhile")
    raise_refusal(act.keys, verdict, details)


def act_needs(act: Act) -> tuple[Need, ...]:
    """Every command that moving takes, for the diagnosis of an ACL."""
    group, keys = act.keys.group, act.keys
    return (
        *(Need("type", name) for name in (*act.names, keys.started)),
        Need("time"),
        Need("hget", keys.state, ("f",)),
        Need("hmget", keys.state, ("f",)),
        Need("hget", keys.started, ("f",)),
        Need("xinfo|groups", act.target),
        Need("xinfo|stream", act.target),
        Need("xpending", act.source, (group, "-", "+", 1)),
        Need("xrange", act.source, ("-", "+")),
        Need("xadd", act.target, ("*", "f", "v")),
        Need("xack", act.source, (group, "0-1")),
        *(Need("xadd", name, ("*", "f", "v")) for name in (keys.dead_letter, keys.ledger)),
        Need("hset", keys.state, ("f", "v")),
        Need("hincrby", keys.state, ("f", 1)),
        Need("hdel", keys.state, ("f",)),
    )
