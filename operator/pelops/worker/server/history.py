"""A worker's own pending entries: what it was delivered and may not know of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pelops.errors import NoSuchGroup, PelopsError
from pelops.worker.server.acknowledgements import in_chunks
from pelops.worker.server.adapter import Delivered, DeliverySource
from pelops.worker.server.claims import Streams
from pelops.worker.server.connection import Wire
from pelops.worker.server.names import Names
from pelops.worker.server.scripts import Parts, worker_script

_START: Final = b"0-0"

_Pending = Sequence[Any]  # ID, consumer, idle time in ms, deliveries


class HistoryReader:
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
        while listed := await self._list(at, count):
            for key, pending in listed.items():
                at[key] = pending[-1][0]
            pages = await self._read(listed, skip)
            kept = [page for page in pages if await self._settle(page)]
            if kept:
                return kept
        await self._appear(at)
        return []

    async def _appear(self, at: Mapping[bytes, bytes]) -> None:
        """Be a consumer that others can see: below Redis 7.2 a read that waits makes none."""
        keys = self._streams.with_entries()
        head = ("XREADGROUP", "GROUP", self._names.group, self._names.me, "COUNT", 1)
        behind_all = [at.get(key, _START) for key in keys]
        (reply,) = await self._wire.ask([(*head, "STREAMS", *keys, *behind_all)])
        if isinstance(reply, PelopsError):
            raise reply

    async def _list(self, at: Mapping[bytes, bytes], count: int) -> dict[bytes, list[_Pending]]:
        """A page of what is pending here on each stream that has any.

        XREADGROUP would answer the bodies as well, and make all of it look as if it had just been
        delivered: the evidence of a crash too, which the operator would then leave here.
        """
        keys = self._streams.with_entries()
        replies = await self._wire.ask([self._listing(key, at, count) for key in keys])
        for reply in replies:
            if isinstance(reply, NoSuchGroup) and self._streams.learn_missing(str(reply)):
                self._wire.forgive()
                return await self._list(at, count)
            if isinstance(reply, PelopsError):
                raise reply
        return {key: listed for key, listed in zip(keys, replies, strict=True) if listed}

    def _listing(self, key: bytes, at: Mapping[bytes, bytes], count: int) -> Parts:
        start = b"(" + at.get(key, _START)
        return ("XPENDING", key, self._names.group, start, "+", count, self._names.me)

    async def _read(
        self, listed: Mapping[bytes, list[_Pending]], skip: Collection[bytes]
    ) -> list[Delivered]:
        """With their bodies, None for one that is gone; what is to be skipped is left out."""
        wanted = [(key, one) for key, some in listed.items() for one in some if one[0] not in skip]
        calls: list[Parts] = [("XRANGE", key, one[0], one[0]) for key, one in wanted]
        pages = {key: Delivered(key, DeliverySource.HISTORY, []) for key in listed}
        replies = await self._wire.ask(calls) if calls else []
        for (key, (entry_id, _, idle_ms, deliveries)), reply in zip(wanted, replies, strict=True):
            if isinstance(reply, PelopsError):
                raise reply
            body = reply[0][1] if reply else None
            pages[key].entries.append([entry_id, body, idle_ms, deliveries])
        return list(pages.values())

    async def _settle(self, page: Delivered) -> bool:
        """Keep what is there, record what is gone; whether anything is left of the page."""
        mine = page.entries
        page.entries = [entry for entry in mine if entry[1] is not None]
        gone = [entry[0] for entry in mine if entry[1] is None]
        kept = [entry[0] for entry in page.entries]
        keeps, buries = self._calls("renew", page.key, kept), self._calls("bury", page.key, gone)
        replies = await self._wire.ask([*keeps, *buries]) if mine else []
        for reply in replies:
            if isinstance(reply, PelopsError):
                raise reply
        # What was acknowledged, or given to another, since it was listed.
        keep = worker_script("renew")
        lost = {one for reply in replies[: len(keeps)] for one in keep.read(reply)["lost"]}
        page.entries = [entry for entry in page.entries if entry[0] not in lost]
        return bool(page.entries)

    def _calls(self, script: str, key: bytes, ids: list[bytes]) -> list[Parts]:
        chunks = (some for _, some in in_chunks({key: ids}))
        return [self._names.recording(script, key, "history", ids=some) for some in chunks]
