"""Recovery of an owner's stuck entries, and what all scripts of one scan have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pelops.api.group.recovery import DEFAULT_MAX_ENTRY_BYTES
from pelops.clock import MILLISECOND, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import EntryVerdict, Suspect
from pelops.errors import PelopsError, RetryBatchChanged
from pelops.redis_core.commands import text_of
from pelops.redis_core.replies.shapes import BadShape, reading
from pelops.redis_core.scripts import ScriptAnswer, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.recovery.scan_calls import (
    encode_name,
    instant,
    raise_obstacle,
    raise_refusal,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanContext:
    """What all scripts of one scan have in common."""

    keys: GroupKeys
    source: str  # the stream that is scanned: the stream itself, or the retry stream
    target: str  # where copies go
    uid: str  # of the resource that acts
    field_prefix: str
    batch: int
    actor: str  # this replica
    trigger: str
    allows_others: bool  # whether other groups may see the copies: no, but for a stream of our own
    max_entry_bytes: int = DEFAULT_MAX_ENTRY_BYTES  # a larger entry is not copied
    former_retry: str = ""  # a retry stream to which copies went before; empty: there is none

    def by_name(self) -> dict[str, str]:
        """The group's keys by the names that scripts have for them, and the two that context."""
        return {**self.keys.by_name(), "source": self.source, "target": self.target}


def ms_or_zero(moment: datetime | None) -> int:
    """As the scripts take a moment that there may not be."""
    return 0 if moment is None else to_ms(moment)


def read_stays(stays: Sequence[Reply]) -> tuple[tuple[EntryId, EntryVerdict], ...]:
    """What stayed where it is, and why."""
    return tuple((parse_entry_id(one.id), EntryVerdict(text_of(one.verdict))) for one in stays)


def raise_move_refusal(context: ScanContext, answer: ScriptAnswer) -> None:
    """Raise what a verdict means that says why nothing was moved."""
    raise_obstacle(context.keys.group, context.target, answer)
    if answer.verdict == "chunk-changed":
        raise RetryBatchChanged("another operator replica changed the retry batch at the same time")
    raise_refusal(context.keys, answer)


_RECOVER: Final = load_script("recover_entries")
MAX_BYTES: Final = 256 * 1024  # of bodies that one script reads
DEPTH: Final = 6  # batches under way at once: the server need not wait for the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOrder:
    """What is to be done with one owner's stuck entries."""

    owner: str
    reason: str  # told in the ledger
    counts_attempt: bool  # the owner failed; False: it ended on purpose
    count_from: datetime | None = None  # what was delivered earlier gets no failed attempt
    delay_before: datetime | None = None  # what was delivered earlier stays
    stages_first: bool = False  # what never failed is a suspect too
    wait: timedelta = timedelta()  # before an entry moves after its first failed attempt
    recovers: bool = True  # False: look only, at bodies and at what is known of each entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What became of a batch."""

    now: datetime
    moved: int = 0
    first_recovered: EntryId | None = None
    gone: int = 0  # bodies that were not there any more
    stays: tuple[tuple[EntryId, EntryVerdict], ...] = ()
    suspects: tuple[Suspect, ...] = ()  # left for `plan_attempts`
    co_failed: datetime | None = None  # the owner's, as the state has it
    next: str = ""  # where to go on; empty at the end

    def count(self, verdict: EntryVerdict) -> int:
        """How many entries stayed for this reason."""
        return sum(found is verdict for _, found in self.stays)


async def recover_owner(
    server: Server, context: ScanContext, order: RecoveryOrder, *, cutoff: datetime
) -> AsyncIterator[Recovered]:
    """Move what this owner was delivered before the cutoff, batch by batch.

    Raises NotOurs, NoSuchGroup, WouldDuplicate, PositionAhead, WrongType and PermissionDenied
    before the batch wrote anything; OutcomeUnknown may have moved it. Repeating is safe always.
    """
    start, depth = "-", 1
    while True:
        answers = await server.run_many(
            [_recover_call(context, order, cutoff, start=start)] * depth
        )
        batch = Recovered(now=cutoff)
        # One may be refused and a later one done: what was done is reported before the refusal.
        for answer in sorted(answers, key=lambda one: isinstance(one, PelopsError)):
            batch = _read_recovered(context, order, answer)
            yield batch
        if not batch.next:
            return
        with reading("recover_entries.lua"):
            _check_progress(start, batch.next)
        # Batches that move everything are asked for together: each takes the next entries.
        # A dry run takes none, and goes on from batch to batch.
        is_all_moved = batch.moved + batch.gone == context.batch
        depth = DEPTH if is_all_moved and not server.is_dry else 1
        start = batch.next


