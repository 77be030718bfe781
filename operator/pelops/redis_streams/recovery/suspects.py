"""Carrying out what was decided about suspects: tried again, given up, or offered to others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.recovery import FINISHED, PARALLEL, Verdict, write_ids
from pelops.policy.recovery.attempts import AttemptPlan, OwnerPlan
from pelops.policy.recovery.offers import FIRST_PAUSE
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Part
from pelops.redis_streams.recovery.actions import (
    Act,
    act_needs,
    ms_or_zero,
    raise_act_refusal,
    read_stays,
)
from pelops.redis_streams.recovery.scan import MILLISECOND, decode_name, encode_name, to_ms

_SETTLE: Final = load_script("settle_suspects", writes=True)
_HAND_OVER: Final = load_script("hand_over", writes=True)
MOST_SETTLED: Final = 40  # in one call: a dead letter costs the server 0.04 ms


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """What a dead letter says, and the locks that keep an entry where it is."""

    reason: str
    error: str
    locks: tuple[str, ...] = ()


async def settle_suspects(
    server: Server, act: Act, plan: AttemptPlan, owner: OwnerPlan, *, reasons: Reasons
) -> Settled:
    """Carry out what was decided about one owner's suspects, a batch at a time.

    Raises ChunkChanged when another replica has decided meanwhile, else as `recover_owner`.
    """
    done = Settled(chunk=plan.chunk.written)
    size, left, locks = min(act.batch, MOST_SETTLED), owner.settlements, reasons.locks
    while True:
        piece = replace(owner, settlements=left[:size])
        some = replace(reasons, locks=locks[:size])
        one, unread = _part(await _settle_piece(server, act, plan, piece, reasons=some))
        done, plan = done.plus(one), plan.after(one.chunk)
        # Large bodies: as many as one script reads were settled, one at least.
        again = [n for n, item in enumerate(left) if n >= size or item.entry_id in unread]
        left, locks = tuple(left[n] for n in again), tuple(locks[n] for n in again if locks)
        if not left:
            return done


def _part(done: Settled) -> tuple[Settled, set[EntryId]]:
    """What was settled, without what the script had no room for; and that."""
    unread = {one for one, verdict in done.stays if verdict is Verdict.NEXT_BATCH}
    stays = tuple(one for one in done.stays if one[0] not in unread)
    return replace(done, stays=stays), unread


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
        needs=partial(act_needs, act),
    )
    verdict, *details = await server.run(call)
    raise_act_refusal(act, verdict, details)
    _, copied, dead, stays, chunk = details
    return Settled(copied=copied, dead=dead, stays=read_stays(stays), chunk=decode_name(chunk))


async def hand_over(
    server: Server, act: Act, plan: AttemptPlan, owner: OwnerPlan, *, reason: str
) -> Settled:
    """Offer one owner's entries to workers that claim; `copied` counts what was offered.

    Raises as `settle_suspects`.
    """
    done = Settled(chunk=plan.chunk.written)
    for start in range(0, max(len(owner.settlements), 1), act.batch):
        some = owner.settlements[start : start + act.batch]
        piece = replace(owner, settlements=some)
        one = await _offer_piece(server, act, plan, piece, reason=reason)
        done, plan = done.plus(one), plan.after(one.chunk)
    return done


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
            *(*_owner_words(plan, owner), reason, FIRST_PAUSE // MILLISECOND, *items),
        ),
        needs=partial(_offer_needs, act),
    )
    verdict, *details = await server.run(call)
    raise_act_refusal(act, verdict, details)
    _, offered, stays, chunk, _ = details
    return Settled(copied=offered, stays=read_stays(stays), chunk=decode_name(chunk))


async def are_delivered(server: Server, act: Act, ids: Iterable[EntryId]) -> bool:
    """Whether the group has been given these copies: its position has passed them."""
    groups = await server.execute("XINFO", "GROUPS", act.target, key=act.target)
    found = (dict(zip(one[::2], one[1::2], strict=True)) for one in groups)
    ours = next((one for one in found if one[b"name"] == act.keys.group.encode()), None)
    return ours is not None and all(
        one <= parse_entry_id(ours[b"last-delivered-id"]) for one in ids
    )


def _owner_words(plan: AttemptPlan, owner: OwnerPlan) -> tuple[Part, ...]:
    words = (PARALLEL if plan.is_parallel else "", FINISHED if plan.has_finished else "")
    kept = " ".join(filter(None, (*words, write_ids(plan.kept))))
    return (
        *(encode_name(owner.owner), to_ms(owner.cut), encode_name(plan.chunk.written)),
        *(kept, write_ids(plan.resolved), ms_or_zero(owner.crowd)),
    )


def _offer_needs(act: Act) -> tuple[Need, ...]:
    return (*act_needs(act), Need("xadd", act.keys.handover, ("*", "f", "v")))
