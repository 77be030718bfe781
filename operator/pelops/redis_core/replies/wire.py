"""Replies read from a connection with limits on their bytes, depth and elements.

hiredis limits the depth to a thousand, and allocates as many elements as an array's header
declares, which a server can send in ten bytes. So headers of large arrays are counted before the
bytes are fed to hiredis. Whether such a match is inside a string is known from hiredis: it is
inside if hiredis still waits for the rest of a reply.
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
SMALL: Final = MIB  # bytes; replies without entries or lists of names are smaller
DEPTH: Final = 8  # nested lists
PACE: Final = 4096  # bytes that must arrive of a reply within each time-out
_ERRORS: Final = 1000  # in one reply
# Headers of large arrays, at the beginning of a piece or after a line feed. Every byte is searched:
# the pattern with two fixed bytes costs half of the one with a choice of five.
_LARGE_FIRST: Final = re.compile(rb"[*~>%|](\d{4,})")
_LARGE: Final = re.compile(rb"\n\*(\d{4,})")
_LARGE_OF_ANY: Final = re.compile(rb"\n[*~>%|](\d{4,})")
_CUT: Final = re.compile(rb"[*~>%|]\d{0,11}\Z")
NOT_ENOUGH_DATA: Final = object()  # returned while a reply is incomplete
_CLOSED: Final = "the connection was closed while a reply was read"
_ENDED: Final = "the server closed the connection"
_PLAIN: Final = frozenset({bytes, int, type(None)})
_KNOWN: Final = _PLAIN | {list}


class UnboundedReply(exceptions.InvalidResponse):
    """A reply exceeds a limit of bytes, depth or elements, or is not RESP2."""


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """The limits of one reply."""

    bytes: int = SMALL
    elements: int = 100_000  # of all arrays with a thousand or more


# Entries may have any size up to Redis' limit of 512 MB for a value. XINFO STREAM returns the first
# and the last entry; XINFO CONSUMERS and XINFO GROUPS return all names, of any length.
_ENTRIES: Final = ReplyLimit(256 * MIB, 1_000_000)
_WITH_ENTRIES: Final = frozenset({"XRANGE", "XREVRANGE", "XREADGROUP", "XREAD", "XINFO"})
_SCRIPTS: Final = frozenset({"EVAL", "EVALSHA"})
# The operator's scripts return numbers, names and IDs, and no bodies of entries.
WITHOUT_BODIES: Final = ReplyLimit(8 * MIB)
# Some scripts of workers return entries: a bounded number of bytes, or one entry of any size.
_SCRIPT: Final = ReplyLimit(256 * MIB)
_LIMIT: Final = ReplyLimit()


def limit_of(name: Part) -> ReplyLimit:
    """The limit of replies to a command of this name."""
    if name in _WITH_ENTRIES:
        return _ENTRIES
    return _SCRIPT if name in _SCRIPTS else _LIMIT


class ByteAccount:
    """The bytes of replies that are read together, counted in the process-wide budget."""

    def __init__(self, budget: ReplyBudget) -> None:
        self._budget = budget
        self._taken = 0

    def add(self, count: int) -> None:
        """Count bytes that were received; raises UnboundedReply when they are too many."""
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
    """The bytes of replies that a process may hold; accounts below `_FREE` are never refused.

    So only servers with large replies are refused when the budget is used up.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def open(self) -> ByteAccount:
        """A new account for commands that are sent together."""
        return ByteAccount(self)


_TOGETHER: Final = 16 * MIB
_FREE: Final = 64 * 1024
ANSWERS: Final = ReplyBudget(16 * MIB)  # Python needs up to 18 times as much memory


