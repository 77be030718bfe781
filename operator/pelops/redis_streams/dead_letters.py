"""Dead letters and the ledger: their end, by age and by what audits have archived."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.ledger import LEDGER_KEPT, LEDGER_WAITS
from pelops.domain.naming import GroupKeys
from pelops.domain.ownership import OwnerRecord
from pelops.redis_streams.retention import BATCH
from pelops.redis_streams.scripts import Need, ScriptCall, load_script
from pelops.redis_streams.server import Server
from pelops.redis_streams.sweeping import MILLISECOND, raise_refusal

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
        needs=partial(_needs, keys),
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


def _needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        *(Need("type", key) for key in (keys.dead_letter, keys.ledger, keys.state, keys.audit)),
        Need("time"),
        *(Need("hmget", key, ("f",)) for key in (keys.state, keys.audit)),
        *(Need("xinfo|stream", key) for key in (keys.dead_letter, keys.ledger)),
        *(Need("xtrim", key, ("MINID", "0-1")) for key in (keys.dead_letter, keys.ledger)),
        Need("xadd", keys.ledger, ("*", "f", "v")),
    )
