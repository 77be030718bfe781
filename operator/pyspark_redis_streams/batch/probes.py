"""Looks into streams to cut what is to be read into tasks."""

from __future__ import annotations

from collections.abc import Sequence

from pelops.redis_core.entry_id import EntryId, parse_entry_id
from pyspark_redis_streams.batch.tasks import (
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
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.page_size import PageSizer

_FIRST_SAMPLES = 16
_SAMPLES = 64
_ENTRIES_OF_A_SAMPLE = 32


def plan_spans(
    connections: ServerConnections, spans: Sequence[Span], options: ReadOptions
) -> list[EntriesPartition]:
    """Tasks that together read each entry of the spans once."""
    per_part = entries_per_part(spans, options)
    planned = []
    for span in spans:
        parts = parts_of(span, per_part)
        cuts = [] if parts == 1 else _existing_cuts(connections, span, parts)
        planned.append((span, cut_span(span, cuts)))
    return group_small(planned, per_part)


def entries_per_part(spans: Sequence[Span], options: ReadOptions) -> int:
    """How many entries a task gets: the smaller of what the two options ask for."""
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
        found = connections.ask(
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
        # One entry alone would tell nothing about density.
        count = max(2, self._sizer.count)
        found = self._connections.ask(stream, "XRANGE", stream, str(point), last, "COUNT", count)
        self._sizer.observe(found)
        return Sample(point, tuple(parse_entry_id(entry[0]) for entry in found))
