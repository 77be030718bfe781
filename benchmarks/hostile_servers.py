"""Redis servers that try to harm their clients: silent, endless, malformed, never the same.

All listen in one thread, at any loopback address, so that each resource can name an address of its
own and still reach the same few sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from local_cluster.processes import Process, start_process, wait_until

SILENT_NODES: Final = 300
ENDLESS_BYTES_PER_S: Final = 4 * 1024 * 1024  # of one connection

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def bulk(text: str) -> bytes:
    """A text as a reply."""
    return b"$%d\r\n%s\r\n" % (len(text.encode()), text.encode())


def info(mode: str = "standalone") -> bytes:
    """A reply to INFO."""
    return bulk(f"redis_version:7.2.5\r\nredis_mode:{mode}\r\nrole:master\r\n")


def slot_map(*nodes: tuple[str, int], last: int = 16_383) -> bytes:
    """A reply to CLUSTER SLOTS: each node has an equal part, and one only has all to `last`."""
    each = (last + 1) // len(nodes)
    ranges = [
        b"*3\r\n:%d\r\n:%d\r\n*3\r\n%s:%d\r\n%s"
        % (at * each, (at + 1) * each - 1, bulk(host), port, bulk(f"{at:040x}"))
        for at, (host, port) in enumerate(nodes)
    ]
    return b"*%d\r\n%s" % (len(ranges), b"".join(ranges))


async def commands(reader: asyncio.StreamReader) -> AsyncIterator[list[str]]:
    """The commands of a client, in upper case."""
    while line := await reader.readline():
        words = []
        for _ in range(int(line[1:])):
            length = int((await reader.readline())[1:])
            words.append((await reader.readexactly(length + 2))[:-2].decode(errors="replace"))
        yield [words[0].upper(), *words[1:]]


def answering(replies: Mapping[str, bytes], asked: Counter[str] | None = None) -> Talk:
    """Answer commands by their first words, and all others by an error; count them in `asked`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for words in commands(reader):
            if asked is not None:
                asked[words[0]] += 1
            known = replies.get(words[0], replies.get(" ".join(words[:2]).upper()))
            writer.write(known or b"-ERR unknown command '%s'\r\n" % words[0].encode())
            await writer.drain()

    return talk


async def keep_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Take everything and never answer."""
    while await reader.read(65_536):
        pass


async def never_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the first command by a text without an end."""
    await reader.read(65_536)
    writer.write(b"$536870911\r\n")
    part = b"x" * 65_536
    while True:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(len(part) / ENDLESS_BYTES_PER_S)


def flapping(silent_port: int) -> Talk:
    """Something else with each connection."""
    lives = itertools.count()
    alone = {
        "INFO": info(),
        "CLUSTER SLOTS": b"-ERR This instance has cluster support disabled\r\n",
    }
    cluster = {"INFO": info("cluster"), "CLUSTER SLOTS": slot_map(("127.99.0.1", silent_port))}
    loading = dict.fromkeys(("INFO", "CLUSTER SLOTS"), b"-LOADING Redis is loading\r\n")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        life = next(lives) % 5
        if life == 3:
            await reader.read(1)
            writer.write(b"$1000\r\nthe connection ends in the midst of a rep")
            await writer.drain()
        elif life < 3:
            await answering((alone, cluster, loading)[life])(reader, writer)

    return talk


class HostileServers:
    """The ports of the sorts of servers while it runs, by the name of the sort."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self.asked: Counter[str] = Counter()  # commands that `odd_config` was asked
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hostile", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(10):
            raise RuntimeError("the hostile servers did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def url(self, sort: str, number: int) -> str:
        """An address of its own for each number."""
        return url_of(self.ports[sort], number)

    def _run(self) -> None:
        self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()

    async def _start(self) -> None:
        silent = await self._listen("silent", keep_silent)
        nodes = [(f"127.99.{at // 250}.{at % 250 + 1}", silent) for at in range(SILENT_NODES)]
        cluster = {"INFO": info("cluster"), "CLUSTER SLOTS": slot_map(*nodes)}
        await self._listen("silent_cluster", answering(cluster))
        await self._listen("endless_reply", never_end)
        bomb = slot_map(("127.99.0.1", silent), last=100_000_000)
        await self._listen("slot_bomb", answering({"INFO": info("cluster"), "CLUSTER SLOTS": bomb}))
        await self._listen("flapping", flapping(silent))
        # A reply to CONFIG GET of the right length whose parts are numbers.
        odd = {"INFO": info(), "CONFIG GET": b"*2\r\n:1\r\n:5\r\n", "PSUBSCRIBE": b":7\r\n"}
        await self._listen("odd_config", answering(odd, self.asked))

    async def _listen(self, sort: str, talk: Talk) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                await talk(reader, writer)
            with contextlib.suppress(OSError):
                writer.close()

        server = await asyncio.start_server(serve, "0.0.0.0", 0, backlog=4096)
        self.ports[sort] = port = int(server.sockets[0].getsockname()[1])
        return port


class HostileServersApart:
    """The same servers in a process of their own, so that they take no time of who measures."""

    def __init__(self, directory: Path) -> None:
        """`directory` gets the log."""
        self.process: Process = start_process(
            "hostile-servers",
            [sys.executable, "-m", "benchmarks.hostile_servers"],
            log=directory / "hostile-servers.log",
            cwd=Path(__file__).parent.parent,
        )
        wait_until(lambda: "}" in self.process.tail(), timeout_s=30, what="the hostile servers")
        self._ports: dict[str, int] = json.loads(self.process.tail(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def url(self, sort: str, number: int) -> str:
        """An address of its own for each number."""
        return url_of(self._ports[sort], number)


def url_of(port: int, number: int) -> str:
    """The address of a resource."""
    return f"redis://127.77.{number // 250}.{number % 250 + 1}:{port}"


def main() -> None:
    """Serve until killed, and print the ports."""
    with HostileServers() as servers:
        print(json.dumps(servers.ports), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
