"""A network that can be cut, slowed and muted: a TCP proxy of bytes, in a thread of its own.

It knows no protocol, so it stands before Redis and before an API server alike. It runs until the
process ends or `close` is called; all that is said to it takes effect at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto

RETRY_BATCH = 1 << 16


class _Way(Enum):
    TO_SERVER = auto()
    TO_CLIENT = auto()


class _Line:
    """One connection, both ways."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.is_muted = False  # what the server sends on it is dropped

    def cut(self) -> None:
        for writer in self.writers:
            with suppress(OSError, RuntimeError):
                writer.transport.abort()


class Proxy:
    """A proxy to which clients connect instead of 127.0.0.1:`behind`."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.port = 0
        self._delay_s = 0.0
        self._refuses = False
        self._lines: set[_Line] = set()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        self._listening.wait()

    def cut(self) -> None:
        """End every connection by a reset; new ones are taken."""
        self._loop.call_soon_threadsafe(self._cut)

    def mute(self) -> None:
        """Forward requests of the present connections, and drop all replies."""
        self._loop.call_soon_threadsafe(self._mute)

    def delay(self, seconds: float) -> None:
        """Hold every chunk of bytes for so long, each way; 0: pass them on."""
        self._delay_s = seconds

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """For the block: everything is cut, and no client gets through."""
        self._refuses = True
        self.cut()
        try:
            yield
        finally:
            self._refuses = False

    @contextmanager
    def stalling(self) -> Iterator[None]:
        """For the block: present connections stay open and carry nothing; new ones work."""
        gate = asyncio.Event()
        self._loop.call_soon_threadsafe(self._stall, gate)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(gate.set)

    def heal(self) -> None:
        """End every fault. Connections that were muted are cut, or they would hang for ever."""
        self._delay_s, self._refuses = 0.0, False
        self._loop.call_soon_threadsafe(self._cut_muted)

    def close(self) -> None:
        """End it with all its connections."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._gates: dict[_Line, asyncio.Event] = {}
        try:
            self._loop.run_until_complete(self._listen())
            self._loop.run_forever()
            self._cut()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
        finally:
            self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._listening.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            return writer.transport.abort()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.behind)
        except OSError:
            return writer.transport.abort()
        line = _Line((writer, far_writer))
        self._lines.add(line)
        try:
            await asyncio.gather(
                self._pass_on(line, reader, far_writer, _Way.TO_SERVER),
                self._pass_on(line, far_reader, writer, _Way.TO_CLIENT),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._lines.discard(line)
            self._gates.pop(line, None)
            line.cut()

    async def _pass_on(
        self, line: _Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way
    ) -> None:
        while data := await reader.read(RETRY_BATCH):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            if (gate := self._gates.get(line)) is not None:
                await gate.wait()
            if line.is_muted and way is _Way.TO_CLIENT:
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one side is through, and so is the other

    def _cut(self) -> None:
        for line in list(self._lines):
            line.cut()

    def _cut_muted(self) -> None:
        for line in [line for line in self._lines if line.is_muted]:
            line.cut()

    def _mute(self) -> None:
        for line in self._lines:
            line.is_muted = True

    def _stall(self, gate: asyncio.Event) -> None:
        for line in self._lines:
            self._gates[line] = gate
