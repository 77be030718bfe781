"""Seeing streams and groups: one script per group, one round trip for many.

Missing streams and groups are facts. A key of another type is an error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.observation import GroupObservation, StreamObservation, judge_lag
from pelops.domain.ownership import GroupHold, OwnerRecord
from pelops.errors import PelopsError, WrongType
from pelops.redis_streams.scripts import Need, ScriptCall, load_script
from pelops.redis_streams.server import Server
from pelops.redis_streams.transport import Reply

_SCRIPT: Final = load_script("observe_group", writes=False)
_WANTED: Final = ("stream", "stream", "stream", "hash")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def observe_group(server: Server, keys: GroupKeys) -> StreamObservation:
    """The stream and our group of it, at one instant of the server.

    Raises WrongType for a key that holds something else, and what every call of the door raises.
    """
    return _read(keys, await server.run(_call(keys)))


async def observe_groups(
    server: Server, groups: Iterable[GroupKeys]
) -> dict[GroupKeys, StreamObservation | PelopsError]:
    """As `observe_group`, for many in a few round trips; an error in place of what failed."""
    wanted = list(dict.fromkeys(groups))
    answers = await server.run_many([_call(keys) for keys in wanted])
    return {
        keys: _read_or_error(keys, answer) for keys, answer in zip(wanted, answers, strict=True)
    }


def _call(keys: GroupKeys) -> ScriptCall:
    return ScriptCall(
        script=_SCRIPT, keys=_names(keys), args=(keys.group,), needs=partial(_needs, keys)
    )


def _names(keys: GroupKeys) -> tuple[str, ...]:
    return (keys.stream, keys.dead_letter, keys.ledger, keys.state)


def _needs(keys: GroupKeys) -> tuple[Need, ...]:
    return (
        *(Need("type", name) for name in _names(keys)),
        Need("time"),
        Need("xinfo|stream", keys.stream),
        Need("xinfo|groups", keys.stream),
        Need("xpending", keys.stream, (keys.group, "-", "+", 1)),
        Need("xlen", keys.dead_letter),
        Need("hmget", keys.state, ("owner:uid",)),
    )


def _read_or_error(keys: GroupKeys, answer: Reply) -> StreamObservation | PelopsError:
    if isinstance(answer, PelopsError):
        return answer
    try:
        return _read(keys, answer)
    except PelopsError as error:
        return error


def _read(keys: GroupKeys, answer: Reply) -> StreamObservation:
    types, (seconds, microseconds), stream, group, lowest, dead_letters, owner = answer
    _check_types(keys, [kind.decode() for kind in types])
    length, last_generated, first, added, groups = stream or (0, b"0-0", None, None, 0)
    last_generated_id = parse_entry_id(last_generated)
    return StreamObservation(
        server_time=EPOCH + timedelta(seconds=int(seconds), microseconds=int(microseconds)),
        exists=stream is not None,
        length=length,
        last_generated_id=last_generated_id,
        first_id=parse_entry_id(first) if first else None,
        entries_added=added,
        groups=groups,
        group=_read_group(group, lowest, last_generated_id) if group else None,
        dead_letters=dead_letters,
        dead_letter_exists=types[1] == b"stream",
        ledger_exists=types[2] == b"stream",
        hold=parse_hold(owner),
    )


def _read_group(
    group: Sequence[Reply], lowest: bytes | None, last_generated_id: EntryId
) -> GroupObservation:
    delivered, pending, lag, consumers, entries_read = group
    last_delivered_id = parse_entry_id(delivered)
    return GroupObservation(
        last_delivered_id=last_delivered_id,
        pending=pending,
        lag=judge_lag(
            lag, last_delivered_id=last_delivered_id, last_generated_id=last_generated_id
        ),
        consumers=consumers,
        entries_read=entries_read,
        lowest_pending=parse_entry_id(lowest) if lowest else None,
    )


def _check_types(keys: GroupKeys, types: Sequence[str]) -> None:
    for name, found, wanted in zip(_names(keys), types, _WANTED, strict=True):
        if found not in {"none", wanted}:
            raise wrong_type(name, found, wanted)


def wrong_type(key: str, found: str, wanted: str) -> WrongType:
    """The error for a key that holds another type than the one needed."""
    return WrongType(
        f"the key {key} holds a {found}, not a {wanted}; choose another name, or remove the key",
        key=key,
        found=found,
    )


def parse_hold(fields: Sequence[bytes | None]) -> GroupHold | None:
    """Who acts on a group, from the fields of its state; None when nobody ever did."""
    if not fields or any(field is None for field in fields):
        return None
    uid, cluster, namespace, name, created, until = (
        (field or b"").decode("utf-8", "replace") for field in fields
    )
    if not (created.isdigit() and until.isdigit()):
        return None
    owner = OwnerRecord(
        uid=uid, cluster=cluster, namespace=namespace, name=name, created=_instant(int(created))
    )
    return GroupHold(owner=owner, held_until=_instant(int(until)))


def _instant(ms: int) -> datetime:
    # Ten thousand years are enough; a damaged record must not stop the observation.
    return EPOCH + timedelta(milliseconds=min(ms, 253_370_764_800_000))
