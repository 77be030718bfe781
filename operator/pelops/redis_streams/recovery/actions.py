"""What the scripts of one sweep have in common: their keys, their refusals, their needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import Suspect, Verdict
from pelops.errors import ChunkChanged, PelopsError
from pelops.redis_core.scripts import ScriptAnswer, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.recovery.scan import (
    MILLISECOND,
    encode_name,
    instant,
    raise_obstacle,
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

    def by_name(self) -> dict[str, str]:
        """The group's keys by the names that scripts have for them, and the two that act."""
        return {**self.keys.by_name(), "source": self.source, "target": self.target}


def ms_or_zero(moment: datetime | None) -> int:
    """As the scripts take a moment that there may not be."""
    return 0 if moment is None else to_ms(moment)


def read_stays(stays: Sequence[Reply]) -> tuple[tuple[EntryId, Verdict], ...]:
    """What stayed where it is, and why."""
    return tuple((parse_entry_id(one.id), Verdict(one.verdict.decode())) for one in stays)


def raise_act_refusal(act: Act, answer: ScriptAnswer) -> None:
    """Raise what a verdict means that says why nothing was moved."""
    raise_obstacle(act.keys.group, act.target, answer)
    if answer.verdict == "chunk-changed":
        raise ChunkChanged("another replica has released suspects meanwhile")
    raise_refusal(act.keys, answer)


_RECOVER: Final = load_script("recover_entries")
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
        answers = await server.run_many([_recover_call(act, order, cut, start=start)] * depth)
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
    call = _recover_call(act, order, cut, entries=entries, locks=locks)
    answer = (await server.run_many([call]))[0]
    return _read_recovered(act, order, answer)


def _recover_call(  # noqa: PLR0913 - a page of the owner's entries, or entries one by one
    act: Act,
    order: Order,
    cut: datetime | None,
    *,
    start: str = "",
    entries: Sequence[tuple[EntryId, timedelta]] = (),
    locks: Sequence[str] = (),
) -> ScriptCall:
    return _RECOVER.call(
        act,
        {"locks": locks},
        group=act.keys.group,
        uid=act.uid,
        prefix=act.field_prefix,
        batch=act.batch,
        max_bytes=MAX_BYTES,
        actor=act.actor,
        trigger=act.trigger,
        reason=order.reason,
        action="requeue" if order.moves else "examine",
        charges=order.is_charged,
        charge_from_ms=ms_or_zero(order.charge_from),
        stages_first=order.stages_first,
        held_before_ms=ms_or_zero(order.held_before),
        wait_ms=order.wait // MILLISECOND,
        allows_others=act.allows_others,
        owner=encode_name(order.owner),
        cut_ms=None if cut is None else to_ms(cut),
        start=start,
        items=[{"id": str(one), "idle_ms": idle // MILLISECOND} for one, idle in entries],
    )


class _Done(NamedTuple):
    """What recover_entries.lua answers when it was not refused."""

    now_ms: bytes
    next: bytes
    moved: int
    first: bytes | None
    last: bytes | None
    stays: Sequence[Reply]
    gone: int
    idlest_ms: int
    answered: Sequence[Reply]
    crowd: bytes | None


def _read_recovered(act: Act, order: Order, answer: Reply | PelopsError) -> Recovered:
    if isinstance(answer, PelopsError):
        raise answer
    read = _RECOVER.read(answer)
    raise_act_refusal(act, read)
    done = read.into(_Done)
    moment = instant(done.now_ms)
    return Recovered(
        now=moment,
        moved=done.moved,
        first_moved=parse_entry_id(done.first) if done.first else None,
        gone=done.gone,
        stays=read_stays(done.stays),
        suspects=tuple(_read_suspect(order.owner, one, moment) for one in done.answered),
        crowd=instant(done.crowd) if done.crowd and done.crowd.isdigit() else None,
        next=done.next.decode(),
    )


def _read_suspect(owner: str, answered: Reply, now: datetime) -> Suspect:
    charges, alone, offered_ms, is_open = _read_try(answered.tried)
    delivered = now - answered.idle_ms * MILLISECOND
    was_offered = offered_ms > 0 and offered_ms == to_ms(delivered)
    return Suspect(
        entry_id=parse_entry_id(answered.id),
        owner=owner,
        charges=max(answered.retries, charges),
        alone_failures=alone,
        delivered=delivered,
        deliveries=answered.deliveries,
        is_charged=answered.charged > 0,
        is_marked=answered.charged == 2,
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
