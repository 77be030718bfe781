"""The offsets of a streaming query: its position in each stream, as stored in its checkpoint.

An offset is `{stream: {"id": ID, "added": N}}`: everything up to the ID is read, and N entries had
been added to the stream up to it. Redis never reduces this counter. So its difference to the
present count is the lag, and entries in that range that no longer exist are lost.

Spark does not store where a query began. When the first micro-batch is repeated, Spark requests the
initial offset again, and `latest` is then another position. So the end offset of that micro-batch
has its start in `since`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pelops.redis_core import EntryId, parse_entry_id
from pyspark_redis_streams.redis.streams import StreamState


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position in one stream up to which everything is read."""

    id: EntryId
    added: int  # entries ever added up to the position
    is_estimate: bool = False  # `added` is an estimate: `limitMode` is estimate
    since: Position | None = field(default=None, compare=False)  # where the micro-batch begins

    def render(self) -> dict[str, Any]:
        reported: dict[str, Any] = {"id": str(self.id), "added": self.added}
        if self.is_estimate:
            reported["estimate"] = True
        if self.since is not None:
            reported["since"] = self.since.render()
        return reported


Offsets = dict[str, Position]


def parse_offsets(reported: Mapping[str, Any]) -> Offsets:
    """The positions from an offset in a checkpoint."""
    return {stream: _parse(place) for stream, place in reported.items()}


def _parse(place: Mapping[str, Any]) -> Position:
    since = place.get("since")
    return Position(
        id=parse_entry_id(place["id"]),
        added=int(place["added"]),
        is_estimate=bool(place.get("estimate", False)),
        since=None if since is None else _parse(since),
    )


def beginning(state: StreamState) -> Position:
    """The position before all existing entries."""
    return Position(id=EntryId.MIN, added=state.removed)


def tail(state: StreamState) -> Position:
    """The position after all existing entries."""
    return Position(id=state.last_generated, added=state.added)


def went_back(position: Position, state: StreamState) -> bool:
    """Whether the stream now ends before this position: it was replaced, or lost entries."""
    return state.last_generated < position.id or (
        state.added < position.added and not position.is_estimate
    )


def was_recreated(position: Position, state: StreamState) -> bool:
    """Whether more entries exist than were added since the position, so it is a new stream."""
    if position.is_estimate or state.first is None or state.first <= position.id:
        return False
    return state.length > state.added - position.added


def entries_lost(position: Position, state: StreamState) -> int:
    """The number of entries after the position that no longer exist because of trimming.

    Entries in that range that XDEL deleted are counted too. For an estimated position the number
    is inexact, and at least 1 if entries may be lost.
    """
    if state.first is not None and state.first <= position.id:
        return 0
    gone = state.added - position.added - state.length
    if position.is_estimate:
        return max(1, gone) if state.removed and state.last_generated > position.id else 0
    return max(0, gone)


def explain_loss(stream: str, position: Position, state: StreamState) -> str | None:
    """The message about entries that a query at this position has lost; None when it lost none."""
    if went_back(position, state):
        if state.added == 0:
            return f"stream '{stream}' no longer exists: it was deleted or flushed"
        return (
            f"stream '{stream}' went back: the query had reached {position.added} entries up to"
            f" {position.id}, and now it has {state.added} up to {state.last_generated}; it was"
            " deleted and created again, or a failover lost its newest entries"
        )
    if was_recreated(position, state):
        return (
            f"stream '{stream}' was deleted or flushed and created again: it has {state.length}"
            f" entries after {position.id}, but only {state.added - position.added} were added"
            " since; earlier entries are lost"
        )
    lost = entries_lost(position, state)
    if not lost:
        return None
    about = "about " if position.is_estimate else ""
    return (
        f"stream '{stream}' was trimmed up to {state.first or state.last_generated} while this"
        f" query had reached {position.id}: {about}{lost} entries were trimmed before they were"
        " read"
    )


def share_limit(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """The number of entries of each stream for a micro-batch, in proportion to its available ones.

    The shares add up to the limit, or to the total if that is smaller. The remainder of rounding
    down goes to the streams with the largest fractions.
    """
    total = sum(available.values())
    if total <= limit:
        return dict(available)
    shares = {stream: number * limit // total for stream, number in available.items()}
    left = limit - sum(shares.values())
    by_rest = sorted(available, key=lambda stream: (-(available[stream] * limit % total), stream))
    for stream in by_rest[:left]:
        shares[stream] += 1
    return shares
