"""Trimming a stream below what all of its groups still need, in one script."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LEDGER_KEPT, LEDGER_WAITS
from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_core.scripts import Need, ScriptCall, load_script
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.redis_streams.recovery.scan import MILLISECOND, raise_refusal

_TRIM: Final = load_script("trim_stream", writes=True)
BATCH: Final = 10_000  # entries removed in one call: below a millisecond


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
    age = None if plan.max_age is None else plan.max_age // MILLISECOND
    return await _trim(server, keys, owner, keys.stream, (plan.max_length, age))


async def trim_retry_stream(server: Server, keys: GroupKeys, owner: OwnerRecord) -> Trimmed:
    """Remove every copy that the group has acknowledged, up to the first that it has not.

    Otherwise as `trim_stream`.
    """
    return await _trim(server, keys, owner, keys.retry, (0, None))


async def _trim(
    server: Server,
    keys: GroupKeys,
    owner: OwnerRecord,
    stream: str,
    limits: tuple[int | None, int | None],
) -> Trimmed:
    call = ScriptCall(
        script=_TRIM,
        keys=(stream, keys.ledger, keys.state),
        args=(owner.uid, *("" if limit is None else limit for limit in limits), BATCH),
        needs=partial(_needs, keys, stream),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    return _read(details) if verdict == b"done" else Trimmed()


def _read(details: list[Reply]) -> Trimmed:
    removed, need, first, more = details
    return Trimmed(
        removed=removed,
        need=parse_entry_id(need) if need else None,
        first_id=parse_entry_id(first) if first else None,
        may_continue=bool(more),
    )


def _needs(keys: GroupKeys, stream: str) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (stream, keys.ledger, keys.state)),
        Need("time"),
        Need("hmget", keys.state, ("f",)),
        Need("xinfo|stream", stream),
        Need("xinfo|groups", stream),
        Need("xpending", stream, (keys.group, "-", "+", 1)),
        Need("xtrim", stream, ("MINID", "0-1")),
        Need("xadd", keys.ledger, ("*", "f", "v")),
        Need("hset", keys.state, ("f", "v")),
        Need("hincrby", keys.state, ("f", 1)),
    )


_EXPIRE: Final = load_script("expire_letters", writes=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What has been kept for long enough and is gone."""

    letters: int
    last_id: EntryId | None  # no dead letter up to it is left; None when none expired
    records: int  # of the ledger
    may_continue: bool  # call again: it may have stopped at its batch


async def expire_letters(
    server: Server, keys: GroupKeys, owner: OwnerRecord, *, kept: timedelta
) -> Expired:
    """Drop dead letters older than `kept` and records of the ledger older than a week.

    Records that an audit has not archived yet wait for it, two weeks at most.
    Repeats safely. Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    call = ScriptCall(
        script=_EXPIRE,
        keys=(keys.dead_letter, keys.ledger, keys.state, keys.audit),
        args=(
            *(owner.uid, kept // MILLISECOND, LEDGER_KEPT // MILLISECOND, BATCH),
            LEDGER_WAITS // MILLISECOND,
        ),
        needs=partial(_expiry_needs, keys),
    )
    verdict, *details = await server.run(call)
    raise_refusal(keys, verdict, details)
    letters, last, records, more = details
    return Expired(
        letters=letters,
        last_id=parse_entry_id(last) if last else None,
        records=records,
        may_continue=bool(more),
    )


def _expiry_needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (keys.dead_letter, keys.ledger, keys.state, keys.audit)),
        Need("time"),
        *(Need("hmget", key, ("f",)) for key in (keys.state, keys.audit)),
        *(Need("xinfo|stream", key) for key in (keys.dead_letter, keys.ledger)),
        *(Need("xtrim", key, ("MINID", "0-1")) for key in (keys.dead_letter, keys.ledger)),
        Need("xadd", keys.ledger, ("*", "f", "v")),
    )
