"""Whether a worker reads the retry stream, and what happens to one that is no longer used.

The retry stream counts as unread if a copy stays undelivered for `UNREAD_AFTER` although workers
are ready. Meanwhile they must either receive entries of the stream, or hold no entry while the
stream has none for them. A worker that names both streams in one XREADGROUP would have received the
copy in either case, however long its BLOCK is. A worker that is busy with its entries reads neither
stream, and proves nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pelops.api.group.recovery import RecoverySpec
from pelops.clock import MILLISECOND
from pelops.domain.entry_id import EntryId
from pelops.domain.stream_observation import RetryObservation, StreamObservation

NOTED_AFTER: Final = timedelta(seconds=5)  # how long a copy waits before it is noted
UNREAD_AFTER: Final = timedelta(seconds=30)  # after the note


def plan_note(stream: StreamObservation, *, may_read: bool) -> bool | None:
    """Return True to note the first waiting copy, False to delete the note, None for neither.

    `may_read`: a worker is ready, or the workers are not known.
    """
    noted = stream.state.retry_wait
    first = _waits_first(stream)
    if first is None or not may_read:
        return False if noted is not None and _can_forget(stream) else None
    waited = stream.server_time.timestamp() * 1000 - first.ms
    if noted is not None and noted.first_undelivered == first:
        return None
    return True if waited >= NOTED_AFTER / MILLISECOND else None


def is_unread(stream: StreamObservation, *, may_read: bool, has_ready_worker: bool) -> bool:
    """Whether workers read the stream, or wait for it, and none reads the retry stream."""
    noted, group, retry = stream.state.retry_wait, stream.group, stream.retry
    if noted is None or group is None or retry is None or not may_read:
        return False
    age = stream.server_time - noted.at  # negative: noted before the clock went back
    if noted.first_undelivered != _waits_first(stream) or age < UNREAD_AFTER:
        return False
    reads_stream = group.last_delivered_id > noted.position
    holds_nothing = group.lag == 0 and group.pending == 0 and retry.pending == 0
    return reads_stream or (has_ready_worker and holds_nothing)


def find_left(stream: StreamObservation) -> RetryObservation | None:
    """Return a retry stream that is no longer used and still holds entries; None otherwise."""
    retry = stream.retry
    if retry is None or not retry.is_former:
        return None
    is_empty = retry.lag == 0 and retry.pending == 0
    return None if is_empty else retry


def may_return(recovery: RecoverySpec, stream: StreamObservation) -> bool:
    """Whether copies may go back to the stream: recovery is on, and no other group reads it."""
    return recovery.is_enabled and stream.groups <= 1


def needs_return(recovery: RecoverySpec, stream: StreamObservation) -> bool:
    """Whether undelivered copies must be moved back to the stream now."""
    left, group = find_left(stream), stream.group
    if left is None or left.at_least == 0 or group is None or not may_return(recovery, stream):
        return False
    # Copies are never delivered at a position ahead of the stream; RecoveryHealthy reports that.
    return group.last_delivered_id <= stream.last_generated_id


def _waits_first(stream: StreamObservation) -> EntryId | None:
    retry = stream.retry
    return None if retry is None or retry.is_former else retry.first_undelivered


def _can_forget(stream: StreamObservation) -> bool:
    # The script uses the key of the retry stream; if that is absent, a slot migration stops it.
    return stream.retry is not None and stream.retry.exists
