"""Entries that end process after process, where no operator counts them.

What was delivered twice in vain runs alone. If its process ends then, nothing else can be the
cause, so these runs are counted beside the group before they begin, and forgotten when they end in
whatever way. An entry that has ended too many processes becomes a dead letter instead of a run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pelops.errors import RedisError
from pelops.worker.entry import Entry
from pelops.worker.handlers import Handler
from pelops.worker.outcomes import MAX_RETRIES, Reject
from pelops.worker.server.adapter import GroupAdapter

log = logging.getLogger("pelops.worker")


def counted(handler: Handler, adapter: GroupAdapter, max_crashes: int) -> Handler:
    """The same handler, which rejects what has ended `max_crashes` processes while it ran alone."""
    runs = _Runs(adapter, max_crashes)
    one, many = handler.one, handler.many

    async def handle_one(entry: Entry) -> Any:
        assert one is not None
        return await (runs.run(entry, one, entry) if entry.runs_isolated else one(entry))

    async def handle_many(entries: list[Entry]) -> Any:
        assert many is not None
        first = entries[0]  # what runs alone is a batch of its own
        return await (runs.run(first, many, entries) if first.runs_isolated else many(entries))

    return Handler(one=handle_one) if one is not None else Handler(many=handle_many)


class _Runs:
    def __init__(self, adapter: GroupAdapter, max_crashes: int) -> None:
        self._adapter = adapter
        self._max_crashes = max_crashes

    async def run(self, entry: Entry, handle: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
        crashes = await self._begin(entry)
        if crashes >= self._max_crashes:
            raise Reject(MAX_RETRIES, f"{crashes} processes ended while it ran alone")
        try:
            outcome = await handle(given)
        except GeneratorExit:  # the loop is being closed: there is no waiting any more
            raise
        except BaseException:
            await self._end(entry)
            raise
        await self._end(entry)
        return outcome

    async def _begin(self, entry: Entry) -> int:
        try:
            return await self._adapter.begin_isolated(entry.raw_id) - 1
        except RedisError as error:
            log.warning("%r: it runs uncounted: %s", entry, type(error).__name__)
            return 0

    async def _end(self, entry: Entry) -> None:
        try:
            await self._adapter.end_isolated(entry.raw_id)
        except RedisError as error:
            log.warning("%r: its run stays counted: %s", entry, type(error).__name__)
