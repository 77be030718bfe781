"""How far a streaming query has come in each stream, as its checkpoint keeps it.

An offset is `{stream: {"id": ID, "added": N}}`: everything up to the ID is done, and N entries had
been added to the stream by then. Redis counts additions and never counts back, so the difference
to the number now is the lag, and what of it is no longer there is lost.

Spark keeps no offset of where a query began: when its first micro-batch is run again, it asks anew
where to begin, and `latest` is another place by then. The end of that micro-batch therefore says
`since` which place it goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pelops.redis_core import EntryId, parse_entry_id
from pyspark_redis_streams.redis.streams import StreamState


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The place in one stream up to which everything is done."""

    id: EntryId
    added: int  # entries ever added up to there
    is_estimate: bool = False  # `added` was guessed: `limitMode` is estimate
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
    """The offset of a checkpoint."""
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
    """Before everything that is there now."""
    return Position(id=EntryId.MIN, added=state.removed)


def tail(state: StreamState) -> Position:
    """Behind everything that is there now."""
    return Position(id=state.last_generated, added=state.added)


def went_back(position: Position, state: StreamState) -> bool:
    """Whether the stream is not the one, or not as far, as it was at this position."""
    return state.last_generated < position.id or (
        state.added < position.added and not position.is_estimate
    )


def was_made_anew(position: Position, state: StreamState) -> bool:
    """Whether more entries lie behind the position than were added since: then it was elsewhere."""
    if position.is_estimate or state.first is None or state.first <= position.id:
        return False
    return state.length > state.added - position.added


def entries_lost(position: Position, state: StreamState) -> int:
    """How many entries behind the position are gone because the stream was cut beyond it.

    Exact as long as no entry between the position and the cut was deleted by XDEL, which counts
    as lost too. An estimated position cannot tell how many, and answers at least 1.
    """
    if state.first is not None and state.first <= position.id:
        return 0
    gone = state.added - position.added - state.length
    if position.is_estimate:
        return max(1, gone) if state.removed and state.last_generated > position.id else 0
    return max(0, gone)


def explain_loss(stream: str, position: Position, state: StreamState) -> str | None:
    """What a query at this position has lost; None when it can go on."""
    if went_back(position, state):
        if state.added == 0:
            return f"stream '{stream}' no longer exists: it was deleted or flushed"
        return (
            f"stream '{stream}' went back: the query had reached {position.added} entries up to"
            f" {position.id}, and now it has {state.added} up to {state.last_generated}; it was"
            " deleted and created again, or a failover lost its newest entries"
        )
    if was_made_anew(position, state):
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
    """How many entries each stream may give to a micro-batch, in proportion to what it has.

    The shares add up to the limit, or to all there is; each stream with entries comes in turn,
    since what rounding leaves goes to those with most left.
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
