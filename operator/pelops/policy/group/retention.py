"""Whether to trim a stream, and how far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.api.group.recovery import RetentionSpec
from pelops.clock import to_ms
from pelops.domain.entry_id import EntryId
from pelops.domain.quantities import render_seconds
from pelops.domain.stream_observation import StreamObservation

# Trimming removes whole nodes of a stream: 100 entries with the default of stream-node-max-entries.
_NODE: Final = 100
_TRY_EVERY: Final = timedelta(seconds=10)
_EXPIRE_EVERY: Final = timedelta(minutes=10)
# Checking a stream with more groups takes long; see trim_stream.lua.
_MANY_GROUPS: Final = 100
_MOST_GROUPS: Final = 100_000
_PER_GROUP_SQUARED: Final = timedelta(microseconds=150)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The limits for trimming: an entry that exceeds one is removed once no group needs it."""

    max_length: int | None
    max_age: timedelta | None
    message: str


def plan_retention(spec: RetentionSpec | None, stream: StreamObservation) -> RetentionPlan | None:
    """Return a plan if the stream exceeds a limit; None if not, or if nothing can be removed.

    `spec` holds the larger limits of all resources on the stream. The trimming script checks what
    all groups need; here only this resource's group is checked, to avoid a useless call.
    """
    if spec is None or stream.first_id is None or stream.groups == 0:
        return None
    if _lowest_needed(stream) <= stream.first_id or _was_tried(stream):
        return None
    reasons = [*_too_many(spec, stream), *_too_old(spec, stream)]
    if not reasons:
        return None
    age = spec.max_age_seconds
    return RetentionPlan(
        max_length=spec.max_length,
        max_age=None if age is None else timedelta(seconds=age),
        message="; ".join(reasons),
    )


def merge_retention(specs: Iterable[RetentionSpec | None]) -> RetentionSpec | None:
    """Merge the limits of several resources on one stream: the larger applies, no limit is largest.

    Resources without retention are ignored; None if no limit remains.
    """
    asked = [spec for spec in specs if spec is not None]
    lengths, ages = [spec.max_length for spec in asked], [spec.max_age_seconds for spec in asked]
    length, age = _largest(lengths), _largest(ages)
    if length is None and age is None:
        return None
    return RetentionSpec(max_length=length, max_age_seconds=age)


def needs_expiry(
    stream: StreamObservation, *, expired_at: datetime | None, created: datetime | None
) -> bool:
    """Whether to check for dead letters and ledger events that have reached their retention.

    `expired_at` is the last check of this replica. `created` is when the resource was created: a
    new one without dead letters has nothing old.
    """
    since = created if expired_at is None and not stream.dead_letters else expired_at
    # A time in the future was read before the clock went back, and counts as none.
    return since is None or not timedelta() <= stream.server_time - since < _EXPIRE_EVERY


def needs_retry_trim(stream: StreamObservation) -> bool:
    """Whether the retry stream holds copies that the group has finished."""
    retry = stream.retry
    if retry is None or retry.first_id is None or _was_tried(stream):
        return False
    return retry.first_id < min(retry.last_delivered_id, retry.lowest_pending or EntryId.MAX)


def _was_tried(stream: StreamObservation) -> bool:
    """Whether trimming was tried a moment ago, and something not observed here prevented it."""
    tried, now = stream.state.trim_tried_at, stream.server_time
    if tried is None or tried > now:
        return False
    pause = _TRY_EVERY
    if stream.groups > _MANY_GROUPS:
        pause = max(pause, _PER_GROUP_SQUARED * min(stream.groups, _MOST_GROUPS) ** 2)
    return now - tried < pause


def _too_many(spec: RetentionSpec, stream: StreamObservation) -> list[str]:
    if spec.max_length is None or stream.length < spec.max_length + _NODE:
        return []
    return [f"{stream.length:,} entries, more than maxLength ({spec.max_length:,})"]


def _too_old(spec: RetentionSpec, stream: StreamObservation) -> list[str]:
    if spec.max_age_seconds is None or stream.first_id is None:
        return []
    if stream.first_id.ms >= to_ms(stream.server_time) - spec.max_age_seconds * 1000:
        return []
    return [f"the entry {stream.first_id} is older than {render_seconds(spec.max_age_seconds)}"]


def _lowest_needed(stream: StreamObservation) -> EntryId:
    group = stream.group
    if group is None:
        return EntryId.MAX  # other groups are not observed here
    return min(group.last_delivered_id, group.lowest_pending or EntryId.MAX)


def _largest(limits: Sequence[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None
