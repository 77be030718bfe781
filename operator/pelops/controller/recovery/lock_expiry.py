"""The expiry of a lock starts a scan of its group early, if the resource asks for it.

Recovery does not depend on these events: the next scan finds entries whose lock has expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.gate import Gate, Limits, Place
from pelops.domain.locks import MatchLock, match_lock
from pelops.domain.naming import GroupKeys
from pelops.redis_core.masters import end_tasks
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.keyspace_events import ExpiryEvents

FOLLOW_S: Final = 5.0  # also how soon a failed connection is made again
DEBOUNCE_S: Final = 0.2  # between two requests for scans
PROBLEM: Final = (
    "Pelops does not receive keyspace notifications: {}. Until then only scans recover entries "
    "whose lock expired"
)


class ExpiryListener:
    """Receives the events of all servers whose resources ask for them."""

    def __init__(
        self,
        connect: Callable[[StreamConsumerGroup], Awaitable[tuple[Server, GroupKeys]]],
        request_scan: Callable[[Name], None],
    ) -> None:
        self._connect, self._request_scan = connect, request_scan
        self._gate = Gate("lock expiry", Limits(deadline_s=FOLLOW_S))
        self._groups: dict[Name, tuple[Server, MatchLock]] = {}
        self._locks: dict[Server, dict[Name, MatchLock]] = {}  # the same by server
        self._events: dict[Server, tuple[ExpiryEvents, asyncio.Task[None]]] = {}
        self._expired: set[Name] = set()  # groups whose scan is requested after the pause
        self._pause: asyncio.TimerHandle | None = None

    async def run(self, resources: Callable[[], Iterable[StreamConsumerGroup]]) -> None:
        """Follow what `resources` answers, until cancelled; then every connection has ended."""
        try:
            while True:
                await self.follow(resources())
                await asyncio.sleep(FOLLOW_S)
        finally:
            await self.follow([])

    async def follow(self, resources: Iterable[StreamConsumerGroup]) -> None:
        """Listen for these resources, and for no others."""
        wanted = {(each.metadata.namespace, each.metadata.name): each for each in resources}
        self._groups = {name: each for name, each in self._groups.items() if name in wanted}
        subscribing = []
        for name, each in wanted.items():
            place, subscribe = (
                Place(name[0], str(each.spec.redis)),
                partial(self._subscribe, name, each),
            )
            subscribing.append(self._gate.run(place, subscribe, what="/".join(name)))
        # The pass of the resource reports an error, and what is known of the group stays.
        await asyncio.gather(*subscribing, return_exceptions=True)
        self._locks = {}
        for name, (server, matches) in self._groups.items():
            self._locks.setdefault(server, {})[name] = matches
        unused = [server for server in self._events if server not in self._locks]
        await end_tasks([self._events.pop(server)[1] for server in unused])

    def problem(self, name: Name) -> str | None:
        """Why notifications for a resource are not received; None also if that is not known."""
        group = self._groups.get(name)
        problem = self._events[group[0]][0].problem if group else None
        return PROBLEM.format(problem) if problem else None

    async def _subscribe(self, name: Name, resource: StreamConsumerGroup) -> None:
        server, keys = await self._connect(resource)
        locks = resource.spec.recovery.locks
        matches = match_lock(locks.key_template if locks else "", keys)
        events, task = self._events.get(server) or (None, None)
        if events is None:
            events = ExpiryEvents(server, partial(self._note_expired, server))
        if task is None or task.done():
            # Here, so that its connections count for the namespace of the resource.
            task = asyncio.create_task(events.run())
        self._events[server], self._groups[name] = (events, task), (server, matches)

    def _note_expired(self, server: Server, key: str) -> None:
        # A server may lose millions of keys a minute: what is noted already is not matched again.
        for name, matches in self._locks.get(server, {}).items():
            if name not in self._expired and matches(key) is not None:
                self._expired.add(name)
        if self._expired and self._pause is None:
            self._request_scans()

    def _request_scans(self) -> None:
        names, self._expired = self._expired, set()
        loop = asyncio.get_running_loop()
        self._pause = loop.call_later(DEBOUNCE_S, self._request_scans) if names else None
        for name in names:
            self._request_scan(name)
