"""Replies read from a connection with limits on their bytes, depth and elements.

hiredis bounds the depth at a thousand, and makes room for as many elements as the first line of an
array says, which a server can say in ten bytes. So what is fed to it is looked at before. Only
lines of large arrays are of interest, and hiredis itself tells whether something that looks like
one is inside of a text: then it still waits for the rest of that text.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import hiredis
from redis import exceptions
from redis.connection import DefaultParser

from pelops.domain.destinations import is_host
from pelops.domain.naming import SLOTS
from pelops.redis_core.commands import Part

MIB: Final = 1024 * 1024
SMALL: Final = MIB  # bytes; no reply without entries or lists of names is as large
DEPTH: Final = 8  # lists within lists
PACE: Final = 4096  # bytes by which an answer has to grow within each time-out
_ERRORS: Final = 1000  # in one reply
# Where a piece begins, or behind the end of a line. Every byte is looked at for these: what begins
# with two certain ones is found at half the cost of any of five behind one.
_LARGE_FIRST: Final = re.compile(rb"[*~>%|](\d{4,})")
_LARGE: Final = re.compile(rb"\n\*(\d{4,})")
_LARGE_OF_ANY: Final = re.compile(rb"\n[*~>%|](\d{4,})")
_CUT: Final = re.compile(rb"[*~>%|]\d{0,11}\Z")
NOT_ENOUGH_DATA: Final = object()  # instead of a reply that has not come as a whole
_CLOSED: Final = "the connection was closed while a reply was read"
_ENDED: Final = "the server closed the connection"
_PLAIN: Final = frozenset({bytes, int, type(None)})
_KNOWN: Final = _PLAIN | {list}


class UnboundedReply(exceptions.InvalidResponse):
    """A reply that has more bytes, depth or elements than it may, or that is no RESP2."""


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """What one reply may have."""

    bytes: int = SMALL
    elements: int = 100_000  # of all arrays with a thousand or more


# Entries of any size: as many as were asked for, and Redis takes no value over 512 MB. XINFO STREAM
# has the first entry and the last; XINFO CONSUMERS and GROUPS have all names, of any length.
_ENTRIES: Final = ReplyLimit(256 * MIB, 1_000_000)
_WITH_ENTRIES: Final = frozenset({"XRANGE", "XREVRANGE", "XREADGROUP", "XREAD", "XINFO"})
_SCRIPTS: Final = frozenset({"EVAL", "EVALSHA"})
# The operator's scripts answer numbers, names and IDs, and no bodies of entries.
WITHOUT_BODIES: Final = ReplyLimit(8 * MIB)
# Of a worker's scripts some answer entries, of which each call reads a bounded number of bytes,
# or one entry of any size.
_SCRIPT: Final = ReplyLimit(256 * MIB)
_LIMIT: Final = ReplyLimit()


def limit_of(name: Part) -> ReplyLimit:
    """What the reply to a command of this name may have."""
    if name in _WITH_ENTRIES:
        return _ENTRIES
    return _SCRIPT if name in _SCRIPTS else _LIMIT


class ByteAccount:
    """The bytes of what is read together, drawn from what all of the process may hold."""

    def __init__(self, budget: ReplyBudget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, count: int) -> None:
        """So many bytes more have come; raises UnboundedReply when they are too many."""
        self._taken += count
        self._budget.held += count
        if self._taken > _TOGETHER:
            raise UnboundedReply(f"more than {_TOGETHER} bytes of replies in total")
        if self._taken > _FREE and self._budget.held > self._budget.most:
            raise UnboundedReply(
                f"a large reply, while this process already reads {self._budget.most} bytes of "
                "replies"
            )

    def __enter__(self) -> ByteAccount:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.held -= self._taken
        self._taken = 0


class ReplyBudget:
    """How many bytes of replies a process may hold; what is small is free of it.

    So that servers that answer much are refused, and never those that answer little.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def open(self) -> ByteAccount:
        """An account for commands that are sent together."""
        return ByteAccount(self)


_TOGETHER: Final = 16 * MIB
_FREE: Final = 64 * 1024
ANSWERS: Final = ReplyBudget(16 * MIB)  # Python needs up to 18 times as much memory


