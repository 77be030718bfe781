"""A proxy in front of a server: refuses commands by name, or loses answers, as a test says."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress


class Proxy:
    """A TCP proxy between the adapter and a server."""

    def __init__(self, port_behind: int, refused: Collection[str]) -> None:
        self.port = 0
        self.lose_answers_to: set[str] = set()  # forwards these and then cuts the connection
        self.seen: list[str] = []  # the first word of every command that was forwarded
        self._behind = port_behind
        self._refused = {name.upper() for name in refused}
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        try:
            while request := await read_request(reader):
                raw, name = request
                if name in self._refused:
                    writer.write(f"-ERR unknown command '{name}'\r\n".encode())
                    continue
                self.seen.append(name)
                behind_writer.write(raw)
                answer = await read_reply(behind_reader)
                if name in self.lose_answers_to:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._open.discard(task)
            for end in (writer, behind_writer):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()

    async def close(self) -> None:
        """End every connection."""
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


@asynccontextmanager
async def proxied(port_behind: int, *, refused: Collection[str] = ()) -> AsyncIterator[Proxy]:
    """A proxy on a free port of its own."""
    proxy = Proxy(port_behind, refused)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, str] | None:
    """The next command, as it came and by its name; None at the end."""
    head = await reader.readline()
    if not head:
        return None
    raw, parts = [head], []
    for _ in range(int(head[1:])):
        size = await reader.readline()
        part = await reader.readexactly(int(size[1:]) + 2)
        raw += [size, part]
        parts.append(part[:-2])
    return b"".join(raw), parts[0].decode().upper()


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    """The next RESP2 reply, as it came."""
    head = await reader.readuntil(b"\r\n")
    if head[:1] == b"$" and int(head[1:]) >= 0:
        return head + await reader.readexactly(int(head[1:]) + 2)
    if head[:1] == b"*" and int(head[1:]) > 0:
        return head + b"".join([await read_reply(reader) for _ in range(int(head[1:]))])
    return head
