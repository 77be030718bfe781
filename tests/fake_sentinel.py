"""A Sentinel that names the masters a test gives it, also some that real ones name only briefly."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    asked = 0
    ports: Sequence[int] = ()


class _Talk(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while words := self._command():
            self.wfile.write(self._answer(words))

    def _command(self) -> list[bytes]:
        count = self.rfile.readline()[1:]
        return [
            self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2] for _ in range(int(count or 0))
        ]

    def _answer(self, words: list[bytes]) -> bytes:
        server = cast(_Server, self.server)
        if words[:2] != [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME"]:
            return b"*0\r\n"
        port = b"%d" % server.ports[min(server.asked, len(server.ports) - 1)]
        server.asked += 1
        return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n" % (len(port), port)


class FakeSentinel:
    """Where it listens, and how often it was asked for the master."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.node = f"127.0.0.1:{server.server_address[1]}"

    @property
    def asked(self) -> int:
        return int(self._server.asked)


@contextmanager
def fake_sentinel(*ports: int) -> Iterator[FakeSentinel]:
    """One that names these ports, each once, and the last one from then on."""
    with _Server(("127.0.0.1", 0), _Talk) as server:
        server.ports = ports
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield FakeSentinel(server)
        finally:
            server.shutdown()
            thread.join()
