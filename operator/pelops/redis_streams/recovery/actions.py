"""What the scripts of one sweep have in common: their keys, their refusals, their needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import Suspect, Verdict
from pelops.errors import ChunkChanged, PelopsError, PositionAhead, WouldDuplicate
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Part, Reply
from pelops.redis_streams.recovery.scan import (
    MILLISECOND,
    encode_name,
    instant,
    raise_refusal,
    to_ms,
)


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


_RECOVER: Final = load_script("recover_entries", writes=True)
MAX_BYTES: Final = 256 * 1024  # of bodies that one script reads
DEPTH: Final = 6  # batches under way at once: the server need not wait for the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be done with one owner's stuck entries."""

    owner: str
    reason: str  # told in the ledger
    is_charged: bool  # the owner failed; False: it ended on purpose
    charge_from: datetime | None = None  # what was delivered earlier is not charged
    held_before: datetime | None = None  # what was delivered earlier stays
    stages_first: bool = False  # what never failed is a suspect too
    wait: timedelta = timedelta()  # before an entry that is charged for the first time moves
    moves: bool = True  # False: look only, at bodies and at what is known of each entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What became of a batch."""

    now: datetime
    moved: int = 0
    first_moved: EntryId | None = None
    gone: int = 0  # bodies that were not there any more
    stays: tuple[tuple[EntryId, Verdict], ...] = ()
    suspects: tuple[Suspect, ...] = ()  # left for `plan_attempts`
    crowd: datetime | None = None  # the owner's, as the state has it
    next: str = ""  # where to go on; empty at the end

    def count(self, verdict: Verdict) -> int:
        """How many entries stayed for this reason."""
        return sum(found is verdict for _, found in self.stays)


async def recover_owner(
    server: Server, act: Act, order: Order, *, cut: datetime
) -> AsyncIterator[Recovered]:
    """Move what this owner was delivered before the cut, batch by batch.

    Raises NotOurs, NoSuchGroup, WouldDuplicate, PositionAhead, WrongType and PermissionDenied
    before the batch wrote anything; OutcomeUnknown may have moved it. Repeating is safe always.
    """
    start, depth = "-", 1
    while True:
        tail: tuple[Part, ...] = ("owner", encode_name(order.owner), to_ms(cut), start)
        answers = await server.run_many([_recover_call(act, order, tail)] * depth)
        batch = Recovered(now=cut)
        # One may be refused and a later one done: what was done is told before the refusal.
        for answer in sorted(answers, key=lambda one: isinstance(one, PelopsError)):
            batch = _read_recovered(act, order, answer)
            yield batch
        if not batch.next:
            return
        # Batches that move everything are asked for together: each takes the next entries.
        depth = DEPTH if batch.moved + batch.gone == act.batch else 1
        start = batch.next


async def recover_entries(  # noqa: PLR0913 - what is moved, and what may keep it
    server: Server,
    act: Act,
    order: Order,
    entries: Sequence[tuple[EntryId, timedelta]],
    *,
    cut: datetime | None = None,
    locks: Sequence[str] = (),
) -> Recovered:
    """Move entries of this owner that have been idle for as long as said beside each.

    With `cut`, only what was delivered before; with `locks`, one key for each entry, an entry whose
    lock exists stays. Raises as `recover_owner`.
    """
    words = (part for entry_id, idle in entries for part in (str(entry_id), idle // MILLISECOND))
    before: Part = "" if cut is None else to_ms(cut)
    tail: tuple[Part, ...] = ("ids", encode_name(order.owner), before, *words)
    answer = (await server.run_many([_recover_call(act, order, tail, locks)]))[0]
    return _read_recovered(act, order, answer)


def _recover_call(
    act: Act, order: Order, tail: tuple[Part, ...], locks: Sequence[str] = ()
) -> ScriptCall:
    return ScriptCall(
        script=_RECOVER,
        keys=(*act.names, act.keys.started, *locks),
        args=(
            *(act.keys.group, act.uid, act.field_prefix, act.batch, MAX_BYTES),
            *(act.actor, act.trigger, order.reason, "requeue" if order.moves else "examine"),
            int(order.is_charged),
            *(ms_or_zero(order.charge_from), int(order.stages_first)),
            *(
                ms_or_zero(order.held_before),
                order.wait // MILLISECOND,
                int(act.allows_others),
                *tail,
            ),
        ),
        needs=partial(act_needs, act),
    )


def _read_recovered(act: Act, order: Order, answer: Reply | PelopsError) -> Recovered:
    if isinstance(answer, PelopsError):
        raise answer
    verdict, *details = answer
    raise_act_refusal(act, verdict, details)
    now, following, moved, first, _, stays, gone, _, answered, crowd = details
    moment = instant(now)
    return Recovered(
        now=moment,
        moved=moved,
        first_moved=parse_entry_id(first) if first else None,
        gone=gone,
        stays=read_stays(stays),
        suspects=tuple(_read_suspect(order.owner, one, moment) for one in answered),
        crowd=instant(crowd) if crowd and crowd.isdigit() else None,
        next=following.decode(),
    )


def _read_suspect(owner: str, reply: Sequence[Reply], now: datetime) -> Suspect:
    entry_id, retries, idle, deliveries, charged, tried, _ = reply
    charges, alone, offered_ms, is_open = _read_try(tried)
    delivered = now - idle * MILLISECOND
    was_offered = offered_ms > 0 and offered_ms == to_ms(delivered)
    return Suspect(
        entry_id=parse_entry_id(entry_id),
        owner=owner,
        charges=max(retries, charges),
        alone_failures=alone,
        delivered=delivered,
        deliveries=deliveries,
        is_charged=charged > 0,
        is_marked=charged == 2,
        was_offered=was_offered,
        is_on_offer=was_offered and is_open,
    )


def _read_try(tried: bytes | None) -> tuple[int, int, int, bool]:
    words = (tried or b"").split()
    is_open = words[3:] == [b"offered"]
    if len(words) != 3 + is_open or not all(word.isdigit() for word in words[:3]):
        return 0, 0, 0, False
    charges, alone, offered = map(int, words[:3])
    return charges, alone, offered, is_open
