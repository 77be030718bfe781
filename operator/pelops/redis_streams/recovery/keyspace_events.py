"""Events of expired keys, from the keyspace notifications of every master.

A server sends an event only if its notify-keyspace-events has E and x. It does so when it removes
the key: at the next access, or later in the background, which may take long with many volatile
keys. Events during a disconnection are lost. So an event may only speed something up, and nothing
may depend on it. The server's configuration is never changed.
https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeAlias

from redis import exceptions

from pelops.clock import with_jitter
from pelops.domain.backoff import backoff_s
from pelops.domain.endpoint import Node
from pelops.errors import PelopsError, PermissionDenied, RedisUnavailable
from pelops.redis_core.commands import text_of
from pelops.redis_core.errors import permission_denied, translate_failure, translate_reply
from pelops.redis_core.masters import Masters, end_tasks
from pelops.redis_core.replies.shapes import LATEST_MS, BadShape, reading
from pelops.redis_core.replies.wire import ReplyLimit
from pelops.redis_core.server import Server
from pelops.redis_core.transport import Command, LocatedConnection, Reply

log = logging.getLogger(__name__)

# Identical to the pattern of `pelops acl`, because an ACL compares patterns literally. So it
# matches all databases.
PATTERN: Final = "__keyevent@*__:expired"
SILENCE_S: Final = 10.0  # after so long without a message, check that the server still answers
ANSWER_S: Final = 5.0
LOOK_S: Final = 10.0  # interval of looking up the masters; earlier when a connection ends
SHORTEST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 10.0

ReportExpired: TypeAlias = Callable[[str], None]

_ASK_SETTING: Final = Command(parts=("CONFIG", "GET", "notify-keyspace-events"))

_ABSENT: Final = -2  # PTTL of a key that does not exist


async def read_lifetimes(server: Server, keys: Sequence[str]) -> list[timedelta]:
    """The remaining lifetimes of those keys that have one: one PTTL each, in one round trip.

    Raises PelopsError when one of the commands fails.
    """
    commands = [Command(parts=("PTTL", key), key=key) for key in keys]
    lifetimes = []
    for left_ms in await server.execute_many(commands):
        if isinstance(left_ms, PelopsError):
            raise left_ms
        if left_ms > 0:
            lifetimes.append(timedelta(milliseconds=min(left_ms, LATEST_MS)))
    return lifetimes


async def find_existing(server: Server, keys: Sequence[str]) -> list[str]:
    """Those of the keys that exist: one PTTL each, in one round trip.

    Raises PelopsError when one of the commands fails.
    """
    commands = [Command(parts=("PTTL", key), key=key) for key in keys]
    existing_keys = []
    for key, left_ms in zip(keys, await server.execute_many(commands), strict=True):
        if isinstance(left_ms, PelopsError):
            raise left_ms
        if left_ms != _ABSENT:
            existing_keys.append(key)
    return existing_keys


class Subscription:
    """One subscription to the expiry events of a server."""

    def __init__(self, listener: _Listener, report: ReportExpired) -> None:
        self._listener = listener
        self.report = report

    @property
    def is_complete(self) -> bool:
        """Whether every known master has confirmed the subscription."""
        return self._listener.is_complete

    @property
    def denied(self) -> PermissionDenied | None:
        """The error if the ACL forbids the subscription at a master, else None."""
        return self._listener.denied

    async def close(self) -> None:
        """End the subscription; closing the last one ends the connections."""
        await self._listener.leave(self)


class ExpiryEvents:
    """Listens once to each server for all of its subscriptions."""

    def __init__(self) -> None:
        self._listeners: dict[Server, _Listener] = {}

    def subscribe(self, server: Server, report: ReportExpired) -> Subscription:
        """Call `report` with the name of every key that expires, once the masters have confirmed.

        It is called in the event loop and must be quick. Lost connections are opened again, to the
        then masters. Bytes of a name that are not UTF-8 become surrogate escapes.
        """
        listener = self._listeners.get(server)
        if listener is None or listener.is_over:
            listener = self._listeners[server] = _Listener(server)
        self._forget_ended()
        return listener.join(report)

    async def close(self) -> None:
        """End every connection."""
        listeners, self._listeners = list(self._listeners.values()), {}
        await asyncio.gather(*(listener.close() for listener in listeners))

    def _forget_ended(self) -> None:
        self._listeners = {s: each for s, each in self._listeners.items() if not each.is_over}


async def can_see_expiries(server: Server) -> bool | None:
    """Whether every master sends expiry events; None when that is not known.

    It is not known if CONFIG GET is forbidden or unknown, as with many providers, or if a master
    does not answer.
    """
    masters = Masters(server)
    try:
        nodes = await masters.find()
    except PelopsError:
        return None
    reports = await asyncio.gather(*(_reports_expiries(masters, node) for node in nodes))
    if False in reports:
        return False
    return None if None in reports else True


async def _reports_expiries(masters: Masters, node: Node) -> bool | None:
    channel = masters.channel(node)
    try:
        (setting,) = await channel.exchange([_ASK_SETTING])
    except PelopsError:
        return None
    finally:
        await channel.close()
    if not isinstance(setting, list) or len(setting) != 2:
        return None
    letters = text_of(setting[1])
    return "E" in letters and ("x" in letters or "A" in letters)


_PARTS: Final = frozenset({bytes, int})
# Redis allows much longer key names, but no lock has one.
_MESSAGE: Final = ReplyLimit(64 * 1024)


class _Listener:
    """A connection to every master of one server, as long as there are subscriptions."""

    def __init__(self, server: Server) -> None:
        self._masters = Masters(server)
        self._channel_name = f"__keyevent@{server.endpoint.db}__:expired".encode()
        self._subscriptions: list[Subscription] = []
        self._connections: dict[Node, asyncio.Task[None]] = {}
        self._confirmed: set[Node] = set()
        self._denials: dict[Node, PermissionDenied] = {}
        self._look_again = asyncio.Event()
        self._following = asyncio.create_task(self._follow())
        self.is_over = False

    @property
    def is_complete(self) -> bool:
        return bool(self._connections) and self._confirmed == set(self._connections)

    @property
    def denied(self) -> PermissionDenied | None:
        return next(iter(self._denials.values()), None)

    def join(self, report: ReportExpired) -> Subscription:
        subscription = Subscription(self, report)
        self._subscriptions.append(subscription)
        return subscription

    async def leave(self, subscription: Subscription) -> None:
        with suppress(ValueError):
            self._subscriptions.remove(subscription)
        if not self._subscriptions:
            await self.close()

    async def close(self) -> None:
        self.is_over = True
        self._subscriptions.clear()
        await end_tasks([self._following])
        await self._settle(frozenset())

    async def _follow(self) -> None:
        while True:
            self._look_again.clear()
            try:
                await self._settle(await self._masters.find())
            except PelopsError as error:
                log.debug("cannot look for the masters: %s", error)
            except Exception:
                # No reply of a server may end the listener.
                log.exception("Unexpected error while looking for the masters")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look_again.wait(), LOOK_S)

    async def _settle(self, masters: frozenset[Node]) -> None:
        # A task that ended by an unexpected error is started again at the next look-up.
        former = [n for n, task in self._connections.items() if n not in masters or task.done()]
        await end_tasks(self._connections[node] for node in former)
        for node in former:
            self._connections.pop(node, None)
        for node in masters - set(self._connections):
            self._connections[node] = asyncio.create_task(self._stay_connected(node))

    async def _stay_connected(self, node: Node) -> None:
        failures = 0
        try:
            while True:
                try:
                    await self._listen(node)
                except PelopsError as error:
                    log.debug("no expiry events for now: %s", error)
                    self._note_denial(node, error)
                was_heard = node in self._confirmed
                failures = 1 if was_heard else failures + 1
                self._confirmed.discard(node)
                self._look_again.set()  # it may no longer be a master
                # All replicas of the operator lose a server at the same moment.
                wait_s = backoff_s(failures, first_s=SHORTEST_WAIT_S, longest_s=LONGEST_WAIT_S)
                await asyncio.sleep(with_jitter(wait_s, 0.5))
        finally:
            self._confirmed.discard(node)
            self._denials.pop(node, None)

    def _note_denial(self, node: Node, error: PelopsError) -> None:
        if isinstance(error, PermissionDenied):
            self._denials[node] = error

    async def _listen(self, node: Node) -> None:
        """Receive the events of one server until it fails. Always raises PelopsError."""
        channel = self._masters.channel(node)
        try:
            await self._hear(node, await channel.take())
        except (exceptions.RedisError, OSError) as error:
            raise _explain(error, node) from error
        finally:
            await channel.close()

    async def _hear(self, node: Node, connection: LocatedConnection) -> None:
        await _subscribe(connection)
        is_asked = True
        while True:
            wait_s = ANSWER_S if is_asked else SILENCE_S
            message = await connection.receive(_MESSAGE, timeout_s=wait_s)
            if isinstance(message, Exception):
                raise message
            if message is not None:
                is_asked = False
                self._take(node, message)
            elif is_asked:
                raise RedisUnavailable(f"Redis at {node} stopped answering")
            else:
                # A dead connection is silent too. A repeated subscription needs no other right,
                # changes nothing, and a live server confirms it.
                await _subscribe(connection)
                is_asked = True

    @reading("PSUBSCRIBE")
    def _take(self, node: Node, message: Reply) -> None:
        if type(message) is not list or not all(type(part) in _PARTS for part in message):
            raise BadShape("it is not a message")
        if message[0] == b"psubscribe":
            self._confirmed.add(node)
            self._denials.pop(node, None)
        elif message[0] == b"pmessage" and message[2] == self._channel_name:
            self._report(message[3].decode("utf-8", "surrogateescape"))

    def _report(self, key: str) -> None:
        for subscription in tuple(self._subscriptions):
            try:
                subscription.report(key)
            except Exception:
                # A bug in one subscriber must not end the connection of all.
                log.exception("Unexpected error while processing an expired key")


async def _subscribe(connection: LocatedConnection) -> None:
    packed = connection.pack_command("PSUBSCRIBE", PATTERN)
    await connection.send_packed_command(packed, check_health=False)


def _explain(error: Exception, node: Node) -> PelopsError:
    if isinstance(error, exceptions.ResponseError):
        refusal = translate_reply(error, command="PSUBSCRIBE", key=None, writes=False)
        is_denied = isinstance(refusal, PermissionDenied)
        # Redis names the command or the channel, or neither in some versions.
        return permission_denied(f"psubscribe {PATTERN}", None) if is_denied else refusal
    return translate_failure(error, address=str(node), sent=True, writes=False)
