"""One blocking connection to a Redis on this machine: commands as bytes, nothing in between.

Data sets of a million entries are made through it in seconds, and what a server can do at best is
measured with it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeAlias

from hiredis import ReplyError, pack_command

from benchmarks.replies import ReplyStream

Part: TypeAlias = str | bytes | int
Reply: TypeAlias = Any  # bytes, int, None, or lists of these

TIMEOUT_S = 120.0
TOGETHER = 1000  # commands that are sent before an answer is read


def pack(*parts: Part) -> bytes:
    """A command as it goes over the wire."""
    packed: bytes = pack_command(parts)  # type: ignore[arg-type] # its stub knows one part only
    return packed


class RawRedis:
    """Not for several threads."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = ReplyStream(self._socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, *parts: Part) -> Reply:
        """The answer to one command; raises hiredis.ReplyError when it is an error."""
        return self.pipeline([pack(*parts)])[0]

    def pipeline(self, commands: Sequence[bytes]) -> list[Reply]:
        """The answers to packed commands; raises the first error among them."""
        replies: list[Reply] = []
        for start in range(0, len(commands), TOGETHER):
            chunk = commands[start : start + TOGETHER]
            self._socket.sendall(b"".join(chunk))
            replies += self._replies.take(len(chunk))
        failed = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
        if failed is not None:
            raise failed
        return replies

    def send_quietly(self, commands: Iterable[bytes]) -> None:
        """Run packed commands, any number in one piece; the server answers none of them.

        Errors are not seen either: look at the outcome afterwards.
        """
        self._socket.sendall(pack("CLIENT", "REPLY", "OFF"))
        for command in commands:
            self._socket.sendall(command)
        if self.call("CLIENT", "REPLY", "ON") != b"OK":
            raise RuntimeError("the server does not answer again")

    def drive(self, chunks: Sequence[bytes], *, lines: int) -> None:
        """Send chunks, two on the way at any time, and count the lines of the answers.

        Each chunk is answered with so many lines, of which none is looked at.
        """
        for number, chunk in enumerate(chunks):
            self._socket.sendall(chunk)
            if number:
                self._replies.skip_lines(lines)
        if chunks:
            self._replies.skip_lines(lines)
