"""Remembering where a group stands, and the latches that tell what went wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.domain.state import LATCHES, Latch, Loss, LossCause
from pelops.policy.group.losses import LOSS_PAUSE, DroppedEntries
from pelops.policy.group.position import BOOKMARK_EVERY, PositionChange
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan import (
    MILLISECOND,
    encode_name,
    instant,
    raise_refusal,
    to_ms,
)

_REMEMBER: Final = load_script("remember_position", writes=True)
_HOLD: Final = load_script("hold_recovery", writes=True)
_LOSS: Final = load_script("record_loss", writes=True)
_DROPPED: Final = load_script("record_dropped", writes=True)
_CLEAR: Final = load_script("clear_latch", writes=True)


async def remember_position(server: Server, keys: GroupKeys, owner: OwnerRecord) -> bool:
    """Write the group's position and its lowest pending entry into its state, read at one instant.

    Now and then the ledger gets a bookmark too. False when all was known already. Repeats safely.
    Raises NotOurs, NoSuchGroup, WrongType and PermissionDenied before anything was written.
    """
    call = ScriptCall(
        script=_REMEMBER,
        keys=(keys.stream, keys.ledger, keys.state),
        args=(keys.group, owner.uid, BOOKMARK_EVERY // MILLISECOND),
        needs=partial(_remember_needs, keys),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    return bool(verdict == b"remembered")


async def hold_recovery(
    server: Server, keys: GroupKeys, owner: OwnerRecord, change: PositionChange, *, hold: timedelta
) -> datetime:
    """Latch that the group went back, and hold recovery; until when, on the server's clock.

    What another look has told already is neither told again nor held for longer. Repeats safely.
    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    seen = "" if change.seen is None else to_ms(change.seen)
    call = ScriptCall(
        script=_HOLD,
        keys=(keys.ledger, keys.state),
        args=(owner.uid, str(change.before), str(change.after), seen, hold // MILLISECOND),
        needs=partial(_latch_needs, keys),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    return instant(details[0])


async def record_loss(
    server: Server, keys: GroupKeys, owner: OwnerRecord, loss: Loss, *, first_id: EntryId | None
) -> bool:
    """Latch that entries are gone before the group had finished them; False when it is known.

    `first_id` is the first entry that is left after trimming. One gap is recorded once, and again
    when it has grown. Repeats safely.
    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    at_most = "" if loss.at_most is None else loss.at_most
    before = first_id if loss.cause is LossCause.TRIMMED else loss.before
    observed = "" if loss.observed is None else to_ms(loss.observed)
    call = ScriptCall(
        script=_LOSS,
        keys=(keys.ledger, keys.state),
        args=(
            *(owner.uid, str(loss.position), loss.at_least, at_most),
            *(str(loss.after or loss.position), "" if before is None else str(before)),
            *(LOSS_PAUSE // MILLISECOND, loss.cause.value),
            *(loss.undelivered, loss.pending, observed),
        ),
        needs=partial(_latch_needs, keys),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    return bool(verdict == b"recorded")


async def record_dropped(
    server: Server, keys: GroupKeys, owner: OwnerRecord, dropped: DroppedEntries
) -> int | None:
    """Record that consumers were deleted with entries pending: how many at most.

    None when it is known, or the ledger explains it. A latch is set when they were quiet before.
    Repeats safely. Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    pairs = ((encode_name(name), pending) for name, pending in dropped.consumers.items())
    call = ScriptCall(
        script=_DROPPED,
        keys=(keys.ledger, keys.state),
        args=(
            *(owner.uid, to_ms(dropped.observed), dropped.at_most, int(dropped.is_quiet)),
            *(part for pair in pairs for part in pair),
        ),
        needs=partial(_dropped_needs, keys),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    return int(details[0]) if verdict == b"recorded" else None


async def clear_latches(
    server: Server, keys: GroupKeys, owner: OwnerRecord, latches: Iterable[Latch]
) -> bool:
    """End what a person has acknowledged; False when none of it was latched. Repeats safely.

    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    fields = tuple(field for latch in latches for field in LATCHES[latch])
    if not fields:
        return False
    call = ScriptCall(
        script=_CLEAR,
        keys=(keys.state,),
        args=(owner.uid, *fields),
        needs=partial(_clear_needs, keys),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    return bool(details[0])


def _remember_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        Need("type", keys.stream),
        Need("xinfo|stream", keys.stream),
        Need("xinfo|groups", keys.stream),
        Need("xpending", keys.stream, (keys.group, "-", "+", 1)),
        *_latch_needs(keys),
    )


def _latch_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (keys.ledger, keys.state)),
        Need("time"),
        Need("hmget", keys.state, ("f",)),
        Need("xadd", keys.ledger, ("*", "f", "v")),
        Need("hset", keys.state, ("f", "v")),
    )


def _dropped_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (*_latch_needs(keys), Need("xrange", keys.ledger, ("-", "+", "COUNT", 1)))


def _clear_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        Need("type", keys.state),
        Need("hmget", keys.state, ("f",)),
        Need("hdel", keys.state, ("f",)),
    )
