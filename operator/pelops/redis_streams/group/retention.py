"""Trimming a stream below what all of its groups still need, in one script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LEDGER_KEPT, LEDGER_WAITS
from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.policy.group.retention import RetentionPlan
from pelops.redis_core.scripts import ScriptAnswer, load_script
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.scan import MILLISECOND, raise_refusal

_TRIM: Final = load_script("trim_stream")
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
    call = _TRIM.call(keys, source, uid=owner.uid, batch=BATCH, **limits)
    answer = _TRIM.read(await server.run(call))
    raise_refusal(keys, answer)
    return _read(answer) if answer.verdict == "done" else Trimmed()


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


async def expire_dead_letters(
    server: Server, keys: GroupKeys, owner: OwnerRecord, *, kept: timedelta
) -> Expired:
    """Drop dead letters older than `kept` and records of the ledger older than a week.

    Records that an audit has not archived yet wait for it, two weeks at most.
    Repeats safely. Raises NotOurs, WrongType and PermissionDenied before anything was written.
    """
    call = _EXPIRE.call(
        keys,
        uid=owner.uid,
        letters_ms=kept // MILLISECOND,
        ledger_ms=LEDGER_KEPT // MILLISECOND,
        batch=BATCH,
        waits_ms=LEDGER_WAITS // MILLISECOND,
    )
    answer = _EXPIRE.read(await server.run(call))
    raise_refusal(keys, answer)
    last = answer["last"]
    return Expired(
        letters=answer["letters"],
        last_id=parse_entry_id(last) if last else None,
        records=answer["records"],
        may_continue=bool(answer["more"]),
    )
