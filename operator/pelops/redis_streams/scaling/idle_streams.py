"""Reports the next entry of an idle stream within milliseconds, by a blocking XREAD.

Hundreds of idle streams share one connection. Reports are best effort: a caller must also poll
streams, at least those that are not watched, and nothing may depend on a report.

XREAD without a group changes nothing, and costs the server nothing while it waits. It returns as
soon as one of the streams has an entry after the given ID, also one that was added before.
https://redis.io/docs/latest/commands/xread/
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from redis import exceptions

from pelops.clock import with_jitter
from pelops.domain.backoff import backoff_s
from pelops.domain.endpoint import Node
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.naming import key_slot
from pelops.errors import AuthenticationFailed, PelopsError, PermissionDenied, RedisUnavailable
from pelops.redis_core.errors import translate_failure, translate_reply
from pelops.redis_core.masters import Masters, end_tasks
from pelops.redis_core.replies.shapes import check_reply
from pelops.redis_core.replies.wire import ANSWERS, limit_of
from pelops.redis_core.server import Server, Topology
from pelops.redis_core.transport import LocatedConnection, Reply

log = logging.getLogger(__name__)

FIRST_BLOCK_MS: Final = 20  # short, to detect soon whether the server allows blocking at all
BLOCK_MS: Final = 4_000  # less than the time-out for replies
SHORT_BLOCK_MS: Final = 1_000  # if CLIENT UNBLOCK cannot end the wait for new tokens
GATHER_S: Final = 0.01  # tokens that are added within this time end the wait once
UNBLOCK_S: Final = 1.0
LINGER_S: Final = 10.0  # how long a connection is kept without streams to wait for
CHECK_S: Final = 10.0  # interval of asking Sentinels for the present master
SHORTEST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0

Token: TypeAlias = Hashable


class Wait:
    """One connection that waits for the next entries of streams on one master."""

    def __init__(
        self,
        server: Server,
        masters: Masters,
        *,
        report: Callable[[Token], None],
        refuse: Callable[[Iterable[str], PelopsError], None],
    ) -> None:
        self._server, self._masters, self._report, self._refuse = server, masters, report, refuse
        self._tokens: dict[Token, Mapping[str, EntryId]] = {}
        self._added: set[Token] = set()  # not part of an XREAD yet
        self._changed = asyncio.Event()  # tokens were added since the last XREAD
        self._client_id: int | None = None  # of the connection; None: it cannot be unblocked
        self._is_blocked_alone = False  # CLIENT UNBLOCK has no effect on this connection
        self._is_waiting = False
        self._reads = 0
        self._interruption: asyncio.Task[None] | None = None
        self.streams = 0  # of all tokens, each counted once for each token
        self.is_listening = False  # the last reply to XREAD was not an error
        self._running = asyncio.create_task(self._run())

    def is_waited_for(self, token: Token) -> bool:
        """Whether an XREAD covers the token's streams, and the last one succeeded."""
        return self.is_listening and token in self._tokens and token not in self._added

    @property
    def is_empty(self) -> bool:
        """Whether there are no tokens to wait for."""
        return not self._tokens

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended permanently, because no tokens were left."""
        return self._running.done()

    def add(self, token: Token, streams: Mapping[str, EntryId]) -> None:
        """Report `token` once, at the first entry of any stream after its ID."""
        self._tokens[token] = streams
        self._added.add(token)
        self.streams += len(streams)
        self._changed.set()
        if self._is_waiting and (self._interruption is None or self._interruption.done()):
            self._interruption = asyncio.create_task(self._interrupt())

    def remove(self, token: Token) -> None:
        """Stop waiting for a token; does nothing for an unknown one."""
        self.streams -= len(self._tokens.pop(token, {}))
        self._added.discard(token)

    def end_if_unused(self) -> None:
        """End the connection soon, unless a token is added before."""
        self._changed.set()

    def tasks(self) -> list[asyncio.Task[None]]:
        """The running tasks; the caller ends them."""
        return [task for task in (self._running, self._interruption) if task is not None]

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._serve()
            except PelopsError as error:
                log.debug("Could not wait for entries at %s: %s", self._server.address, error)
            except Exception:
                log.exception("Unexpected error while waiting for new entries")
            was_listening, self.is_listening = self.is_listening, False
            if self.is_empty:
                return
            failures = 1 if was_listening else failures + 1
            # All replicas of the operator lose a server at the same moment.
            pause_s = backoff_s(failures, first_s=SHORTEST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
            await asyncio.sleep(with_jitter(pause_s, 0.5))

    async def _serve(self) -> None:
        """Wait on one connection until there are no tokens. Raises PelopsError."""
        node = await self._locate()
        channel = self._masters.channel(node)
        try:
            connection = await channel.open_connection()
            self._client_id = await _read_client_id(connection)
            await self._wait_on(connection, node)
        except (exceptions.RedisError, OSError) as error:
            raise translate_failure(error, address=str(node), sent=True, writes=False) from error
        finally:
            self._client_id = None
            await channel.close()

    async def _locate(self) -> Node:
        streams = next(iter(self._tokens.values()), None)
        if streams is None:
            raise RedisUnavailable("there is nothing to wait for")
        return await self._masters.locate(next(iter(streams)))

    async def _wait_on(self, connection: LocatedConnection, node: Node) -> None:
        clock = asyncio.get_running_loop().time
        checked_at = clock()
        while await self._has_any():
            await self._wait_for_entries(connection)
            if self._has_sentinels and clock() - checked_at > CHECK_S and not self.is_empty:
                # A former master behind a network partition still answers, but gets no entries.
                if await self._locate() != node:
                    raise RedisUnavailable("another server is the master by now")
                checked_at = clock()

    @property
    def _has_sentinels(self) -> bool:
        return self._server.kind.topology == Topology.SENTINEL

    async def _has_any(self) -> bool:
        if self.is_empty:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LINGER_S)
        return not self.is_empty

    async def _wait_for_entries(self, connection: LocatedConnection) -> None:
        self._changed.clear()
        self._added.clear()
        block_ms = FIRST_BLOCK_MS
        if self.is_listening:
            block_ms = BLOCK_MS if self._can_be_unblocked else SHORT_BLOCK_MS
        earliest = self._earliest()
        streams = (*earliest, *(str(after) for after in earliest.values()))
        self._is_waiting = True
        self._reads += 1
        try:
            asked: _Words = ("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", *streams)
            await _send(connection, asked)
            answer = await _read(connection, asked)
        finally:
            self._is_waiting = False
        if isinstance(answer, Exception):
            await self._drop_refused(connection, earliest, answer)
            return
        self.is_listening = True
        for stream, entries in answer or ():
            self._report_entries(stream, entries)

    def _earliest(self) -> dict[str, EntryId]:
        earliest: dict[str, EntryId] = {}
        for streams in self._tokens.values():
            for stream, after in streams.items():
                earliest[stream] = min(after, earliest.get(stream, after))
        return earliest

    def _report_entries(self, name: bytes, entries: Reply) -> None:
        if not entries:
            return
        stream, entry_id = name.decode("utf-8", "surrogateescape"), parse_entry_id(entries[0][0])
        waiting = [
            token
            for token, streams in self._tokens.items()
            if stream in streams and streams[stream] < entry_id
        ]
        for token in waiting:
            self.remove(token)
            self._report(token)

    async def _drop_refused(
        self, connection: LocatedConnection, earliest: Mapping[str, EntryId], refusal: Exception
    ) -> None:
        """After an error of XREAD, find the streams that cause it, and drop them.

        Raises the error when it does not concern single streams.
        """
        error = translate_reply(refusal, command="XREAD", key=None, writes=False)
        if isinstance(error, RedisUnavailable | AuthenticationFailed):
            raise error
        if isinstance(error, PermissionDenied) and error.command is not None:
            self._drop(earliest, error)  # XREAD itself is forbidden
            return
        asked = {
            stream: ("XREAD", "COUNT", 1, "STREAMS", stream, str(after))
            for stream, after in earliest.items()
        }
        for words in asked.values():
            await _send(connection, words)
        answers = {stream: await _read(connection, words) for stream, words in asked.items()}
        refused = [each for each, answer in answers.items() if isinstance(answer, Exception)]
        for answer in answers.values():
            for name, entries in () if isinstance(answer, Exception) else answer or ():
                self._report_entries(name, entries)
        # If each stream can be read alone but not all together, drop all of them.
        self._drop(refused or earliest, error)

    def _drop(self, streams: Iterable[str], error: PelopsError) -> None:
        refused = set(streams)
        for token in [one for one, asked in self._tokens.items() if refused & set(asked)]:
            self.remove(token)
        self._refuse(refused, error)

    async def _interrupt(self) -> None:
        """Unblock the XREAD, so that the next one includes the new tokens."""
        await asyncio.sleep(GATHER_S)
        while self._changed.is_set() and self._is_waiting and self._can_be_unblocked:
            reads = self._reads
            try:
                was_waiting = await self._unblock()
            except PelopsError as error:
                log.debug("Could not unblock the read of new entries: %s", error)
                return
            await asyncio.sleep(GATHER_S / 2)
            if was_waiting and not await self._has_new_read(reads):
                # Behind a proxy the ID may be that of another client's connection.
                self._is_blocked_alone = True

    async def _has_new_read(self, reads: int) -> bool:
        clock = asyncio.get_running_loop().time
        end = clock() + UNBLOCK_S
        while self._is_waiting and self._reads == reads and clock() < end:
            await asyncio.sleep(GATHER_S)
        return not self._is_waiting or self._reads != reads

    @property
    def _can_be_unblocked(self) -> bool:
        return self._client_id is not None and not self._is_blocked_alone

    async def _unblock(self) -> bool:
        assert self._client_id is not None
        key = next((stream for streams in self._tokens.values() for stream in streams), None)
        return bool(await self._server.execute("CLIENT", "UNBLOCK", self._client_id, key=key))


async def _read_client_id(connection: LocatedConnection) -> int | None:
    """The ID under which the connection can be unblocked; None when the ACL forbids that."""
    await _send(connection, _CLIENT_ID)
    client_id = await _read(connection, _CLIENT_ID)
    if not isinstance(client_id, int):
        return None
    unblock = ("CLIENT", "UNBLOCK", client_id)
    await _send(connection, unblock)
    return client_id if isinstance(await _read(connection, unblock), int) else None


_Words: TypeAlias = tuple[str | int, ...]
_CLIENT_ID: Final[_Words] = ("CLIENT", "ID")


async def _send(connection: LocatedConnection, words: _Words) -> None:
    await connection.send_packed_command(connection.pack_command(*words), check_health=False)


async def _read(connection: LocatedConnection, words: _Words) -> Reply:
    """The reply to a command that was sent; raises InvalidReply for a malformed one."""
    with ANSWERS.open() as account:
        reply = await connection.receive(limit_of(words[0]), account)
    check_reply(words, reply)
    return reply


STREAMS_PER_CONNECTION: Final = (
    250  # one XREAD for all of them costs the server a tenth of a millisecond
)
CONNECTIONS_PER_SERVER: Final = 16
REFUSED_S: Final = 60.0  # how long a stream is not watched after the server refused it


class Waker:
    """Reports the next entry of streams that are idle. One for all servers, in one event loop."""

    def __init__(self, wake: Callable[[Hashable], None]) -> None:
        """`wake` is called in the event loop and must be quick."""
        self._wake = wake
        self._watches: dict[Server, _Watch] = {}
        self._places: dict[Hashable, _Watch] = {}
        self._closed = asyncio.Event()

    def watch(self, token: Hashable, server: Server, streams: Mapping[str, EntryId]) -> bool:
        """Call `wake(token)` once, when one of the streams has an entry after its ID.

        The entry may exist already. After that the token is not watched; another call replaces its
        streams. Returns False, and the caller must poll, if there is no room, or if the server
        refused one of the streams in the last minute. All streams must be in one slot of a cluster.
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
        """Stop watching a token; does nothing for an unknown one."""
        watch = self._places.pop(token, None)
        if watch is not None:
            watch.remove(token)

    def is_watched(self, token: Hashable) -> bool:
        """Whether a new entry would be reported now: an XREAD covers the token's streams.

        False shortly after `watch`, and while the server does not answer.
        """
        watch = self._places.get(token)
        return watch is not None and watch.is_listening(token)

    async def run(self) -> None:
        """Wait until closed; close when cancelled."""
        try:
            await self._closed.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """End every connection; nothing is reported any more."""
        self._closed.set()
        self._places.clear()
        watches, self._watches = list(self._watches.values()), {}
        await asyncio.gather(*(watch.close() for watch in watches))

    def _report(self, token: Hashable) -> None:
        self._places.pop(token, None)
        try:
            self._wake(token)
        except Exception:
            # A bug in the callback for one group must not end the connection of all.
            log.exception("Unexpected error after a new entry for %s", token)


class _Watch:
    """All waits on one server."""

    def __init__(self, server: Server, report: Callable[[Hashable], None]) -> None:
        self._server = server
        self._masters = Masters(server)
        self._report = report
        self._waits: dict[Wait, int | None] = {}  # with their slot in a cluster
        self._places: dict[Hashable, Wait] = {}
        self._refused: dict[str, float] = {}  # streams, and until when they are not watched
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
        return wait is not None and wait.is_waited_for(token)

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
                wait.end_if_unused()  # there is room the next time
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
            log.warning(
                "Polling idle groups of Redis at %s, because it does not allow blocking reads: %s",
                *(self._server.address, error),
            )

    def _forget_ended(self) -> None:
        self._waits = {each: slot for each, slot in self._waits.items() if not each.is_over}
