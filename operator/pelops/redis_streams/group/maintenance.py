"""Maintenance of a group: its position, sticky conditions, lag, retention and retry stream.

The position is recorded so that a later observation can tell what was lost. The stream is trimmed
below what all of its groups still need, and dead letters expire, each in one script. The copies
that a former retry stream still holds go back to the stream.
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
from pelops.redis_core.scripts import ScriptAnswer, load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan_calls import (
    encode_name,
    instant,
    raise_obstacle,
    raise_refusal,
)

_REMEMBER: Final = load_script("remember_position")
_HOLD: Final = load_script("delay_recovery")
_LOSS: Final = load_script("record_loss")
_DROPPED: Final = load_script("record_dropped")
_CLEAR: Final = load_script("clear_sticky")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What was written of a group's position."""

    possible_loss: PossibleLoss | None = None  # found by this call, and recorded in the ledger


async def remember_position(
    server: Server, keys: GroupKeys, owner: OwnerRecord
) -> Remembered | None:
    """Write the group's position and its lowest pending entry into its state, read at one instant.

    Now and then the ledger gets a checkpoint too. The counters are compared with those of the last
    call: entries that were removed since, and that the group passed, are a possible loss, which one
    call reports. None when all was known already. Repeats safely.
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
    with reading("delay_recovery.lua"):
        return instant(answer["delay_until_ms"])


async def record_loss(
    server: Server, keys: GroupKeys, owner: OwnerRecord, loss: Loss, *, first_id: EntryId | None
) -> bool:
    """Record with a sticky condition that entries are gone before the group had finished them;
    False when it is known.

    `first_id` is the first entry that is left after trimming, or where the next one can be. One gap
    is recorded once, and again when it has grown. Repeats safely.
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
    with reading("record_dropped.lua"):
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
    with reading("clear_sticky.lua"):
        return bool(answer["count"])


_TRIM: Final = load_script("trim_stream")
TRIM_BATCH: Final = 10_000  # entries removed in one call: below a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """What a call has removed."""

    removed: int = 0
    need: EntryId | None = None  # nothing from here on was touched; None: it was not looked for
    first_id: EntryId | None = None  # the first entry that is left; None: none is
    may_continue: bool = False  # call again: it may have stopped at its batch


async def trim_stream(
    server: Server, keys: GroupKeys, owner: OwnerRecord, plan: RetentionPlan
) -> Trimmed:
    """Remove what the plan's limits ask for and no group needs; a stream without groups is left.

    A stream of more than 100 groups is looked at only now and then. Repeats safely.
    Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    age_ms = None if plan.max_age is None else plan.max_age // MILLISECOND
    return await _trim(server, keys, owner, {"max_length": plan.max_length, "max_age_ms": age_ms})


async def trim_retry_stream(server: Server, keys: GroupKeys, owner: OwnerRecord) -> Trimmed:
    """Remove every copy that the group has acknowledged, up to the first that it has not.

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
    """What has been kept for long enough and is gone."""

    letters: int
    last_id: EntryId | None  # no dead letter up to it is left; None when none expired
    records: int  # of the ledger
    may_continue: bool  # call again: it may have stopped at its batch
    discarded: int = 0  # letters that a redrive had discarded
    foreign: int = 0  # entries that are old enough and no dead letters of this group: they stay
    next_id: EntryId | None = None  # where to go on with the dead letters; None: at the beginning


async def expire_dead_letters(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    *,
    kept: timedelta,
    after: EntryId | None = None,
) -> Expired:
    """Drop letters older than `kept`, discarded ones too, and records of the ledgers after a week.

    Only entries that name this group as a dead letter does; those of a dead-letter stream that a
    consumer group reads, or that is not recorded as this group's, all stay. `after` is where the
    call before stopped.
    Records that an audit has not archived yet wait for it, two weeks at most.
    Repeats safely. Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    answer = await _expire(server, keys, owner, kept=kept, after=after)
    # A key that does not exist would have the script refused while its slot is migrated.
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
    """What a call has moved back to the stream."""

    moved: int = 0
    stayed: int = 0  # too large, or the server did not take the copy
    may_continue: bool = False  # more copies are left


async def has_retry_stream(server: Server, keys: GroupKeys) -> bool:
    """Whether the key of the retry stream holds a stream. One command, of one key."""
    return bool(await server.execute("TYPE", keys.retry, key=keys.retry) == b"stream")


async def note_retry_wait(
    server: Server, keys: GroupKeys, owner: OwnerRecord, *, forget: bool
) -> None:
    """Write down which copy waits first in the retry stream, or forget what was written.

    Repeats safely: a copy that was noted before keeps its first note.
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
    """Move copies that were not delivered from the retry stream to the end of the stream.

    Pending entries of the retry stream stay where they are. Repeats safely.
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
    """Have the server report the group's true lag again; whether anything was written.

    For a group whose observation says `is_lag_repairable`; of its retry stream when asked for.
    All is counted again at one instant, and where no certain number results nothing is written.
    Neither the position nor what is pending changes. Repeats safely.
    Raises NotOurs unless the resource with this uid acts on the group, NoSuchGroup, WrongType and
    PermissionDenied before anything was written.
    """
    source = {"source": keys.retry if of_retry else keys.stream}
    answer = _REPAIR.read(await server.run(_REPAIR.call(keys, source, group=keys.group, uid=uid)))
    raise_refusal(keys, answer)
    return answer.verdict == "repaired"
