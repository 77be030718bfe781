"""Moving stuck entries. Each script looks again at what it moves, so one replica alone moves it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import Suspect, Verdict, write_ids
from pelops.errors import ChunkChanged, PelopsError, PositionAhead, WouldDuplicate
from pelops.policy.attempts import AttemptPlan, OwnerPlan
from pelops.redis_streams.scripts import Need, ScriptCall, load_script
from pelops.redis_streams.server import Server
from pelops.redis_streams.sweeping import (
    MILLISECOND,
    decode_name,
    encode_name,
    instant,
    raise_refusal,
    to_ms,
)
from pelops.redis_streams.transport import Part, Reply

_RECOVER: Final = load_script("recover_entries", writes=True)
_SETTLE: Final = load_script("settle_suspects", writes=True)
_HAND_OVER: Final = load_script("hand_over", writes=True)
MAX_BYTES: Final = 256 * 1024  # of bodies that one script reads
DEPTH: Final = 4  # batches under way at once: the server need not wait for the next one


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

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of every script that moves."""
        keys = self.keys
        return (self.source, self.target, keys.dead_letter, keys.ledger, keys.state)


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
    last_copy: EntryId | None = None
    gone: int = 0  # bodies that were not there any more
    longest_idle: timedelta = timedelta()  # of what was moved
    stays: tuple[tuple[EntryId, Verdict], ...] = ()
    suspects: tuple[Suspect, ...] = ()  # left for `plan_attempts`
    crowd: datetime | None = None  # the owner's, as the state has it
    next: str = ""  # where to go on; empty at the end

    def count(self, verdict: Verdict) -> int:
        """How many entries stayed for this reason."""
        return sum(found is verdict for _, found in self.stays)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of suspects."""

    copied: int = 0
    dead: int = 0
    stays: tuple[tuple[EntryId, Verdict], ...] = ()
    chunk: str = ""  # as the state has it now

    def plus(self, later: Settled) -> Settled:
        """Both together."""
        return Settled(
            copied=self.copied + later.copied,
            dead=self.dead + later.dead,
            stays=self.stays + later.stays,
            chunk=later.chunk,
        )


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
        for answer in answers:
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


async def settle_suspects(
    server: Server, act: Act, plan: AttemptPlan, owner: OwnerPlan, *, reasons: Reasons
) -> Settled:
    """Carry out what was decided about one owner's suspects, a batch at a time.

    Raises ChunkChanged when another replica has decided meanwhile, else as `recover_owner`.
    """
    done = Settled(chunk=plan.chunk.written)
    for start, piece in _pieces(owner, act.batch):
        locks = reasons.locks[start : start + act.batch]
        one = await _settle_piece(server, act, plan, piece, reasons=replace(reasons, locks=locks))
        done, plan = done.plus(one), plan.after(one.chunk)
    return done


async def _settle_piece(
    server: Server, act: Act, plan: AttemptPlan, owner: OwnerPlan, *, reasons: Reasons
) -> Settled:
    items = [
        part
        for one in owner.settlements
        for part in (
            *(str(one.entry_id), one.action.value, one.charges, one.alone_failures),
            *(reasons.reason, reasons.error),
        )
    ]
    call = ScriptCall(
        script=_SETTLE,
        keys=(*act.names, *reasons.locks),
        args=(
            *(act.keys.group, act.uid, act.field_prefix, act.actor, act.trigger),
            *(int(act.allows_others), *_owner_words(plan, owner), *items),
        ),
        needs=partial(_needs, act),
    )
    verdict, *details = await server.run(call)
    _raise_refusal(act, verdict, details)
    _, copied, dead, stays, chunk = details
    return Settled(copied=copied, dead=dead, stays=_read_stays(stays), chunk=decode_name(chunk))


async def hand_over(
    server: Server, act: Act, plan: AttemptPlan, owner: OwnerPlan, *, reason: str
) -> Settled:
    """Offer one owner's entries to workers that claim; `copied` counts what was offered.

    Raises as `settle_suspects`.
    """
    done = Settled(chunk=plan.chunk.written)
    for _, piece in _pieces(owner, act.batch):
        one = await _offer_piece(server, act, plan, piece, reason=reason)
        done, plan = done.plus(one), plan.after(one.chunk)
    return done


def _pieces(owner: OwnerPlan, size: int) -> Iterator[tuple[int, OwnerPlan]]:
    """One at least: it may say no more than that they failed together."""
    for start in range(0, max(len(owner.settlements), 1), size):
        yield start, replace(owner, settlements=owner.settlements[start : start + size])


async def _offer_piece(
    server: Server, act: Act, plan: AttemptPlan, owner: OwnerPlan, *, reason: str
) -> Settled:
    items = [
        part
        for one in owner.settlements
        for part in (str(one.entry_id), one.action.value, one.charges, one.alone_failures)
    ]
    call = ScriptCall(
        script=_HAND_OVER,
        keys=(act.source, act.keys.handover, act.keys.ledger, act.keys.state),
        args=(
            *(act.keys.group, act.uid, act.actor, act.trigger),
            *(*_owner_words(plan, owner), reason, *items),
        ),
        needs=partial(_needs, act),
    )
    verdict, *details = await server.run(call)
    _raise_refusal(act, verdict, details)
    _, offered, stays, chunk, _ = details
    return Settled(copied=offered, stays=_read_stays(stays), chunk=decode_name(chunk))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """What a dead letter says, and the locks that keep an entry where it is."""

    reason: str
    error: str
    locks: tuple[str, ...] = ()


def _owner_words(plan: AttemptPlan, owner: OwnerPlan) -> tuple[Part, ...]:
    return (
        *(encode_name(owner.owner), to_ms(owner.cut), encode_name(plan.chunk.written)),
        *(write_ids(plan.kept), write_ids(plan.resolved), _ms_or_zero(owner.crowd)),
    )


def _ms_or_zero(moment: datetime | None) -> int:
    return 0 if moment is None else to_ms(moment)


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
            *(_ms_or_zero(order.charge_from), int(order.stages_first)),
            *(
                _ms_or_zero(order.held_before),
                order.wait // MILLISECOND,
                int(act.allows_others),
                *tail,
            ),
        ),
        needs=partial(_needs, act),
    )


def _read_recovered(act: Act, order: Order, answer: Reply | PelopsError) -> Recovered:
    if isinstance(answer, PelopsError):
        raise answer
    verdict, *details = answer
    _raise_refusal(act, verdict, details)
    now, following, moved, first, last, stays, gone, idlest, answered, crowd = details
    moment = instant(now)
    return Recovered(
        now=moment,
        moved=moved,
        first_moved=parse_entry_id(first) if first else None,
        last_copy=parse_entry_id(last) if last else None,
        gone=gone,
        longest_idle=idlest * MILLISECOND,
        stays=_read_stays(stays),
        suspects=tuple(_read_suspect(order.owner, one, moment) for one in answered),
        crowd=instant(crowd) if crowd and crowd.isdigit() else None,
        next=following.decode(),
    )


def _read_suspect(owner: str, reply: Sequence[Reply], now: datetime) -> Suspect:
    entry_id, retries, idle, deliveries, charged, tried, _ = reply
    charges, alone, offered_ms = _read_try(tried)
    delivered = now - idle * MILLISECOND
    return Suspect(
        entry_id=parse_entry_id(entry_id),
        owner=owner,
        charges=max(retries, charges),
        alone_failures=alone,
        delivered=delivered,
        deliveries=deliveries,
        is_charged=charged > 0,
        is_marked=charged == 2,
        was_offered=offered_ms > 0 and offered_ms == to_ms(delivered),
    )


def _read_try(tried: bytes | None) -> tuple[int, int, int]:
    words = (tried or b"").split()
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return 0, 0, 0
    charges, alone, offered = map(int, words)
    return charges, alone, offered


def _read_stays(stays: Sequence[Sequence[bytes]]) -> tuple[tuple[EntryId, Verdict], ...]:
    return tuple((parse_entry_id(one), Verdict(verdict.decode())) for one, verdict in stays)


def _raise_refusal(act: Act, verdict: bytes, details: list[Reply]) -> None:
    if verdict == b"would-duplicate":
        raise WouldDuplicate(
            f"the stream {act.target} has {details[0].decode()} consumer groups, and each would "
            "be given the copy of a stuck entry"
        )
    if verdict == b"position-ahead":
        delivered, generated = (word.decode() for word in details)
        raise PositionAhead(
            f"the group {act.keys.group} stands at {delivered}, beyond the stream's end {generated}"
        )
    if verdict == b"chunk-changed":
        raise ChunkChanged("another replica has released suspects meanwhile")
    raise_refusal(act.keys, verdict, details)


def _needs(act: Act) -> tuple[Need, ...]:
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
