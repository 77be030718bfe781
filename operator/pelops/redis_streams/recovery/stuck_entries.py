"""Recovery of an owner's stuck entries, and the arguments that all scripts of one scan share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, NamedTuple

from pelops.api.group.recovery import DEFAULT_MAX_ENTRY_BYTES
from pelops.clock import MILLISECOND, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.recovery import EntryVerdict, Suspect
from pelops.errors import PelopsError, RetryBatchChanged
from pelops.redis_core.replies.shapes import BadShape, reading
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.recovery.scan_calls import encode_name, refused_copies
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import ScriptCall, load_script
from pelops.scripts.parts import Count, Id, IdIfAny, Moment, MomentIfAny, Raw, Span, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanContext:
    """Arguments that all scripts of one scan share."""

    keys: GroupKeys
    source: str  # the stream that is scanned: the stream itself, or the retry stream
    target: str  # where copies go
    uid: str  # of the resource that acts on the group
    field_prefix: str
    batch: int
    actor: str  # this replica
    trigger: str
    allows_others: bool  # whether other groups may get the copies; only with a retry stream
    max_entry_bytes: int = DEFAULT_MAX_ENTRY_BYTES  # a larger entry is not copied
    former_retry: str = ""  # a retry stream to which copies went before; empty: there is none

    def by_name(self) -> dict[str, str]:
        """The group's keys by the names that scripts use for them, with `source` and `target`."""
        return {**self.keys.by_name(), "source": self.source, "target": self.target}


def ms_or_zero(moment: datetime | None) -> int:
    """An optional time as an argument of the scripts."""
    return 0 if moment is None else to_ms(moment)


class Stay(NamedTuple):
    """An entry that stayed where it is, and why."""

    id: Id
    verdict: EntryVerdict


def refused_move(context: ScanContext, refusal: Refusal) -> PelopsError:
    """The error for a refusal of a script that moves entries."""
    if refusal.verdict == "chunk-changed":
        return RetryBatchChanged(
            "another operator replica changed the retry batch at the same time"
        )
    return refused_copies(context.keys, context.target, refusal)


class _Attempts(NamedTuple):
    """The state's field `try:` of an entry."""

    failed: int = 0
    isolated: int = 0  # of these
    offered_ms: int = 0
    is_open: bool = False


def _read_attempts(part: bytes | None) -> _Attempts:
    words = (part or b"").split()
    is_open = words[3:] == [b"offered"]
    if len(words) != 3 + is_open or not all(word.isdigit() for word in words[:3]):
        return _Attempts()
    return _Attempts._make([*map(int, words[:3]), is_open])


class _Examined(NamedTuple):
    """An entry that may have made its owner's process fail."""

    id: Id
    retries: Count
    idle: Span
    deliveries: Count
    charged: Count  # 1: counts as failed; 2: its worker also recorded it as started
    tried: Annotated[_Attempts, _read_attempts]
    root: Raw | None


class Recovered(NamedTuple):
    """The result of one batch."""

    verdict: Literal["done"]
    now: Moment
    next: Text  # where the next batch begins; empty at the end
    moved: Count
    first: IdIfAny  # that was moved
    gone: Count  # entries whose bodies no longer exist
    stays: list[Stay]
    examined: list[_Examined]
    co_failed: MomentIfAny  # the owner's field `crowd:` of the state

    @property
    def suspects(self) -> list[Suspect]:
        """The entries about which `plan_attempts` decides."""
        return [_read_suspect(one, self.now) for one in self.examined]

    def count(self, verdict: EntryVerdict) -> int:
        """How many entries stayed for this reason."""
        return sum(found is verdict for _, found in self.stays)


_RECOVER: Final = load_script("recover_entries", Recovered | Refusal)
MAX_BYTES: Final = 256 * 1024  # of bodies that one call of the script reads
DEPTH: Final = 6  # batches sent together, so that the server need not wait for the next one


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOrder:
    """How to recover one owner's stuck entries."""

    owner: str
    reason: str  # recorded in the ledger
    counts_attempt: bool  # the owner failed; False: it ended on purpose
    count_from: datetime | None = None  # entries delivered earlier get no failed attempt
    delay_before: datetime | None = None  # entries delivered earlier stay
    stages_first: bool = False  # entries that never failed are suspects too
    wait: timedelta = timedelta()  # backoff of an entry with failed attempts
    recovers: bool = True  # False: examine only; all entries are returned as suspects


async def recover_owner(
    server: Server, context: ScanContext, order: RecoveryOrder, *, cutoff: datetime
) -> AsyncIterator[Recovered]:
    """Move the entries that were delivered to this owner before the cutoff, batch by batch.

    Raises NotOurs, NoSuchGroup, WouldDuplicate, PositionAhead, WrongType and PermissionDenied
    before the batch wrote anything; after OutcomeUnknown it may have been moved. Repeats safely.
    """
    start, depth = "-", 1
    while True:
        answers = await server.run_many(
            [_recover_call(context, order, cutoff, start=start)] * depth
        )
        # Results come before errors: one batch may be refused and a later one executed.
        for answer in sorted(answers, key=lambda one: isinstance(one, PelopsError)):
            batch = _read_recovered(context, answer)
            yield batch
        if not batch.next:
            return
        with reading("recover_entries.lua"):
            _check_progress(start, batch.next)
        # Batches that move all their entries are sent together, as each takes the next entries.
        # A dry run moves none, so it continues batch by batch.
        is_all_moved = batch.moved + batch.gone == context.batch
        depth = DEPTH if is_all_moved and not server.is_dry else 1
        start = batch.next


def _check_progress(start: str, following: str) -> None:
    """Check that the next start does not go backward, so that the loop ends."""
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
    """Move entries of this owner, each if it has been idle for the time given with it.

    With `cutoff`, only if it was delivered before. With `locks`, one key for each entry, only if
    its lock does not exist. Raises as `recover_owner`.
    """
    call = _recover_call(context, order, cutoff, entries=entries, locks=locks)
    answer = (await server.run_many([call]))[0]
    return _read_recovered(context, answer)


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


def _read_recovered(context: ScanContext, reply: Reply | PelopsError) -> Recovered:
    if isinstance(reply, PelopsError):
        raise reply
    answer = _RECOVER.read(reply)
    if isinstance(answer, Refusal):
        raise refused_move(context, answer)
    return answer


def _read_suspect(examined: _Examined, now: datetime) -> Suspect:
    tried, delivered = examined.tried, now - examined.idle
    was_offered = 0 < tried.offered_ms == to_ms(delivered)
    return Suspect(
        entry_id=examined.id,
        attempts=max(examined.retries, tried.failed),
        isolated_failures=tried.isolated,
        delivered=delivered,
        deliveries=examined.deliveries,
        counts_attempt=examined.charged > 0,
        is_started=examined.charged == 2,
        was_offered=was_offered,
        is_on_offer=was_offered and tried.is_open,
    )