class BoundedReader:
    """hiredis' reader with limits.

    Raises UnboundedReply, also for what is no reply at all; then the connection has to end.
    """

    def __init__(self) -> None:
        self.limit = _LIMIT
        self.account: ByteAccount | None = None
        self.received = 0  # bytes in all
        self._inner: Any = hiredis.Reader(
            protocolError=UnboundedReply,
            replyError=self._read_error,
            notEnoughData=NOT_ENOUGH_DATA,
        )
        self._ready: deque[Any] = deque()
        self._held = b""  # the end of a piece, which may be the beginning of a large array
        self._bytes = self._elements = self._errors = 0  # of the next reply
        self._problem: UnboundedReply | None = None

    def expect(self, limit: ReplyLimit, account: ByteAccount | None = None) -> None:
        """The next reply may have so much; its bytes are drawn from an account."""
        self.limit, self.account = limit, account

    def feed(self, data: Any, offset: int = 0, length: int = -1) -> None:
        """Take what has come. Raises redis-py's ConnectionError after `drop`."""
        if self._inner is None:
            raise exceptions.ConnectionError(_CLOSED)
        some = bytes(data if length < 0 else memoryview(data)[offset : offset + length])
        self._bytes += len(some)
        self.received += len(some)
        if self.account is not None:
            self.account.take(len(some))
        if self._held:
            some, self._held = self._held + some, b""
        if not some.endswith(b"\n") and (cut := _CUT.search(some, max(0, len(some) - 12))):
            some, self._held = some[: cut.start()], cut[0]
        self._feed_counted(some)
        if self._bytes > self.limit.bytes:
            self._take_whole()
            if self._bytes > self.limit.bytes:
                raise UnboundedReply(f"more than {self.limit.bytes} bytes")

    def _feed_counted(self, some: bytes) -> None:
        first, pattern = _LARGE_FIRST.match(some), _large_of(some)
        if first is not None:
            self._count_if_begins(first[1])
        at = 0
        for found in pattern.finditer(some):
            self._inner.feed(some[at : found.start() + 1])
            at = found.start() + 1
            self._count_if_begins(found[1])
        self._inner.feed(some[at:] if at else some)

    def gets(self) -> Any:
        """The next reply, or `NOT_ENOUGH_DATA`."""
        return self._ready.popleft() if self._ready else self._next()

    def has_data(self) -> bool:
        """Whether anything has come that was not taken by `gets`."""
        return bool(self._ready or self._held or self._bytes)

    def drop(self) -> None:
        """Give back the memory of what has come: the errors of a connection outlive it."""
        self._inner = None
        self._held = b""
        self._ready.clear()
        self._bytes = 0

    def _take_whole(self) -> None:
        while (reply := self._next()) is not NOT_ENOUGH_DATA:
            self._ready.append(reply)

    def _next(self) -> Any:
        if self._inner is None:
            return NOT_ENOUGH_DATA
        try:
            reply = self._inner.gets()
        except UnboundedReply:
            # Without the text of hiredis, which quotes the server.
            raise UnboundedReply("it does not speak Redis' protocol (RESP)") from None
        except (TypeError, ValueError, LookupError, MemoryError, RecursionError) as error:
            # A map whose keys are lists, or an array that fits into no memory.
            raise UnboundedReply("it cannot be decoded") from error
        if self._problem is not None:
            raise self._problem
        if reply is NOT_ENOUGH_DATA:
            return reply
        if type(reply) not in _KNOWN and not isinstance(reply, Exception):
            raise UnboundedReply("it is not valid RESP2")
        self._elements = self._errors = 0
        self._bytes = 1 if self._inner.has_data() else 0  # of the next one some are there
        return reply

    def _count_if_begins(self, digits: bytes) -> None:
        self._take_whole()
        if self._inner.has_data():
            return  # it is inside of a text that is not there as a whole
        self._elements += int(digits) if len(digits) < 12 else 10**12
        if self._elements > self.limit.elements:
            raise UnboundedReply(f"more than {self.limit.elements} elements")

    def _read_error(self, text: str) -> Exception:
        """The error of a text, for hiredis, which must not get an exception from here.

        An exception inside of a map of RESP3 ends the process: hiredis uses what it has freed.
        """
        if self._problem is None:
            self._errors += 1
            if self._errors <= _ERRORS:
                found = self._parse_text(text[:_LONGEST_ERROR])
                if not isinstance(found, UnboundedReply):
                    return found
                self._problem = found
            else:
                self._problem = UnboundedReply(f"more than {_ERRORS} errors in one reply")
        return self._problem

    def _parse_text(self, text: str) -> Exception:
        try:
            error: Exception = DefaultParser.parse_error(text)  # type: ignore[no-untyped-call]
        except Exception:
            # MOVED and ASK without a slot or an address, in redis-py's own reading.
            return UnboundedReply("a redirection without a hash slot or an address")
        if isinstance(error, exceptions.AskError) and not _is_redirect(error):
            return UnboundedReply("a redirection to an invalid hash slot or address")
        return error


_LONGEST_ERROR: Final = 1000  # characters
_FEW: Final = 1000  # bytes, which either finds at once


def _large_of(some: bytes) -> re.Pattern[bytes]:
    """What finds large arrays here; those of RESP3 only where one of its signs may be."""
    if len(some) < _FEW or b"~" in some or b">" in some or b"%" in some or b"|" in some:
        return _LARGE_OF_ANY
    return _LARGE


