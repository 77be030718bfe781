"""A connection of a test that sends many commands at once, and takes what is answered as it is."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any, Final

import hiredis

_BLOCK: Final = 1 << 18  # bytes
_MISSING: Final = object()
Word = bytes | str | int


class Refused(RuntimeError):
    """A server answered a command with an error."""


class Wire:
    """One connection to a server on this machine, without a password."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._reader = hiredis.Reader(replyError=Refused, notEnoughData=_MISSING)

    def close(self) -> None:
        self._socket.close()

    def ask(self, *words: Word) -> Any:
        """The answer to one command. Raises Refused."""
        return self.ask_all([words])[0]

    def ask_all(self, commands: Iterable[tuple[Word, ...]]) -> list[Any]:
        """The answers to several, sent together. Raises the first refusal."""
        packed = [hiredis.pack_command(words) for words in commands]  # type: ignore[arg-type]
        self._socket.sendall(b"".join(packed))
        answers = [self._read() for _ in packed]
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return answers

    def _read(self) -> Any:
        while (answer := self._reader.gets()) is _MISSING:
            block = self._socket.recv(_BLOCK)
            if not block:
                raise Refused("the server has closed the connection")
            self._reader.feed(block)
        return answer
