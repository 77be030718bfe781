"""Retries, dead-letters or offers suspects as decided, and reviews what became of the offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from pelops.clock import MILLISECOND, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.recovery import FINISHED, PARALLEL, EntryVerdict, Offers, write_ids
from pelops.policy.recovery.attempts import AttemptPlan, OwnerPlan, Settlement
from pelops.policy.recovery.scan_interval import FIRST_PAUSE, LONGEST_PAUSE
from pelops.redis_core.commands import Part
from pelops.redis_core.replies.shapes import BadShape, reading
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import encode_name, refused
from pelops.redis_streams.recovery.stuck_entries import (
    ScanContext,
    Stay,
    ms_or_zero,
    refused_move,
)
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.parts import Count, Moment, MomentIfAny, Name, Raw, Text


class _Settled(NamedTuple):
    verdict: Literal["done"]
    now: Moment
    copied: Count
    dead: Count
    stays: list[Stay]
    retry_batch: Name


class _Offered(NamedTuple):
    verdict: Literal["done"]
    now: Moment
    offered: Count
    stays: list[Stay]
    retry_batch: Name
    how: Raw  # nacked or announced


_SETTLE: Final = load_script("settle_suspects", _Settled | Refusal)
_OFFER: Final = load_script("offer_entries", _Offered | Refusal)
MOST_SETTLED: Final = 40  # suspects per call: a dead letter costs the server 0.04 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result for some suspects."""

    copied: int = 0
    dead: int = 0
    stays: tuple[Stay, ...] = ()
    retry_batch: str = ""  # the state's field after the call

    def plus(self, later: Settled) -> Settled:
        """The sum of both results."""
        return Settled(
            copied=self.copied + later.copied,
            dead=self.dead + later.dead,
            stays=self.stays + later.stays,
            retry_batch=later.retry_batch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The reason and error of dead letters, and the locks that keep entries where they are."""

    reason: str
    error: str
    locks: tuple[str, ...] = ()


async def settle_suspects(
    server: Server, context: ScanContext, plan: AttemptPlan, owner: OwnerPlan, *, reasons: Reasons
) -> Settled:
    """Execute the decisions about one owner's suspects, a batch at a time.

    Raises RetryBatchChanged when another replica has changed the retry batch, else as
    `recover_owner`.
    """
    done = Settled(retry_batch=plan.retry_batch.written)
    size, left, locks = min(context.batch, MOST_SETTLED), owner.settlements, reasons.locks
    while True:
        piece = replace(owner, settlements=left[:size])
        some = replace(reasons, locks=locks[:size])
        settled, unread = _split_unread(
            await _settle_piece(server, context, plan, piece, reasons=some)
        )
        done, plan = done.plus(settled), plan.after(settled.retry_batch)
        # With large bodies a call settles only as many as it may read, but at least one.
        with reading("settle_suspects.lua"):
            _check_progress(piece, unread)
        again = [n for n, item in enumerate(left) if n >= size or item.entry_id in unread]
        left, locks = tuple(left[n] for n in again), tuple(locks[n] for n in again if locks)
        if not left:
            return done


def _check_progress(piece: OwnerPlan, unread: set[EntryId]) -> None:
    if piece.settlements and all(one.entry_id in unread for one in piece.settlements):
        raise BadShape("none of the entries was settled, and one has to be")


def _split_unread(done: Settled) -> tuple[Settled, set[EntryId]]:
    """Splits off the entries that the script left for the next call."""
    unread = {one for one, verdict in done.stays if verdict is EntryVerdict.NEXT_BATCH}
    stays = tuple(one for one in done.stays if one[0] not in unread)
    return replace(done, stays=stays), unread


async def _settle_piece(
    server: Server, context: ScanContext, plan: AttemptPlan, owner: OwnerPlan, *, reasons: Reasons
) -> Settled:
    why = {"reason": reasons.reason, "error": reasons.error}
    call = _SETTLE.call(
        context,
        {"locks": reasons.locks},
        group=context.keys.group,
        uid=context.uid,
        prefix=context.field_prefix,
        max_entry_bytes=context.max_entry_bytes,
        actor=context.actor,
        trigger=context.trigger,
        allows_others=context.allows_others,
        items=[_settlement(one) | why for one in owner.settlements],
        **_decided(plan, owner),
    )
    answer = _SETTLE.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused_move(context, answer)
    return Settled(
        copied=answer.copied,
        dead=answer.dead,
        stays=tuple(answer.stays),
        retry_batch=answer.retry_batch,
    )


async def offer_entries(
    server: Server, context: ScanContext, plan: AttemptPlan, owner: OwnerPlan, *, reason: str
) -> Settled:
    """Offer one owner's entries to workers that claim; `copied` is the number of offered entries.

    Raises as `settle_suspects`.
    """
    done = Settled(retry_batch=plan.retry_batch.written)
    for start in range(0, max(len(owner.settlements), 1), context.batch):
        some = owner.settlements[start : start + context.batch]
        piece = replace(owner, settlements=some)
        settled = await _offer_piece(server, context, plan, piece, reason=reason)
        done, plan = done.plus(settled), plan.after(settled.retry_batch)
    return done


async def _offer_piece(
    server: Server, context: ScanContext, plan: AttemptPlan, owner: OwnerPlan, *, reason: str
) -> Settled:
    call = _OFFER.call(
        context,
        group=context.keys.group,
        uid=context.uid,
        actor=context.actor,
        trigger=context.trigger,
        reason=reason,
        pause_ms=FIRST_PAUSE // MILLISECOND,
        items=list(map(_settlement, owner.settlements)),
        **_decided(plan, owner),
    )
    answer = _OFFER.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused_move(context, answer)
    return Settled(copied=answer.offered, stays=tuple(answer.stays), retry_batch=answer.retry_batch)


async def are_delivered(server: Server, context: ScanContext, ids: Iterable[EntryId]) -> bool:
    """Whether these copies were delivered to the group: its position is not before them."""
    groups = await server.execute("XINFO", "GROUPS", context.target, key=context.target)
    found = (dict(zip(one[::2], one[1::2], strict=True)) for one in groups)
    ours = next((one for one in found if one[b"name"] == context.keys.group.encode()), None)
    return ours is not None and all(
        one <= parse_entry_id(ours[b"last-delivered-id"]) for one in ids
    )


def _settlement(settlement: Settlement) -> dict[str, Part]:
    return {
        "id": str(settlement.entry_id),
        "action": settlement.action.value,
        "retries": settlement.attempts,
        "alone": settlement.isolated_failures,
    }


def _decided(plan: AttemptPlan, owner: OwnerPlan) -> dict[str, Part]:
    """The decision about an owner, as arguments of both scripts."""
    words = (PARALLEL if plan.is_parallel else "", FINISHED if plan.has_finished else "")
    return {
        "owner": encode_name(owner.owner),
        "cutoff_ms": to_ms(owner.cutoff),
        "retry_batch": encode_name(plan.retry_batch.written),
        "kept": " ".join(filter(None, (*words, write_ids(plan.kept)))),
        "resolved": write_ids(plan.resolved),
        "co_failed_ms": ms_or_zero(owner.co_failed),
    }


class _Taken(NamedTuple):
    trigger: Text
    entries: Count


class _Reviewed(NamedTuple):
    verdict: Literal["done"]
    now: Moment
    first: Text  # of the next call; empty at the end
    last: Text  # of the next call
    untaken: Count
    oldest: MomentIfAny  # offer with untaken entries
    due: MomentIfAny
    repeated: Count
    taken_at: MomentIfAny
    taken: tuple[_Taken, ...]


_REVIEW: Final = load_script("review_offers", _Reviewed | Refusal)
MOST: Final = 300  # entries that one call examines: about a millisecond


async def review_offers(server: Server, context: ScanContext, *, withdraws: bool) -> Offers:
    """Count entries taken since the last review, and repeat offers that are due.

    With `withdraws`, all offers are deleted instead. Repeats safely. Raises NotOurs, NoSuchGroup,
    WrongType, PermissionDenied.
    """
    offers: Offers | None = None
    start, end = "", ""
    while True:
        call = _REVIEW.call(
            context,
            group=context.keys.group,
            uid=context.uid,
            first=start,
            last=end,
            most=MOST,
            pause_ms=FIRST_PAUSE // MILLISECOND,
            longest_ms=LONGEST_PAUSE // MILLISECOND,
            withdraws=withdraws,
        )
        answer = _REVIEW.read(await server.run(call))
        if isinstance(answer, Refusal):
            raise refused(context.keys, answer)
        some = Offers(
            now=answer.now,
            taken=dict(answer.taken),
            untaken=answer.untaken,
            oldest=answer.oldest,
            due=answer.due,
            repeated=answer.repeated,
            taken_at=answer.taken_at,
        )
        offers = some if offers is None else offers.plus(some)
        with reading("review_offers.lua"):
            _check_following(start, answer)
            start, end = answer.first, answer.last
        if not start:
            return offers


def _check_following(start: str, answer: _Reviewed) -> None:
    """Raise BadShape unless the next call begins after this one, so that the loop ends."""
    if answer.first and not int(start or 0) < int(answer.first) <= int(answer.last):
        raise BadShape("a page does not continue where the page before it ended")
