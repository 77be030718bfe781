"""Whether entries were trimmed before the group was given them, and how many."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from pelops.domain.observation import GroupObservation, StreamObservation
from pelops.domain.state import Loss

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
    if known is None or known.position != loss.position:
        return loss
    was_just_told = known is state.loss and timedelta() <= loss.seen - known.seen < LOSS_PAUSE
    return loss if loss.at_least > known.at_least and not was_just_told else None


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