def _check_progress(start: str, following: str) -> None:
    """Whoever goes on where the script says comes to an end."""
    reached = EntryId.MIN if start == "-" else parse_entry_id(start.removeprefix("("))
    if parse_entry_id(following.removeprefix("(")) < reached:
        raise BadShape("a page does not continue where the page before it ended")


async def recover_entries(
    server: Server,
    context: ScanContext,
    order: RecoveryOrder,
    entries: Sequence[tuple[EntryId, timedelta]],
    *,
    cutoff: datetime | None = None,
    locks: Sequence[str] = (),
) -> Recovered:
    """Move entries of this owner that have been idle for as long as said beside each.

    With `cut`, only what was delivered before; with `locks`, one key for each entry, an entry whose
    lock exists stays. Raises as `recover_owner`.
    """
    call = _recover_call(context, order, cutoff, entries=entries, locks=locks)
    answer = (await server.run_many([call]))[0]
    return _read_recovered(context, order, answer)


def _recover_call(
    context: ScanContext,
    order: RecoveryOrder,
    cutoff: datetime | None,
    *,
    start: str = "",
    entries: Sequence[tuple[EntryId, timedelta]] = (),
    locks: Sequence[str] = (),
) -> ScriptCall:
    return _RECOVER.call(
        context,
        {"locks": locks},
        group=context.keys.group,
        uid=context.uid,
        prefix=context.field_prefix,
        batch=context.batch,
        max_bytes=MAX_BYTES,
        max_entry_bytes=context.max_entry_bytes,
        actor=context.actor,
        trigger=context.trigger,
        reason=order.reason,
        action="requeue" if order.recovers else "examine",
        counts_attempt=order.counts_attempt,
        count_from_ms=ms_or_zero(order.count_from),
        stages_first=order.stages_first,
        delay_before_ms=ms_or_zero(order.delay_before),
        wait_ms=order.wait // MILLISECOND,
        allows_others=context.allows_others,
        owner=encode_name(order.owner),
        cutoff_ms=None if cutoff is None else to_ms(cutoff),
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
    co_failed: bytes | None


@reading("recover_entries.lua")
def _read_recovered(
    context: ScanContext, order: RecoveryOrder, answer: Reply | PelopsError
) -> Recovered:
    if isinstance(answer, PelopsError):
        raise answer
    read = _RECOVER.read(answer)
    raise_move_refusal(context, read)
    done = read.into(_Done)
    moment = instant(done.now_ms)
    return Recovered(
        now=moment,
        moved=done.moved,
        first_recovered=parse_entry_id(done.first) if done.first else None,
        gone=done.gone,
        stays=read_stays(done.stays),
        suspects=tuple(_read_suspect(order.owner, one, moment) for one in done.answered),
        co_failed=instant(done.co_failed) if done.co_failed and done.co_failed.isdigit() else None,
        next=text_of(done.next),
    )


def _read_suspect(owner: str, answered: Reply, now: datetime) -> Suspect:
    attempts, isolated, offered_ms, is_open = _read_try(answered.tried)
    delivered = now - answered.idle_ms * MILLISECOND
    was_offered = offered_ms > 0 and offered_ms == to_ms(delivered)
    return Suspect(
        entry_id=parse_entry_id(answered.id),
        owner=owner,
        attempts=max(answered.retries, attempts),
        isolated_failures=isolated,
        delivered=delivered,
        deliveries=answered.deliveries,
        counts_attempt=answered.charged > 0,
        is_started=answered.charged == 2,
        was_offered=was_offered,
        is_on_offer=was_offered and is_open,
    )


def _read_try(tried: bytes | None) -> tuple[int, int, int, bool]:
    words = (tried or b"").split()
    is_open = words[3:] == [b"offered"]
    if len(words) != 3 + is_open or not all(word.isdigit() for word in words[:3]):
        return 0, 0, 0, False
    attempts, isolated, offered = map(int, words[:3])
    return attempts, isolated, offered, is_open
