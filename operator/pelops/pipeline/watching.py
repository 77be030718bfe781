"""The driver's own looks at Redis: short, few, and the same for every topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.pipeline.place import Place, on_cluster
from pyspark_redis_streams.connecting import Door
from pyspark_redis_streams.errors import StreamMissing
from pyspark_redis_streams.option import Use
from pyspark_redis_streams.options import ReadOptions, parse_read_options
from pyspark_redis_streams.streams import find_streams


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLook:
    """A stream as of one moment; one that does not exist is empty and has IDs of 0-0."""

    length: int = 0
    added: int = 0
    last_generated: EntryId = EntryId.MIN
    max_deleted: EntryId = EntryId.MIN
    first: EntryId | None = None  # of the entries that are there
    exists: bool = False

    @property
    def removed(self) -> int:
        """Entries that were trimmed or deleted."""
        return self.added - self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """A group as of one moment."""

    position: EntryId  # last-delivered-id
    pending: int
    entries_read: int | None


class Watch:
    """Looks at one Redis. Not for use by two threads; close it after use."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._door = self._open(place)
        if self._is_cluster():
            self._door.forget()
            self.place = on_cluster(place)
            self._door = self._open(self.place)

    def close(self) -> None:
        self._door.forget()

    def ask(self, key: str, *command: str | int) -> Any:
        """The reply of the node that holds a key."""
        return self._door.ask(key, *command)

    @property
    def door(self) -> Door:
        return self._door

    def now_ms(self, key: str) -> int:
        """The time of the server that holds a key."""
        seconds, micros = self.ask(key, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def stream(self, name: str) -> StreamLook:
        """A stream now, in one command."""
        try:
            reply = self.ask(name, "XINFO", "STREAM", name)
        except StreamMissing:
            return StreamLook()
        found = dict(zip(reply[::2], reply[1::2], strict=True))
        first = found[b"first-entry"]
        return StreamLook(
            length=found[b"length"],
            added=found[b"entries-added"],
            last_generated=parse_entry_id(found[b"last-generated-id"]),
            max_deleted=parse_entry_id(found[b"max-deleted-entry-id"]),
            first=parse_entry_id(first[0]) if first else None,
            exists=True,
        )

    def groups(self, stream: str) -> Mapping[str, GroupLook]:
        """Every group of a stream now; none when there is no such stream."""
        try:
            replies = self.ask(stream, "XINFO", "GROUPS", stream)
        except StreamMissing:
            return {}
        named = [dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies]
        return {
            one[b"name"].decode("utf-8", "backslashreplace"): GroupLook(
                position=parse_entry_id(one[b"last-delivered-id"]),
                pending=one[b"pending"],
                entries_read=one.get(b"entries-read"),
            )
            for one in named
        }

    def find_streams(self, pattern: str) -> tuple[str, ...]:
        """Streams whose name fits a glob."""
        given = {**self.place.options, "streamPattern": pattern, "missingStream": "empty"}
        return find_streams(self._door, parse_read_options(given, Use.READ))

    def _open(self, place: Place) -> Door:
        return Door(self.options(place).server)

    def options(self, place: Place, **given: str) -> ReadOptions:
        """Checked options of a read of any stream."""
        return parse_read_options({**place.options, "stream": "-", **given}, Use.READ)

    def _is_cluster(self) -> bool:
        if self.place.options.get("topology"):
            return False
        reply = self.ask("-", "INFO", "cluster")
        return b"cluster_enabled:1" in reply