class BoundedReader:
    """hiredis' reader with limits.

    Raises UnboundedReply, also for bytes that are not a reply; the connection must then be closed.
    """

    def __init__(self) -> None:
        self.limit = _LIMIT
        self.account: ByteAccount | None = None
        self.received = 0  # bytes in total
        self._inner: Any = hiredis.Reader(
            protocolError=UnboundedReply,
            replyError=self._read_error,
            notEnoughData=NOT_ENOUGH_DATA,
        )
        self._ready: deque[Any] = deque()
        self._held = b""  # the end of a piece that may be an incomplete array header
        self._bytes = self._elements = self._errors = 0  # of the next reply
        self._problem: UnboundedReply | None = None

    def expect(self, limit: ReplyLimit, account: ByteAccount | None = None) -> None:
        """Set the limit of the next reply, and the account that counts its bytes."""
        self.limit, self.account = limit, account

    def feed(self, data: Any, offset: int = 0, length: int = -1) -> None:
        """Parse received bytes. Raises redis-py's ConnectionError after `drop`."""
        if self._inner is None:
            raise exceptions.ConnectionError(_CLOSED)
        some = bytes(data if length < 0 else memoryview(data)[offset : offset + length])
        self._bytes += len(some)
        self.received += len(some)
        if self.account is not None:
            self.account.add(len(some))
        if self._held:
            some, self._held = self._held + some, b""
        if not some.endswith(b"\n") and (cut := _CUT.search(some, max(0, len(some) - 12))):
            some, self._held = some[: cut.start()], cut[0]
        self._feed_counted(some)
        if self._bytes > self.limit.bytes:
            self._parse_whole()
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
        """Whether anything was received that `gets` has not returned."""
        return bool(self._ready or self._held or self._bytes)

    def drop(self) -> None:
        """Free the memory of received data: errors keep references to a closed connection."""
        self._inner = None
        self._held = b""
        self._ready.clear()
        self._bytes = 0

    def _parse_whole(self) -> None:
        while (reply := self._next()) is not NOT_ENOUGH_DATA:
            self._ready.append(reply)

    def _next(self) -> Any:
        if self._inner is None:
            return NOT_ENOUGH_DATA
        try:
            reply = self._inner.gets()
        except UnboundedReply:
            # Without the message of hiredis, which quotes the server.
            raise UnboundedReply("it does not speak Redis' protocol (RESP)") from None
        except (TypeError, ValueError, LookupError, MemoryError, RecursionError) as error:
            # A map whose keys are lists, or an array that is too large for the memory.
            raise UnboundedReply("it cannot be decoded") from error
        if self._problem is not None:
            raise self._problem
        if reply is NOT_ENOUGH_DATA:
            return reply
        if type(reply) not in _KNOWN and not isinstance(reply, Exception):
            raise UnboundedReply("it is not valid RESP2")
        self._elements = self._errors = 0
        self._bytes = 1 if self._inner.has_data() else 0  # of the next reply; the count is unknown
        return reply

    def _count_if_begins(self, digits: bytes) -> None:
        self._parse_whole()
        if self._inner.has_data():
            return  # the match is inside an incomplete string
        self._elements += int(digits) if len(digits) < 12 else 10**12
        if self._elements > self.limit.elements:
            raise UnboundedReply(f"more than {self.limit.elements} elements")

    def _read_error(self, text: str) -> Exception:
        """The exception for an error reply. It is returned, and this method must never raise.

        An exception within a RESP3 map crashes the process: hiredis then uses freed memory.
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
            # redis-py fails to parse MOVED and ASK without a slot or an address.
            return UnboundedReply("a redirection without a hash slot or an address")
        if isinstance(error, exceptions.AskError) and not _is_redirect(error):
            return UnboundedReply("a redirection to an invalid hash slot or address")
        return error


_LONGEST_ERROR: Final = 1000  # characters
_FEW: Final = 1000  # bytes, which either pattern searches fast enough


def _large_of(some: bytes) -> re.Pattern[bytes]:
    """The pattern for large arrays; it includes RESP3 types only if their markers may occur."""
    if len(some) < _FEW or b"~" in some or b">" in some or b"%" in some or b"|" in some:
        return _LARGE_OF_ANY
    return _LARGE


def _is_redirect(error: exceptions.AskError) -> bool:
    return is_slot(error.slot_id) and is_host_or_own(error.host) and 0 < error.port <= 65_535


def is_slot(number: Any) -> bool:
    """Whether it is a valid hash slot."""
    return type(number) is int and 0 <= number < SLOTS


def is_host_or_own(host: str) -> bool:
    """Whether it can be a host name or address, or stands for the node that answered."""
    return host in {"", "?"} or is_host(host)


def check_depth(reply: Any) -> None:
    """Raise UnboundedReply for lists nested too deeply, and for types that RESP2 does not have."""
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
        """End a connection, and a read that is in progress."""
        if self._reader is not None:
            self._reader.drop()
        self._stream = None  # frees its unread bytes

    async def can_read(self) -> bool:
        """Whether there is unread data, or the connection has ended."""
        if self._stream is None:
            raise OSError(_CLOSED)
        # asyncio has no public way to inspect the buffer of a stream.
        held = self._stream._buffer  # type: ignore[attr-defined]
        return self.reader.has_data() or self._stream.at_eof() or bool(held)

    async def read_response(self, *_: Any, **__: Any) -> Any:
        """The next reply; an error reply is returned. Raises redis-py's ConnectionError."""
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
        """The reader of this connection."""
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
        """Set the limit of the next reply, and begin to measure its time."""
        if self._reader is not None:
            self._reader.limit = limit
        self._began_s, self._received = time.monotonic(), 0

    def read_response(self, *_: Any, **__: Any) -> Any:
        """The next reply; an error reply is returned. Raises redis-py's ConnectionError, and its
        TimeoutError when the reply arrives too slowly.
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
    """The reply; raises it if redis-py maps it to a ConnectionError, such as LOADING."""
    if isinstance(reply, exceptions.ConnectionError):
        raise reply
    return reply
