"""Remembering where a group stands, and the sticky conditions that tell what went wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.domain.state import STICKY_FIELDS, Loss, LossCause, StickyCondition
from pelops.policy.group.losses import LOSS_PAUSE, DroppedEntries
from pelops.policy.group.position import CHECKPOINT_EVERY, PositionChange
from pelops.redis_core.scripts import load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan import (
    MILLISECOND,
    encode_name,
    instant,
    raise_refusal,
    to_ms,
)

_REMEMBER: Final = load_script("remember_position")
_HOLD: Final = load_script("delay_recovery")
_LOSS: Final = load_script("record_loss")
_DROPPED: Final = load_script("record_dropped")
_CLEAR: Final = load_script("clear_sticky")


async def remember_position(server: Server, keys: GroupKeys, owner: OwnerRecord) -> bool:
    """Write the group's position and its lowest pending entry into its state, read at one instant.

    Now and then the ledger gets a checkpoint too. False when all was known already. Repeats safely.
    Raises NotOurs, NoSuchGroup, WrongType and PermissionDenied before anything was written.
    """
    checkpoint_ms = CHECKPOINT_EVERY // MILLISECOND
    call = _REMEMBER.call(keys, group=keys.group, uid=owner.uid, checkpoint_ms=checkpoint_ms)
    answer = _REMEMBER.read(await server.run(call))
    raise_refusal(keys, answer)
    return answer.verdict == "remembered"


async def delay_recovery(
    server: Server, keys: GroupKeys, owner: OwnerRecord, change: PositionChange, *, hold: timedelta
) -> datetime:
    """Record with a sticky condition that the group went back, and hold recovery; until when, on
    the server's clock.

    What another look has told already is neither told again nor held for longer. Repeats safely.
    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    call = _HOLD.call(
        keys,
        uid=owner.uid,
        old=str(change.before),
        new=str(change.after),
        seen_ms=None if change.seen is None else to_ms(change.seen),
        hold_ms=hold // MILLISECOND,
    )
    answer = _HOLD.read(await server.run(call))
    raise_refusal(keys, answer)
    return instant(answer["delay_until_ms"])


async def record_loss(
    server: Server, keys: GroupKeys, owner: OwnerRecord, loss: Loss, *, first_id: EntryId | None
) -> bool:
    """Record with a sticky condition that entries are gone before the group had finished them;
    False when it is known.

    `first_id` is the first entry that is left after trimming. One gap is recorded once, and again
    when it has grown. Repeats safely.
    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    before = first_id if loss.cause is LossCause.TRIMMED else loss.before
    call = _LOSS.call(
        keys,
        uid=owner.uid,
        position=str(loss.position),
        at_least=loss.at_least,
        at_most=loss.at_most,
        after=str(loss.after or loss.position),
        before=None if before is None else str(before),
        pause_ms=LOSS_PAUSE // MILLISECOND,
        cause=loss.cause.value,
        undelivered=loss.undelivered,
        pending=loss.pending,
        observed_ms=None if loss.observed is None else to_ms(loss.observed),
    )
    answer = _LOSS.read(await server.run(call))
    raise_refusal(keys, answer)
    return answer.verdict == "recorded"


async def record_dropped(
    server: Server, keys: GroupKeys, owner: OwnerRecord, dropped: DroppedEntries
) -> int | None:
    """Record that consumers were deleted with entries pending: how many at most.

    None when it is known, or the ledger explains it. A sticky condition is set when they were quiet
    before. Repeats safely. Raises NotOurs, WrongType and PermissionDenied before anything was
    written.
    """
    call = _DROPPED.call(
        keys,
        uid=owner.uid,
        observed_ms=to_ms(dropped.observed),
        at_most=dropped.at_most,
        sticky=dropped.is_quiet,
        consumers=[
            {"name": encode_name(name), "pending": pending}
            for name, pending in dropped.consumers.items()
        ],
    )
    answer = _DROPPED.read(await server.run(call))
    raise_refusal(keys, answer)
    return int(answer["at_most"]) if answer.verdict == "recorded" else None


async def clear_sticky(
    server: Server, keys: GroupKeys, owner: OwnerRecord, sticky: Iterable[StickyCondition]
) -> bool:
    """End what a person has acknowledged; False when none of it was sticky. Repeats safely.

    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    fields = tuple(field for condition in sticky for field in STICKY_FIELDS[condition])
    if not fields:
        return False
    answer = _CLEAR.read(await server.run(_CLEAR.call(keys, uid=owner.uid, fields=fields)))
    raise_refusal(keys, answer)
    return bool(answer["count"])