def _is_redirect(error: exceptions.AskError) -> bool:
    return is_slot(error.slot_id) and is_host_or_own(error.host) and 0 < error.port <= 65_535


def is_slot(number: Any) -> bool:
    """Whether it is a slot of a cluster."""
    return type(number) is int and 0 <= number < SLOTS


def is_host_or_own(host: str) -> bool:
    """Whether it can be the name or address of a host, or stands for the one that answered."""
    return host in {"", "?"} or is_host(host)


def check_depth(reply: Any) -> None:
    """Raise UnboundedReply for lists too deep, and for what RESP2 has not."""
    level = [reply]
    for _ in range(DEPTH + 1):
        below: list[Any] = []
        for one in level:
            kind = type(one)
            if kind is list:
                below += one
            elif kind not in _PLAIN and not isinstance(one, Exception):
                raise UnboundedReply("it is not valid RESP2")
        if not below:
            return
        level = below
    raise UnboundedReply(f"lists nested more than {DEPTH} levels deep")


class AsyncBoundedParser:
    """Reads the replies of one of redis-py's asyncio connections; its `parser_class`."""

    def __init__(self, socket_read_size: int) -> None:
        self._read_size = socket_read_size
        self._stream: asyncio.StreamReader | None = None
        self._reader: BoundedReader | None = None

    def on_connect(self, connection: Any) -> None:
        """Begin a connection."""
        self._stream = connection._reader
        self._reader = BoundedReader()

    def on_disconnect(self) -> None:
        """End a connection; also a read that is under way ends."""
        if self._reader is not None:
            self._reader.drop()
        self._stream = None  # which holds what was not read

    async def can_read(self) -> bool:
        """Whether something was sent that nobody read, or the connection has ended."""
        if self._stream is None:
            raise OSError(_CLOSED)
        # asyncio has no public way to ask for what a stream holds.
        held = self._stream._buffer  # type: ignore[attr-defined]
        return self.reader.has_data() or self._stream.at_eof() or bool(held)

    async def read_response(self, *_: Any, **__: Any) -> Any:
        """The next reply; a refusal is returned. Raises redis-py's ConnectionError."""
        reader = self._reader
        while True:
            if reader is None or self._stream is None:
                raise exceptions.ConnectionError(_CLOSED)
            reply = reader.gets()
            if reply is not NOT_ENOUGH_DATA:
                return _raise_if_lost(reply)
            some = await self._stream.read(self._read_size)
            if not some:
                raise exceptions.ConnectionError(_ENDED)
            reader.feed(some)

    @property
    def reader(self) -> BoundedReader:
        """What reads this connection."""
        assert self._reader is not None
        return self._reader


class BoundedParser:
    """Reads the replies of one of redis-py's blocking connections; its `parser_class`."""

    def __init__(self, socket_read_size: int) -> None:
        self._buffer = bytearray(socket_read_size)
        self._socket: socket.socket | None = None
        self._timeout_s: float | None = None
        self._reader: BoundedReader | None = None
        self._began_s = 0.0
        self._received = 0

    def on_connect(self, connection: Any, **_: Any) -> None:
        """Begin a connection."""
        self._socket, self._timeout_s = connection._sock, connection.socket_timeout
        self._reader = BoundedReader()
        self._began_s, self._received = time.monotonic(), 0

    def on_disconnect(self) -> None:
        """End a connection."""
        if self._reader is not None:
            self._reader.drop()
        self._socket = None

    def expect(self, limit: ReplyLimit) -> None:
        """The next reply may have so much, and comes from now on."""
        if self._reader is not None:
            self._reader.limit = limit
        self._began_s, self._received = time.monotonic(), 0

    def read_response(self, *_: Any, **__: Any) -> Any:
        """The next reply; a refusal is returned. Raises redis-py's ConnectionError, and its
        TimeoutError when the reply comes too slowly.
        """
        reader = self._reader
        while True:
            if reader is None or self._socket is None:
                raise exceptions.ConnectionError(_CLOSED)
            reply = reader.gets()
            if reply is not NOT_ENOUGH_DATA:
                return _raise_if_lost(reply)
            waited_s = time.monotonic() - self._began_s
            pieces = 1 + self._received // PACE
            if self._timeout_s is not None and waited_s > self._timeout_s * pieces:
                raise exceptions.TimeoutError("Timeout: an incomplete reply")
            count = self._socket.recv_into(self._buffer)
            if not count:
                raise exceptions.ConnectionError(_ENDED)
            self._received += count
            reader.feed(self._buffer, 0, count)


def _raise_if_lost(reply: Any) -> Any:
    """The reply, unless it says that the server does not serve this connection at all."""
    if isinstance(reply, exceptions.ConnectionError):
        raise reply
    return reply
