"""A server between a client and a real one, which spoils the replies of the real one by a seed.

It speaks for itself where a single server has nothing to say: as a Sentinel, and as a node of a
cluster. In a thread of its own it serves clients that block.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import hiredis

from local_cluster.redis_servers.tls import make_tls_files
from tests.fuzz.mutations import Sent, Tree, encode, mutate

_ENDLESS: Final = 96 * 1024 * 1024  # bytes; a client that reads these would read forever
_MORE: Final = object()


class HostileServer:
    """What it does, and what it did."""

    def __init__(self, port_behind: int, seed: int) -> None:
        self.spoils = 0.0  # the share of replies that are spoilt
        self.only = b""  # the command whose replies are; empty: all
        self.sent: Counter[str] = Counter()  # spoilt replies by command
        self.instead: dict[str, Sent] = {}  # what commands are answered in any case
        self.is_cluster = False
        self.port = 0
        self.rng = Random(seed)
        self._behind = port_behind
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def count(self) -> int:
        """How many replies were spoilt."""
        return self.sent.total()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        real = _Real(self._behind)
        self._writers.add(writer)
        try:
            while words := await _read_command(reader):
                if not await self._answer(words, real, reader, writer):
                    break
        except (OSError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            pass  # the client hung up, or the test is over
        finally:
            self._writers.discard(writer)
            real.close()
            writer.close()

    def hang_up(self) -> None:
        """End all connections."""
        for writer in list(self._writers):
            writer.close()

    async def _answer(
        self,
        words: list[bytes],
        real: _Real,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        name = _name_of(words)
        if name in self.instead:
            self.sent[name] += 1
            return await self._send(self.instead[name], reader, writer)
        tree = self._own_reply(words)
        if tree is None:
            tree = await real.ask(words)
        if self.rng.random() < self.spoils and self.only in (b"", name.encode()):
            self.sent[name] += 1
            return await self._send(mutate(self.rng, tree), reader, writer)
        writer.write(encode(tree))
        await writer.drain()
        return True

    def _own_reply(self, words: list[bytes]) -> Tree:
        name, port = _name_of(words), b"%d" % self.port
        if name == "SENTINEL GET-MASTER-ADDR-BY-NAME":
            return [b"127.0.0.1", port]
        if name in {"SENTINEL SENTINELS", "SENTINEL REPLICAS"}:
            return [[b"ip", b"127.0.0.1", b"port", port, b"flags", b"slave"]]
        if name == "CLUSTER SLOTS" and self.is_cluster:
            mine = [b"127.0.0.1", self.port, b"a" * 40, []]
            return [[0, 8000, mine], [8001, 16383, mine, [b"127.0.0.1", 1, b"b" * 40, []]]]
        if name in {"ASKING", "READONLY"} and self.is_cluster:
            return b"OK"
        if words[-1] == b"notify-keyspace-events":
            return [words[-1], b"AKE"]
        if name == "PSUBSCRIBE":
            event = [b"pmessage", words[1], b"__keyevent@0__:expired", b"a-key"]
            return self.rng.choice(([b"psubscribe", words[1], 1], event))
        return None

    async def _send(
        self, sent: Sent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if sent.pause_s:
            for at in range(len(sent.text)):
                writer.write(sent.text[at : at + 1])
                await writer.drain()
                await asyncio.sleep(sent.pause_s)
        else:
            writer.write(sent.text)
            await writer.drain()
        if sent.is_endless:
            for _ in range(_ENDLESS // 65536):
                writer.write((sent.text[-5:] if sent.text[:1] == b"*" else b"xxxxx") * 13107)
                await asyncio.wait_for(writer.drain(), 5)
        return not sent.closes


@asynccontextmanager
async def hostile(
    port_behind: int, seed: int, tls: Tls | None = None
) -> AsyncIterator[HostileServer]:
    """A server in the event loop of the test; it speaks TLS where files for that are given."""
    host = HostileServer(port_behind, seed)
    server = await asyncio.start_server(host.meet, "127.0.0.1", 0, ssl=tls.context if tls else None)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()
        host.hang_up()


@contextmanager
def hostile_thread(port_behind: int, seed: int, tls: Tls | None = None) -> Iterator[HostileServer]:
    """A server in a thread; it speaks TLS where files for that are given."""
    loop = asyncio.new_event_loop()
    began = threading.Event()
    hosts: list[HostileServer] = []

    async def serve() -> None:
        async with hostile(port_behind, seed, tls) as host:
            hosts.append(host)
            began.set()
            await ended.wait()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    began.wait(10)
    try:
        yield hosts[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        _end(loop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    async def end_all() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    loop.run_until_complete(end_all())
    loop.close()


class _Real:
    """A connection to the real server, made when it is first needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._parser: Any = hiredis.Reader(notEnoughData=_MORE)

    async def ask(self, words: list[bytes]) -> Tree:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(encode(list(words)))
        while (reply := self._parser.gets()) is _MORE:
            self._parser.feed(await self._reader.read(65536))
        return reply

    def close(self) -> None:
        if self._writer is not None:
            with suppress(RuntimeError):
                self._writer.close()


def _name_of(words: list[bytes]) -> str:
    name = words[0].decode("latin-1").upper()
    if name in {"XINFO", "XGROUP", "CLUSTER", "SENTINEL", "CLIENT", "CONFIG"} and len(words) > 1:
        return f"{name} {words[1].decode('latin-1').upper()}"
    return name


async def _read_command(reader: asyncio.StreamReader) -> list[bytes]:
    line = await reader.readline()
    if not line:
        return []
    words = []
    for _ in range(int(line[1:])):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


@dataclass(frozen=True, slots=True)
class Tls:
    """How a hostile server speaks TLS, and the authority that its clients trust."""

    context: ssl.SSLContext
    ca: Path

    @classmethod
    def make(cls, folder: Path) -> Tls:
        """With a new authority, whose files are in the folder."""
        files = make_tls_files(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(files.server_cert, files.server_key)
        return cls(context, files.ca)
