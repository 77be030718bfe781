"""Reads a range of entries page by page, and shows that none of it was missed.

Redis answers XRANGE over what has been trimmed, deleted or lost in a failover with fewer entries
and no error. A range therefore begins and ends with an entry that was there when it was planned,
and each page begins again with the last entry of the page before: where such an entry is missing,
`gaps.explain_gap` finds out why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pelops.redis_core.entry_id import EntryId, parse_entry_id
from pyspark_redis_streams.batch.gaps import refuse_gap
from pyspark_redis_streams.redis.connections import ServerConnections
from pyspark_redis_streams.redis.link import Argument, Away, NodeConnection
from pyspark_redis_streams.redis.page_size import PageSizer

Entry = list[Any]  # an ID and a flat list of names and values; a list, as hiredis makes it


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRange:
    """Entries of one stream between two that existed when this was planned."""

    stream: str
    first: EntryId
    last: EntryId
    keeps_last: bool  # False: the last one is read to see that it is there, and left to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    page_size: int
    entries_per_second: int | None
    fail_on_data_loss: bool


class PageReader:
    """Pages of one range; the next one is asked for before the present one is handed out."""

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
        self._ask_from(expected, overlap=0)
        is_first = True
        while True:
            began = time.monotonic()
            page = self._receive()
            self._sizer.observe(page)
            is_last = len(page) < self._asked or page[-1][0] == self._until
            overlaps = bool(page) and page[0][0] == expected
            if not overlaps:
                self._refuse_gap(expected)
            if is_last:
                yield from self._finish(page, drops_first=overlaps and not is_first)
                return
            expected = page[-1][0]
            self._ask_from(expected, overlap=1)
            if overlaps and not is_first:
                del page[0]
            yield page
            is_first = False
            self._keep_pace(len(page), began)

    def _finish(self, page: list[Entry], *, drops_first: bool) -> Iterator[list[Entry]]:
        if not page or page[-1][0] != self._until:
            self._refuse_gap(self._until)
        elif not self._wanted.keeps_last:
            del page[-1]
        if drops_first:
            del page[:1]
        if page:
            yield page

    def _ask_from(self, first: bytes, *, overlap: int) -> None:
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
        page = self._connections.ask(self._wanted.stream, *self._request)
        return page

    def _refuse_gap(self, missing: bytes) -> None:
        if self._pace.fail_on_data_loss:
            refuse_gap(self._connections, self._wanted.stream, parse_entry_id(missing))

    def _keep_pace(self, entries: int, began: float) -> None:
        if self._pace.entries_per_second is not None:
            due_s = entries / self._pace.entries_per_second
            time.sleep(max(0.0, due_s - (time.monotonic() - began)))
