"""Servers that a hostile tenant would run: they record all that comes, and answer as they like."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

Answer = Callable[[list[bytes]], bytes]


class HostileServer:
    """Where it listens, and every byte and connection that came."""

    def __init__(self, host: str, answer: Answer, banner: bytes) -> None:
        self.host = host
        self.port = 0
        self.answer = answer
        self.banner = banner
        self.connections = 0
        self.received = bytearray()

    @property
    def url(self) -> str:
        """Its address, as a resource would name it."""
        return f"redis://{self.host}:{self.port}"


def agree(_: list[bytes]) -> bytes:
    """Answer that all is well, whatever was asked."""
    return b"+OK\r\n"


@contextmanager
def hostile_server(
    answer: Answer = agree, *, banner: bytes = b"", host: str = "127.0.0.1"
) -> Iterator[HostileServer]:
    """A server that sends `banner` to each client, then `answer` to each command."""
    server = HostileServer(host, answer, banner)
    with _Listener((host, 0), _Talk) as listener:
        listener.hostile = server
        server.port = listener.server_address[1]
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    hostile: HostileServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients hang up as they like."""


class _Talk(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = cast(_Listener, self.server).hostile
        server.connections += 1
        self.wfile.write(server.banner)
        while command := self._command(server):
            self.wfile.write(server.answer(command))

    def _command(self, server: HostileServer) -> list[bytes]:
        line = self._line(server)
        if not line.startswith(b"*"):
            return [line] if line else []
        return [self._word(server) for _ in range(int(line[1:]))]

    def _word(self, server: HostileServer) -> bytes:
        word = self.rfile.read(int(self._line(server)[1:]) + 2)
        server.received += word
        return word[:-2]

    def _line(self, server: HostileServer) -> bytes:
        line = self.rfile.readline()
        server.received += line
        return line
