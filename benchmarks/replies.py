"""What a Redis answers on a socket, read as values or only counted."""

from __future__ import annotations

import socket
from typing import Any

from hiredis import Reader

BUFFER = 1 << 20


class ReplyStream:
    """The answers on one connection, in their order."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = Reader(notEnoughData=Ellipsis)
        self._lines_ahead = 0

    def take(self, count: int) -> list[Any]:
        """The next answers; errors are among them as hiredis.ReplyError."""
        replies: list[Any] = []
        while len(replies) < count:
            reply = self._reader.gets()
            if reply is Ellipsis:
                self._reader.feed(self._receive())
            else:
                replies.append(reply)
        return replies

    def skip_lines(self, count: int) -> None:
        """Read past so many lines. Counting is all that happens to them."""
        while self._lines_ahead < count:
            self._lines_ahead += self._receive().count(b"\n")
        self._lines_ahead -= count

    def _receive(self) -> bytes:
        received = self._connection.recv(BUFFER)
        if not received:
            raise ConnectionError("the server has closed the connection")
        return received
