"""Reads a range of entries page by page, and detects missing entries.

After trimming, deletion or a failover, XRANGE returns fewer entries and no error. So a range begins
and ends with an entry that existed at planning. Each page begins with the last entry of the
previous page. If such an entry is missing, `explain_gap` decides whether it was deleted by a user
or lost. Pages of large entries have fewer entries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pelops.redis_core import EntryId, parse_entry_id
from pyspark_redis_streams.errors import DataLoss, ServerError
from pyspark_redis_streams.redis.node_connection import Argument, Away, NodeConnection
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.redis.streams import StreamState, observe_stream

# Redis needs about a millisecond for either, and serves no other client meanwhile.
BYTES_OF_A_PAGE = 1_000_000
PARTS_OF_A_PAGE = 20_000  # names and values

_FIRST_COUNT = 64
_LOOKED_AT = 8


class PageSizer:
    """The number of entries to request: few at first, then by the size of received entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = min(most, _FIRST_COUNT)

    def observe(self, page: Sequence[Any]) -> None:
        """Adapt to the size of some entries of a page; an empty page changes nothing."""
        if page:
            some = [entry[1] or () for entry in page[:: max(1, len(page) // _LOOKED_AT)]]
            size = sum(len(b"".join(body)) for body in some) // len(some) + 1
            parts = sum(map(len, some)) // len(some) + 1
            few = min(BYTES_OF_A_PAGE // size, PARTS_OF_A_PAGE // parts)
            self.count = max(1, min(self._most, few))


Entry = list[Any]  # an ID and a flat list of names and values, as hiredis returns it


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRange:
    """A range of one stream between two entries that existed at planning."""

    stream: str
    first: EntryId
    last: EntryId
    keeps_last: bool  # False: the last entry is only checked, and belongs to the next range


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    page_size: int
    entries_per_second: int | None
    fail_on_data_loss: bool


class PageReader:
    """Reads the pages of one range, and requests each page before it yields the previous one."""

    def __init__(
        self, connections: ServerConnections, wanted: EntryRange, pace: PageLimits
    ) -> None:
        self._connections = connections
        self._wanted = wanted
        self._pace = pace
        self._until = str(wanted.last).encode()
        self._sizer = PageSizer(pace.page_size)
        self._asked = 0
        self._request: tuple[Argument, ...] = ()
        self._link: NodeConnection | None = None

    def pages(self) -> Iterator[list[Entry]]:
        """Every entry of the range, in order. Raises DataLoss and ServerError."""
        expected = str(self._wanted.first).encode()
        self._request_from(expected, overlap=0)
        is_first = True
        while True:
            began = time.monotonic()
            page = self._receive()
            self._sizer.observe(page)
            self._check_progress(page, expected)
            is_last = len(page) < self._asked or page[-1][0] == self._until
            overlaps = bool(page) and page[0][0] == expected
            if not overlaps:
                self._refuse_gap(expected)
            if is_last:
                yield from self._finish(page, drops_first=overlaps and not is_first)
                return
            expected = page[-1][0]
            self._request_from(expected, overlap=1)
            if overlaps and not is_first:
                del page[0]
            yield page
            is_first = False
            self._keep_pace(len(page), began)

    def _check_progress(self, page: list[Entry], expected: bytes) -> None:
        """Raise ServerError for a page that does not advance the start of the next request."""
        if page and self._asked > 1 and not _goes_on(page[-1][0], expected, len(page)):
            raise ServerError(
                f"XRANGE {self._wanted.stream} returned entries that were not requested"
            )

    def _finish(self, page: list[Entry], *, drops_first: bool) -> Iterator[list[Entry]]:
        if not page or page[-1][0] != self._until:
            self._refuse_gap(self._until)
        elif not self._wanted.keeps_last:
            del page[-1]
        if drops_first:
            del page[:1]
        if page:
            yield page

    def _request_from(self, first: bytes, *, overlap: int) -> None:
        stream = self._wanted.stream
        self._asked = self._sizer.count + overlap
        self._request = ("XRANGE", stream, first, self._until, "COUNT", self._asked)
        try:
            self._link = self._connections.link_for(stream)
            self._link.send(*self._request)
        except Away:
            self._link = None

    def _receive(self) -> list[Entry]:
        if self._link is not None:
            try:
                page: list[Entry] = self._link.receive(*self._request)
                return page
            except Away:
                self._connections.forget()
        page = self._connections.execute(self._wanted.stream, *self._request)
        return page

    def _refuse_gap(self, missing: bytes) -> None:
        if self._pace.fail_on_data_loss:
            refuse_gap(self._connections, self._wanted.stream, parse_entry_id(missing))

    def _keep_pace(self, entries: int, began: float) -> None:
        if self._pace.entries_per_second is not None:
            due_s = entries / self._pace.entries_per_second
            time.sleep(max(0.0, due_s - (time.monotonic() - began)))


def _goes_on(last: bytes, expected: bytes, entries: int) -> bool:
    reached, asked = parse_entry_id(last), parse_entry_id(expected)
    return reached > asked or (reached == asked and entries == 1)


ADVICE = "Set option 'failOnDataLoss' to false to read what is left"


def refuse_gap(connections: ServerConnections, stream: str, missing: EntryId) -> None:
    """Raise DataLoss unless the entry was deleted by XDEL, which a user did on purpose."""
    state = observe_stream(connections, stream, allow_missing=True)
    lost = explain_gap(stream, missing, state)
    if lost is not None:
        raise DataLoss(f"{lost}. {ADVICE}")


def explain_gap(stream: str, missing: EntryId, state: StreamState) -> str | None:
    """What happened to entries from `missing` on; None when it was deleted by XDEL."""
    if state.added == 0 and state.length == 0:
        return f"stream '{stream}' no longer exists: it was deleted or flushed during the read"
    if state.last_generated < missing:
        return (
            f"stream '{stream}' went back to {state.last_generated}, before {missing}: it was"
            " deleted and created again, or a failover lost its newest entries"
        )
    if state.first is None or state.first > missing:
        return (
            f"stream '{stream}' lost entries from {missing} on before they were read: it was"
            f" trimmed, or emptied by XDEL, up to {state.first or state.last_generated}"
        )
    if state.max_deleted >= missing:
        return None
    return (
        f"entry {missing} of stream '{stream}' is missing although it was neither trimmed nor"
        " deleted: a failover lost it"
    )
