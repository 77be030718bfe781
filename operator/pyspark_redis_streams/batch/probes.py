"""Finds the entries that divide a range into tasks, and the n-th entry after a position.

Redis has no command for either, so entries are read to find them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pelops.redis_core import EntryId, Node, parse_entry_id
from pyspark_redis_streams.batch.pages import PageSizer
from pyspark_redis_streams.batch.tasks import (
    Axis,
    EntriesPartition,
    Sample,
    Span,
    choose_cuts,
    cut_span,
    first_points,
    group_small,
    next_point,
    parts_of,
)
from pyspark_redis_streams.micro_batch.offsets import Position
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.server_connections import ServerConnections

_FIRST_SAMPLES = 16
_SAMPLES = 64
_ENTRIES_OF_A_SAMPLE = 32


def plan_spans(
    connections: ServerConnections, spans: Sequence[Span], options: ReadOptions
) -> list[EntriesPartition]:
    """The tasks that together read each entry of the spans once."""
    per_part = entries_per_part(spans, options)
    planned = []
    for span in spans:
        parts = parts_of(span, per_part)
        cuts = [] if parts == 1 else _existing_cuts(connections, span, parts)
        planned.append((span, cut_span(span, cuts)))
    return group_small(planned, per_part)


def entries_per_part(spans: Sequence[Span], options: ReadOptions) -> int:
    """The number of entries for a task: the smaller one by the two options."""
    if options.min_partitions is None:
        return options.entries_per_partition
    total = sum(span.entries for span in spans)
    return max(1, min(options.entries_per_partition, total // options.min_partitions))


def _existing_cuts(connections: ServerConnections, span: Span, parts: int) -> list[EntryId]:
    sampler = _Sampler(connections, span)
    samples = [sampler.sample(point) for point in first_points(span, _FIRST_SAMPLES)]
    while len(samples) < _SAMPLES:
        samples.append(sampler.sample(next_point(span, samples)))
    cuts = []
    for wished in choose_cuts(span, samples, parts):
        found = connections.execute(
            span.stream, "XRANGE", span.stream, str(wished), str(span.last), "COUNT", 1
        )
        if found:
            cuts.append(parse_entry_id(found[0][0]))
    return cuts


class _Sampler:
    def __init__(self, connections: ServerConnections, span: Span) -> None:
        self._connections = connections
        self._span = span
        self._sizer = PageSizer(_ENTRIES_OF_A_SAMPLE)

    def sample(self, point: EntryId) -> Sample:
        stream, last = self._span.stream, str(self._span.last)
        # A single entry does not show the density.
        count = max(2, self._sizer.count)
        found = self._connections.execute(
            stream, "XRANGE", stream, str(point), last, "COUNT", count
        )
        self._sizer.observe(found)
        return Sample(point, tuple(parse_entry_id(entry[0]) for entry in found))


_PAGE = 1000


def walk(
    connections: ServerConnections, stream: str, after: EntryId, until: EntryId, most: int
) -> tuple[EntryId, int]:
    """The last of at most `most` entries after `after`, up to `until`, and their number."""
    passed, last = 0, after
    sizer = PageSizer(_PAGE)
    while passed < most:
        asked = min(sizer.count, most - passed)
        page = connections.execute(stream, "XRANGE", stream, f"({last}", str(until), "COUNT", asked)
        passed += len(page)
        sizer.observe(page)
        if page:
            last = parse_entry_id(page[-1][0])
        if len(page) < asked:
            break
    return last, passed


def exact_end(
    connections: ServerConnections, stream: str, start: Position, full: Position, most: int
) -> Position:
    """The position `most` entries after `start`; `full` when there are fewer."""
    last, passed = walk(connections, stream, start.id, full.id, most)
    if passed < most:
        return full
    return Position(id=last, added=start.added + passed, is_estimate=start.is_estimate)


def estimated_end(
    connections: ServerConnections, stream: str, start: Position, full: Position, most: int
) -> Position:
    """An estimate of `exact_end`: it assumes an even density from the first entry to `full`."""
    found = connections.execute(stream, "XRANGE", stream, f"({start.id}", str(full.id), "COUNT", 1)
    if not found:
        return full
    available = max(1, full.added - start.added)
    span = Span(
        stream=stream,
        node=Node("", 0),
        first=parse_entry_id(found[0][0]),
        last=full.id,
        entries=available,
    )
    wished = Axis(span).id_at(min(1.0, most / available))
    found = connections.execute(stream, "XRANGE", stream, str(wished), str(full.id), "COUNT", 1)
    end = parse_entry_id(found[0][0]) if found else full.id
    if end >= full.id:
        return full
    return Position(id=end, added=start.added + most, is_estimate=True)
