"""Maintenance of a group: its position, sticky conditions, lag, retention and retry stream.

The position is recorded so that a later observation can detect losses. The stream is trimmed below
the entries that any of its groups still needs. Dead letters expire. Copies in a former retry
stream are moved back to the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.api.group.recovery import DEFAULT_MAX_ENTRY_BYTES
from pelops.clock import MILLISECOND, to_ms
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LEDGER_KEPT, LEDGER_WAITS
from pelops.domain.naming import GroupKeys
from pelops.domain.state import (
    STICKY_FIELDS,
    Loss,
    LossCause,
    OwnerRecord,
    PossibleLoss,
    StickyCondition,
)
from pelops.policy.group.losses import LOSS_PAUSE, DroppedEntries
from pelops.policy.group.position import CHECKPOINT_EVERY, PositionChange
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_core.replies.shapes import reading
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import (
    encode_name,
    instant,
    raise_obstacle,
    raise_refusal,
)
from pelops.scripts.calls import ScriptAnswer, load_script

_REMEMBER: Final = load_script("remember_position")
_HOLD: Final = load_script("delay_recovery")
_LOSS: Final = load_script("record_loss")
_DROPPED: Final = load_script("record_dropped")
_CLEAR: Final = load_script("clear_sticky")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The result of recording a group's position."""

    possible_loss: PossibleLoss | None = None  # found by this call, and recorded in the ledger


async def remember_position(
    server: Server, keys: GroupKeys, owner: OwnerRecord
) -> Remembered | None:
    """Record the group's position and its lowest pending entry, read at one instant, in its state.

    At most every `CHECKPOINT_EVERY` the ledger gets a checkpoint too. The counters are compared
    with those of the last call: entries that were removed since, and that the position passed, are
    a possible loss. One call reports it. None when nothing has changed. Repeats safely.
    Raises NotOurs, NoSuchGroup, WrongType and PermissionDenied before anything was written.
    """
    call = _REMEMBER.call(
        keys,
        group=keys.group,
        uid=owner.uid,
        checkpoint_ms=CHECKPOINT_EVERY // MILLISECOND,
        pause_ms=LOSS_PAUSE // MILLISECOND,
    )
    answer = _REMEMBER.read(await server.run(call))
    raise_refusal(keys, answer)
    return _read_remembered(answer) if answer.verdict == "remembered" else None


@reading("remember_position.lua")
def _read_remembered(answer: ScriptAnswer) -> Remembered:
    if not answer["after"]:
        return Remembered()
    at_most = answer["at_most"]
    return Remembered(
        possible_loss=PossibleLoss(
            after=parse_entry_id(answer["after"]),
            before=parse_entry_id(answer["before"]),
            at_most=int(at_most) if at_most else None,
        )
    )


async def delay_recovery(
    server: Server, keys: GroupKeys, owner: OwnerRecord, change: PositionChange, *, hold: timedelta
) -> datetime:
    """Record as a sticky condition that the position went back, and delay recovery.

    Returns the end of the delay, on the server's clock. A change that another observation has
    recorded is neither recorded again nor delays recovery for longer. Repeats safely.
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
    with reading("delay_recovery.lua"):
        return instant(answer["delay_until_ms"])


async def record_loss(
    server: Server, keys: GroupKeys, owner: OwnerRecord, loss: Loss, *, first_id: EntryId | None
) -> bool:
    """Record as a sticky condition that entries were lost; False when the loss is recorded already.

    `first_id` is the first entry that is left after trimming, or the first possible ID of the next
    one. A gap is recorded once, and again when it has grown. Repeats safely.
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
    """Record that consumers were deleted with pending entries; returns how many entries at most.

    None when it is recorded already, or the ledger explains it. A sticky condition is set if
    `dropped.is_quiet`. Repeats safely.
    Raises NotOurs, WrongType and PermissionDenied before anything was written.
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
    with reading("record_dropped.lua"):
        return int(answer["at_most"]) if answer.verdict == "recorded" else None


async def clear_sticky(
    server: Server, keys: GroupKeys, owner: OwnerRecord, sticky: Iterable[StickyCondition]
) -> bool:
    """Clear sticky conditions that a person has acknowledged; False when none was set.

    Repeats safely.

    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    fields = tuple(field for condition in sticky for field in STICKY_FIELDS[condition])
    if not fields:
        return False
    answer = _CLEAR.read(await server.run(_CLEAR.call(keys, uid=owner.uid, fields=fields)))
    raise_refusal(keys, answer)
    with reading("clear_sticky.lua"):
        return bool(answer["count"])


