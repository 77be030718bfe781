"""Seeing streams and groups: one script per group, one round trip for many.

Missing streams and groups are facts. A key of another type is an error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.observation import (
    GroupObservation,
    RetryObservation,
    StreamObservation,
    judge_lag,
)
from pelops.domain.ownership import GroupHold, OwnerRecord
from pelops.domain.state import FIXED_FIELDS, GroupState, parse_state
from pelops.errors import PelopsError, WrongType
from pelops.redis_streams.scripts import Need, ScriptCall, load_script
from pelops.redis_streams.server import Server
from pelops.redis_streams.transport import Reply

_SCRIPT: Final = load_script("observe_group", writes=False)
_WANTED: Final = ("stream", "stream", "stream", "hash", "stream", "stream")
_OWNER: Final = tuple(
    f"owner:{what}"
    for what in ("uid", "cluster", "namespace", "name", "created_ms", "held_until_ms")
)
_NO_STREAM: Final = (0, b"0-0", None, None, 0, None)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Look:
    """What is looked at in one call."""

    keys: GroupKeys
    with_retry: bool = False
    with_handover: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        keys = self.keys
        always = (keys.stream, keys.dead_letter, keys.ledger, keys.state)
        retry = (keys.retry,) if self.with_retry else ()
        return (*always, *retry, *((keys.handover,) if self.with_handover else ()))


async def observe_group(
    server: Server, keys: GroupKeys, *, with_retry: bool = False, with_handover: bool = False
) -> StreamObservation:
    """The stream and our group of it, at one instant of the server.

    The retry and the hand-over stream are looked at only when asked for: a key that is absent stops
    every script while a cluster migrates its slot.
    Raises WrongType for a key that holds something else, and what every call of the door raises.
    """
    look = _Look(keys, with_retry, with_handover)
    return _read(look, await server.run(_call(look)))


async def observe_groups(
    server: Server, groups: Iterable[GroupKeys]
) -> dict[GroupKeys, StreamObservation | PelopsError]:
    """As `observe_group`, for many in a few round trips; an error in place of what failed."""
    looks = [_Look(keys) for keys in dict.fromkeys(groups)]
    answers = await server.run_many([_call(look) for look in looks])
    return {
        look.keys: _read_or_error(look, answer) for look, answer in zip(looks, answers, strict=True)
    }


def _call(look: _Look) -> ScriptCall:
    return ScriptCall(
        script=_SCRIPT,
        keys=look.names,
        args=(look.keys.group, *_OWNER, *FIXED_FIELDS),
        needs=partial(_needs, look),
    )


def _needs(look: _Look) -> tuple[Need, ...]:
    keys = look.keys
    return (
        *(Need("type", name) for name in look.names),
        Need("time"),
        Need("xinfo|stream", keys.stream),
        Need("xinfo|groups", keys.stream),
        Need("xpending", keys.stream, (keys.group, "-", "+", 1)),
        Need("xlen", keys.dead_letter),
        Need("hmget", keys.state, ("owner:uid",)),
    )


def _read_or_error(look: _Look, answer: Reply) -> StreamObservation | PelopsError:
    if isinstance(answer, PelopsError):
        return answer
    try:
        return _read(look, answer)
    except PelopsError as error:
        return error


def _read(look: _Look, answer: Reply) -> StreamObservation:
    types, (seconds, microseconds), stream, group, dead_letters, fields, further = answer
    _check_types(look, [kind.decode() for kind in types])
    sides = {name: _read_side(*one) for name, one in zip(look.names[4:], further, strict=True)}
    handover = sides.get(look.keys.handover)
    length, last_generated, first, added, groups, deleted = stream or _NO_STREAM
    last_generated_id = parse_entry_id(last_generated)
    return StreamObservation(
        server_time=EPOCH + timedelta(seconds=int(seconds), microseconds=int(microseconds)),
        exists=stream is not None,
        length=length,
        last_generated_id=last_generated_id,
        first_id=_id_or_none(first),
        entries_added=added,
        groups=groups,
        group=_read_group(group, last_generated_id) if group else None,
        dead_letters=dead_letters,
        dead_letter_exists=types[1] == b"stream",
        ledger_exists=types[2] == b"stream",
        hold=parse_hold(fields[: len(_OWNER)]),
        max_deleted_id=_id_or_none(deleted) or EntryId.MIN,
        state=_read_state(fields[len(_OWNER) :]),
        retry=sides.get(look.keys.retry),
        has_handover=handover is None or handover.exists,
    )


def _read_group(group: Sequence[Reply], last_generated_id: EntryId) -> GroupObservation:
    delivered, pending, lag, consumers, entries_read, lowest = group
    last_delivered_id = parse_entry_id(delivered)
    return GroupObservation(
        last_delivered_id=last_delivered_id,
        pending=pending,
        lag=judge_lag(
            lag, last_delivered_id=last_delivered_id, last_generated_id=last_generated_id
        ),
        consumers=consumers,
        entries_read=entries_read,
        lowest_pending=_id_or_none(lowest),
    )


def _read_side(stream: Sequence[Reply] | None, group: Sequence[Reply] | None) -> RetryObservation:
    if not stream or not group:
        return RetryObservation(exists=False, length=stream[0] if stream else 0)
    seen = _read_group(group, parse_entry_id(stream[1]))
    return RetryObservation(
        exists=True,
        length=stream[0],
        first_id=_id_or_none(stream[2]),
        last_delivered_id=seen.last_delivered_id,
        pending=seen.pending,
        lag=seen.lag,
        lowest_pending=seen.lowest_pending,
    )


def _read_state(values: Sequence[bytes | None]) -> GroupState:
    texts = (None if value is None else value.decode("utf-8", "replace") for value in values)
    return parse_state(dict(zip(FIXED_FIELDS, texts, strict=False)))


def _id_or_none(reply: bytes | None) -> EntryId | None:
    return parse_entry_id(reply) if reply else None


def _check_types(look: _Look, types: Sequence[str]) -> None:
    for name, found, wanted in zip(look.names, types, _WANTED, strict=False):
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
