"""Whether entries are gone from Redis that the group had not finished, and how many.

`XGROUP DELCONSUMER` drops the pending entries of a consumer: they are not delivered again, and
Redis keeps no trace of them. Nor does it count acknowledgements, so the number is an upper bound.
These ends of a consumer are no such act, and are never reported:

    a worker of the SDK, or the operator, removed it     the ledger says so: it had nothing pending
    its pod has ended, is being deleted or restarted     a worker that leaves acknowledges first
    its entries are still pending, with other consumers  the counters of the group say so

What is left is a consumer without a pod, or of a pod that goes on. If it had done nothing for a
while, its entries were most likely still pending: that is an alarm. Else its worker may have
acknowledged them just before it removed itself, and an Event alone says what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pelops.clock import MILLISECOND
from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import OwnerMatch
from pelops.domain.state import Loss, LossCause, Totals
from pelops.domain.stream_observation import (
    ConsumerObservation,
    GroupObservation,
    StreamObservation,
)
from pelops.domain.workload import PodObservation
from pelops.policy.group.position import LastSeen, happened_since, was_made_since

LOSS_PAUSE: Final = timedelta(minutes=1)  # between two records of one growing gap


def assess_loss(stream: StreamObservation) -> Loss | None:
    """The bounds of what the group will never be given; None when nothing shows a loss.

    Trimming takes the oldest entries, so nothing is lost while one that was delivered is left. What
    users delete with XDEL is no loss: where they deleted undelivered entries, how many is not known
    and the lower bound is 0. `at_most` is None when the server does not know how many the group has
    read; then only what was added since the group was remembered is counted.
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
    # All that is left is undelivered; so many more were added after what the group has read.
    gone = stream.entries_added - group.entries_read - stream.length
    if stream.max_deleted_id <= position:
        return replace(known, at_least=gone, at_most=gone) if gone > 0 else None
    # One at least of those was deleted by hand.
    return replace(known, at_most=gone - 1) if gone > 1 else None


def find_new_loss(stream: StreamObservation) -> Loss | None:
    """A loss that is certain and not recorded yet, as the script that records it decides too.

    A gap is known by its position, also when it was acknowledged; it is new again when it has grown
    and was not recorded just now.
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
    """What the group had not finished at the last observation and is gone with its stream.

    None when nothing shows that, or when it is recorded already. A stream that was deleted, evicted
    or flushed is missing, or another one has its name; one that lost its end (a server that came
    back with an older state) counts fewer entries than before. Trimming and XDEL do neither.
    A stream that is gone with nothing undelivered or pending is no loss.
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
    """How the stream lost entries, and how many of them were undelivered and pending."""
    added, generated = stream.entries_added, before.last_generated_id
    if not stream.exists or added is None:
        return LossCause.STREAM_GONE, before.undelivered, before.pending
    missing = (before.entries_added or 0) - added
    is_older = missing > 0 or (generated is not None and stream.last_generated_id < generated)
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
    """After this entry lies what the group had not finished."""
    lowest = before.lowest_pending
    if lowest is None:
        return before.last_delivered_id
    return min(before.last_delivered_id, lowest.before())


def _following(entry_id: EntryId | None) -> EntryId | None:
    if entry_id is None or entry_id.seq == EntryId.MAX.seq:
        return entry_id
    return EntryId(entry_id.ms, entry_id.seq + 1)


def _least_unread(stream: StreamObservation, group: GroupObservation) -> int:
    # The server lost count. We have not, if the group has not moved since it was remembered: what
    # was added since then is undelivered, and lies behind its position.
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
    """Who had entries pending when a group was observed before."""

    at: datetime  # on the server's clock
    group: GroupObservation
    entries_added: int
    totals: Totals
    consumers: Mapping[str, ConsumerObservation]

    @classmethod
    def of(cls, stream: StreamObservation) -> Holders | None:
        """What to keep of an observation; None when its consumers were not looked at."""
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
    """Pending entries that may be gone with their consumers."""

    consumers: Mapping[str, int]  # pending entries at the last observation
    at_most: int
    is_quiet: bool  # they had done nothing for a while
    observed: datetime


def find_dropped(
    before: Holders | None, stream: StreamObservation, *, has_left: Callable[[str], bool]
) -> DroppedEntries | None:
    """What may have been dropped since the last observation; None when nothing shows it.

    `has_left` tells whether the pod of a consumer has ended, or is about to.
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
    """Whether the group was made anew or went back: its consumers are those of another time."""
    group, made = stream.group, stream.state.created_at
    if group is None or (made is not None and made >= before.at - MILLISECOND):
        return True
    has_less = (stream.entries_added or 0) < before.entries_added
    return has_less or group.last_delivered_id < before.group.last_delivered_id


def _bound(before: Holders, stream: StreamObservation, group: GroupObservation) -> int:
    """How many pending entries went at most, whoever had them: acknowledged ones are among them."""
    was_read, is_read = before.group.entries_read, group.entries_read
    if was_read is None or is_read is None or is_read < was_read:
        return before.group.pending
    # What the operator moved was acknowledged by it; of two streams it is not known of which.
    moved = 0 if stream.retry is not None else _moved(stream.state.totals) - _moved(before.totals)
    return before.group.pending + is_read - was_read - group.pending - max(0, moved)


def _moved(totals: Totals) -> int:
    return totals.requeued + totals.dead_lettered + totals.payload_gone


def has_left(match: OwnerMatch, since: datetime) -> bool:
    """Whether the worker behind a consumer has ended since then, or is about to.

    A consumer that no pod matches has nobody of whom that could be told. Node and server clocks may
    differ by some seconds, so a process that began shortly before counts as a new one.
    """
    if match.gone or match.vanished_uid or match.is_strangers:
        return True
    return any(_has_left(pod, since) for pod in match.pods)


def _has_left(pod: PodObservation, since: datetime) -> bool:
    if pod.is_deleting or pod.phase != "Running":
        return True
    return any(
        one.state != "running" or one.started is None or one.started >= since - _SKEW
        for one in pod.containers
    )
