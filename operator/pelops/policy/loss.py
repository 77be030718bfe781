"""Whether entries are gone from Redis that the group had not finished, and how many."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.observation import GroupObservation, StreamObservation
from pelops.domain.state import Loss, LossCause
from pelops.policy.position import LastSeen, happened_since, was_made_since

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
    was_just_told = known is state.loss and timedelta() <= loss.seen - known.seen < LOSS_PAUSE
    return loss if loss.at_least > known.at_least and not was_just_told else None


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
