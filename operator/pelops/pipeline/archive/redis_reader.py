"""The driver's reads from Redis: few, short, and the same for every topology."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.ledger import bound_deliveries
from pelops.pipeline.settings import RedisPlace, on_cluster
from pyspark_redis_streams.batch.pages import PageSizer
from pyspark_redis_streams.errors import (
    GroupMissing,
    NotPermitted,
    RedisStreamsError,
    StreamMissing,
)
from pyspark_redis_streams.options.option import Use
from pyspark_redis_streams.options.parsed import ReadOptions, parse_read_options
from pyspark_redis_streams.redis.server_connections import ServerConnections
from pyspark_redis_streams.redis.streams import find_streams, parse_stream_state

log: Final = logging.getLogger(__name__)
_PAGE: Final = 1000
_AT_ONCE: Final = 100  # entries requested in one round trip: each is returned with its body


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSnapshot:
    """A stream at one moment; a missing one is empty and has IDs 0-0."""

    length: int = 0
    added: int = 0
    last_generated: EntryId = EntryId.MIN
    max_deleted: EntryId = EntryId.MIN
    first: EntryId | None = None  # of the present entries
    exists: bool = False

    @property
    def removed(self) -> int:
        """Entries that were trimmed or deleted."""
        return self.added - self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """A group at one moment."""

    position: EntryId  # last-delivered-id
    pending: int
    entries_read: int | None  # entries ever added up to the position; None: unknown to the server
    consumers: int = 0
    # Time of the last delivery to a consumer; None: never. Only read if `entries_read` is unknown.
    given_ms: int | None = None

    def is_another(self, known: GroupSnapshot) -> bool:
        """Whether the group was deleted and created again since `known`.

        Then `entries-read` is unknown, and there are fewer consumers.
        """
        forgot = known.entries_read is not None and self.entries_read is None
        return forgot and self.consumers < known.consumers


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """The server that holds a key."""

    run_id: str  # changes with each start
    # Whether `entries-read` counts all entries up to a position, including those trimmed unread.
    # True since Redis 8.2 and Valkey 9.0. Before, and after a restart, it may be too low.
    counts_trimmed: bool
    began_empty: bool  # certainly: it has no append-only file, and loaded no keys


class RedisReader:
    """Reads from one Redis; connects at the first read. For one thread; close it after use."""

    def __init__(self, place: RedisPlace) -> None:
        self._given = place
        self._connected: tuple[RedisPlace, ServerConnections] | None = None
        self._unnamed: set[tuple[str, bytes]] = set()

    def close(self) -> None:
        if self._connected is not None:
            self.connections.forget()

    def execute(self, key: str, *command: str | int) -> Any:
        """The reply of the node that holds a key."""
        return self.connections.execute(key, *command)

    @property
    def place(self) -> RedisPlace:
        """Where Redis is, and whether it is a cluster. Raises RedisStreamsError."""
        return self._connect()[0]

    @property
    def connections(self) -> ServerConnections:
        """The connections to Redis. Raises RedisStreamsError if it cannot be reached."""
        return self._connect()[1]

    def _connect(self) -> tuple[RedisPlace, ServerConnections]:
        if self._connected is None:
            place, connections = self._given, self._open(self._given)
            if not place.options.get("topology") and _is_cluster(connections):
                connections.forget()
                place = on_cluster(place)
                connections = self._open(place)
            self._connected = place, connections
        return self._connected

    def now_ms(self, key: str) -> int:
        """The time of the server that holds a key, in milliseconds."""
        seconds, micros = self.execute(key, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def stream(self, name: str) -> StreamSnapshot:
        """A snapshot of a stream, by one command."""
        try:
            reply = self.execute(name, "XINFO", "STREAM", name)
        except StreamMissing:
            return StreamSnapshot()
        state = parse_stream_state(reply)
        return StreamSnapshot(
            length=state.length,
            added=state.added,
            last_generated=state.last_generated,
            max_deleted=state.max_deleted,
            first=state.first,
            exists=True,
        )

    def groups(self, stream: str) -> Mapping[str, GroupSnapshot]:
        """Snapshots of all groups of a stream; empty if the stream does not exist.

        A group whose name is not valid UTF-8 is logged and left out.
        """
        try:
            replies = self.execute(stream, "XINFO", "GROUPS", stream)
        except StreamMissing:
            return {}
        named = [dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies]
        return {
            fields[b"name"].decode(): GroupSnapshot(
                position=parse_entry_id(fields[b"last-delivered-id"]),
                pending=fields[b"pending"],
                entries_read=fields.get(b"entries-read"),
                consumers=fields[b"consumers"],
            )
            for fields in named
            if self._is_text(stream, fields[b"name"])
        }

    def _is_text(self, stream: str, group: bytes) -> bool:
        try:
            group.decode()
        except UnicodeDecodeError:
            if (stream, group) not in self._unnamed:
                log.warning(
                    "group %r of %s is not audited: its name is not valid UTF-8", group, stream
                )
                self._unnamed.add((stream, group))
            return False
        return True

    def given_ms(self, stream: str, group: str) -> int | None:
        """Time of the last delivery to a consumer of a group, in milliseconds; None: never.

        Redis 7.0 returns only the time of the last request of a consumer.
        """
        try:
            replies = self.execute(stream, "XINFO", "CONSUMERS", stream, group)
        except (StreamMissing, GroupMissing):
            return None
        times = []
        now_ms = self.now_ms(stream)
        for reply in replies:
            consumer = dict(zip(reply[::2], reply[1::2], strict=True))
            since_ms = int(consumer[b"inactive"] if b"inactive" in consumer else consumer[b"idle"])
            times += [now_ms - since_ms] if since_ms >= 0 else []
        return max(times, default=None)

    def server(self, key: str) -> ServerSnapshot:
        """The server that holds a key; with default values if its ACL forbids INFO."""
        try:
            text = b"".join(self.execute(key, "INFO", part) for part in ("server", "persistence"))
        except NotPermitted:
            text = b""
        info = dict(
            line.split(":", 1)
            for line in text.decode("utf-8", "replace").splitlines()
            if ":" in line
        )
        is_valkey = "valkey_version" in info
        version = info.get("valkey_version") or info.get("redis_version", "0")
        loads_nothing = info.get("aof_enabled") == "0"
        return ServerSnapshot(
            run_id=info.get("run_id", ""),
            counts_trimmed=_numbers(version) >= ((9, 0) if is_valkey else (8, 2)),
            began_empty=loads_nothing and info.get("rdb_last_load_keys_loaded") == "0",
        )

    def entries(
        self, stream: str, after: EntryId, last: EntryId
    ) -> Iterator[tuple[EntryId, list[bytes]]]:
        """Entries after one ID up to another, each with a flat list of names and values.

        Read page by page: entries that are removed meanwhile are left out.
        """
        sizer = PageSizer(_PAGE)
        while after < last:
            asked = sizer.count
            page = self.execute(stream, "XRANGE", stream, f"({after}", str(last), "COUNT", asked)
            sizer.observe(page)
            for entry_id, flat in page:
                after = parse_entry_id(entry_id)
                yield after, flat or []
            if len(page) < asked:
                return

    def pending(self, stream: str, group: str) -> Iterator[tuple[EntryId, str, int, int]]:
        """The pending entries of a group: ID, consumer, idle time in milliseconds, deliveries.

        Raises StreamMissing, or GroupMissing.
        """
        after = "-"
        while True:
            page = self.execute(stream, "XPENDING", stream, group, after, "+", _PAGE)
            for entry_id, consumer, idle_ms, deliveries in page:
                name = consumer.decode("utf-8", "backslashreplace")
                yield parse_entry_id(entry_id), name, idle_ms, bound_deliveries(deliveries)
            if len(page) < _PAGE:
                return
            after = f"({page[-1][0].decode()}"

    def are_there(self, stream: str, ids: Sequence[EntryId]) -> list[bool]:
        """Whether each of these entries exists in a stream."""
        found: list[bool] = []
        for start in range(0, len(ids), _AT_ONCE):
            some = [str(one) for one in ids[start : start + _AT_ONCE]]
            found += self._are_there(stream, [("XRANGE", stream, one, one) for one in some])
        return found

    def _are_there(self, stream: str, commands: Sequence[tuple[str, ...]]) -> list[bool]:
        def read_bodies() -> list[bool]:
            link = self.connections.link_for(stream)
            for command in commands:
                link.send(*command)
            return [bool(link.receive(*command)) for command in commands]

        try:
            return self.connections.persist(read_bodies)
        except RedisStreamsError:
            self.connections.forget()  # unread replies must not be read as those of later commands
            raise

    def find_streams(self, pattern: str) -> tuple[str, ...]:
        """Streams whose name matches a glob."""
        given = {**self.place.options, "streamPattern": pattern, "missingStream": "empty"}
        return find_streams(self.connections, parse_read_options(given, Use.READ))

    def _open(self, place: RedisPlace) -> ServerConnections:
        return ServerConnections(self.options(place).server)

    def options(self, place: RedisPlace, **given: str) -> ReadOptions:
        """Validated read options, without a particular stream."""
        return parse_read_options({**place.options, "stream": "-", **given}, Use.READ)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _is_cluster(connections: ServerConnections) -> bool:
    return b"cluster_enabled:1" in connections.execute("-", "INFO", "cluster")