_TRIM: Final = load_script("trim_stream")
TRIM_BATCH: Final = 10_000  # entries removed in one call: below a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """The result of one call."""

    removed: int = 0
    need: EntryId | None = None  # entries from this ID on are kept; None: not determined
    first_id: EntryId | None = None  # the first entry that is left; None: the stream is empty
    may_continue: bool = False  # call again: it may have stopped at its batch


async def trim_stream(
    server: Server, keys: GroupKeys, owner: OwnerRecord, plan: RetentionPlan
) -> Trimmed:
    """Remove entries beyond the plan's limits that no group needs. Not on a stream without groups.

    A stream of more than 100 groups is examined only periodically. Repeats safely.
    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    age_ms = None if plan.max_age is None else plan.max_age // MILLISECOND
    return await _trim(server, keys, owner, {"max_length": plan.max_length, "max_age_ms": age_ms})


async def trim_retry_stream(server: Server, keys: GroupKeys, owner: OwnerRecord) -> Trimmed:
    """Remove acknowledged copies up to the first that is not acknowledged.

    Otherwise as `trim_stream`.
    """
    limits = {"max_length": 0, "max_age_ms": None}
    return await _trim(server, keys, owner, limits, of_retry=True)


async def _trim(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    limits: Mapping[str, int | None],
    *,
    of_retry: bool = False,
) -> Trimmed:
    source = {"source": keys.retry if of_retry else keys.stream}
    call = _TRIM.call(
        keys,
        source,
        uid=owner.uid,
        group=keys.group,
        batch=TRIM_BATCH,
        is_derived=of_retry,
        **limits,
    )
    answer = _TRIM.read(await server.run(call))
    raise_refusal(keys, answer)
    return _read(answer) if answer.verdict == "done" else Trimmed()


@reading("trim_stream.lua")
def _read(answer: ScriptAnswer) -> Trimmed:
    need, first = answer["need"], answer["first"]
    return Trimmed(
        removed=answer["removed"],
        need=parse_entry_id(need) if need else None,
        first_id=parse_entry_id(first) if first else None,
        may_continue=bool(answer["more"]),
    )


_EXPIRE: Final = load_script("expire_dead_letters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The result of one call: what was removed after its retention."""

    letters: int
    last_id: EntryId | None  # no dead letter up to it is left; None when none expired
    records: int  # of the ledgers
    may_continue: bool  # call again: it may have stopped at its batch
    discarded: int = 0  # discarded dead letters
    foreign: int = 0  # old entries that are kept because they are not dead letters of this group
    next_id: EntryId | None = None  # where the next call begins; None: at the first dead letter


