"""Finds the entry that is the n-th after a place, which Redis cannot be asked for."""

from __future__ import annotations

from pelops.redis_core.endpoint import Node
from pelops.redis_core.entry_id import EntryId, parse_entry_id
from pyspark_redis_streams.batch.tasks import Axis, Span
from pyspark_redis_streams.micro_batch.offsets import Position
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.page_size import PageSizer

_PAGE = 1000


def walk(
    connections: ServerConnections, stream: str, after: EntryId, until: EntryId, most: int
) -> tuple[EntryId, int]:
    """The last of at most `most` entries behind `after`, up to `until`, and how many they are."""
    passed, last = 0, after
    sizer = PageSizer(_PAGE)
    while passed < most:
        asked = min(sizer.count, most - passed)
        page = connections.ask(stream, "XRANGE", stream, f"({last}", str(until), "COUNT", asked)
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
    """Where `most` entries behind `start` end; `full` when that is all there is."""
    last, passed = walk(connections, stream, start.id, full.id, most)
    if passed < most:
        return full
    return Position(id=last, added=start.added + passed, is_estimate=start.is_estimate)


def estimated_end(
    connections: ServerConnections, stream: str, start: Position, full: Position, most: int
) -> Position:
    """About where that is, as if entries came evenly between the first one to read and `full`."""
    found = connections.ask(stream, "XRANGE", stream, f"({start.id}", str(full.id), "COUNT", 1)
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
    found = connections.ask(stream, "XRANGE", stream, str(wished), str(full.id), "COUNT", 1)
    end = parse_entry_id(found[0][0]) if found else full.id
    if end >= full.id:
        return full
    return Position(id=end, added=start.added + most, is_estimate=True)
