"""The bounds of a read, and the entries of each stream within them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pelops.redis_core import LARGEST_PART, EntryId, parse_entry_id
from pyspark_redis_streams.batch.tasks import Axis, Span
from pyspark_redis_streams.errors import OptionError
from pyspark_redis_streams.options.parsed import ReadOptions
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.redis.streams import StreamState, find_streams, observe_stream

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of a read: an included ID, or `latest`, which is determined at planning."""

    default: EntryId | None  # None: latest
    by_stream: Mapping[str, EntryId | None] = field(default_factory=dict)

    def of(self, stream: str) -> EntryId | None:
        return self.by_stream.get(stream, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The start and the end of a read, both included."""

    start: Bound
    end: Bound


def parse_bounds(options: ReadOptions, *, default_start: str = EARLIEST) -> Bounds:
    """The bounds that the options name. Raises OptionError."""
    start, end = options.starting_id, options.ending_id
    if options.starting_timestamp is not None:
        start = str(options.starting_timestamp)
    if options.ending_timestamp is not None:
        end = f"({options.ending_timestamp}-0"
    first = _parse_bound("startingId", start or default_start, is_start=True)
    if options.starting_times is not None:
        times = options.starting_times.items()
        first = replace(first, by_stream={stream: EntryId(ms, 0) for stream, ms in times})
    bounds = Bounds(start=first, end=_parse_bound("endingId", end or LATEST, is_start=False))
    _refuse_unread_streams(options, bounds)
    return bounds


def _parse_bound(option: str, text: str, *, is_start: bool) -> Bound:
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Bound(default=_parse_end(option, stripped, is_start=is_start))
    try:
        named = json.loads(stripped)
    except json.JSONDecodeError as error:
        raise OptionError(
            f"option '{option}' looks like JSON but is not valid JSON: {error}"
        ) from error
    return Bound(
        default=EntryId.MIN if is_start else None,
        by_stream={
            stream: _parse_end(option, str(value).strip(), is_start=is_start)
            for stream, value in named.items()
        },
    )


def _parse_end(option: str, text: str, *, is_start: bool) -> EntryId | None:
    if text.lower() == LATEST:
        return None
    if text.lower() == EARLIEST:
        return EntryId.MIN
    bare = text.removeprefix("(")
    is_excluded = bare != text
    # Without a sequence number, a range from "5" begins at 5-0, and one to "5" ends with its last.
    missing_seq = LARGEST_PART if is_start == is_excluded else 0
    try:
        parsed = parse_entry_id(bare, missing_seq=missing_seq)
    except ValueError as error:
        raise OptionError(
            f"option '{option}' is '{text}': {error}, '(<ID>' to leave it out, '{EARLIEST}',"
            f" '{LATEST}', or JSON with one of these for each stream"
        ) from error
    if not is_excluded:
        return parsed
    return parsed.after() if is_start else parsed.before()


def _refuse_unread_streams(options: ReadOptions, bounds: Bounds) -> None:
    start = "startingId" if options.starting_times is None else "startingOffsetsByTimestamp"
    for option, bound in ((start, bounds.start), ("endingId", bounds.end)):
        unread = sorted(set(bound.by_stream) - set(options.streams))
        if unread and options.stream_pattern is None:
            raise OptionError(f"option '{option}' names stream '{unread[0]}', which is not read")


def batch_spans(connections: ServerConnections, bounds: Bounds, options: ReadOptions) -> list[Span]:
    """The ranges that a batch read must read. Raises StreamMissing and other ServerErrors."""
    may_be_missing = options.allow_missing or options.stream_pattern is not None
    spans = []
    for stream in find_streams(connections, options):
        state = observe_stream(connections, stream, allow_missing=may_be_missing)
        last = state.last_generated
        lower, upper = bounds.start.of(stream) or last.after(), bounds.end.of(stream) or last
        span = span_between(connections, stream, lower, min(upper, last))
        if span is not None:
            spans.append(_with_estimate(span, state))
    return spans


def span_between(
    connections: ServerConnections, stream: str, lower: EntryId, upper: EntryId, *, entries: int = 0
) -> Span | None:
    """The entries from `lower` to `upper`, both included; None when there are none."""
    if lower > upper:
        return None
    first = connections.execute(stream, "XRANGE", stream, str(lower), str(upper), "COUNT", 1)
    last = connections.execute(stream, "XREVRANGE", stream, str(upper), str(lower), "COUNT", 1)
    if not first or not last:
        return None
    return Span(
        stream=stream,
        node=connections.persist(lambda: connections.node_of(stream)),
        first=parse_entry_id(first[0][0]),
        last=parse_entry_id(last[0][0]),
        entries=entries,
    )


def _with_estimate(span: Span, state: StreamState) -> Span:
    whole = replace(span, first=state.first or EntryId.MIN, last=state.last or EntryId.MAX)
    is_whole = (span.first, span.last) == (whole.first, whole.last)
    share = 1 if is_whole else Axis(whole).share_of(span)
    return replace(span, entries=max(1, round(state.length * share)))
