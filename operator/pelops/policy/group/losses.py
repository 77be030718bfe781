"""Whether entries disappeared from Redis before the group had finished them, and how many.

`XGROUP DELCONSUMER` drops the pending entries of a consumer: they are not delivered again, and
Redis keeps no trace of them. It does not count acknowledgements either, so the number is an upper
bound. The removal of a consumer is not reported in these cases:

    Removed by a worker of the SDK or the operator:   the ledger records that nothing was pending.
    Its pod has ended, is terminating or restarted:   such a worker acknowledges its entries first.
    Other consumers have the entries pending:         the counters of the group show this.

Other removed consumers have no pod, or a pod that still runs. If the consumer was idle for a while,
its entries were most likely still pending: that raises an alarm. Otherwise its worker may have
acknowledged them before it removed itself, and only an Event is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pelops.clock import MILLISECOND
from pelops.domain.entry_id import EntryId
from pelops.domain.records.state import Loss, LossCause, Totals
from pelops.domain.recovery import OwnerMatch
from pelops.domain.stream_observation import (
    ConsumerObservation,
    GroupObservation,
    StreamObservation,
)
from pelops.domain.workload import PodObservation
from pelops.policy.group.position import LastSeen, happened_since, was_made_since

LOSS_PAUSE: Final = timedelta(minutes=1)  # between two records of one growing gap


def assess_loss(stream: StreamObservation) -> Loss | None:
    """Return the bounds of what the group will never be given; None if nothing shows a loss.

    Trimming removes the oldest entries, so nothing is lost while a delivered entry is left. Entries
    that users delete with XDEL do not count as lost. If some of those were undelivered, their
    number is unknown and the lower bound is 0. `at_most` is None if the server does not know how
    many entries the group has read; then only entries added since the last record are counted.
    """
    group = stream.group
    if group is None or stream.entries_added is None:
        return None
    position = group.last_delivered_id
    if position >= stream.last_generated_id:
        return None  # nothing is undelivered
    if stream.first_id is not None and stream.first_id <= position:
        return None
    if stream.entries_added <= stream.length:
        return None  # nothing was ever removed
    known = Loss(at_least=0, at_most=None, position=position, seen=stream.server_time)
    if group.entries_read is None:
        least = _least_unread(stream, group)
        return replace(known, at_least=least) if least > 0 else None
    # All entries left are undelivered; the others that were added and not read are lost.
    gone = stream.entries_added - group.entries_read - stream.length
    if stream.max_deleted_id <= position:
        return replace(known, at_least=gone, at_most=gone) if gone > 0 else None
    # At least one of them was deleted with XDEL.
    return replace(known, at_most=gone - 1) if gone > 1 else None


def find_new_loss(stream: StreamObservation) -> Loss | None:
    """Return a loss that is certain and not recorded; the script that records it decides equally.

    A recorded loss is identified by its position, even if acknowledged. It is new again if it has
    grown and was not recorded within `LOSS_PAUSE`.
    """
    loss, state = assess_loss(stream), stream.state
    if loss is None or not loss.is_certain:
        return None
    known = state.loss or state.acknowledged_loss
    if known is None or (known.position, known.cause) != (loss.position, loss.cause):
        return loss
    was_just_reported = known is state.loss and timedelta() <= loss.seen - known.seen < LOSS_PAUSE
    return loss if loss.at_least > known.at_least and not was_just_reported else None


def find_vanished(before: LastSeen | None, stream: StreamObservation) -> Loss | None:
    """Return the unfinished entries of the last observation that were deleted with their stream.

    None if nothing shows that, or if it is recorded already. A stream that was deleted, evicted or
    flushed is missing, or another one has its name. The other one has none of the entries of then,
    and counts fewer, or never removed so many. One that lost its end (the server restarted with an
    older state) counts fewer entries than before. Trimming and XDEL have none of these effects. A
    deleted stream without undelivered or pending entries is not a loss.
    """
    if before is None or was_made_since(before, stream):
        return None
    if happened_since(before, stream.state.loss_found_at, stream.server_time):
        return None
    cause, undelivered, pending = _gone(before, stream)
    if _is_retry_gone(before, stream):
        cause = cause or LossCause.RETRY_STREAM_GONE
        undelivered += before.retry_undelivered
        pending += before.retry_pending
    if cause is None or undelivered + pending == 0:
        return None
    is_main = cause is not LossCause.RETRY_STREAM_GONE
    return Loss(
        at_least=0,
        at_most=None,
        position=before.last_delivered_id,
        seen=stream.server_time,
        cause=cause,
        undelivered=undelivered,
        pending=pending,
        observed=before.at,
        after=_first_unfinished(before) if is_main else before.last_delivered_id,
        before=_following(before.last_generated_id) if is_main else before.last_delivered_id,
    )


def _gone(before: LastSeen, stream: StreamObservation) -> tuple[LossCause | None, int, int]:
    """Return how the stream lost entries, and how many of them were undelivered and pending."""
    added, generated = stream.entries_added, before.last_generated_id
    if not stream.exists or added is None:
        return LossCause.STREAM_GONE, before.undelivered, before.pending
    known = before.entries_added or 0
    missing = known - added
    is_older = missing > 0 or (generated is not None and stream.last_generated_id < generated)
    has_none_left = generated is not None and (stream.first_id or EntryId.MIN) > generated
    if not is_older and has_none_left and added - stream.length < known:
        # No entry of then is left, but this stream never removed so many: it is another one.
        return LossCause.STREAM_GONE, before.undelivered, before.pending
    if not is_older:
        return None, 0, 0
    if stream.first_id is None or (generated is not None and stream.first_id > generated):
        return LossCause.STREAM_GONE, before.undelivered, before.pending
    # The newest entries are missing, and the undelivered ones were the newest.
    undelivered = min(before.undelivered, max(missing, 1))
    if undelivered == 0:
        return None, 0, 0
    return LossCause.TAIL_LOST, undelivered, min(before.pending, max(0, missing - undelivered))


def _is_retry_gone(before: LastSeen, stream: StreamObservation) -> bool:
    retry = stream.retry
    had_entries = before.retry_undelivered + before.retry_pending > 0
    return had_entries and retry is not None and not retry.exists and retry.length == 0


def _first_unfinished(before: LastSeen) -> EntryId:
    """Return the ID after which the group had unfinished entries."""
    lowest = before.lowest_pending
    if lowest is None:
        return before.last_delivered_id
    return min(before.last_delivered_id, lowest.before())


def _following(entry_id: EntryId | None) -> EntryId | None:
    if entry_id is None or entry_id.seq == EntryId.MAX.seq:
        return entry_id
    return EntryId(entry_id.ms, entry_id.seq + 1)


def _least_unread(stream: StreamObservation, group: GroupObservation) -> int:
    # The server lost the count. If the group's position has not changed since it was recorded, all
    # entries added since then are undelivered.
    seen, added = stream.state.seen, stream.entries_added or 0
    if seen is None or seen.last_delivered_id != group.last_delivered_id:
        return 0
    if stream.max_deleted_id > group.last_delivered_id or seen.entries_added > added:
        return 0
    if seen.last_generated_id < group.last_delivered_id:
        return 0
    return max(0, added - seen.entries_added - stream.length)


QUIET: Final = timedelta(seconds=10)
_SKEW: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """The consumers that had pending entries when a group was observed before."""

    at: datetime  # on the server's clock
    group: GroupObservation
    entries_added: int
    totals: Totals
    consumers: Mapping[str, ConsumerObservation]

    @classmethod
    def of(cls, stream: StreamObservation) -> Holders | None:
        """Return what to keep of an observation; None if its consumers were not observed."""
        if stream.group is None or stream.consumers is None or stream.entries_added is None:
            return None
        return cls(
            at=stream.server_time,
            group=stream.group,
            entries_added=stream.entries_added,
            totals=stream.state.totals,
            consumers={one.name: one for one in stream.consumers if one.pending},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedEntries:
    """Pending entries that may have been dropped with their consumers."""

    consumers: Mapping[str, int]  # pending entries at the last observation
    at_most: int
    is_quiet: bool  # all consumers had been idle for `QUIET`
    observed: datetime


def find_dropped(
    before: Holders | None, stream: StreamObservation, *, has_left: Callable[[str], bool]
) -> DroppedEntries | None:
    """Return what may have been dropped since the last observation; None if nothing shows it.

    `has_left` returns whether the pod of a consumer has ended, or is about to.
    """
    group = stream.group
    if before is None or group is None or stream.consumers is None or _is_another(before, stream):
        return None
    names = {one.name for one in stream.consumers}
    gone = [
        one for name, one in before.consumers.items() if name not in names and not has_left(name)
    ]
    at_most = min(sum(one.pending for one in gone), _bound(before, stream, group))
    if at_most <= 0:
        return None
    return DroppedEntries(
        consumers={one.name: one.pending for one in gone},
        at_most=at_most,
        is_quiet=all(one.idle >= QUIET for one in gone),
        observed=before.at,
    )


def _is_another(before: Holders, stream: StreamObservation) -> bool:
    """Whether the group was created again or went back, so its consumers are not comparable."""
    group, made = stream.group, stream.state.created_at
    if group is None or (made is not None and made >= before.at - MILLISECOND):
        return True
    has_less = (stream.entries_added or 0) < before.entries_added
    return has_less or group.last_delivered_id < before.group.last_delivered_id


def _bound(before: Holders, stream: StreamObservation, group: GroupObservation) -> int:
    """Return the most pending entries that left the group's PEL, including acknowledged ones."""
    was_read, is_read = before.group.entries_read, group.entries_read
    if was_read is None or is_read is None or is_read < was_read:
        return before.group.pending
    # The operator acknowledges what it moves. With a retry stream it is not known from which one.
    moved = 0 if stream.retry is not None else _moved(stream.state.totals) - _moved(before.totals)
    return before.group.pending + is_read - was_read - group.pending - max(0, moved)


def _moved(totals: Totals) -> int:
    return totals.requeued + totals.dead_lettered + totals.payload_gone


def has_left(match: OwnerMatch, since: datetime) -> bool:
    """Whether the worker behind a consumer has ended since then, or is about to.

    For a consumer without a matching pod the result is False. Node and server clocks may differ by
    some seconds, so a process that started shortly before `since` counts as a new one.
    """
    if match.gone or match.vanished_uid or match.is_strangers:
        return True
    return any(_has_left(pod, since) for pod in match.pods)


def _has_left(pod: PodObservation, since: datetime) -> bool:
    if pod.is_deleting or pod.phase != "Running":
        return True
    return any(
        container.state != "running"
        or container.started is None
        or container.started >= since - _SKEW
        for container in pod.containers
    )
