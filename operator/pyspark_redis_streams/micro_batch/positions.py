"""The start of a streaming query, the end of its next micro-batch, and the ranges to read.

Every observation of a stream is compared with the query's position. So entries that were trimmed
before they were read are detected before the micro-batch that would miss them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pelops.redis_core import EntryId
from pyspark_redis_streams.batch.pages import ADVICE
from pyspark_redis_streams.batch.probes import estimated_end, exact_end, walk
from pyspark_redis_streams.batch.ranges import Bounds, span_between
from pyspark_redis_streams.batch.tasks import Span
from pyspark_redis_streams.errors import DataLoss, OptionError
from pyspark_redis_streams.micro_batch.offsets import (
    Offsets,
    Position,
    beginning,
    explain_loss,
    share_limit,
    tail,
    was_recreated,
    went_back,
)
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.redis.streams import StreamState, find_streams, observe_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBounds:
    """The start and the end of a micro-batch, and the number of all available entries."""

    begins: Offsets
    ends: Offsets
    available: int


class PositionFinder:
    """Determines positions in the streams of one query."""

    def __init__(self, connections: ServerConnections, options: ReadOptions) -> None:
        self._connections = connections
        self._options = options

    def first_positions(self, bounds: Bounds) -> Offsets:
        """Where a query without a checkpoint begins. Raises OptionError and ServerError."""
        return {stream: self._first_position(stream, bounds) for stream in self._streams(known=())}

    def tails(self, known: Offsets) -> Offsets:
        """Where the streams end now."""
        return {stream: tail(self._state(stream)) for stream in self._streams(known)}

    def next_positions(
        self, start: Offsets, target: Offsets | None, most: int | None
    ) -> BatchBounds:
        """Where the next micro-batch ends in each stream. Raises DataLoss and ServerError."""
        begins, fulls = {}, {}
        for stream in self._streams(start):
            if target is not None and stream not in target and stream not in start:
                continue  # created after the query fixed its target (trigger availableNow)
            state = self._state(stream)
            begins[stream] = self._resume(stream, start.get(stream, beginning(state)), state)
            fulls[stream] = _capped(tail(state), target, stream)
        available = {s: max(0, fulls[s].added - begins[s].added) for s in begins}
        if most is not None and sum(available.values()) > most:
            shares = share_limit(available, most)
            fulls = {s: self._end(s, begins[s], fulls[s], shares[s]) for s in begins}
        return BatchBounds(begins=begins, ends=fulls, available=sum(available.values()))

    def spans_between(self, start: Offsets, end: Offsets) -> list[Span]:
        """The ranges that a micro-batch must read. Raises DataLoss and ServerError."""
        spans = []
        for stream, until in end.items():
            known = until.since or start.get(stream)
            if known is not None and known.id == until.id:
                continue
            state = self._state(stream)
            begin = self._resume(stream, known or beginning(state), state)
            entries = max(1, until.added - begin.added)
            lower = begin.id.after()
            span = span_between(self._connections, stream, lower, until.id, entries=entries)
            if span is not None:
                spans.append(span)
            if state.last_generated < until.id:
                self._refuse(explain_loss(stream, until, state))
        return spans

    def _streams(self, known: Iterable[str]) -> list[str]:
        """The query's streams; with a pattern also those that it read before."""
        found = set(known)
        if self._options.stream_pattern is None:
            return list(self._options.streams)
        return sorted(found.union(find_streams(self._connections, self._options)))

    def _state(self, stream: str) -> StreamState:
        return observe_stream(self._connections, stream, allow_missing=True)

    def _first_position(self, stream: str, bounds: Bounds) -> Position:
        state = observe_stream(self._connections, stream, allow_missing=self._options.allow_missing)
        wanted = bounds.start.of(stream)
        if wanted is None:
            return tail(state)
        before = wanted.before()
        if before > state.last_generated:
            raise OptionError(
                f"the options begin stream '{stream}' at {wanted}, which lies in its future: it has"
                f" come to {state.last_generated}"
            )
        return self._counted(stream, before, state)

    def _counted(self, stream: str, before: EntryId, state: StreamState) -> Position:
        if state.first is None or before < state.first:
            return beginning(state)
        _, behind = walk(self._connections, stream, before, state.last_generated, state.length)
        later = self._state(stream)
        if later.first is None or later.first > before:
            return beginning(later)  # trimmed while it was counted
        return Position(id=before, added=state.added - behind)

    def _resume(self, stream: str, position: Position, state: StreamState) -> Position:
        """The position to continue from: the same, or after lost entries if they are tolerated."""
        problem = explain_loss(stream, position, state)
        if problem is None:
            return position
        self._refuse(problem)
        if went_back(position, state) or was_recreated(position, state):
            return beginning(state)
        return Position(id=position.id, added=state.removed)

    def _refuse(self, problem: str | None) -> None:
        if problem is not None and self._options.fail_on_data_loss:
            raise DataLoss(f"{problem}. {ADVICE}")

    def _end(self, stream: str, begin: Position, full: Position, share: int) -> Position:
        if not share:
            return begin
        if full.added - begin.added <= share:
            return full
        find = exact_end if self._options.exact_limit else estimated_end
        return find(self._connections, stream, begin, full, share)


def _capped(full: Position, target: Offsets | None, stream: str) -> Position:
    if target is None or stream not in target:
        return full
    return min(full, target[stream], key=lambda position: position.id)
