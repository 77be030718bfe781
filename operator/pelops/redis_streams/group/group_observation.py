"""Observation of streams and groups: one script per group, one round trip for many groups.

Missing streams and groups are facts. A key of another type is an error that names key and type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeVar

from pelops.clock import from_ms, from_time
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.state import (
    FIXED_FIELDS,
    FORMAT_VERSION,
    SCAN_DONE,
    GroupState,
    OwnerRecord,
    OwnershipRecord,
    parse_moment,
    parse_state,
)
from pelops.domain.stream_observation import (
    Ahead,
    ConsumerObservation,
    GroupObservation,
    RetryObservation,
    StreamObservation,
    decide_lag,
)
from pelops.errors import PelopsError, WrongType
from pelops.redis_core.commands import text_of
from pelops.redis_core.replies.shapes import reading
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Reply
from pelops.scripts.calls import ScriptCall, load_script, newer_format
from pelops.scripts.parts import Count, Flag, Milliseconds, Raw, RawId, ServerTime, Signed

_WANTED: Final = ("stream", "stream", "stream", "hash", "hash", "stream", "stream")
_OWNER: Final = ("uid", "cluster", "namespace", "name", "created_ms", "held_until_ms")
_SCANNED: Final = len(_OWNER) + FIXED_FIELDS.index(SCAN_DONE)
_LONGEST_IDLE_MS: Final = 10**14  # more than 3,000 years


class _Stream(NamedTuple):
    """A stream as the script returns it."""

    length: Count
    last_generated: RawId
    first: RawId | None
    added: Count | None
    groups: Count
    deleted: RawId | None


class _Counted(NamedTuple):
    """The entries after the position of a group."""

    entries: Count
    is_all: Flag
    first: RawId | None


class _Group(NamedTuple):
    """A group as the script returns it."""

    last_delivered: RawId
    pending: Count
    lag: Signed | None
    consumers: Count
    entries_read: Count | None
    lowest_pending: RawId | None
    counted: _Counted | None  # None: XRANGE is forbidden
    holding: Count | None  # consumers with pending entries; None: the group has too many consumers
    lowest_idle_ms: Count | None  # since the last delivery of the lowest pending entry


class _Consumer(NamedTuple):
    """A consumer as the script returns it."""

    name: Raw
    pending: Count
    idle_ms: Milliseconds


class _Letters(NamedTuple):
    """The stream and the group that the record of the dead-letter stream names."""

    stream: Raw | None
    group: Raw | None


class _Side(NamedTuple):
    """A retry or offer stream, and the group on it."""

    stream: _Stream | None
    group: _Group | None


class _Observed(NamedTuple):
    """The whole answer. IDs and names stay bytes, because most answers only get a digest."""

    types: list[Raw]
    time: ServerTime
    stream: _Stream | None
    group: _Group | None
    dead_letters: Count
    letters_of: _Letters
    letter_groups: Count  # that read the dead-letter stream
    fields: list[Raw | None]
    further: list[_Side]
    consumers: list[_Consumer] | None  # None: not requested, forbidden, or too many
    first_letter: RawId | None


_SCRIPT: Final = load_script("observe_group", _Observed)
_NO_STREAM: Final = _Stream(0, b"0-0", None, None, 0, None)


@dataclass(frozen=True, slots=True)
class ObservationRequest:
    """What to observe of one group."""

    keys: GroupKeys
    with_retry: bool = False
    with_offers: bool = False
    is_retry_former: bool = False  # spec.recovery no longer uses the retry stream
    is_deep: bool = False  # count up to 500 entries ahead even if the reported lag may be right
    with_consumers: bool = False
    with_letters: bool = False  # read the ID of the first dead letter

    @property
    def further(self) -> tuple[str, ...]:
        """The streams in addition to the main one."""
        retry = (self.keys.retry,) if self.with_retry else ()
        return (*retry, *((self.keys.offer_stream,) if self.with_offers else ()))


class Digest(NamedTuple):
    """A short form of an observation, to detect changes."""

    value: int  # as `StreamObservation.digest`
    scanned_at: datetime | None  # when the last completed scan began


Asked = TypeVar("Asked", GroupKeys, ObservationRequest)


async def observe_group(
    server: Server,
    keys: GroupKeys,
    *,
    with_retry: bool = False,
    with_offers: bool = False,
    is_retry_former: bool = False,
) -> StreamObservation:
    """The stream and the group on it, at one instant of the server.

    The retry and the offer stream are observed only on request: a script with a missing key fails
    while a cluster migrates the slot.
    Raises WrongType for a key of another type, NewerFormat for a state that a newer version wrote,
    and what every call of the adapter raises.
    """
    request = ObservationRequest(keys, with_retry, with_offers, is_retry_former)
    return _read(request, await server.run(_call(request)))


async def observe_groups(
    server: Server, groups: Iterable[Asked]
) -> dict[Asked, StreamObservation | PelopsError]:
    """As `observe_group`, for many groups in a few round trips, or the error of each group.

    An ObservationRequest names what else to observe; GroupKeys observe stream and group only.
    """
    asked = list(dict.fromkeys(groups))
    requests = [
        one if isinstance(one, ObservationRequest) else ObservationRequest(one) for one in asked
    ]
    answers = await server.run_many([_call(request) for request in requests])
    return {
        one: _read_or_error(request, answer)
        for one, request, answer in zip(asked, requests, answers, strict=True)
    }


async def read_digests(
    server: Server, requests: Sequence[ObservationRequest]
) -> list[Digest | PelopsError]:
    """The digests of groups, in the same order, in a few round trips, or the error of each group.

    It costs a fraction of `observe_groups`. Raises what every call of the adapter raises.
    """
    answers = await server.run_many([_call(request) for request in requests])
    return list(map(_digest_or_error, answers))


def _digest_or_error(reply: Reply) -> Digest | PelopsError:
    if isinstance(reply, PelopsError):
        return reply
    try:
        with reading("observe_group.lua"):
            seen = _SCRIPT.read(reply)
            scanned = seen.fields[_SCANNED] if seen.fields else None
            at = parse_moment(None if scanned is None else scanned.decode("utf-8", "replace"))
            return Digest(_digest(seen), at)
    except PelopsError as error:
        return error


def _digest(seen: _Observed) -> int:
    """A hash of the observation without elapsed times and without the time of the last scan."""
    names, fields = seen.consumers, seen.fields
    consumers = None if names is None else tuple((one.name, one.pending) for one in names)
    listed = (*seen.types, *seen.further, *fields[:_SCANNED], *fields[_SCANNED + 1 :])
    counts = (seen.dead_letters, seen.letter_groups)
    return hash(
        (seen.stream, seen.group, seen.letters_of, seen.first_letter, *counts, consumers, listed)
    )


def _call(request: ObservationRequest) -> ScriptCall:
    return _SCRIPT.call(
        request.keys,
        {"further": request.further},
        group=request.keys.group,
        is_deep=request.is_deep,
        with_consumers=request.with_consumers,
        with_letters=request.with_letters,
        fields=(*(f"owner:{name}" for name in _OWNER), *FIXED_FIELDS),
    )


def _read_or_error(request: ObservationRequest, answer: Reply) -> StreamObservation | PelopsError:
    if isinstance(answer, PelopsError):
        return answer
    try:
        return _read(request, answer)
    except PelopsError as error:
        return error


@reading("observe_group.lua")
def _read(request: ObservationRequest, reply: Reply) -> StreamObservation:
    keys, seen = request.keys, _SCRIPT.read(reply)
    _check_types(request, list(map(text_of, seen.types)))
    state = _read_state(seen.fields[len(_OWNER) :])
    if state.format > FORMAT_VERSION:
        raise newer_format(key=keys.state, version=state.format)
    sides = {
        name: _read_side(side, is_former=request.is_retry_former)
        for name, side in zip(request.further, seen.further, strict=True)
    }
    offer_stream = sides.get(keys.offer_stream)
    stream = seen.stream or _NO_STREAM
    return StreamObservation(
        server_time=from_time(*seen.time),
        exists=seen.stream is not None,
        length=stream.length,
        last_generated_id=parse_entry_id(stream.last_generated),
        first_id=_id_or_none(stream.first),
        entries_added=stream.added,
        groups=stream.groups,
        group=_read_group(seen.group, stream) if seen.group else None,
        dead_letters=seen.dead_letters,
        dead_letter_exists=seen.types[1] == b"stream",
        ledger_exists=seen.types[2] == b"stream",
        ownership=parse_ownership(seen.fields[: len(_OWNER)]),
        max_deleted_id=_id_or_none(stream.deleted) or EntryId.MIN,
        state=state,
        retry=sides.get(keys.retry),
        consumers=None if seen.consumers is None else tuple(map(_read_consumer, seen.consumers)),
        has_offer_stream=offer_stream is None or offer_stream.exists,
        owns_dead_letters=seen.letters_of == (keys.stream.encode(), keys.group.encode()),
        dead_letter_groups=seen.letter_groups,
        first_dead_letter=_id_or_none(seen.first_letter),
        digest=_digest(seen),
    )


def _read_group(group: _Group, stream: _Stream) -> GroupObservation:
    position, counted = parse_entry_id(group.last_delivered), group.counted
    ahead = Ahead(counted.entries, counted.is_all) if counted else None
    lag = decide_lag(
        group.lag,
        last_delivered_id=position,
        last_generated_id=parse_entry_id(stream.last_generated),
        length=stream.length,
        ahead=ahead,
    )
    is_right = group.lag == lag and (lag != 0 or group.entries_read == stream.added)
    return GroupObservation(
        last_delivered_id=position,
        pending=group.pending,
        lag=lag,
        consumers=group.consumers,
        entries_read=group.entries_read,
        lowest_pending=_id_or_none(group.lowest_pending),
        holding=group.holding,
        at_least=ahead.counted if ahead else 0,
        is_lag_repairable=lag is not None and not is_right and _can_repair(position, stream),
        first_undelivered=_id_or_none(counted.first) if counted else None,
        lowest_idle=_idle_or_none(group.lowest_idle_ms),
    )


def _can_repair(position: EntryId, stream: _Stream) -> bool:
    # The server reports no lag while an entry at or after the position is recorded as deleted.
    deleted = _id_or_none(stream.deleted) or EntryId.MIN
    return deleted == EntryId.MIN or deleted < position


def _read_consumer(seen: _Consumer) -> ConsumerObservation:
    return ConsumerObservation(
        name=seen.name.decode("utf-8", "surrogateescape"),
        pending=seen.pending,
        idle=timedelta(milliseconds=seen.idle_ms),
    )


def _read_side(side: _Side, *, is_former: bool) -> RetryObservation:
    seen, group = side.stream or _NO_STREAM, side.group
    if not side.stream or not group:
        length = seen.length
        # The group is not created again on a former retry stream, so all its entries are the lag.
        left = length if is_former else 0
        first = _id_or_none(seen.first) if left else None
        return RetryObservation(
            exists=False,
            is_former=is_former,
            length=length,
            first_id=first,
            lag=left,
            first_undelivered=first,
        )
    ours, counted = _read_group(group, seen), group.counted
    return RetryObservation(
        exists=True,
        is_former=is_former,
        length=seen.length,
        first_id=_id_or_none(seen.first),
        last_delivered_id=ours.last_delivered_id,
        pending=ours.pending,
        lag=ours.lag,
        lowest_pending=ours.lowest_pending,
        holding=ours.holding,
        at_least=ours.at_least,
        is_lag_repairable=ours.is_lag_repairable,
        first_undelivered=_id_or_none(counted.first) if counted else None,
        lowest_idle=ours.lowest_idle,
    )


def _idle_or_none(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=min(ms, _LONGEST_IDLE_MS))


def _read_state(values: Sequence[bytes | None]) -> GroupState:
    texts = (None if value is None else value.decode("utf-8", "replace") for value in values)
    return parse_state(dict(zip(FIXED_FIELDS, texts, strict=False)))


def _id_or_none(reply: bytes | None) -> EntryId | None:
    return parse_entry_id(reply) if reply else None


def _check_types(request: ObservationRequest, types: Sequence[str]) -> None:
    keys = request.keys
    of_group = (keys.stream, keys.dead_letter, keys.ledger, keys.state, keys.dead_letter_owner)
    names = (*of_group, *request.further)
    for name, found, wanted in zip(names, types, _WANTED, strict=False):
        if found not in {"none", wanted}:
            raise wrong_type(name, found, wanted)


_TYPES: Final = frozenset({"string", "list", "set", "zset", "hash", "stream"})


def wrong_type(key: str, found: str, wanted: str) -> WrongType:
    """The error for a key that holds another type than the one needed."""
    shown = f"a {found}" if found in _TYPES else "another type"
    return WrongType(
        f"the key {key} contains {shown}, but Pelops needs a {wanted} there: choose another name "
        "in the spec, or rename or delete the key",
        key=key,
        found=found,
    )


def parse_ownership(record: Sequence[bytes | None]) -> OwnershipRecord | None:
    """The ownership record in a group's state; None when it is missing or damaged."""
    parts = [part for part in record if part is not None]
    if len(parts) != len(_OWNER) or not all(ms.isdigit() and len(ms) < 20 for ms in parts[4:]):
        return None
    texts = (part.decode("utf-8", "replace") for part in parts[:4])
    owner = OwnerRecord(**dict(zip(_OWNER, texts, strict=False)), created=from_ms(int(parts[4])))
    return OwnershipRecord(owner=owner, owned_until=from_ms(int(parts[5])))
