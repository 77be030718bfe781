"""What consumers hold of a group, and what became of it according to the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.pending import BODY
from benchmarks.raw_redis import Part, RawRedis, pack
from pelops.domain.entry_id import parse_entry_id
from pelops.domain.naming import GroupKeys
from pelops.domain.records.ledger import LedgerKind, parse_ledger_event

DRAIN = "bystander-of-the-benchmark"
EVERY_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One entry that was copied to the end."""

    consumer: str  # whose it was
    entry_id: str
    at_ms: int  # when its copy could be read, by the server's clock


class Holdings:
    """Gives entries to consumers, and watches them go. For one thread."""

    def __init__(self, raw: RawRedis, keys: GroupKeys) -> None:
        self._raw = raw
        self._keys = keys
        self._read_to = "-"  # of the ledger

    def give(self, consumer: str, count: int) -> list[str]:
        """Deliver new entries to a consumer; the IDs of what it was given."""
        add = pack("XADD", self._keys.stream, "*", *BODY)
        self._raw.pipeline([add] * count)
        return self._read(consumer, count)

    def drain(self) -> int:
        """Read all that waits to be delivered, and have no backlog; answers how many."""
        drained = 0
        while found := self._read(DRAIN, 1000, "NOACK"):
            drained += len(found)
        return drained

    def held(self, consumer: str, ids: Sequence[str] = ()) -> int:
        """How many entries a consumer owns; with `ids` only those from the first to the last."""
        first, last = (ids[0], ids[-1]) if ids else ("-", "+")
        stream, group = self._keys.stream, self._keys.group
        limit = len(ids) or 1_000_000
        return len(self._raw.call("XPENDING", stream, group, first, last, limit, consumer))

    def await_release(self, consumer: str, ids: Sequence[str], timeout_s: float) -> bool:
        """Wait until a consumer owns none of these; False after `timeout_s`."""
        until = time.monotonic() + timeout_s
        stream, group = self._keys.stream, self._keys.group
        while self._raw.call("XPENDING", stream, group, ids[0], ids[-1], 1, consumer):
            if time.monotonic() > until:
                return False
            time.sleep(EVERY_S)
        return True

    def moves(self) -> list[Move]:
        """What the operator moved since this was last asked."""
        start = "-" if self._read_to == "-" else f"({self._read_to}"
        found = self._raw.call("XRANGE", self._keys.ledger, start, "+")
        if found:
            self._read_to = found[-1][0].decode()
        return [move for entry_id, pairs in found for move in _moves_of(entry_id, pairs)]

    def _read(self, consumer: str, count: int, *options: str) -> list[str]:
        who: tuple[Part, ...] = ("GROUP", self._keys.group, consumer, "COUNT", count, *options)
        answer = self._raw.call("XREADGROUP", *who, "STREAMS", self._keys.stream, ">")
        return [entry[0].decode() for entry in answer[0][1]] if answer else []


def _moves_of(entry_id: bytes, pairs: Sequence[bytes]) -> Iterator[Move]:
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    event = parse_ledger_event(parse_entry_id(entry_id), fields)
    if event.kind != LedgerKind.REQUEUED:
        return
    for entry in event.entries:
        if entry.new_id is not None:
            yield Move(
                consumer=event.details["consumer"],
                entry_id=str(entry.entry_id),
                at_ms=entry.new_id.ms,
            )
