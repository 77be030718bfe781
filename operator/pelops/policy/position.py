"""What a group's position tells: whether to write it down, and whether the group went back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.ledger import CreationReason, GroupCreation
from pelops.domain.observation import StreamObservation

REMEMBER_EVERY: Final = timedelta(seconds=5)  # what came later is delivered again after a loss
BOOKMARK_EVERY: Final = timedelta(minutes=1)
# A status has no time of its own; it is written again within this.
_STATUS_AGE: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """Where a group stood when it was looked at before, by this replica or as its status says."""

    last_delivered_id: EntryId
    entries_added: int | None = None
    at: datetime | None = None  # on the server's clock; None: not known

    @classmethod
    def of(cls, stream: StreamObservation) -> LastSeen | None:
        """What to keep of a look; None when there is no group."""
        if stream.group is None:
            return None
        return cls(
            last_delivered_id=stream.group.last_delivered_id,
            entries_added=stream.entries_added,
            at=stream.server_time,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionChange:
    """A group that exists, and is not where it had been."""

    before: EntryId
    after: EntryId
    seen: datetime | None  # when it was last seen at `before`, on the server's clock
    message: str


def needs_remembering(stream: StreamObservation) -> bool:
    """Whether the position is to be written down now: another one, and not written a moment ago.

    The script that writes it looks again.
    """
    group, state, now = stream.group, stream.state, stream.server_time
    if group is None:
        return False
    if state.seen is None:
        return True
    remembered = (state.seen.last_delivered_id, state.seen.lowest_pending)
    if remembered != (group.last_delivered_id, group.lowest_pending):
        return _is_past(state.seen.at, REMEMBER_EVERY, now)
    was_marked = state.bookmarked_at is not None and state.seen.at <= state.bookmarked_at
    return not was_marked and _is_past(state.bookmarked_at, BOOKMARK_EVERY, now)


def decide_went_back(before: LastSeen | None, stream: StreamObservation) -> PositionChange | None:
    """How an existing group went back since it was seen before, or None.

    A failover to a replica that lagged, a restored backup and XGROUP SETID look the same. A group
    that we made anew ourselves has not gone back: it is where it was put.
    """
    group = stream.group
    if before is None or group is None or _was_made_since(before, stream):
        return None
    was_at, is_at = before.last_delivered_id, group.last_delivered_id
    added, had_added = stream.entries_added, before.entries_added
    counts_less = added is not None and had_added is not None and added < had_added
    if is_at >= was_at and not counts_less:
        return None
    message = f"the group stands at {is_at} and stood at {was_at} before"
    if counts_less:
        message += f"; the stream counts {added} entries ever added and counted {had_added} before"
    return PositionChange(before=was_at, after=is_at, seen=before.at, message=message)


def tell_creation(creation: GroupCreation) -> str:
    """Where a group that was missing begins, and why, for people."""
    number = "more than can be counted" if creation.repeats is None else str(creation.repeats)
    repeats = f"entries that may be delivered again: {number}"
    told = {
        CreationReason.FIRST: f"the group begins at {creation.position}",
        CreationReason.CONTINUES: (
            f"the group was gone from Redis; it begins anew at {creation.position}, where it is "
            f"known to have been; {repeats}"
        ),
        CreationReason.LOST_TAIL: (
            f"the group was gone from Redis and the stream lacks its newest entries; it begins "
            f"anew at {creation.position}; {repeats}"
        ),
        CreationReason.NEW_STREAM: (
            f"the group was gone from Redis, and nothing shows that this is the stream that it "
            f"read; it begins anew at {creation.position}; {repeats}"
        ),
    }
    return told[creation.why]


def _is_past(moment: datetime | None, pause: timedelta, now: datetime) -> bool:
    # A moment in the future was written before the clock went back, and counts as none.
    return moment is None or moment > now or now - moment >= pause


def _was_made_since(before: LastSeen, stream: StreamObservation) -> bool:
    made = stream.state.created_at
    if made is None:
        return False
    if before.at is not None:
        return made > before.at - timedelta(milliseconds=1)  # scripts write whole milliseconds
    return stream.server_time - made < _STATUS_AGE
