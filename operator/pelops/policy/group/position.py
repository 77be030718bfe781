"""The position of a group: whether to record it, and whether the group went back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.clock import MILLISECOND
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.ledger import CreationReason, GroupCreation
from pelops.domain.records.state import RememberedPosition
from pelops.domain.stream_observation import StreamObservation
from pelops.errors import InvalidSpec

REMEMBER_EVERY: Final = timedelta(seconds=5)  # if the group is lost, later deliveries are repeated
CHECKPOINT_EVERY: Final = timedelta(minutes=1)
# A status contains no time; it is written again within this.
_STATUS_AGE: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """The last known state of a group: observed by a replica, or from its status."""

    last_delivered_id: EntryId
    entries_added: int | None = None
    at: datetime | None = None  # on the server's clock; None: not known
    last_generated_id: EntryId | None = None
    lowest_pending: EntryId | None = None
    undelivered: int = 0  # lower bound
    pending: int = 0
    retry_undelivered: int = 0  # the same of the group's retry stream
    retry_pending: int = 0

    @classmethod
    def of(cls, stream: StreamObservation) -> LastSeen | None:
        """Return what to keep of an observation; None if the group does not exist."""
        group, retry = stream.group, stream.retry
        if group is None:
            return None
        return cls(
            last_delivered_id=group.last_delivered_id,
            entries_added=stream.entries_added,
            at=stream.server_time,
            last_generated_id=stream.last_generated_id,
            lowest_pending=group.lowest_pending,
            undelivered=group.at_least,
            pending=group.pending,
            retry_undelivered=retry.at_least if retry else 0,
            retry_pending=retry.pending if retry else 0,
        )

    @classmethod
    def remembered(cls, seen: RememberedPosition) -> LastSeen:
        """Return the same from the group's state in Redis."""
        return cls(
            last_delivered_id=seen.last_delivered_id,
            entries_added=seen.entries_added,
            at=seen.at,
            last_generated_id=seen.last_generated_id,
            lowest_pending=seen.lowest_pending,
            undelivered=seen.undelivered,
            pending=seen.pending,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionChange:
    """A change in the position of a group that exists."""

    before: EntryId
    after: EntryId
    seen: datetime | None  # when it was last seen at `before`, on the server's clock
    message: str


def read_status(resource: StreamConsumerGroup) -> LastSeen | None:
    """Read the last known state of the group from the resource's status; None if it has none.

    The counters are used only if the status is of the current generation: an older one may be of
    another server in `spec.redis`.
    """
    status, metadata = resource.status, resource.metadata
    group = status.group if status else None
    if status is None or group is None or not group.last_delivered_id:
        return None
    try:
        position = parse_entry_id(group.last_delivered_id)
        stream = status.stream
        if stream is None or status.observed_generation != metadata.generation:
            return LastSeen(last_delivered_id=position)
        generated = stream.last_generated_id
        return LastSeen(
            last_delivered_id=position,
            entries_added=stream.entries_added,
            last_generated_id=parse_entry_id(generated) if generated else None,
            undelivered=group.lag or 0,
            pending=group.pending or 0,
        )
    except InvalidSpec:
        return None


def choose_newest(
    memory: LastSeen | None, status: LastSeen | None, stream: StreamObservation
) -> LastSeen | None:
    """Return the newest known state of a group before this observation; None if there is none.

    `memory` is this replica's own, `status` is from the resource; the third source is the group's
    state in Redis. A status contains no time, so its counters decide which of two is newer.
    """
    seen = stream.state.seen
    remembered = None if seen is None else LastSeen.remembered(seen)
    if memory is not None and memory.at is not None:
        is_older = remembered is None or remembered.at is None or remembered.at <= memory.at
        return memory if is_older else remembered
    last_seen = memory or status
    if last_seen is None or remembered is None:
        return last_seen or remembered
    # After a creation or a loss, counters without a time may be those from before it.
    found_at, now = stream.state.loss_found_at, stream.server_time
    is_ambiguous = was_made_since(last_seen, stream) or happened_since(last_seen, found_at, now)
    is_behind = _progress(last_seen) < _progress(remembered)
    return remembered if is_ambiguous or is_behind else last_seen


def _progress(seen: LastSeen) -> tuple[int, EntryId]:
    return seen.entries_added or 0, seen.last_delivered_id


def needs_remembering(stream: StreamObservation) -> bool:
    """Whether to record the position now: it has changed, and was not recorded a moment ago.

    The script that writes it checks again.
    """
    group, state, now = stream.group, stream.state, stream.server_time
    if group is None:
        return False
    if state.seen is None:
        return True
    seen = state.seen
    remembered = (seen.last_delivered_id, seen.lowest_pending, seen.pending, seen.entries_added)
    if remembered != (
        *(group.last_delivered_id, group.lowest_pending),
        *(group.pending, stream.entries_added),
    ):
        return _is_past(state.seen.at, REMEMBER_EVERY, now)
    was_marked = state.checkpointed_at is not None and state.seen.at <= state.checkpointed_at
    return not was_marked and _is_past(state.checkpointed_at, CHECKPOINT_EVERY, now)


def decide_went_back(before: LastSeen | None, stream: StreamObservation) -> PositionChange | None:
    """Return how an existing group went back since the last observation; None if it did not.

    A failover to a replica that lagged, a restored backup and XGROUP SETID look the same. A group
    that the operator created again since then has not gone back.
    """
    group = stream.group
    if before is None or group is None or was_made_since(before, stream):
        return None
    was_at, is_at = before.last_delivered_id, group.last_delivered_id
    added, had_added = stream.entries_added, before.entries_added
    counts_less = added is not None and had_added is not None and added < had_added
    if is_at >= was_at and not counts_less:
        return None
    message = f"the position of the group is {is_at}; it was {was_at} before"
    if counts_less:
        message += f"; entries ever added to the stream: {added}, before: {had_added}"
    return PositionChange(before=was_at, after=is_at, seen=before.at, message=message)


def report_creation(creation: GroupCreation) -> str:
    """Return a message: at which position a missing group was created, and why."""
    repeats = f"number of entries that may be delivered again: {_report_repeats(creation.repeats)}"
    messages = {
        CreationReason.FIRST: f"Created the group at {creation.position}",
        CreationReason.CONTINUES: (
            f"The group had been deleted from Redis. Created it again at {creation.position}, its "
            f"last known position; {repeats}"
        ),
        CreationReason.LOST_TAIL: (
            "The group had been deleted from Redis and the stream lost its newest entries. Created "
            f"the group again at {creation.position}; {repeats}"
        ),
        CreationReason.NEW_STREAM: (
            "The group had been deleted from Redis, and the stream may have been created again. "
            f"Created the group again at {creation.position}; {repeats}"
        ),
    }
    if creation.why is CreationReason.FIRST:
        return messages[creation.why]
    return f"{messages[creation.why]}. Find out what deleted it (XGROUP DESTROY, DEL, EXPIRE)"


def _report_repeats(repeats: int | None) -> str:
    # Entries delivered after the last observation are delivered again too, and were not counted.
    if repeats is None:
        return "unknown"
    return f"at least {repeats:,}" if repeats else "0 known"


def _is_past(moment: datetime | None, pause: timedelta, now: datetime) -> bool:
    # A moment in the future was written before the clock went back, and counts as none.
    return moment is None or moment > now or now - moment >= pause


def was_made_since(before: LastSeen, stream: StreamObservation) -> bool:
    """Whether the operator created the group after its last observation."""
    return happened_since(before, stream.state.created_at, stream.server_time)


def happened_since(before: LastSeen, moment: datetime | None, now: datetime) -> bool:
    """Whether `moment`, a time that a script wrote, is after the group's last observation."""
    if moment is None:
        return False
    if before.at is not None:
        return moment > before.at - MILLISECOND  # scripts write whole milliseconds
    return now - moment < _STATUS_AGE
