"""Divides ranges of entries into tasks of about equal size.

Redis has no command for the n-th entry. So a few entries are read at evenly spaced points. Their
density gives an estimate of the number between, and each cut is moved to an existing entry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from pelops.redis_core import LARGEST_PART, EntryId, Node
from pyspark_redis_streams.batch.pages import EntryRange

MOST_PARTITIONS_OF_A_STREAM = 10_000


class EntriesPartition(InputPartition):
    """Ranges that one task reads, all from one node."""

    def __init__(self, ranges: tuple[EntryRange, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The range of one stream for a read, not divided yet."""

    stream: str
    node: Node
    first: EntryId
    last: EntryId
    entries: int  # known or estimated


@dataclass(frozen=True, slots=True)
class Sample:
    """A few adjacent entries: the first ones from a point of a span on."""

    point: EntryId
    ids: tuple[EntryId, ...]


def first_points(span: Span, number: int) -> list[EntryId]:
    """Evenly spaced points from the first entry on, at which to read samples."""
    axis = Axis(span)
    return [axis.id_at(step / number) for step in range(number)]


def next_point(span: Span, samples: Sequence[Sample]) -> EntryId:
    """The point for one more sample: the middle of the stretch with most estimated entries."""
    stretches = _stretches(span, samples)
    heaviest = max(stretches, key=lambda stretch: stretch.weight)
    return Axis(span).id_at((heaviest.begin + heaviest.end) / 2)


def choose_cuts(span: Span, samples: Sequence[Sample], parts: int) -> list[EntryId]:
    """IDs that divide a span into `parts` of about equal size, by the density of the samples."""
    axis = Axis(span)
    stretches = [stretch for stretch in _stretches(span, samples) if stretch.weight]
    total = sum(stretch.weight for stretch in stretches)
    cuts: list[EntryId] = []
    passed = 0.0
    for stretch in stretches:
        while len(cuts) < parts - 1:
            wanted = total * (len(cuts) + 1) / parts
            if passed + stretch.weight < wanted:
                break
            share = (wanted - passed) / stretch.weight
            cuts.append(axis.id_at(stretch.begin + share * (stretch.end - stretch.begin)))
        passed += stretch.weight
    return cuts


def cut_span(span: Span, cuts: Sequence[EntryId]) -> list[EntryRange]:
    """Ranges that together hold each entry once; each cut is an entry that exists."""
    inside = sorted({cut for cut in cuts if span.first < cut <= span.last})
    edges = [span.first, *inside, span.last]
    return [
        EntryRange(
            stream=span.stream, first=first, last=last, keeps_last=position == len(edges) - 2
        )
        for position, (first, last) in enumerate(pairwise(edges))
    ]


def parts_of(span: Span, entries_per_part: int) -> int:
    """The number of parts of a span."""
    return max(1, min(MOST_PARTITIONS_OF_A_STREAM, round(span.entries / entries_per_part)))


def group_small(
    planned: Sequence[tuple[Span, list[EntryRange]]], entries_per_part: int
) -> list[EntriesPartition]:
    """One task for each range of a large span; small spans of one node share tasks."""
    tasks: list[EntriesPartition] = []
    small: dict[Node, list[Span]] = defaultdict(list)
    ranges_of = {id(span): ranges for span, ranges in planned}
    for span, ranges in planned:
        if len(ranges) > 1:
            tasks += [EntriesPartition((single,)) for single in ranges]
        else:
            small[span.node].append(span)
    for spans in small.values():
        tasks += [
            EntriesPartition(tuple(ranges_of[id(span)][0] for span in group))
            for group in _groups(spans, entries_per_part)
        ]
    return tasks


def _groups(spans: Sequence[Span], entries_per_part: int) -> list[list[Span]]:
    groups: list[list[Span]] = []
    filled = 0
    for span in spans:
        if not groups or filled + span.entries > entries_per_part:
            groups.append([])
            filled = 0
        groups[-1].append(span)
        filled += span.entries
    return groups


class Axis:
    """IDs of a span as fractions: by time, or by sequence number if all share a millisecond."""

    def __init__(self, span: Span) -> None:
        self._by_time = span.first.ms != span.last.ms
        self._first = span.first
        self._length = max(1, self._coordinate(span.last) - self._coordinate(span.first) + 1)

    def _coordinate(self, entry_id: EntryId) -> int:
        return entry_id.ms if self._by_time else entry_id.seq

    def id_at(self, fraction: float) -> EntryId:
        # With integers, because a float cannot distinguish two sequence numbers near 2^64.
        offset = self._length * round(fraction * 2**32) // 2**32
        if self._by_time:
            ms = min(LARGEST_PART, self._first.ms + offset)
            return EntryId(ms, self._first.seq if offset == 0 else 0)
        return EntryId(self._first.ms, min(LARGEST_PART, self._first.seq + offset))

    def share_of(self, part: Span) -> float:
        """The share of this span's length that another one covers."""
        return min(1.0, self.fraction_of(part.last) - self.fraction_of(part.first))

    def fraction_of(self, entry_id: EntryId) -> float:
        return (self._coordinate(entry_id) - self._coordinate(self._first)) / self._length

    def entries_per_unit(self, ids: Sequence[EntryId]) -> float:
        # A hostile server may list IDs in any order.
        distance = max(0.0, self._coordinate(ids[-1]) - self._coordinate(ids[0]))
        return len(ids) / (distance + 1) * self._length


@dataclass(frozen=True, slots=True)
class _Stretch:
    begin: float
    end: float
    weight: float  # estimated number of entries


def _stretches(span: Span, samples: Sequence[Sample]) -> list[_Stretch]:
    axis = Axis(span)
    ordered = sorted(samples, key=lambda sample: sample.point)
    ends = [axis.fraction_of(sample.point) for sample in ordered[1:]] + [1.0]
    return [_stretch(axis, sample, end) for sample, end in zip(ordered, ends, strict=True)]


def _stretch(axis: Axis, sample: Sample, end: float) -> _Stretch:
    begin = axis.fraction_of(sample.point)
    if not sample.ids:
        return _Stretch(begin, end, 0.0)
    # There are no entries between the point and the first one of the sample.
    occupied = max(0.0, end - max(begin, axis.fraction_of(sample.ids[0])))
    return _Stretch(begin, end, axis.entries_per_unit(sample.ids) * occupied)
