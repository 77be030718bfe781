"""A worker's own pending entries: what it was delivered and may not know of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pelops.errors import NoSuchGroup, PelopsError
from pelops.redis_streams.transport import Reply
from pelops.worker.server.door import Delivered, Source
from pelops.worker.server.names import Names
from pelops.worker.server.saying import in_chunks
from pelops.worker.server.scripts import Parts
from pelops.worker.server.streams import Streams
from pelops.worker.server.wire import Wire

_START: Final = b"0-0"
_UNKNOWN: Final = (0, 1)  # idle time and deliveries of what was delivered since it was listed


class History:
    """Reads page after page, and says that this worker has what it read."""

    def __init__(self, wire: Wire, names: Names, streams: Streams) -> None:
        self._wire = wire
        self._names = names
        self._streams = streams

    async def read(
        self, after: Mapping[bytes, bytes], count: int, skip: Collection[bytes]
    ) -> list[Delivered]:
        """As `Door.read_history`; raises what the server refused with."""
        at = dict(after)
        while pages := await self._pages(at, count):
            for page in pages:
                at[page.key] = page.entries[-1][0]
            kept = [page for page in pages if await self._settle(page, skip)]
            if kept:
                return kept
        return []

    async def _pages(self, at: Mapping[bytes, bytes], count: int) -> list[Delivered]:
        """A page of each stream that has one."""
        keys = self._streams.with_entries()
        starts = [at.get(key, _START) for key in keys]
        listed = [self._list(key, start, count) for key, start in zip(keys, starts, strict=True)]
        head = ("XREADGROUP", "GROUP", self._names.group, self._names.me, "COUNT", count)
        *lists, read = await self._wire.ask([*listed, (*head, "STREAMS", *keys, *starts)])
        if isinstance(read, NoSuchGroup) and self._streams.learn_missing(str(read)):
            self._wire.forgive()
            return await self._pages(at, count)
        if isinstance(read, PelopsError):
            raise read
        known = {key: _counts(listing) for key, listing in zip(keys, lists, strict=True)}
        pages = [Delivered(key, Source.HISTORY, entries) for key, entries in read if entries]
        for page in pages:
            for entry in page.entries:
                entry.extend(known[page.key].get(entry[0], _UNKNOWN))
        return pages

    def _list(self, key: bytes, start: bytes, count: int) -> Parts:
        # The history tells neither idle time nor delivery count, and changes both.
        return ("XPENDING", key, self._names.group, b"(" + start, "+", count, self._names.me)

    async def _settle(self, page: Delivered, skip: Collection[bytes]) -> bool:
        """Keep what is there, record what is gone; whether anything is left of the page."""
        mine = [entry for entry in page.entries if entry[0] not in skip]
        page.entries = [entry for entry in mine if entry[1] is not None]
        gone = [entry[0] for entry in mine if entry[1] is None]
        kept = [entry[0] for entry in page.entries]
        calls = [
            self._names.recording(script, page.key, "history", *some)
            for script, ids in (("keep", kept), ("bury", gone))
            for _, some in in_chunks({page.key: ids})
        ]
        for reply in await self._wire.ask(calls) if calls else ():
            if isinstance(reply, PelopsError):
                raise reply
        return bool(page.entries)


def _counts(listing: Reply) -> dict[bytes, tuple[int, int]]:
    if isinstance(listing, PelopsError):
        return {}
    return {entry_id: (idle, deliveries) for entry_id, _, idle, deliveries in listing}
