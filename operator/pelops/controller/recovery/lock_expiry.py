"""The expiry of a lock starts a scan of its group early, if the resource asks for it.

Recovery does not depend on these events: the next scan finds entries whose lock has expired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.runtime.cache import Name
from pelops.controller.runtime.gate import Gate, Limits, Place
from pelops.domain.locks import MatchLock, match_lock
from pelops.domain.naming import GroupKeys
from pelops.errors import PelopsError
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.keyspace_events import (
    ExpiryEvents,
    Subscription,
    can_see_expiries,
)

log = logging.getLogger(__name__)

TRIGGER: Final = "lock-expiry"
FOLLOW_S: Final = 5.0
DEBOUNCE_S: Final = 0.2
CHECK_S: Final = 60.0  # between two checks of the servers' setting
RECHECK_S: Final = 10.0  # the same while the setting is wrong

# For connecting, and for the check of the servers' setting, of one resource.
LIMITS: Final = Limits(deadline_s=5.0, per_namespace=64, per_endpoint=64)

UNSEEN: Final = (
    "Pelops does not receive keyspace notifications: set notify-keyspace-events to Ex on every "
    "master, or spec.recovery.tuning.keyspaceNotifications to false. Until then only scans recover "
    "entries whose lock expired"
)
_DENIED: Final = (
    "Pelops does not receive keyspace notifications: {}. Until then only scans recover entries "
    "whose lock expired"
)

Connect = Callable[[StreamConsumerGroup], Awaitable[tuple[Server, GroupKeys]]]
RequestScan = Callable[[Name, str], None]


def wants_notifications(resource: StreamConsumerGroup) -> bool:
    """Whether this resource asks for notifications and has a use for them."""
    spec = resource.spec
    recovery = spec.recovery
    is_recovering = recovery.is_enabled and not spec.suspend
    return recovery.locks is not None and recovery.tuning.keyspace_notifications and is_recovering


@dataclass(slots=True, kw_only=True)
class _Ear:
    """One resource's subscription, and the scan it is about to ask for."""

    server: Server
    keys: GroupKeys
    template: str
    matches: MatchLock
    subscription: Subscription
    quiet_until: asyncio.TimerHandle | None = None
    heard_meanwhile: bool = False


@dataclass(slots=True)
class _Check:
    at: float
    can_see: bool | None = field(default=None)


class ExpiryListener:
    """Keeps the subscriptions of all resources that ask, one connection per master."""

    def __init__(self, connect: Connect, request_scan: RequestScan) -> None:
        self._connect = connect
        self._request_scan = request_scan
        self._clock = asyncio.get_running_loop().time
        self._gate = Gate("lock expiry", LIMITS)
        self._events = ExpiryEvents()
        self._ears: dict[Name, _Ear] = {}
        self._checks: dict[Server, _Check] = {}

    async def run(self, resources: Callable[[], Iterable[StreamConsumerGroup]]) -> None:
        """Follow what `resources` answers, until cancelled; then every connection has ended."""
        try:
            while True:
                await self.follow(resources())
                await asyncio.sleep(FOLLOW_S)
        finally:
            await self.close()

    async def follow(self, resources: Iterable[StreamConsumerGroup]) -> None:
        """Listen for those of all resources that ask, and for no others."""
        asking = {_name(each): each for each in resources if wants_notifications(each)}
        for name in [name for name in self._ears if name not in asking]:
            await self._stop(name)
        await asyncio.gather(*(self._attend_alone(name, each) for name, each in asking.items()))
        await asyncio.gather(*(self._check_alone(server) for server in self._unchecked()))

    def problem(self, name: Name) -> str | None:
        """Why notifications for a resource are not received, for its status; None if they are.

        None also if that is not known: most providers do not show their configuration.
        """
        ear = self._ears.get(name)
        if ear is None:
            return None
        denied = ear.subscription.denied
        if denied is not None:
            return _DENIED.format(denied)
        check = self._checks.get(ear.server)
        return UNSEEN if check is not None and check.can_see is False else None

    async def close(self) -> None:
        """Hear no more."""
        for name in list(self._ears):
            await self._stop(name)
        await self._events.close()

    async def _attend_alone(self, name: Name, resource: StreamConsumerGroup) -> None:
        """Listen for one resource; what keeps it from that does not concern the others."""
        place = Place(name[0], str(resource.spec.redis))
        with suppress(PelopsError):  # the pass of the resource reports it; the gate has logged it
            attend = partial(self._attend, name, resource)
            await self._gate.run(place, attend, what="/".join(name))

    async def _check_alone(self, server: Server) -> None:
        name = next(name for name, ear in self._ears.items() if ear.server is server)
        with suppress(PelopsError):
            check = partial(self._check, server)
            await self._gate.run(Place(name[0], server.address), check, what="/".join(name))

    async def _attend(self, name: Name, resource: StreamConsumerGroup) -> None:
        locks = resource.spec.recovery.locks
        assert locks is not None
        try:
            server, keys = await self._connect(resource)
            if self._is_heard(name, server, keys, locks.key_template):
                return
            matches = match_lock(locks.key_template, keys)
        except PelopsError as error:
            # The pass of the resource reports it. Former subscriptions stay.
            log.debug("cannot listen for expired locks: %s", error)
            return
        latest = _Ear(
            server=server,
            keys=keys,
            template=locks.key_template,
            matches=matches,
            subscription=self._events.subscribe(server, lambda key: self._hear(name, key)),
        )
        await self._stop(name)  # only now: on the same server the connections stay
        self._ears[name] = latest

    def _is_heard(self, name: Name, server: Server, keys: GroupKeys, template: str) -> bool:
        ear = self._ears.get(name)
        return ear is not None and (ear.server, ear.keys, ear.template) == (server, keys, template)

    async def _stop(self, name: Name) -> None:
        ear = self._ears.pop(name, None)
        if ear is None:
            return
        if ear.quiet_until is not None:
            ear.quiet_until.cancel()
        await ear.subscription.close()

    def _hear(self, name: Name, key: str) -> None:
        ear = self._ears.get(name)
        # A server may lose millions of keys a minute: what is asked for already is not looked at.
        if ear is None or ear.heard_meanwhile or ear.matches(key) is None:
            return
        if ear.quiet_until is not None:
            ear.heard_meanwhile = True
            return
        self._ask(name, ear)

    def _ask(self, name: Name, ear: _Ear) -> None:
        loop = asyncio.get_running_loop()
        ear.heard_meanwhile = False
        ear.quiet_until = loop.call_later(DEBOUNCE_S, self._end_quiet, name, ear)
        self._request_scan(name, TRIGGER)

    def _end_quiet(self, name: Name, ear: _Ear) -> None:
        ear.quiet_until = None
        if ear.heard_meanwhile:
            self._ask(name, ear)

    def _unchecked(self) -> list[Server]:
        servers = {ear.server for ear in self._ears.values()}
        self._checks = {server: each for server, each in self._checks.items() if server in servers}
        return [server for server in servers if self._is_due(server)]

    def _is_due(self, server: Server) -> bool:
        check = self._checks.get(server)
        if check is None:
            return True
        return self._clock() - check.at >= (RECHECK_S if check.can_see is False else CHECK_S)

    async def _check(self, server: Server) -> None:
        self._checks[server] = _Check(self._clock())  # not again at once if this one fails
        self._checks[server] = _Check(self._clock(), await can_see_expiries(server))


def _name(resource: StreamConsumerGroup) -> Name:
    return (resource.metadata.namespace, resource.metadata.name)
