"""Waking what is idle: who waits for the next entry of a stream is reported within milliseconds.

Idle streams share connections, hundreds to each. It is a help and no promise: whoever is not
watched, or is no longer, has to look on its own. Nothing may rest on being told.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import key_slot
from pelops.errors import PelopsError
from pelops.redis_core.masters import Masters
from pelops.redis_core.server import Server, Topology
from pelops.redis_core.task_end import end_tasks
from pelops.redis_streams.scaling.wait import Wait

log = logging.getLogger(__name__)

STREAMS_PER_CONNECTION: Final = (
    250  # to wait on them anew costs the server a tenth of a millisecond
)
CONNECTIONS_PER_SERVER: Final = 16
REFUSED_S: Final = 60.0  # how long a stream is left out that the server refused to wait on


class Waker:
    """Reports the next entry of streams that are idle. One for all servers, in one event loop."""

    def __init__(self, wake: Callable[[Hashable], None]) -> None:
        """`wake` is called between two turns of the event loop and must be quick."""
        self._wake = wake
        self._watches: dict[Server, _Watch] = {}
        self._places: dict[Hashable, _Watch] = {}
        self._closed = asyncio.Event()

    def watch(self, token: Hashable, server: Server, streams: Mapping[str, EntryId]) -> bool:
        """Call `wake(token)` once, when one of the streams has an entry after the ID beside it.

        That may be there already. Then the token is forgotten; to watch it again replaces what was
        watched. False when there is no room, or the server refused to wait on one of the streams in
        the last minute: then the caller looks on its own. All streams lie in one slot of a cluster.
        """
        self.unwatch(token)
        if self._closed.is_set():
            return False
        self._watches = {one: each for one, each in self._watches.items() if not each.is_over}
        watch = self._watches.get(server)
        if watch is None:
            watch = self._watches[server] = _Watch(server, self._report)
        if not watch.add(token, streams):
            return False
        self._places[token] = watch
        return True

    def unwatch(self, token: Hashable) -> None:
        """Want to know no more. Total."""
        watch = self._places.pop(token, None)
        if watch is not None:
            watch.remove(token)

    def is_watched(self, token: Hashable) -> bool:
        """Whether an entry would be told of now: the server answers and lets us wait.

        Not yet just after `watch`, and no more once the server is gone, until it is back.
        """
        watch = self._places.get(token)
        return watch is not None and watch.is_listening(token)

    async def run(self) -> None:
        """Return when closed; when cancelled, close first."""
        try:
            await self._closed.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """End every connection; nothing is told from now on."""
        self._closed.set()
        self._places.clear()
        watches, self._watches = list(self._watches.values()), {}
        await asyncio.gather(*(watch.close() for watch in watches))

    def _report(self, token: Hashable) -> None:
        self._places.pop(token, None)
        try:
            self._wake(token)
        except Exception:
            # A mistake of ours for one group must not end the connection of all.
            log.exception("waking %s broke", token)


class _Watch:
    """All that waits on one server."""

    def __init__(self, server: Server, report: Callable[[Hashable], None]) -> None:
        self._server = server
        self._masters = Masters(server)
        self._report = report
        self._waits: dict[Wait, int | None] = {}  # with the slot of a cluster
        self._places: dict[Hashable, Wait] = {}
        self._refused: dict[str, float] = {}  # until when
        self._refuses_until = -math.inf
        self._has_complained = False

    @property
    def is_over(self) -> bool:
        self._forget_ended()
        return not self._waits and time.monotonic() >= self._refuses_until

    def add(self, token: Hashable, streams: Mapping[str, EntryId]) -> bool:
        self._forget_ended()
        now = time.monotonic()
        if not streams or any(self._refused.get(each, now) > now for each in streams):
            return False
        wait = self._find_room(self._slot(streams), len(streams))
        if wait is None:
            return False
        self._places[token] = wait
        wait.add(token, streams)
        return True

    def remove(self, token: Hashable) -> None:
        wait = self._places.pop(token, None)
        if wait is not None:
            wait.remove(token)

    def is_listening(self, token: Hashable) -> bool:
        wait = self._places.get(token)
        return wait is not None and wait.is_asked(token)

    async def close(self) -> None:
        tasks = [task for wait in self._waits for task in wait.tasks()]
        self._waits.clear()
        await end_tasks(tasks)

    def _slot(self, streams: Iterable[str]) -> int | None:
        is_cluster = self._server.kind.topology == Topology.CLUSTER
        return key_slot(next(iter(streams))) if is_cluster else None

    def _find_room(self, slot: int | None, needed: int) -> Wait | None:
        for wait, its_slot in self._waits.items():
            if its_slot == slot and wait.streams + needed <= STREAMS_PER_CONNECTION:
                return wait
        if needed > STREAMS_PER_CONNECTION or not self._may_connect():
            return None
        wait = Wait(self._server, self._masters, report=self._report_one, refuse=self._refuse)
        self._waits[wait] = slot
        return wait

    def _may_connect(self) -> bool:
        if len(self._waits) < CONNECTIONS_PER_SERVER:
            return True
        for wait in self._waits:
            if wait.is_empty:
                wait.dismiss()  # there is room the next time
                break
        return False

    def _report_one(self, token: Hashable) -> None:
        self._places.pop(token, None)
        self._report(token)

    def _refuse(self, streams: Iterable[str], error: PelopsError) -> None:
        now = time.monotonic()
        self._refuses_until = now + REFUSED_S
        known = {each: until for each, until in self._refused.items() if until > now}
        self._refused = known | dict.fromkeys(streams, self._refuses_until)
        if not self._has_complained:
            self._has_complained = True
            log.warning("%s is looked at in intervals instead: %s", self._server.address, error)

    def _forget_ended(self) -> None:
        self._waits = {each: slot for each, slot in self._waits.items() if not each.is_over}