async def expire_dead_letters(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    *,
    kept: timedelta,
    after: EntryId | None = None,
) -> Expired:
    """Delete dead letters older than `kept`, also discarded ones, and old records of the ledgers.

    Only dead letters of this group are deleted. All are kept if a consumer group reads the
    dead-letter stream, or if the stream is not recorded as this group's. `after` is where the
    previous call stopped. Ledger records are kept for a week, or up to two weeks if an audit has
    not archived them.
    Repeats safely. Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    answer = await _expire(server, keys, owner, kept=kept, after=after)
    # Only with an existing key: with a missing one the script fails while its slot is migrated.
    if answer["has_discarded"] and not answer["more"]:
        answer = await _expire(server, keys, owner, kept=kept, after=None, discarded=keys.discarded)
    return _read_expired(answer)


async def _expire(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    *,
    kept: timedelta,
    after: EntryId | None,
    discarded: str | None = None,
) -> ScriptAnswer:
    call = _EXPIRE.call(
        keys,
        {"discarded": discarded},
        uid=owner.uid,
        stream=keys.stream,
        group=keys.group,
        after=None if after is None else str(after),
        letters_ms=kept // MILLISECOND,
        ledger_ms=LEDGER_KEPT // MILLISECOND,
        batch=TRIM_BATCH,
        waits_ms=LEDGER_WAITS // MILLISECOND,
    )
    answer = _EXPIRE.read(await server.run(call))
    raise_refusal(keys, answer)
    return answer


@reading("expire_dead_letters.lua")
def _read_expired(answer: ScriptAnswer) -> Expired:
    last = answer["last"]
    return Expired(
        letters=answer["letters"],
        last_id=parse_entry_id(last) if last else None,
        records=answer["records"],
        may_continue=bool(answer["more"]),
        discarded=answer["expired_discarded"],
        foreign=answer["foreign"],
        next_id=parse_entry_id(answer["next"]) if answer["next"] else None,
    )


_NOTE: Final = load_script("note_retry_wait")
_RETURN: Final = load_script("return_copies")
RETURN_BATCH: Final = 50  # copies moved in one call
MAX_BYTES: Final = 256 * 1024  # of bodies that one call reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The result of one call."""

    moved: int = 0  # copies moved back to the stream
    stayed: int = 0  # copies that are too large, or that the server did not accept
    may_continue: bool = False  # more copies are left


async def has_retry_stream(server: Server, keys: GroupKeys) -> bool:
    """Whether the key of the retry stream holds a stream. One command on one key."""
    return bool(await server.execute("TYPE", keys.retry, key=keys.retry) == b"stream")


async def note_retry_wait(
    server: Server, keys: GroupKeys, owner: OwnerRecord, *, forget: bool
) -> None:
    """Record which copy waits first in the retry stream, or delete that record.

    Repeats safely: a copy keeps the time and position at which it was first recorded.
    Raises NotOurs, NoSuchGroup, WrongType and PermissionDenied before anything was written.
    """
    call = _NOTE.call(keys, group=keys.group, uid=owner.uid, notes=not forget)
    raise_refusal(keys, _NOTE.read(await server.run(call)))


async def return_copies(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    *,
    field_prefix: str,
    actor: str,
    reason: str,
    batch: int = RETURN_BATCH,
    max_entry_bytes: int = DEFAULT_MAX_ENTRY_BYTES,
) -> Returned:
    """Move undelivered copies from the retry stream to the end of the stream.

    Pending entries of the retry stream stay there. Repeats safely.
    Raises NotOurs, NoSuchGroup, WouldDuplicate, PositionAhead, WrongType and PermissionDenied
    before anything was written.
    """
    call = _RETURN.call(
        keys,
        group=keys.group,
        uid=owner.uid,
        prefix=field_prefix,
        batch=batch,
        max_bytes=MAX_BYTES,
        max_entry_bytes=max_entry_bytes,
        actor=actor,
        reason=reason,
    )
    answer = _RETURN.read(await server.run(call))
    raise_obstacle(keys.group, keys.stream, answer)
    raise_refusal(keys, answer)
    return Returned(
        moved=answer["moved"], stayed=answer["stayed"], may_continue=bool(answer["more"])
    )


_REPAIR: Final = load_script("repair_lag")


async def repair_lag(server: Server, keys: GroupKeys, uid: str, *, of_retry: bool = False) -> bool:
    """Correct entries-read so that the server reports the true lag; True if it was written.

    For a group whose observation has `is_lag_repairable`, or for its retry stream on request. The
    script counts again at one instant, and writes nothing without a certain number. Neither the
    position nor pending entries change. Repeats safely.
    Raises NotOurs unless the resource with this uid acts on the group, NoSuchGroup, WrongType and
    PermissionDenied before anything was written.
    """
    source = {"source": keys.retry if of_retry else keys.stream}
    answer = _REPAIR.read(await server.run(_REPAIR.call(keys, source, group=keys.group, uid=uid)))
    raise_refusal(keys, answer)
    return answer.verdict == "repaired"
