"""Retries, dead-letters or offers suspects as decided, and reviews what became of the offers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from pelops.scripts.parts import Count, Moment, MomentIfAny, Name, Text


class Settled(NamedTuple):
    """The result for some suspects."""

    verdict: Literal["done"]
    now: Moment
    copied: Count  # or offered
    dead: Count
    stays: list[Stay]
    retry_batch: Name  # the state's field after the call

    def plus(self, later: Settled) -> Settled:
        """The sum of both results."""
        return later._replace(
            copied=self.copied + later.copied,
            dead=self.dead + later.dead,
            stays=self.stays + later.stays,
        )


_SETTLE: Final = load_script("settle_suspects", Settled | Refusal)
_OFFER: Final = load_script("offer_entries", Settled | Refusal)
MOST_SETTLED: Final = 40  # suspects per call: a dead letter costs the server 0.04 ms


async def settle_suspects(
    server: Server,
    context: ScanContext,
    plan: AttemptPlan,
    owner: OwnerPlan,
    *,
    reason: str,
    error: str,
    locks: Sequence[str] = (),
) -> Settled:
    """Execute the decisions about one owner's suspects, a batch at a time.

    Dead letters get this `reason` and `error`. With `locks`, one key for each settlement, an entry
    stays if its lock exists. Raises RetryBatchChanged when another replica has changed the retry
    batch, else as `recover_owner`.
    """
    why: dict[str, Part] = {"reason": reason, "error": error}
    size, left, done = min(context.batch, MOST_SETTLED), owner.settlements, None
    while True:
        call = _SETTLE.call(
            context,
            {"locks": locks[:size]},
            group=context.keys.group,
            uid=context.uid,
            prefix=context.field_prefix,
            max_entry_bytes=context.max_entry_bytes,
            actor=context.actor,
            trigger=context.trigger,
            allows_others=context.allows_others,
            items=[_settlement(one) | why for one in left[:size]],
            **_decided(plan, owner),
        )
        settled = _read_settled(context, _SETTLE.read(await server.run(call)))
        # With large bodies a call settles only as many as it may read, but at least one.
        unread = {one for one, verdict in settled.stays if verdict is EntryVerdict.NEXT_BATCH}
        with reading("settle_suspects.lua"):
            if left and all(one.entry_id in unread for one in left[:size]):
                raise BadShape("none of the entries was settled, and one has to be")
        settled = settled._replace(stays=[one for one in settled.stays if one.id not in unread])
        done = settled if done is None else done.plus(settled)
        plan = plan.after(settled.retry_batch)
        again = [n for n, item in enumerate(left) if n >= size or item.entry_id in unread]
        left, locks = tuple(left[n] for n in again), tuple(locks[n] for n in again if locks)
        if not left:
            return done


async def offer_entries(
    server: Server, context: ScanContext, plan: AttemptPlan, owner: OwnerPlan, *, reason: str
) -> Settled:
    """Offer one owner's entries to workers that claim; `copied` is the number of offered entries.

    Raises as `settle_suspects`.
    """
    left, done = owner.settlements, None
    while True:
        call = _OFFER.call(
            context,
            group=context.keys.group,
            uid=context.uid,
            actor=context.actor,
            trigger=context.trigger,
            reason=reason,
            pause_ms=FIRST_PAUSE // MILLISECOND,
            items=list(map(_settlement, left[: context.batch])),
            **_decided(plan, owner),
        )
        offered = _read_settled(context, _OFFER.read(await server.run(call)))
        done = offered if done is None else done.plus(offered)
        plan, left = plan.after(offered.retry_batch), left[context.batch :]
        if not left:
            return done


def _read_settled(context: ScanContext, answer: Settled | Refusal) -> Settled:
    if isinstance(answer, Refusal):
        raise refused_move(context, answer)
    return answer


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
