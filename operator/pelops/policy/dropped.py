"""Whether somebody deleted a consumer that had entries pending, and how many it may have had.

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
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pelops.domain.liveness import OwnerMatch
from pelops.domain.observation import ConsumerObservation, GroupObservation, StreamObservation
from pelops.domain.state import Totals
from pelops.domain.workload import PodObservation

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
    if group is None or (made is not None and made >= before.at - timedelta(milliseconds=1)):
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
