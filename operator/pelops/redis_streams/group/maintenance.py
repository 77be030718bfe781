"""Maintenance of a group: its position, sticky conditions, lag, retention and retry stream.

The position is recorded so that a later observation can detect losses. The stream is trimmed below
the entries that any of its groups still needs. Dead letters expire. Copies in a former retry
stream are moved back to the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from pelops.api.group.recovery import DEFAULT_MAX_ENTRY_BYTES
from pelops.clock import MILLISECOND, to_ms
from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys
from pelops.domain.records.ledger import LEDGER_KEPT, LEDGER_WAITS
from pelops.domain.records.state import (
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
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import encode_name, refused, refused_copies
from pelops.scripts.answers import Refusal
from pelops.scripts.calls import load_script
from pelops.scripts.parts import Count, Flag, IdIfAny, Moment, Number, NumberIfAny, Raw


class _Position(NamedTuple):
    verdict: Literal["remembered"]
    marks: Count  # checkpoints that were written
    after: IdIfAny  # of a possible loss that was recorded
    before: IdIfAny
    at_most: NumberIfAny  # entries


class _Delay(NamedTuple):
    verdict: Literal["held", "known"]
    until: Moment


class _Dropped(NamedTuple):
    verdict: Literal["recorded"]
    at_most: Number


class _Cleared(NamedTuple):
    verdict: Literal["cleared"]
    existed: Count


_REMEMBER: Final = load_script("remember_position", _Position | Literal["unchanged"] | Refusal)
_HOLD: Final = load_script("delay_recovery", _Delay | Refusal)
_LOSS: Final = load_script("record_loss", Literal["recorded", "known"] | Refusal)
_DROPPED: Final = load_script("record_dropped", _Dropped | Literal["known", "explained"] | Refusal)
_CLEAR: Final = load_script("clear_sticky", _Cleared | Refusal)


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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    if isinstance(answer, str):
        return None
    if answer.after is None or answer.before is None:
        return Remembered()
    return Remembered(
        possible_loss=PossibleLoss(after=answer.after, before=answer.before, at_most=answer.at_most)
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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer.until


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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer == "recorded"


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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer.at_most if isinstance(answer, _Dropped) else None


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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer.existed > 0


class Trimmed(NamedTuple):
    """The result of one call."""

    verdict: Literal["done"] = "done"
    removed: Count = 0
    need: IdIfAny = None  # entries from this ID on are kept; None: not determined
    first_id: IdIfAny = None  # the first entry that is left; None: the stream is empty
    may_continue: Flag = False  # call again: it may have stopped at its batch


_TRIM: Final = load_script("trim_stream", Trimmed | Literal["not-due"] | Refusal)
TRIM_BATCH: Final = 10_000  # entries removed in one call: below a millisecond


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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return Trimmed() if isinstance(answer, str) else answer


class Expired(NamedTuple):
    """The result of one call: what was removed after its retention."""

    verdict: Literal["done"]
    letters: Count
    last_id: IdIfAny  # no dead letter up to it is left; None when none expired
    records: Count  # of the ledgers
    discarded: Count  # discarded dead letters
    has_discarded: Count | None  # 1: the group has a stream of discarded dead letters
    may_continue: Flag  # call again: it may have stopped at its batch
    next_id: IdIfAny  # where the next call begins; None: at the first dead letter
    foreign: Count  # old entries that are kept because they are not dead letters of this group


_EXPIRE: Final = load_script("expire_dead_letters", Expired | Refusal)


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
    if answer.has_discarded and not answer.may_continue:
        answer = await _expire(server, keys, owner, kept=kept, after=None, discarded=keys.discarded)
    return answer


async def _expire(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    *,
    kept: timedelta,
    after: EntryId | None,
    discarded: str | None = None,
) -> Expired:
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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return answer


class Returned(NamedTuple):
    """The result of one call."""

    verdict: Literal["done"] = "done"
    moved: Count = 0  # copies moved back to the stream
    stayed: Count = 0  # copies that are too large, or that the server did not accept
    may_continue: Flag = False  # more copies are left


_NOTE: Final = load_script("note_retry_wait", Literal["noted", "known", "forgotten"] | Refusal)
_RETURN: Final = load_script("return_copies", Returned | Refusal)
RETURN_BATCH: Final = 50  # copies moved in one call
MAX_BYTES: Final = 256 * 1024  # of bodies that one call reads


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
    answer = _NOTE.read(await server.run(call))
    if isinstance(answer, Refusal):
        raise refused(keys, answer)


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
    if isinstance(answer, Refusal):
        raise refused_copies(keys, keys.stream, answer)
    return answer


class _Repaired(NamedTuple):
    verdict: Literal["repaired"]
    lag: Raw


_REPAIR: Final = load_script("repair_lag", _Repaired | Literal["intact", "unsure"] | Refusal)


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
    if isinstance(answer, Refusal):
        raise refused(keys, answer)
    return isinstance(answer, _Repaired)
